"""What an operation costs, counted from its equation.

The count is the usual one of papers: a product of matrices `[m, k] @ [k, n]` is `2 m n k`, a convolution is twice the
size of its output times the weights that each output sees, arithmetic and elementary functions are one per element, a
sum is one per element that is summed. Moving and converting data is free, and so is arithmetic on integers.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from jax import numpy as jnp
from jax.extend.core import JaxprEqn, jaxprs_in_params

_PER_OUTPUT = """
add add_any sub mul div rem neg abs sign max min pow integer_pow sqrt rsqrt cbrt square exp exp2 log expm1 log1p
sin cos tan asin acos atan atan2 sinh cosh tanh asinh acosh atanh logistic erf erfc erf_inv lgamma digamma
floor ceil round clamp nextafter select_and_scatter_add
"""
_PER_INPUT = """
reduce_sum reduce_max reduce_min reduce_prod argmax argmin cumsum cumprod cummax cummin cumlogsumexp psum pmax pmin
"""
_ONE_PER_OUTPUT, _ONE_PER_INPUT = frozenset(_PER_OUTPUT.split()), frozenset(_PER_INPUT.split())


def _shape(variable: Any) -> tuple[int, ...]:
    return variable.aval.shape


def _size(variable: Any) -> int:
    return math.prod(_shape(variable))


def count_flops(eqn: JaxprEqn, expression: Any = None) -> int:
    """The floating-point operations of one equation that holds no program.

    Args:
      eqn: the equation.
      expression: not used; with it, this serves as `compute_flops` of `make_model_info`.

    Returns:
      The number.

    Example:

      >>> import hkx, jax.numpy as jnp
      >>> count = hkx.experimental.jaxpr_info.count_flops
      >>> x = jnp.ones([2, 3])
      >>> hkx.experimental.jaxpr_info.make_model_info(lambda x: x @ x.T, compute_flops=count)(x).flops
      24
    """
    del expression
    name, out = eqn.primitive.name, eqn.outvars[0] if eqn.outvars else None
    dtype = getattr(getattr(out, "aval", None), "dtype", None)
    if dtype is None or not jnp.issubdtype(dtype, jnp.inexact):
        return 0
    if name == "dot_general":
        (contracted, _), _ = eqn.params["dimension_numbers"]
        return 2 * _size(out) * math.prod(_shape(eqn.invars[0])[i] for i in contracted)
    if name == "conv_general_dilated":
        outputs = _shape(eqn.invars[1])[eqn.params["dimension_numbers"].rhs_spec[0]]
        return 2 * _size(out) * (_size(eqn.invars[1]) // max(outputs, 1))
    if name.startswith("reduce_window"):
        return _size(out) * math.prod(eqn.params["window_dimensions"])
    if name in _ONE_PER_INPUT:
        return _size(eqn.invars[0])
    if name == "scatter-add":
        return _size(eqn.invars[2])
    return _size(out) if name in _ONE_PER_OUTPUT else 0


def times(eqn: JaxprEqn) -> int:
    """How often the program in an equation runs; once for a `while`, whose number of steps is not known."""
    return eqn.params["length"] if eqn.primitive.name == "scan" else 1


def work(equations: Iterable[JaxprEqn]) -> int:
    """The floating-point operations of some equations, at least one for every number that they write."""
    total = 0
    for eqn in equations:
        inner = [work(program.eqns) for program in jaxprs_in_params(eqn.params)]
        total += max(count_flops(eqn), sum(map(_size, eqn.outvars)), times(eqn) * sum(inner))
    return total
