"""The floating-point operations of a program, by the module that performs them."""

from __future__ import annotations

import collections

from jax.extend.core import Jaxpr

from hkx.jaxprs.cost import count_flops, times
from hkx.jaxprs.dependence import needed
from hkx.jaxprs.traces import inner_programs
from hkx.tools.trace import call_numbers


def flops(program: Jaxpr, outer: tuple[int, ...] = (), inside: bool = False) -> collections.Counter[int | None]:
    """The operations of each call of a module's method, including those that it calls; `None` is the whole program.

    Of the branches of a conditional, only the one with the most operations counts towards the calls around it.
    Operations in a loop or branch count only if a result depends on them, because the body may have been traced twice.
    """
    total: collections.Counter[int | None] = collections.Counter({None: 0})
    for eqn in needed(program.eqns, program.outvars) if inside else program.eqns:
        numbers = call_numbers(eqn, outer)
        inner = inner_programs(eqn)
        if inner:
            counts = [flops(p, numbers, inside=True) for p in inner]
            if eqn.primitive.name == "cond":
                most = max(counts, key=lambda c: c[None])
                for count in counts:
                    count.update({n: most[n] - count[n] for n in (None, *numbers)})
                    most = collections.Counter()
            for count in counts:
                total.update({number: n * times(eqn) for number, n in count.items()})
        elif (own := count_flops(eqn)) > 0:
            total.update(dict.fromkeys((None, *numbers), own))
    return total
