"""`new_context`: a running transform without a function."""

from __future__ import annotations

from hkx.base.entries import check_mappings, copied
from hkx.base.keys import as_key
from hkx.base.types import MutableParams, MutableState, Params, PRNGKey, State
from hkx.core.frame import Frame, Phase, local
from hkx.core.rng import PRNGSequence


class Context:
    """A running transform, from `new_context`: `with` runs code in it, and the `collect_` methods read its results."""

    def __init__(self, frame: Frame):
        self._frame = frame

    def __enter__(self) -> Context:
        local.frames.append(self._frame)
        return self

    def __exit__(self, *exception: object) -> None:
        if self._frame in local.frames:  # a transform that returns leaves everything that was entered in it
            local.frames.remove(self._frame)
        if exception[:1] == (None,):
            for check in self._frame.exit_checks:
                check()

    def collect_params(self) -> MutableParams:
        """The parameters."""
        return copied(self._frame.params)  # type: ignore[return-value]

    def collect_initial_state(self) -> MutableState:
        """The initial state."""
        return copied(self._frame.initial_state)  # type: ignore[return-value]

    def collect_state(self) -> MutableState:
        """The current state."""
        return copied(self._frame.state)  # type: ignore[return-value]


def new_context(
    *, params: Params | None = None, state: State | None = None, rng: PRNGKey | PRNGSequence | None = None
) -> Context:
    """A running transform without a function: create and call modules in its `with` block.

    Args:
      params: the parameters. None creates them, as `init` does; a mapping holds all of them, as in `apply`.
      state: the state, a mapping; None is an empty one.
      rng: a typed key, a raw key, an int seed, a `PRNGSequence`, or None.

    Returns:
      A context manager with the methods `collect_params`, `collect_initial_state` and `collect_state`.

    Raises:
      InvalidParamsError: if `params` or `state` is not a mapping.
      InvalidRNGError: if `rng` is not a key.

    Example:

      >>> import hkx, jax, jax.numpy as jnp
      >>> with hkx.new_context(rng=jax.random.key(0)) as context:
      ...     y = hkx.Linear(2)(jnp.ones([1, 3]))
      >>> jax.tree.map(jnp.shape, context.collect_params())
      {'linear': {'b': (2,), 'w': (3, 2)}}
    """
    check_mappings(params, state)
    if rng is not None and not isinstance(rng, PRNGSequence):
        rng = PRNGSequence(as_key(rng, "`hkx.new_context`"))
    return Context(Frame(params or {}, state or {}, rng, phase=Phase.OPEN if params is None else Phase.CLOSED))
