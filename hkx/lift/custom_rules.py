"""`custom_vjp` and `custom_jvp`: functions with custom derivatives."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Collection, Sequence
from typing import Any, Generic, ParamSpec, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun

from hkx.base.entries import Tree, merged, selected
from hkx.base.trees import own_tree
from hkx.core.frame import Phase, current_frame, local
from hkx.errors.core import NotInTransformError
from hkx.errors.lift import MissingRuleError
from hkx.jaxprs.traces import without_trace
from hkx.lift.checks import checked_positions
from hkx.lift.crossing import (
    Carry,
    Crossing,
    changes,
    changes_of_transform,
    check_carried,
    creating,
    fill_keys,
    snapshot,
)

P = ParamSpec("P")
R = TypeVar("R")


_AFTERWARDS = (
    "This is in the `bwd` of an `hkx.custom_vjp`, which runs after the transformed function has ended. Call modules in "
    "`fwd`, and pass what `bwd` needs from them in the residuals: a value, or the pullback that `jax.vjp` returns."
)


class _Custom(Generic[P, R]):
    """The base of `custom_vjp` and `custom_jvp`.

    Attributes:
      kind: the name of the subclass.
      setter: the method with which the user sets the rules, for the error.
    """

    kind = setter = ""

    def __init__(self, fun: Callable[P, R], nondiff_argnums: Sequence[int] = ()):
        functools.update_wrapper(self, fun)
        self._fun = fun
        self._nondiff = checked_positions(nondiff_argnums, "nondiff_argnums")
        self._given: tuple[Callable[..., Any], ...] = ()

    def _rules(self) -> tuple[Callable[..., Any], ...]:
        if not self._given:
            raise MissingRuleError(self.kind, self.setter)
        return self._given

    def _bound(self, args: Any, kwargs: Any) -> tuple[Any, ...]:
        """All arguments in order, including those passed by name."""
        if not kwargs:
            return args
        bound = inspect.signature(self._fun).bind(*args, **kwargs)
        bound.apply_defaults()
        return bound.args

    def _with_fixed(
        self, args: tuple[Any, ...]
    ) -> tuple[Callable[..., tuple[Any, ...]], tuple[Any, ...], tuple[Any, ...]]:
        """A function that merges the arguments again; the arguments to differentiate by; the fixed ones."""
        fixed = {n % len(args): args[n] for n in self._nondiff}
        varying = tuple(a for i, a in enumerate(args) if i not in fixed)

        def join(varying: Any) -> tuple[Any, ...]:
            rest = iter(varying)
            return tuple(fixed[i] if i in fixed else next(rest) for i in range(len(args)))

        return join, varying, tuple(fixed[n % len(args)] for n in self._nondiff)

    def _ruled(self, function: Any, rules: Any, nondiff_argnums: Sequence[int] = ()) -> Any:
        """The corresponding JAX object, with its rules."""
        raise NotImplementedError

    def _rule(self, parts: _Parts, join: Any, fixed: Any) -> Callable[..., Any]:
        """The function of operands and varying arguments, with its derivative rules."""
        raise NotImplementedError

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        if not local.frames:
            return self._ruled(self._fun, self._rules(), self._nondiff)(*args, **kwargs)
        name = f"hkx.{self.kind}"
        frame = current_frame(name)
        bound = self._bound(args, kwargs)
        if not all(-len(bound) <= n < len(bound) for n in self._nondiff):
            raise ValueError(
                f"`nondiff_argnums` of `{name}` are {self._nondiff}, and it is given {len(bound)} arguments."
            )
        numbers = {n % len(bound) for n in self._nondiff}
        crossing: Crossing[..., Any] = Crossing(self._fun, name, as_given=numbers)
        if creating(frame):
            return crossing.inline(*bound)
        fill_keys(frame)
        before = snapshot(frame)
        join, varying, fixed = self._with_fixed(bound)
        parts = _Parts(crossing, name, numbers, before, join, varying)
        out, moving = self._rule(parts, join, fixed)(parts.operands, *varying)
        crossing.finish(changes_of_transform(before, without_trace(moving)))
        return out


class _Parts:
    """The function and its rules, with names counted from the same numbers. They do not keep the running frame alive.

    JAX requires everything to differentiate by as an operand, including parameters. So the function is traced once, and
    only the parameters and states that it reads become operands. With all of them, the operands of n such functions
    would grow as n².
    """

    def __init__(
        self, crossing: Crossing[..., Any], name: str, fixed: Collection[int], before: Carry, join: Any, varying: Any
    ):
        self._name = name
        self._fixed = fixed
        self._before = before
        self._sets: Tree = {}  # the states that the function changes

        def run(*varying: Any) -> Any:
            out, after = self._run(crossing, before, join(varying))
            self._sets = changes(before, after).state
            check_carried(self._sets)
            return out, self._moving(after)

        self._program, self._shapes = jax.make_jaxpr(run, return_shape=True)(*varying)
        read = set(map(id, self._program.consts))
        params, state = (selected(tree, lambda b, n, value: _holds(value, read)) for tree in before[:2])
        self.operands = Carry(params, state, {}, before.rng)
        self._places = {id(leaf): i for i, leaf in enumerate(jax.tree.leaves(self.operands))}

    def rule(self, rule: Any, fixed_first: bool = False) -> Crossing[..., Any]:
        """A rule; with `fixed_first`, the fixed arguments come first."""
        return Crossing(rule, self._name, as_given=range(len(self._fixed)) if fixed_first else self._fixed)

    def function(self, operands: Carry, *varying: Any) -> tuple[Any, Any]:
        """The result of the function, and the state and keys afterwards."""
        given = jax.tree.leaves(operands)
        places = [self._places.get(id(const)) for const in self._program.consts]
        consts = [c if i is None else given[i] for c, i in zip(self._program.consts, places, strict=True)]
        program = jaxpr_as_fun(ClosedJaxpr(self._program.jaxpr, consts))
        return jax.tree.unflatten(jax.tree.structure(self._shapes), program(*jax.tree.leaves(varying)))

    def call(self, rule: Crossing[..., Any], operands: Carry, args: Any) -> tuple[Any, Any]:
        """The result of a rule, and the state and keys afterwards."""
        params, state = (merged(held, given) for held, given in zip(self._before[:2], operands[:2], strict=True))
        out, after = self._run(rule, self._before._replace(params=params, state=state, rng=operands.rng), args)
        return out, self._moving(after)

    def _run(self, crossing: Crossing[..., Any], carry: Carry, args: Any) -> tuple[Any, Carry]:
        out, after = crossing.run(carry, args, phase=Phase.CREATED, full_keys=True)
        after.captured.refuse("a function with a custom derivative")
        return out, after

    def _moving(self, after: Carry) -> tuple[Tree, Any]:
        return selected(after.state, lambda b, n, value: n in self._sets.get(b, {})), after.rng


def _holds(value: Any, ids: Collection[int]) -> bool:
    return any(id(leaf) in ids for leaf in jax.tree.leaves(value))


class custom_vjp(_Custom[P, R]):
    """`jax.custom_vjp` of a function that may create modules, ask for parameters, set state and draw keys.

    The rule defines the gradient with respect to the arguments. Parameters that the function asks for keep their
    ordinary gradient.

    Args:
      fun: the function.
      nondiff_argnums: the positions of arguments that are not differentiated, and need not be arrays; `bwd` gets them
        first.

    Returns:
      A function like `fun`. Set its rule with `defvjp(fwd, bwd)` before you call it: `fwd(*args)` returns
      `(out, residuals)`, and `bwd(residuals, out_cotangent)` returns a tuple with one cotangent for each argument.
      `fun` and `fwd` may call modules; `bwd` runs after the transformed function has returned, and gets the residuals.

    Raises:
      MissingRuleError: when called, if there is no rule.

    During `init`, the function is called without the rule: a gradient that is computed inside it is then its ordinary
    gradient.

    Outside of a transformed function it is `jax.custom_vjp`.

    Example:

      >>> import hkx, jax, jax.numpy as jnp
      >>> @hkx.custom_vjp
      ... def clipped(x):
      ...     return hkx.Linear(1, w_init=jnp.ones)(x)
      >>> clipped.defvjp(lambda x: (clipped(x), x.shape), lambda shape, g: (jnp.full(shape, 0.5),))
      >>> model = hkx.transform(lambda x: clipped(x).sum())
      >>> params = model.init(jax.random.key(0), jnp.ones(2))
      >>> print(jax.grad(model.apply, argnums=2)(params, None, jnp.ones(2)))
      [0.5 0.5]
    """

    kind, setter = "custom_vjp", "defvjp(fwd, bwd)"

    def defvjp(self, fwd: Callable[..., tuple[Any, Any]], bwd: Callable[..., tuple[Any, ...]]) -> None:
        """Sets the rule."""
        self._given = fwd, bwd

    def _ruled(self, function: Any, rules: Any, nondiff_argnums: Sequence[int] = ()) -> Any:
        custom = jax.custom_vjp(function, nondiff_argnums=tuple(nondiff_argnums))
        custom.defvjp(*rules)
        return custom

    def _rule(self, parts: _Parts, join: Any, fixed: Any) -> Callable[..., Any]:
        user_fwd, user_bwd = self._rules()
        of_fwd, function = parts.rule(user_fwd), parts.function

        def fwd(carry: Carry, *varying: Any) -> Any:
            (out, residuals), moving = parts.call(of_fwd, carry, join(varying))
            _, pull = jax.vjp(lambda p: function(carry._replace(params=p), *varying)[0], carry.params)
            return (out, moving), (residuals, pull)

        def bwd(kept: Any, cotangents: Any) -> Any:
            residuals, pull = kept
            try:
                by_arguments = user_bwd(*fixed, residuals, own_tree(cotangents[0]))
            except NotInTransformError as error:
                error.add_note(_AFTERWARDS)
                raise
            (by_params,) = pull(cotangents[0])
            return Carry(by_params, None, None, None), *by_arguments  # type: ignore[arg-type]

        return self._ruled(function, (fwd, bwd))


class custom_jvp(_Custom[P, R]):
    """`jax.custom_jvp` of a function that may create modules, ask for parameters, set state and draw keys.

    The rule defines the derivative with respect to the arguments. Parameters that the function asks for keep their
    ordinary derivative.

    Args:
      fun: the function.
      nondiff_argnums: the positions of arguments that are not differentiated, and need not be arrays; the rule gets
        them first.

    Returns:
      A function like `fun`. Set its rule with `defjvp(rule)` before you call it: `rule(primals, tangents)` takes
      two tuples and returns `(out, out_tangent)`.

    Raises:
      MissingRuleError: when called, if there is no rule.

    During `init`, the function is called without the rule: a gradient that is computed inside it is then its ordinary
    gradient.

    Outside of a transformed function it is `jax.custom_jvp`.

    Example:

      >>> import hkx, jax, jax.numpy as jnp
      >>> @hkx.custom_jvp
      ... def doubled(x):
      ...     return hkx.Linear(1, w_init=jnp.ones)(x)
      >>> _ = doubled.defjvp(lambda primals, tangents: (doubled(*primals), 2 * tangents[0].sum(keepdims=True)))
      >>> model = hkx.transform(lambda x: doubled(x).sum())
      >>> params = model.init(jax.random.key(0), jnp.ones(2))
      >>> print(jax.grad(model.apply, argnums=2)(params, None, jnp.ones(2)))
      [2. 2.]
    """

    kind, setter = "custom_jvp", "defjvp(rule)"

    def defjvp(self, rule: Callable[..., tuple[Any, Any]]) -> Callable[..., tuple[Any, Any]]:
        """Sets the rule, and returns it."""
        self._given = (rule,)
        return rule

    def _ruled(self, function: Any, rules: Any, nondiff_argnums: Sequence[int] = ()) -> Any:
        custom = jax.custom_jvp(function, nondiff_argnums=tuple(nondiff_argnums))
        custom.defjvp(*rules)
        return custom

    def _rule(self, parts: _Parts, join: Any, fixed: Any) -> Callable[..., Any]:
        (user_rule,) = self._rules()
        of_rule, function = parts.rule(user_rule, fixed_first=True), parts.function

        def rule(primals: Any, tangents: Any) -> Any:
            carry, *varying = primals
            carry_dot, *dots = tangents
            (out, out_dot), moving = parts.call(of_rule, carry, (*fixed, tuple(varying), tuple(dots)))
            by_params = jax.jvp(
                lambda p: function(carry._replace(params=p), *varying)[0], (carry.params,), (carry_dot.params,)
            )[1]
            return (out, moving), (
                jax.tree.map(_sum_of_tangents, out_dot, by_params),
                jax.tree.map(_no_tangent, moving),
            )

        return self._ruled(function, (rule,))


def _no_tangent(x: Any) -> Any:
    inexact = jnp.issubdtype(jax.typeof(x).dtype, jnp.inexact)
    return jnp.zeros_like(x) if inexact else np.zeros(jnp.shape(x), jax.dtypes.float0)


def _sum_of_tangents(a: Any, b: Any) -> Any:
    return a if getattr(a, "dtype", None) == jax.dtypes.float0 else a + b
