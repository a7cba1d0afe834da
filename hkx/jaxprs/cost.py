"""The cost of an operation, counted from its equation.

Operations are counted as in XLA: `2 m n k` for a matrix product `[m, k] @ [k, n]`, also where each row has the matrix
of its group; two for each product of an input and a weight in a convolution, except products with the zeros of padding
and dilation; one per element for arithmetic and elementary functions; one per summed element for a sum; and one less
than the window size per output for pooling. Moving and converting data is free, and so is integer arithmetic.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from typing import Any

from jax import numpy as jnp
from jax.extend.core import JaxprEqn

from hkx.jaxprs.traces import inner_programs

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
    """The number of floating-point operations of one equation, without those of programs inside it.

    Args:
      eqn: the equation.
      expression: unused; it allows this function to be the `compute_flops` of `make_model_info`.

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
    if name == "ragged_dot_general":
        return _ragged_product(eqn)
    if name == "conv_general_dilated":
        return _convolution(eqn)
    if name.startswith("reduce_window"):
        return _size(out) * (math.prod(eqn.params["window_dimensions"]) - 1)
    if name in _ONE_PER_INPUT:
        return _size(eqn.invars[0])
    return _size(out) if name in _ONE_PER_OUTPUT else 0


def _ragged_product(eqn: JaxprEqn) -> int:
    """Those of matrix products whose rows, or summed dimensions, are divided into groups, which belong to no others."""
    numbers = eqn.params["ragged_dot_dimension_numbers"]
    (contracted, _), _ = numbers.dot_dimension_numbers
    total = 2 * _size(eqn.outvars[0]) * math.prod(_shape(eqn.invars[0])[i] for i in contracted)
    in_groups = set(numbers.lhs_ragged_dimensions) <= set(contracted)
    return total // max(_shape(eqn.invars[2])[-1], 1) if in_groups else total


def _convolution(eqn: JaxprEqn) -> int:
    """Twice the number of products of an input and a weight, which is a product over the spatial dimensions."""
    numbers, given = eqn.params["dimension_numbers"], eqn.params
    shapes = _shape(eqn.invars[0]), _shape(eqn.invars[1]), _shape(eqn.outvars[0])
    inputs, weights, outputs = (
        [shape[i] for i in spec]  # [images or output channels, channels, *positions]
        for shape, spec in zip(shapes, (numbers.lhs_spec, numbers.rhs_spec, numbers.out_spec), strict=True)
    )
    settings = (given["window_strides"], given["padding"], given["lhs_dilation"], given["rhs_dilation"])
    spatial = zip(inputs[2:], weights[2:], outputs[2:], *settings, strict=True)
    return 2 * outputs[0] * weights[0] * weights[1] * math.prod(itertools.starmap(_products, spatial))


def _products(
    size: int, window: int, outputs: int, stride: int, padding: tuple[int, int], dilation: int, rate: int
) -> int:
    """The number of pairs of an output and a weight that read an input, along one dimension.

    Output `o` and weight `k` read input `i` where `o stride + k rate - padding = i dilation`. For each k, these are
    every `dilation / gcd`-th output between two bounds.
    """
    common = math.gcd(stride, dilation)
    step, count = dilation // common, 0
    for k in range(window):
        shift = padding[0] - k * rate  # o stride - shift must be one of 0, dilation, …, (size - 1) dilation
        if shift % common or not size:
            continue
        first = max(-(-shift // stride), 0)
        last = min(((size - 1) * dilation + shift) // stride, outputs - 1)
        first += (shift // common * pow(stride // common, -1, step) - first) % step
        count += max((last - first) // step + 1, 0)
    return count


def times(eqn: JaxprEqn) -> int:
    """How often the program in an equation runs; taken as once for a `while`, whose number of iterations is unknown.

    The program in a `shard_map` runs on each device, that of a scatter or a reduction for each element.
    """
    name, given = eqn.primitive.name, eqn.params
    if name == "scan":
        return given["length"]
    if name == "shard_map" and "mesh" in given:
        axes = given.get("newly_manual_axes", given.get("manual_axes", ()))  # as JAX 0.10.2 and 0.10.0 call them
        return math.prod(given["mesh"].shape[axis] for axis in axes)
    if name.startswith("scatter"):
        return _size(eqn.invars[2])
    if name == "reduce_window":
        return _size(eqn.outvars[0]) * (math.prod(given["window_dimensions"]) - 1)
    return _size(eqn.invars[0]) if name == "reduce" else 1


def work(equations: Iterable[JaxprEqn]) -> int:
    """The floating-point operations of equations, counting at least one for every element of their outputs."""
    total = 0
    for eqn in equations:
        inner = [work(program.eqns) for program in inner_programs(eqn)]
        total += max(count_flops(eqn), sum(map(_size, eqn.outvars)), times(eqn) * sum(inner))
    return total
