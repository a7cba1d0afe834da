"""`purify`: allows any JAX transform around a function that uses parameters, state and keys."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Generic, ParamSpec, TypeVar

from hkx.base.entries import copied
from hkx.base.signatures import pair_with, sign, with_leading
from hkx.core.frame import Phase, current_frame
from hkx.lift.crossing import Carry, Crossing, changes, creating, each, fill_keys, snapshot

P = ParamSpec("P")
R = TypeVar("R")
_NAME = "hkx.purify"


class Pure(Generic[P, R]):
    """A function of a carry: `out, carry = pure(carry, *args, **kwargs)`. Made by `hkx.purify`.

    Modules created in it have the names that they would have had where `purify` was called, no matter how often JAX
    calls the function.

    Example:

      >>> import hkx, jax, jax.numpy as jnp
      >>> def f(x):
      ...     pure = hkx.purify(lambda x: jnp.sum(hkx.Linear(1, w_init=jnp.ones)(x)))
      ...     carry = pure.start(x)  # made once; then a function like any other to JAX
      ...     return jax.grad(lambda x: pure(carry, x)[0])(x)
      >>> model = hkx.without_apply_rng(hkx.transform(f))
      >>> x = jnp.ones([2])
      >>> print(model.apply(model.init(jax.random.key(0), x), x))
      [1. 1.]
    """

    def __init__(self, fun: Callable[P, R]):
        functools.update_wrapper(self, fun, assigned=("__module__", "__name__", "__qualname__", "__doc__"), updated=())
        self._crossing: Crossing[P, R] = Crossing(fun, _NAME)

    def __call__(self, carry: Carry, /, *args: P.args, **kwargs: P.kwargs) -> tuple[R, Carry]:
        out, carry = self._crossing.run(_checked(carry), args, kwargs, full_keys=True)
        carry.captured.hand_on()
        return out, _of_the_user(carry)

    def start(self, *args: P.args, **kwargs: P.kwargs) -> Carry:
        """Returns the first carry. During `init`, it first visits the function, to create what it needs.

        Args:
          *args: arguments like those with which the function will be called; not used in `apply`.
          **kwargs: likewise.
        """
        frame = current_frame(_NAME)
        if creating(frame):
            self._crossing.visit(args, kwargs)
            self._crossing.phase = Phase.CREATED
        fill_keys(frame)
        return _of_the_user(snapshot(frame))

    def finish(self, carry: Carry) -> None:
        """Writes the state and keys of the last carry back into the running function."""
        self._crossing.finish(changes(snapshot(current_frame(_NAME)), _checked(carry)))


def _checked(carry: Any) -> Carry:
    if not isinstance(carry, Carry):
        raise TypeError(
            f"The first argument of what `hkx.purify` returns, and of its `finish`, is a carry, got {carry!r}. "
            "The first one is `pure.start(...)`, and `out, carry = pure(carry, ...)` returns the next."
        )
    return carry


def _of_the_user(carry: Carry) -> Carry:
    """A copy of a carry that the user may change in place."""
    return each(copied, carry)._replace(rng=carry.rng)


def purify(fun: Callable[P, R]) -> Pure[P, R]:
    """Turns a function that uses parameters, state and keys into a pure function that carries them explicitly.

    With it you can use any transform of pure functions inside a transformed function: a solver, a custom loop, a
    sharded map. There are three steps: `carry = pure.start(*args)`, then `out, carry = pure(carry, *args)` inside the
    transform, any number of times, then `pure.finish(carry)`. Omit the last step to discard changes of state and keys.

    Args:
      fun: a function of any arguments, which creates modules, asks for parameters, sets state or draws keys.

    Returns:
      A `Pure`: a function of a `Carry` and the arguments of `fun`, which returns the result of `fun` and the new
      carry. A carry is a named tuple of arrays in dicts: `params`, `state`, `initial_state` and `rng`.

    Raises:
      NotInTransformError: outside of a transformed function.

    Example:

      >>> import hkx, jax, jax.numpy as jnp
      >>> def f(x):
      ...     pure = hkx.purify(lambda y: y + 0.1 * hkx.nets.MLP([4, 2])(y))
      ...     step = lambda _, carried: pure(carried[1], carried[0])
      ...     y, carry = jax.lax.fori_loop(0, 5, step, (x, pure.start(x)))
      ...     pure.finish(carry)
      ...     return y
      >>> model = hkx.transform(f)
      >>> params = model.init(jax.random.key(0), jnp.ones([1, 2]))
      >>> sorted(params), model.apply(params, None, jnp.ones([1, 2])).shape
      (['mlp/~/linear_0', 'mlp/~/linear_1'], (1, 2))
    """
    pure = Pure(fun)
    sign(pure, fun, with_leading({"carry": Carry}), pair_with(Carry))
    return pure
