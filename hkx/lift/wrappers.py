"""JAX transforms that run a function once: grad, value_and_grad, jvp, vjp, linearize, remat, jit, eval_shape.

Each passes the function's changes of parameters, state and keys out as an additional output.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Collection, Sequence
from typing import Any, ParamSpec, TypeVar

import jax
import jax.core
import numpy as np

from hkx.arguments import checked_flag, checked_function
from hkx.base.signatures import like, pair_with, second_of_pair, static_arguments
from hkx.core.frame import current_frame, local
from hkx.errors.arguments import InvalidSizeError
from hkx.lift.checks import check_arguments, checked_pair, checked_positions, is_value
from hkx.lift.crossing import Carry, Crossing, creating, snapshot
from hkx.lift.typed import EvalShape, Grad, Jit, Jvp, Linearize, ValueAndGrad, Vjp, typed

P = ParamSpec("P")
R = TypeVar("R")
Axes = int | Sequence[int]


def _differentiated(
    transform: Callable[..., tuple[Any, ...]], fun: Any, name: str, has_aux: bool, names: bool = True
) -> tuple[Any, ...]:
    """Calls a transform with auxiliary output on `fun`, and passes the changes that `fun` makes out in this output.

    `transform` must return the auxiliary output of its function last. With `has_aux`, the result ends with the user's
    auxiliary output.
    """
    crossing: Crossing[..., Any] = Crossing(fun, name, names=names, given=((), {}))  # it traces no known values
    before = snapshot(current_frame(name))

    def function(*args: Any, **kwargs: Any) -> Any:
        out, new = crossing.call(before, args, kwargs, any_state=True)  # auxiliary outputs need not be arrays
        out, aux = checked_pair(name, out, "a pair `(value, aux)` with `has_aux=True`") if has_aux else (out, None)
        return out, (aux, new)

    *out, (aux, new) = transform(function)
    crossing.finish(new)
    return (*out, aux) if has_aux else tuple(out)


def _value_and_gradient(name: str, fun: Callable[..., Any], has_aux: bool, **options: Any) -> Any:
    """The implementation of `value_and_grad` and `grad`, for the public function `name`."""
    checked_function(fun, name, "fun")
    has_aux = checked_flag(has_aux, "has_aux", name)
    if not checked_positions(options["argnums"], "argnums"):
        raise InvalidSizeError("argnums", options["argnums"], None)
    outside = jax.value_and_grad(fun, has_aux=has_aux, **options)

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        if not local.frames:
            return outside(*args, **kwargs)

        def transform(function: Any) -> tuple[Any, Any, Any]:
            (value, aux), gradient = jax.value_and_grad(function, has_aux=True, **options)(*args, **kwargs)
            return value, gradient, aux

        value, gradient, *aux = _differentiated(transform, fun, name, has_aux, names=False)
        return ((value, *aux) if has_aux else value), gradient

    return wrapped


@typed(ValueAndGrad)
def value_and_grad(
    fun: Callable[P, Any],
    argnums: Axes = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
    *,
    allow_int: bool = False,
) -> Callable[P, Any]:
    """`jax.value_and_grad` of a function that may create modules, ask for parameters, set state and draw keys.

    Args:
      fun: a function that returns a scalar, or with `has_aux` a pair of a scalar and anything else.
      argnums: the argument, or arguments, to differentiate with respect to.
      has_aux: whether `fun` returns a pair.
      holomorphic: whether `fun` is a holomorphic function of complex numbers.
      allow_int: whether arguments may be integers; their gradient is of dtype `float0`.

    Returns:
      A function of the arguments of `fun` that returns `(value, gradient)`, or `((value, aux), gradient)`. The
      gradient is with respect to the arguments; parameters are held constant.

    Outside of a transformed function it is `jax.value_and_grad`.

    Example:

      >>> import hkx, jax, jax.numpy as jnp
      >>> def energy(x):
      ...     return hkx.Linear(1, w_init=jnp.ones)(x).sum()
      >>> model = hkx.transform(lambda x: hkx.value_and_grad(energy)(x))
      >>> model.apply(model.init(jax.random.key(0), jnp.ones(2)), None, jnp.ones(2))
      (Array(2., dtype=float32), Array([1., 1.], dtype=float32))
    """
    function = _value_and_gradient(
        "hkx.value_and_grad", fun, has_aux, argnums=argnums, holomorphic=holomorphic, allow_int=allow_int
    )
    return like(fun, result=pair_with(Any))(function)


@typed(Grad)
def grad(
    fun: Callable[P, Any],
    argnums: Axes = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
    *,
    allow_int: bool = False,
) -> Callable[P, Any]:
    """`jax.grad` of a function that may create modules, ask for parameters, set state and draw keys.

    Args:
      fun: a function that returns a scalar, or with `has_aux` a pair of a scalar and anything else.
      argnums: the argument, or arguments, to differentiate with respect to.
      has_aux: whether `fun` returns a pair.
      holomorphic: whether `fun` is a holomorphic function of complex numbers.
      allow_int: whether arguments may be integers; their gradient is of dtype `float0`.

    Returns:
      A function of the arguments of `fun` that returns the gradient, or `(gradient, aux)`.

    Outside of a transformed function it is `jax.grad`.

    Example:

      >>> import hkx, jax, jax.numpy as jnp
      >>> def energy(x):
      ...     return hkx.Linear(1, w_init=jnp.ones)(x).sum()
      >>> model = hkx.transform(lambda x: hkx.grad(energy)(x))
      >>> print(model.apply(model.init(jax.random.key(0), jnp.ones(2)), None, jnp.ones(2)))
      [1. 1.]
    """
    function = _value_and_gradient(
        "hkx.grad", fun, has_aux, argnums=argnums, holomorphic=holomorphic, allow_int=allow_int
    )

    @like(fun, result=lambda out: tuple[Any, second_of_pair(out)] if has_aux else Any)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> Any:
        value, gradient = function(*args, **kwargs)
        return (gradient, value[1]) if has_aux else gradient

    return wrapped


@typed(Jvp)
def jvp(fun: Callable[..., Any], primals: Any, tangents: Any, has_aux: bool = False) -> tuple[Any, ...]:
    """`jax.jvp` of a function that may create modules, ask for parameters, set state and draw keys.

    Computes `y = f(x)` and `y' = (∂f/∂x) x'`, with the parameters held constant.

    Args:
      fun: a function of arrays, or trees of them.
      primals: the tuple of arguments x.
      tangents: the tuple of their tangents x', like `primals`.
      has_aux: whether `fun` returns a pair; only its first element is differentiated.

    Returns:
      `(y, y')`, or `(y, y', aux)`.

    Outside of a transformed function it is `jax.jvp`.

    Example:

      >>> import hkx, jax, jax.numpy as jnp
      >>> def f(x):
      ...     return hkx.jvp(hkx.Linear(1, w_init=jnp.ones), (x,), (2 * x,))
      >>> model = hkx.transform(f)
      >>> model.apply(model.init(jax.random.key(0), jnp.ones(2)), None, jnp.ones(2))
      (Array([2.], dtype=float32), Array([4.], dtype=float32))
    """
    if not local.frames:
        return jax.jvp(fun, primals, tangents, has_aux=has_aux)
    return _differentiated(lambda f: jax.jvp(f, primals, tangents, has_aux=True), fun, "hkx.jvp", has_aux)


@typed(Vjp)
def vjp(fun: Callable[..., Any], *primals: Any, has_aux: bool = False) -> tuple[Any, ...]:
    """`jax.vjp` of a function that may create modules, ask for parameters, set state and draw keys.

    Computes `y = f(x)`, and returns the function of `y'` that computes `x' = (∂f/∂x)ᵀ y'`, with the parameters held
    constant.

    Args:
      fun: a function of arrays, or trees of them.
      *primals: its arguments x.
      has_aux: whether `fun` returns a pair; only its first element is differentiated.

    Returns:
      `(y, function)`, or `(y, function, aux)`; the function returns a tuple with one cotangent for each argument.

    Outside of a transformed function it is `jax.vjp`.

    Example:

      >>> import hkx, jax, jax.numpy as jnp
      >>> def f(x):
      ...     y, pull = hkx.vjp(hkx.Linear(1, w_init=jnp.ones), x)
      ...     return pull(y)[0]
      >>> model = hkx.transform(f)
      >>> print(model.apply(model.init(jax.random.key(0), jnp.ones(2)), None, jnp.ones(2)))
      [2. 2.]
    """
    if not local.frames:
        return jax.vjp(fun, *primals, has_aux=has_aux)
    return _differentiated(lambda f: jax.vjp(f, *primals, has_aux=True), fun, "hkx.vjp", has_aux)


@typed(Linearize)
def linearize(fun: Callable[..., Any], *primals: Any, has_aux: bool = False) -> tuple[Any, ...]:
    """`jax.linearize` of a function that may create modules, ask for parameters, set state and draw keys.

    Computes `y = f(x)`, and returns the function of `x'` that computes `y' = (∂f/∂x) x'`, with the parameters held
    constant.

    Args:
      fun: a function of arrays, or trees of them.
      *primals: its arguments x.
      has_aux: whether `fun` returns a pair; only its first element is differentiated.

    Returns:
      `(y, function)`, or `(y, function, aux)`.

    Outside of a transformed function it is `jax.linearize`.

    Example:

      >>> import hkx, jax, jax.numpy as jnp
      >>> def f(x):
      ...     y, push = hkx.linearize(hkx.Linear(1, w_init=jnp.ones), x)
      ...     return push(3 * x)
      >>> model = hkx.transform(f)
      >>> print(model.apply(model.init(jax.random.key(0), jnp.ones(2)), None, jnp.ones(2)))
      [6.]
    """
    if not local.frames:
        return jax.linearize(fun, *primals, has_aux=has_aux)
    return _differentiated(lambda f: jax.linearize(f, *primals, has_aux=True), fun, "hkx.linearize", has_aux)


@typed(EvalShape)
def eval_shape(fun: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """`jax.eval_shape` of a function that may create modules, ask for parameters, set state and draw keys.

    Args:
      fun: the function. Its changes to parameters, state and keys are discarded: during `init` it creates nothing.
      *args: its arguments, or `jax.ShapeDtypeStruct` instead of arrays.
      **kwargs: likewise.

    Returns:
      The result of `fun` with `jax.ShapeDtypeStruct` instead of arrays.

    Outside of a transformed function it is `jax.eval_shape`.

    Example:

      >>> import hkx, jax.numpy as jnp
      >>> def f(x):
      ...     return hkx.eval_shape(lambda x: hkx.Linear(3)(x), x).shape
      >>> hkx.transform(f).init(0, jnp.ones(2))
      {}
    """
    if not local.frames:
        return jax.eval_shape(fun, *args, **kwargs)
    crossing: Crossing[..., Any] = Crossing(fun, "hkx.eval_shape")
    before = snapshot(current_frame("hkx.eval_shape"))
    return jax.eval_shape(lambda *a, **k: crossing.run(before, a, k)[0], *args, **kwargs)


def remat(
    fun: Callable[P, R],
    *,
    prevent_cse: bool = True,
    policy: Callable[..., bool] | None = None,
    static_argnums: int | Sequence[int] = (),
    concrete: Any = False,
) -> Callable[P, R]:
    """`jax.checkpoint` of a function that may create modules, ask for parameters, set state and draw keys.

    The values inside the function are computed again for the gradient, instead of being stored in memory.

    Args:
      fun: the function.
      prevent_cse: whether to stop the compiler from undoing this; not needed inside `scan`.
      policy: which values to store, from `jax.checkpoint_policies`.
      static_argnums: arguments that are not arrays.
      concrete: no longer used; must be False.

    Returns:
      A function like `fun`.

    Raises:
      ValueError: if `concrete` is true.

    Outside of a transformed function it is `jax.checkpoint`.

    Example:

      >>> import hkx, jax, jax.numpy as jnp
      >>> model = hkx.transform(lambda x: hkx.remat(hkx.nets.MLP([8, 1]))(x).sum())
      >>> params = model.init(jax.random.key(0), jnp.ones(2))
      >>> jax.grad(model.apply)(params, None, jnp.ones(2))["mlp/~/linear_1"]["b"]
      Array([1.], dtype=float32)
    """
    if concrete is True:
        raise ValueError("`concrete=True` is no longer possible; mark arguments that are not arrays `static_argnums`.")
    checked_function(fun, "hkx.remat", "fun")
    options: dict[str, Any] = {"prevent_cse": prevent_cse, "policy": policy}
    nums = checked_positions(static_argnums, "static_argnums")

    @functools.wraps(fun)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> Any:
        if not local.frames:  # created here, because cloudpickle cannot pickle the result of `jax.checkpoint`
            return jax.checkpoint(fun, static_argnums=nums, **options)(*args, **kwargs)

        def transform(crossing: Crossing[P, R], before: Carry) -> Any:
            @functools.wraps(fun, updated=())  # JAX's errors name the user's function
            def function(*args: Any, **kwargs: Any) -> tuple[Any, Carry]:
                return crossing.call(before, args, kwargs)

            return jax.checkpoint(function, static_argnums=nums, **options)(*args, **kwargs)

        return _recorded("hkx.remat", transform, fun, args, kwargs, {n % max(len(args), 1) for n in nums})

    return wrapped


checkpoint = remat


def _recorded(
    name: str, transform: Callable[..., Any], fun: Any, args: Any, kwargs: Any, static: Collection[int | str]
) -> Any:
    """Calls a function through a transform that changes how it runs, but not what it computes.

    `transform` returns the result and the changes. In `init`, the function is called without it.
    """
    check_arguments(name, fun, args, kwargs, static)
    frame, crossing = current_frame(name), Crossing[..., Any](fun, name, as_given=static, given=(args, kwargs))
    if creating(frame):
        return crossing.inline(*args, **kwargs)
    out, new = transform(crossing, snapshot(frame))
    crossing.finish(new)
    return out


@typed(Jit)
def jit(
    fun: Callable[P, R] | None = None,
    /,
    *,
    static_argnums: int | Sequence[int] | None = None,
    static_argnames: str | Sequence[str] | None = None,
    donate_argnums: int | Sequence[int] | None = None,
    inline: bool = False,
    **options: Any,
) -> Any:
    """`jax.jit` of a function that may create modules, ask for parameters, set state and draw keys.

    Usually, `jax.jit` goes around `init` and `apply`. This function makes a part of a function a separate program. It
    belongs to one run of `init` or `apply`, whose modules and names it uses. If `apply` itself is not compiled, it is
    compiled again in each run.

    Args:
      fun: the function; without it, a decorator is returned.
      static_argnums: arguments that are not arrays, by position.
      static_argnames: arguments that are not arrays, by name.
      donate_argnums: arguments whose memory may be used for the results.
      inline: whether the program is merged into the one around it.
      **options: further options of `jax.jit`, except those that depend on the number of arguments.

    Returns:
      A function like `fun`.

    Outside of a transformed function it is `jax.jit`.

    Example:

      >>> import hkx, jax, jax.numpy as jnp
      >>> def f(x):
      ...     block = hkx.jit(hkx.Linear(2))
      ...     return block(block(x))
      >>> model = hkx.transform(f)
      >>> params = model.init(jax.random.key(0), jnp.ones(2))
      >>> model.apply(params, None, jnp.ones(2)).shape
      (2,)
    """
    if static_argnames is not None:  # with None, JAX infers them from `static_argnums`
        static_argnames = (static_argnames,) if isinstance(static_argnames, str) else tuple(static_argnames)
    options.update(inline=inline, static_argnames=static_argnames)
    if fun is None:
        return functools.partial(jit, static_argnums=static_argnums, donate_argnums=donate_argnums, **options)
    checked_function(fun, "hkx.jit", "fun")
    donate_argnums = None if donate_argnums is None else checked_positions(donate_argnums, "donate_argnums")
    static_argnums = None if static_argnums is None else checked_positions(static_argnums, "static_argnums")
    outside = jax.jit(fun, static_argnums=static_argnums, donate_argnums=donate_argnums, **options)

    @functools.wraps(fun)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> Any:
        if not local.frames:
            return outside(*args, **kwargs)

        def transform(crossing: Crossing[P, R], before: Carry) -> Any:
            leaves, structure = jax.tree.flatten(before)
            arrays = {
                i: x for i, x in enumerate(leaves) if _is_concrete(x)
            }  # otherwise they would become constants of the program

            @functools.wraps(fun, updated=())
            def function(*args: Any, hkx_arrays: dict[int, Any], **kwargs: Any) -> tuple[Any, Carry]:
                held = [hkx_arrays.get(i, x) for i, x in enumerate(leaves)]
                return crossing.call(jax.tree.unflatten(structure, held), args, kwargs)

            function.__signature__ = _with_arrays(fun)  # type: ignore[attr-defined]
            program = jax.jit(function, static_argnums=static_argnums, donate_argnums=donate_argnums, **options)
            return program(*args, **kwargs, hkx_arrays=arrays)

        static = static_arguments(fun, static_argnums, static_argnames, len(args))
        return _recorded("hkx.jit", transform, fun, args, kwargs, static)

    wrapped.lower = outside.lower  # type: ignore[attr-defined]
    return wrapped


def _is_concrete(x: Any) -> bool:
    return isinstance(x, (jax.Array, np.ndarray)) and not isinstance(x, jax.core.Tracer) and is_value(x)


def _with_arrays(fun: Any) -> inspect.Signature:
    """The signature of `fun` with the argument `hkx_arrays`; `jax.jit` finds static arguments by it."""
    kinds = inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.VAR_KEYWORD
    try:
        theirs = list(inspect.signature(fun).parameters.values())
    except (TypeError, ValueError):
        theirs = [inspect.Parameter("args", kinds[0]), inspect.Parameter("kwargs", kinds[2])]
    last = 1 if theirs and theirs[-1].kind is kinds[2] else 0
    own = inspect.Parameter("hkx_arrays", kinds[1])
    return inspect.Signature([*theirs[: len(theirs) - last], own, *theirs[len(theirs) - last :]])
