"""Traces a function once to find out what it would create, and creates that without executing the rest."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

import jax
import jax.core
import jax.numpy as jnp
from jax.extend.core import Jaxpr, Literal

from hkx.jaxprs.dependence import needed_inputs, without_effects

T = TypeVar("T")


class Program(Generic[T]):
    """The computation of `create(*args)`, without its effects (`jax.debug.print` and the like).

    `create` is called once, on abstract values. Calling the program computes the tree that it returned, and only what
    that depends on, in the current trace, which may be that of a `vmap` or `scan`.
    """

    def __init__(self, create: Callable[..., T], *args: Any):
        self._structure: Any = None
        self._static: list[tuple[Any] | None] = []

        def run(*args: Any) -> list[Any]:
            leaves, self._structure = jax.tree.flatten(create(*args))
            self._static[:] = [None if isinstance(x, jax.core.Tracer) else (x,) for x in leaves]
            return [x for x in leaves if isinstance(x, jax.core.Tracer)]

        closed = jax.make_jaxpr(run)(*args)
        whole, self._consts = closed.jaxpr, closed.consts
        self._equations = without_effects(whole.eqns)
        parts = needed_inputs(self._equations, whole.outvars, effects=False)
        made = {*whole.constvars, *whole.invars}.union(*(eqn.outvars for eqn, _ in parts))
        read = [v for eqn, _ in parts for v in eqn.invars if not isinstance(v, Literal)]
        absent = list(dict.fromkeys(v for v in read if v not in made))  # no output depends on these inputs: use zeros
        self._zeros: list[Any] = [v.aval for v in absent]
        equations = [eqn for eqn, _ in parts]
        names = whole.debug_info._replace(arg_names=("",) * (len(whole.invars) + len(absent)))
        effects = set().union(*(eqn.effects for eqn in equations))
        self._jaxpr = Jaxpr(whole.constvars, [*whole.invars, *absent], whole.outvars, equations, effects, names)
        places = iter(range(len(whole.invars)))
        self._arguments = [[whole.invars[next(places)] for _ in jax.tree.leaves(arg)] for arg in args]

    def __call__(self, *args: Any) -> T:
        zeros = [jnp.zeros(aval.shape, aval.dtype) for aval in self._zeros]
        computed = iter(jax.core.eval_jaxpr(self._jaxpr, self._consts, *jax.tree.leaves(args), *zeros))
        return self._tree([static[0] if static else next(computed) for static in self._static])

    def _tree(self, leaves: list[Any]) -> T:
        return jax.tree.unflatten(self._structure, leaves)

    def uses(self, argument: int, part: Callable[[T], Any] = lambda made: made) -> bool:
        """True if `part` of the result depends on an argument, given by its position."""
        outputs = iter(self._jaxpr.outvars)
        variables = self._tree([None if static else (next(outputs),) for static in self._static])
        wanted = [v for (v,) in jax.tree.leaves(part(variables), is_leaf=lambda x: type(x) is tuple and len(x) == 1)]
        asked = {v for _, inputs in needed_inputs(self._equations, wanted, effects=False) for v in inputs}
        asked.update(v for v in wanted if not isinstance(v, Literal))
        return not asked.isdisjoint(self._arguments[argument])
