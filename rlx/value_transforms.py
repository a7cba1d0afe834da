"""Invertible transforms of values, alone and in pairs, for learning values in a space other than that of rewards."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from rlx.core.annotations import Float, Real
from rlx.core.arguments import require
from rlx.core.operator import operator
from rlx.core.tracing import traced_once
from rlx.core.types import Array


class TxPair(NamedTuple):
    """A transform of values and its inverse.

    Example:
      >>> import rlx
      >>> pair = rlx.TxPair(lambda x: 2 * x, lambda y: y / 2)
      >>> pair.apply_inv(pair.apply(3.0))
      3.0
    """

    apply: Callable[[Array], Array]
    apply_inv: Callable[[Array], Array]


def require_pair(tx_pair: Any, argument: str = "tx_pair", function: str = "") -> None:
    """Raises `OptionError` unless the argument has the two functions of a pair."""
    both = callable(getattr(tx_pair, "apply", None)) and callable(getattr(tx_pair, "apply_inv", None))
    require(both, argument, tx_pair, "a pair of functions, rlx.TxPair(apply, apply_inv)", function)


@operator()
def identity(x: Float[Array, "*E"]) -> Float[Array, "*E"]:
    """The identity: f(x) = x.

    Args:
      x: values.

    Returns:
      f(x), elementwise.

    Example:
      >>> import rlx
      >>> float(rlx.identity(2.0))
      2.0
    """
    return jnp.asarray(x)


@operator()
def sigmoid(x: Float[Array, "*E"]) -> Float[Array, "*E"]:
    """The logistic function: f(x) = 1 / (1 + exp(-x)), the inverse of `logit`.

    Args:
      x: values.

    Returns:
      f(x), elementwise.

    Example:
      >>> import rlx
      >>> float(rlx.sigmoid(0.0))
      0.5
    """
    return jax.nn.sigmoid(x)


@operator()
def logit(x: Float[Array, "*E"]) -> Float[Array, "*E"]:
    """The log-odds: f(x) = log(x / (1 - x)), the inverse of `sigmoid`.

    Args:
      x: numbers in (0, 1).

    Returns:
      f(x), elementwise.

    Example:
      >>> import rlx
      >>> float(rlx.logit(0.5))
      0.0
    """
    return jax.scipy.special.logit(x)


@operator()
def signed_logp1(x: Float[Array, "*E"]) -> Float[Array, "*E"]:
    """Signed logarithm, symmetric about zero: f(x) = sign(x) log(|x| + 1), called symlog in DreamerV3.

    Args:
      x: values.

    Returns:
      f(x), elementwise.

    Example:
      >>> import rlx
      >>> round(float(rlx.signed_logp1(-1.0)), 4)
      -0.6931
    """
    sign = jnp.where(x < 0, -1.0, 1.0)  # zero counts as positive, so that the derivative there is 1
    return sign * jnp.log1p(sign * x)


@operator()
def signed_expm1(x: Float[Array, "*E"]) -> Float[Array, "*E"]:
    """Signed exponential: f(x) = sign(x) (exp(|x|) - 1), the inverse of `signed_logp1`.

    Args:
      x: values.

    Returns:
      f(x), elementwise.

    Example:
      >>> import rlx
      >>> round(float(rlx.signed_expm1(rlx.signed_logp1(-3.0))), 4)
      -3.0
    """
    return _odd(jnp.expm1, x)


@operator()
def signed_hyperbolic(x: Float[Array, "*E"], eps: Real[Array | float, "", "in [0, inf)"] = 1e-3) -> Float[Array, "*E"]:
    """Signed square root: f(x) = sign(x) (√(|x| + 1) - 1) + ε x.

    From "Observe and Look Further: Achieving Consistent Performance on Atari", Pohlen et al. 2018
    (https://arxiv.org/abs/1805.11593).

    Args:
      x: values.
      eps: ε, which keeps the inverse Lipschitz.

    Returns:
      f(x), elementwise.

    Example:
      >>> import rlx
      >>> round(float(rlx.signed_hyperbolic(3.0, eps=0.0)), 4)
      1.0
    """
    return _signed_root(jnp.array(x)) + eps * x


@jax.custom_jvp
def _signed_root(x: Array) -> Array:
    """sign(x) (√(|x| + 1) - 1), without cancellation, and with the right derivative at zero and where x is infinite."""
    reciprocal = jax.lax.rsqrt(jnp.abs(x) + 1)
    return jnp.where(jnp.isinf(x), x, x * reciprocal / (reciprocal + 1))


_signed_root.defjvps(lambda x_dot, _, x: x_dot * (0.5 * jax.lax.rsqrt(jnp.abs(x) + 1)))


@operator()
def signed_parabolic(x: Float[Array, "*E"], eps: Real[Array | float, "", "in [0, inf)"] = 1e-3) -> Float[Array, "*E"]:
    """Signed square: the inverse of `signed_hyperbolic`.

    f(x) = sign(x) (((√(1 + 4 ε (|x| + 1 + ε)) - 1) / (2 ε))² - 1), evaluated in a form that stays precise near zero and
    also works for ε = 0, where f(x) = sign(x) ((|x| + 1)² - 1).

    From "Observe and Look Further: Achieving Consistent Performance on Atari", Pohlen et al. 2018
    (https://arxiv.org/abs/1805.11593).

    Args:
      x: values.
      eps: the ε of the transform to invert.

    Returns:
      f(x), elementwise.

    Example:
      >>> import rlx
      >>> round(float(rlx.signed_parabolic(rlx.signed_hyperbolic(3.0))), 4)
      3.0
    """
    root = _parabolic_root(jnp.array(x), eps, 0.5 + eps)
    return root * (jnp.abs(root) + 2)


@jax.custom_jvp
@traced_once
def _parabolic_root(x: Array, a: Array | float, h: Array | float) -> Array:
    """The z for which a z |z| + 2 h z = x, without cancellation."""
    square = _half_width_squared(x, a, h)
    return x / (square * jax.lax.rsqrt(square) + h)


@_parabolic_root.defjvp
def _of_equation(primals: tuple[Array, Any, Any], tangents: tuple[Array, Any, Any]) -> tuple[Array, Array]:
    root, (x_dot, a_dot, h_dot) = _parabolic_root(*primals), tangents
    given = x_dot - root * (jnp.abs(root) * a_dot + 2 * h_dot)
    return root, 0.5 * jax.lax.rsqrt(_half_width_squared(*primals)) * given


def _half_width_squared(x: Array, a: Array | float, h: Array | float) -> Array:
    return h**2 + a * jnp.minimum(jnp.abs(x), jnp.finfo(jnp.result_type(x, float)).max)


@operator()
def power(x: Float[Array, "*E"], p: Real[Array | float, "", "in (0, inf)"]) -> Float[Array, "*E"]:
    """Signed power: f(x) = sign(x) ((|x| / √p + 1)ᵖ - 1) / √p, with slope 1 at zero.

    Power 1/p is the inverse of power p.

    Args:
      x: values.
      p: the exponent.

    Returns:
      f(x), elementwise.

    Example:
      >>> import rlx
      >>> round(float(rlx.power(rlx.power(3.0, 0.5), 2.0)), 4)
      3.0
    """
    root = jnp.sqrt(p)
    if isinstance(p, float) and p == 2:  # squares and roots need no logarithm
        return 0.5 * x * (jnp.abs(x) / root + 2)
    if isinstance(p, float) and p == 0.5:
        return _parabolic_root(x / root, 1.0, 1.0) / root
    return _odd(lambda size: jnp.expm1(p * jnp.log1p(size / root)) / root, x)  # (x + 1)ᵖ - 1 without cancellation


@operator()
def hyperbolic_sin(x: Float[Array, "*E"]) -> Float[Array, "*E"]:
    """Hyperbolic sine: f(x) = (exp(x) - exp(-x)) / 2, the inverse of `hyperbolic_arcsin`.

    Args:
      x: values.

    Returns:
      f(x), elementwise.

    Example:
      >>> import rlx
      >>> float(rlx.hyperbolic_sin(0.0))
      0.0
    """
    return jnp.sinh(x)


@operator()
def hyperbolic_arcsin(x: Float[Array, "*E"]) -> Float[Array, "*E"]:
    """Inverse hyperbolic sine: f(x) = log(x + √(x² + 1)), linear near zero and logarithmic far from it.

    Args:
      x: values.

    Returns:
      f(x), elementwise.

    Example:
      >>> import rlx
      >>> float(rlx.hyperbolic_arcsin(0.0))
      0.0
    """
    return jnp.arcsinh(x)


def _odd(function: Callable[[Array], Array], x: Array) -> Array:
    """f(|x|) with the sign of x. Zero counts as positive, so that the derivative there is that of f."""
    is_negative = x < 0
    size = function(jnp.where(is_negative, -x, x))
    return jnp.where(is_negative, -size, size)


def compose_tx(*tx_list: TxPair) -> TxPair:
    """Composes pairs: `apply` runs their transforms in order, `apply_inv` their inverses in reverse order.

    Args:
      *tx_list: any number of pairs.

    Returns:
      A pair.

    Example:
      >>> import rlx
      >>> pair = rlx.compose_tx(rlx.IDENTITY_PAIR, rlx.SIGNED_LOGP1_PAIR)
      >>> round(float(pair.apply_inv(pair.apply(2.0))), 4)
      2.0
    """
    for i, tx in enumerate(tx_list):
        require_pair(tx, f"tx_list[{i}]", "compose_tx")
    # Partial applications of module-level functions, which all pairs consist of, can be pickled; local functions not.
    forwards = tuple(tx.apply for tx in tx_list)
    backwards = tuple(tx.apply_inv for tx in reversed(tx_list))
    return TxPair(functools.partial(_in_turn, forwards), functools.partial(_in_turn, backwards))


def _in_turn(functions: tuple[Callable[[Array], Array], ...], x: Array) -> Array:
    for function in functions:
        x = function(x)
    return x


def _stretched_discount(x: Array) -> Array:
    return -jnp.log1p(-x)


def _discount_of_stretched(x: Array) -> Array:
    return -jnp.expm1(-x)


# They contain kernels, so that an operator with a pair checks arguments only once.
IDENTITY_PAIR = TxPair(identity.kernel, identity.kernel)
"""Leaves values as they are."""

SIGNED_LOGP1_PAIR = TxPair(signed_logp1.kernel, signed_expm1.kernel)
"""`signed_logp1` and its inverse."""

SIGNED_HYPERBOLIC_PAIR = TxPair(signed_hyperbolic.kernel, signed_parabolic.kernel)
"""`signed_hyperbolic` and its inverse, as used by R2D2 and MuZero."""

HYPERBOLIC_SIN_PAIR = TxPair(hyperbolic_arcsin.kernel, hyperbolic_sin.kernel)
"""`hyperbolic_arcsin` and its inverse."""

DISCOUNT_TRANSFORM_PAIR = TxPair(_stretched_discount, _discount_of_stretched)
"""Stretches discounts near 1: f(γ) = -log(1 - γ)."""
