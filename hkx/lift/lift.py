"""`lift`: the parameters of an already transformed function become part of those of the function around it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, ParamSpec, TypeVar

from hkx.arguments import checked_flag, checked_function
from hkx.base.entries import Tree, below, check_structure, under
from hkx.base.signatures import like
from hkx.base.types import MutableParams, MutableState
from hkx.core.frame import Frame, Phase, current_frame, local
from hkx.core.hooks import MethodContext, intercept_methods
from hkx.core.naming import checked_name, note_below, unique_name
from hkx.errors.lift import ClosedOverModuleError, LiftedStateError, LiftReuseError, StateUpdaterError
from hkx.lift.checks import checked_pair
from hkx.lift.crossing import Carry, absorb, creating

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S")


@contextlib.contextmanager
def lifted_under(prefix: str) -> Iterator[None]:
    """Sets the prefix that hooks see in transforms that start in the `with` block."""
    before = local.lifted_prefix
    try:
        local.lifted_prefix = (current_frame("hkx.lift").lifted_prefix or "") + prefix or None
        yield
    finally:
        local.lifted_prefix = before


def store_below(frame: Frame, prefix: str, params: Tree, state: Tree) -> None:
    """Adds parameters and sets states under a prefix. For new states, this is the initial value."""
    state = under(prefix, state)
    absorb(frame, Carry(under(prefix, params), state, state, None))


def note_all_below(frame: Frame, prefix: str) -> None:
    """Records the entries under a prefix as belonging to the modules whose methods are running."""
    for bundle in {*frame.params, *frame.state}:
        if bundle.startswith(prefix):
            note_below(frame.scopes, None, bundle)


def _own_modules_only() -> contextlib.AbstractContextManager[None]:
    """Raises an error if a module is called in the `with` block that was not created in it."""
    made: set[int] = set()

    def check(next_function: Any, args: Any, kwargs: Any, context: MethodContext) -> Any:
        if context.method_name == "__init__":
            made.add(id(context.module))
        elif id(context.module) not in made:
            raise ClosedOverModuleError(context.module.module_name)
        return next_function(*args, **kwargs)

    return intercept_methods(check)


def _lifted(
    init_fn: Callable[..., Any], prefix: str, allow_reuse: bool, *, transparent: bool = False, stateful: bool = False
) -> Any:
    """In `init`, calls the lifted `init`; in `apply`, looks up what it created."""
    name = "hkx.lift_with_state" if stateful else "hkx.lift"
    checked_function(init_fn, name, "init_fn")
    allow_reuse = checked_flag(allow_reuse, "allow_reuse", name)

    @like(init_fn, attributes=False)
    def init(*args: Any, **kwargs: Any) -> Any:
        frame = current_frame(name)
        # Also called when a loop traces its body, where it raises LiftReuseError.
        if creating(frame) or (frame.phase is Phase.RUN and not allow_reuse):
            with lifted_under(prefix), _own_modules_only() if transparent else contextlib.nullcontext():
                out = init_fn(*args, **kwargs)
            params, state = checked_pair(name, out, "a pair `(params, state)`") if stateful else (out, {})
            if isinstance(params, tuple):
                raise LiftedStateError()
            for tree in (params, state):
                check_structure(name, tree, "init_fn(…)")
            taken = () if allow_reuse else (b for b in under(prefix, params) if b in frame.params)
            for bundle in taken:
                raise LiftReuseError(bundle)
            store_below(frame, prefix, params, state)
        else:
            params, state = below(prefix, frame.params), below(prefix, frame.state)
            out = (params, state) if stateful else params
        note_all_below(frame, prefix)
        return out

    return init


_DEFAULT = "lifted"


def _prefix(name: str, function: str) -> str:
    return f"{unique_name(current_frame(f'hkx.{function}').scope, checked_name(name))}/"


def _no_prefix(function: str) -> str:
    scope = current_frame(f"hkx.{function}").scope
    unique_name(scope, _DEFAULT)  # takes the name without using it: later lifts have the same names as in dm-haiku
    return scope.prefix


def lift(init_fn: Callable[P, R], *, allow_reuse: bool = False, name: str = _DEFAULT) -> Callable[P, R | MutableParams]:
    """Makes the parameters of an already transformed function part of the running function.

    Args:
      init_fn: the `init` of the inner function, from `hkx.transform`.
      allow_reuse: whether parameters that exist under the same names are replaced.
      name: the name under which they are stored, an identifier or `hkx.force_name(…)`; it is made unique.

    Returns:
      A function of the arguments of `init_fn`. During `init` it calls `init_fn`, and stores the parameters. In `apply`
      it returns the stored parameters without calling `init_fn`. Pass them to the inner `apply`. The key argument may
      be `hkx.next_rng_key() if hkx.running_init() else None`.

    Raises:
      NotInTransformError: outside of a transformed function.
      InvalidNameError: if the name is not an identifier.
      LiftReuseError: when called, if a parameter already exists.
      LiftedStateError: when called, if the inner function has state.

    Example:

      >>> import hkx, jax, jax.numpy as jnp
      >>> inner = hkx.transform(lambda x: hkx.Linear(2)(x))
      >>> def outer(x):
      ...     params = hkx.lift(inner.init, name="inner")(hkx.next_rng_key() if hkx.running_init() else None, x)
      ...     return inner.apply(params, None, x)
      >>> list(hkx.transform(outer).init(jax.random.key(0), jnp.ones([1, 3])))
      ['inner/linear']
    """
    return _lifted(init_fn, _prefix(name, "lift"), allow_reuse)


def transparent_lift(init_fn: Callable[P, R], *, allow_reuse: bool = False) -> Callable[P, R | MutableParams]:
    """`hkx.lift` without its own name: the parameters are stored as if the running module had created them.

    The name `lifted` nevertheless counts as taken.

    Args:
      init_fn: the `init` of the inner function.
      allow_reuse: whether parameters that exist under the same names are replaced.

    Returns:
      A function of the arguments of `init_fn`, as for `hkx.lift`. In `apply` it returns all parameters that are stored
      below the running module.

    Raises:
      the same as `hkx.lift`.
      ClosedOverModuleError: when called, if the inner function uses a module that was created outside of it.

    Example:

      >>> import hkx, jax, jax.numpy as jnp
      >>> inner = hkx.transform(lambda x: hkx.Linear(2)(x))
      >>> def outer(x):
      ...     params = hkx.transparent_lift(inner.init)(hkx.next_rng_key() if hkx.running_init() else None, x)
      ...     return inner.apply(params, None, x)
      >>> list(hkx.transform(outer).init(jax.random.key(0), jnp.ones([1, 3])))
      ['linear']
    """
    return _lifted(init_fn, _no_prefix("transparent_lift"), allow_reuse, transparent=True)


class LiftWithStateUpdater:
    """Writes the state of a lifted function back into the running one: call `update` once, before that one returns.

    `hkx.lift_with_state` returns it.

    Args:
      name: the full name under which the state is stored; `""` for none.

    Example:

      >>> import hkx
      >>> def f():
      ...     hkx.LiftWithStateUpdater("inner").update({"counter": {"n": 1}})
      >>> hkx.transform_with_state(f).apply({}, {}, None)[1]
      {'inner/counter': {'n': 1}}
    """

    def __init__(self, name: str):
        self._prefix = f"{name}/" if name else ""
        self._used = False
        self._call = current_frame("hkx.LiftWithStateUpdater").exit_checks
        self._call.append(self.assert_used)

    def update(self, state: Any) -> None:
        """Sets the state of the lifted function to what its `apply` returned.

        Raises:
          StateUpdaterError: if the updater was used before, or belongs to another call of `init` or `apply`.
        """
        self.ignore_update()
        store_below(current_frame("hkx.LiftWithStateUpdater.update"), self._prefix, {}, state)

    def ignore_update(self) -> None:
        """Leaves the state unchanged.

        Raises:
          StateUpdaterError: if the updater was used before, or belongs to another call of `init` or `apply`.
        """
        if current_frame("hkx.LiftWithStateUpdater").exit_checks is not self._call:
            raise StateUpdaterError("elsewhere")
        if self._used:
            raise StateUpdaterError("twice")
        self._used = True

    def assert_used(self) -> None:
        """Checks that `update` or `ignore_update` was called.

        Raises:
          StateUpdaterError: if neither was called.
        """
        if not self._used:
            raise StateUpdaterError("never")


def lift_with_state(
    init_fn: Callable[P, tuple[R, S]], *, allow_reuse: bool = False, name: str = _DEFAULT
) -> tuple[Callable[P, tuple[R | MutableParams, S | MutableState]], LiftWithStateUpdater]:
    """Makes the parameters and state of an already transformed function part of the running function.

    Args:
      init_fn: the `init` of the inner function, from `hkx.transform_with_state`.
      allow_reuse: whether parameters that exist under the same names are replaced.
      name: the name under which they are stored, an identifier or `hkx.force_name(…)`; it is made unique.

    Returns:
      A function of the arguments of `init_fn` that returns `(params, state)`, and a `LiftWithStateUpdater` whose
      `update(state)` takes the state that the inner `apply` returned.

    Raises:
      NotInTransformError: outside of a transformed function.
      InvalidNameError: if the name is not an identifier.
      LiftReuseError: when called, if a parameter already exists.
      StateUpdaterError: when the running function returns, if the updater was not used.

    Example:

      >>> import hkx, jax, jax.numpy as jnp
      >>> inner = hkx.transform_with_state(lambda x: hkx.Linear(2)(x))
      >>> def outer(x):
      ...     lifted, updater = hkx.lift_with_state(inner.init, name="inner")
      ...     params, state = lifted(hkx.next_rng_key() if hkx.running_init() else None, x)
      ...     y, state = inner.apply(params, state, None, x)
      ...     updater.update(state)
      ...     return y
      >>> params, state = hkx.transform_with_state(outer).init(jax.random.key(0), jnp.ones([1, 3]))
      >>> list(params)
      ['inner/linear']
    """
    prefix = _prefix(name, "lift_with_state")
    updater = LiftWithStateUpdater(prefix.removesuffix("/"))
    return _lifted(init_fn, prefix, allow_reuse, stateful=True), updater


def transparent_lift_with_state(
    init_fn: Callable[P, tuple[R, S]], *, allow_reuse: bool = False
) -> tuple[Callable[P, tuple[R | MutableParams, S | MutableState]], LiftWithStateUpdater]:
    """`hkx.lift_with_state` without its own name.

    Args:
      init_fn: the `init` of the inner function.
      allow_reuse: whether parameters that exist under the same names are replaced.

    Returns:
      The same as `hkx.lift_with_state`.

    Raises:
      the same as `hkx.lift_with_state`.

    Example:

      >>> import hkx, jax, jax.numpy as jnp
      >>> inner = hkx.transform_with_state(lambda x: hkx.Linear(2)(x))
      >>> def outer(x):
      ...     lifted, updater = hkx.transparent_lift_with_state(inner.init)
      ...     params, state = lifted(hkx.next_rng_key() if hkx.running_init() else None, x)
      ...     updater.ignore_update()
      ...     return inner.apply(params, state, None, x)[0]
      >>> params, state = hkx.transform_with_state(outer).init(jax.random.key(0), jnp.ones([1, 3]))
      >>> list(params)
      ['linear']
    """
    prefix = _no_prefix("transparent_lift_with_state")
    updater = LiftWithStateUpdater(prefix.removesuffix("/"))
    return _lifted(init_fn, prefix, allow_reuse, transparent=True, stateful=True), updater
