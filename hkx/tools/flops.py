"""The floating-point operations of a program, by the module that performs them."""

from __future__ import annotations

import collections

from jax.extend.core import Jaxpr

from hkx.core.cost import count_flops, times
from hkx.tools.trace import call_numbers, inner_programs


def flops(program: Jaxpr, outer: tuple[int, ...] = ()) -> collections.Counter[int | None]:
    """The operations of each call of a module's method, what it calls included; `None` stands for the whole.

    Of a condition the branch with the most operations counts.
    """
    total: collections.Counter[int | None] = collections.Counter({None: 0})
    for eqn in program.eqns:
        numbers = call_numbers(eqn, outer)
        inner = inner_programs(eqn)
        if inner:
            counts = [flops(p, numbers) for p in inner]
            chosen = [max(counts, key=lambda c: c[None])] if eqn.primitive.name == "cond" else counts
            for count in chosen:
                total.update({number: n * times(eqn) for number, n in count.items()})
        elif (own := count_flops(eqn)) > 0:
            total.update(dict.fromkeys((None, *numbers), own))
    return total
