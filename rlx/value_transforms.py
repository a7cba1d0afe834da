"""Invertible transforms of values, alone and in pairs, for learning values in another space than that of rewards."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from rlx.core.checks import check, check_numbers, require
from rlx.core.types import Array, ArrayLike


class TxPair(NamedTuple):
    """A transform of values, and its inverse.

    Example:
      >>> import rlx
      >>> pair = rlx.TxPair(lambda x: 2 * x, lambda y: y / 2)
      >>> pair.apply_inv(pair.apply(3.0))
      3.0
    """

    apply: Callable[[Array], Array]
    apply_inv: Callable[[Array], Array]


def check_pair(function: str, tx_pair: Any, argument: str = "tx_pair") -> None:
    """Raises `OptionError` unless the argument has the two functions of a pair."""
    both = callable(getattr(tx_pair, "apply", None)) and callable(getattr(tx_pair, "apply_inv", None))
    require(function, argument, both, tx_pair, "a pair of functions, rlx.TxPair(apply, apply_inv)")


def identity(x: ArrayLike) -> Array:
    """The identity: f(x) = x.

    Args:
      x: floats of any shape.

    Returns:
      Floats of the shape of `x`.

    Raises:
      ArgumentError: if `x` is not floating point.

    Example:
      >>> import rlx
      >>> float(rlx.identity(2.0))
      2.0
    """
    (x,) = check("identity", x=(x, "[*E]", "float"))
    return x


def sigmoid(x: ArrayLike) -> Array:
    """The logistic function: f(x) = 1 / (1 + exp(-x)), the inverse of `logit`.

    Args:
      x: floats of any shape.

    Returns:
      Floats of the shape of `x`.

    Raises:
      ArgumentError: if `x` is not floating point.

    Example:
      >>> import rlx
      >>> float(rlx.sigmoid(0.0))
      0.5
    """
    (x,) = check("sigmoid", x=(x, "[*E]", "float"))
    return jax.nn.sigmoid(x)


def logit(x: ArrayLike) -> Array:
    """The log-odds: f(x) = log(x / (1 - x)), the inverse of `sigmoid`.

    Args:
      x: floats in (0, 1), of any shape.

    Returns:
      Floats of the shape of `x`.

    Raises:
      ArgumentError: if `x` is not floating point.

    Example:
      >>> import rlx
      >>> float(rlx.logit(0.5))
      0.0
    """
    (x,) = check("logit", x=(x, "[*E]", "float"))
    return jnp.log(x) - jnp.log1p(-x)


def signed_logp1(x: ArrayLike) -> Array:
    """Signed logarithm, symmetric about zero: f(x) = sign(x) log(|x| + 1); DreamerV3 calls it symlog.

    Args:
      x: floats of any shape.

    Returns:
      Floats of the shape of `x`.

    Raises:
      ArgumentError: if `x` is not floating point.

    Example:
      >>> import rlx
      >>> round(float(rlx.signed_logp1(-1.0)), 4)
      -0.6931
    """
    (x,) = check("signed_logp1", x=(x, "[*E]", "float"))
    sign, size = _sign_and_size(x)
    return sign * jnp.log1p(size)


def signed_expm1(x: ArrayLike) -> Array:
    """Signed exponential: f(x) = sign(x) (exp(|x|) - 1), the inverse of `signed_logp1`.

    Args:
      x: floats of any shape.

    Returns:
      Floats of the shape of `x`.

    Raises:
      ArgumentError: if `x` is not floating point.

    Example:
      >>> import rlx
      >>> round(float(rlx.signed_expm1(rlx.signed_logp1(-3.0))), 4)
      -3.0
    """
    (x,) = check("signed_expm1", x=(x, "[*E]", "float"))
    sign, size = _sign_and_size(x)
    return sign * jnp.expm1(size)


def signed_hyperbolic(x: ArrayLike, eps: float = 1e-3) -> Array:
    """Signed square root: f(x) = sign(x) (√(|x| + 1) - 1) + ε x.

    From "Observe and Look Further: Achieving Consistent Performance on Atari", Pohlen et al. 2018
    (https://arxiv.org/abs/1805.11593).

    Args:
      x: floats of any shape.
      eps: ε ≥ 0, which keeps the inverse Lipschitz.

    Returns:
      Floats of the shape of `x`.

    Raises:
      ArgumentError: if `x` is not floating point.

    Example:
      >>> import rlx
      >>> round(float(rlx.signed_hyperbolic(3.0, eps=0.0)), 4)
      1.0
    """
    (x,) = check("signed_hyperbolic", x=(x, "[*E]", "float"))
    check_numbers("signed_hyperbolic", eps=(eps, "[0, inf)"))
    # sign(x) (√(|x| + 1) - 1) without the difference of near numbers, and with its true slope at zero.
    return x * (1 / (jnp.sqrt(jnp.abs(x) + 1) + 1) + eps)


def signed_parabolic(x: ArrayLike, eps: float = 1e-3) -> Array:
    """Signed square: the inverse of `signed_hyperbolic`.

    f(x) = sign(x) (((√(1 + 4 ε (|x| + 1 + ε)) - 1) / (2 ε))² - 1), evaluated in a form that keeps its precision near
    zero and holds for ε = 0 too, where f(x) = sign(x) ((|x| + 1)² - 1).

    From "Observe and Look Further: Achieving Consistent Performance on Atari", Pohlen et al. 2018
    (https://arxiv.org/abs/1805.11593).

    Args:
      x: floats of any shape.
      eps: ε ≥ 0, that of the transform to invert.

    Returns:
      Floats of the shape of `x`.

    Raises:
      ArgumentError: if `x` is not floating point.

    Example:
      >>> import rlx
      >>> round(float(rlx.signed_parabolic(rlx.signed_hyperbolic(3.0))), 4)
      3.0
    """
    (x,) = check("signed_parabolic", x=(x, "[*E]", "float"))
    check_numbers("signed_parabolic", eps=(eps, "[0, inf)"))
    size = jnp.minimum(jnp.abs(x), jnp.finfo(x.dtype).max)
    width = jnp.sqrt(1 + 4 * eps * (1 + eps + size)) + 1 + 2 * eps
    # A division comes last: the compiler computes its result once, where cheaper operations are fused into every use.
    return 4 * (size / width + 1) * x / width


def power(x: ArrayLike, p: ArrayLike) -> Array:
    """Signed power: f(x) = sign(x) ((|x| / √p + 1)ᵖ - 1) / √p, with slope 1 at zero.

    Power 1/p is the inverse of power p.

    Args:
      x: floats of any shape.
      p: positive exponent, number [].

    Returns:
      Floats of the shape of `x`.

    Raises:
      ArgumentError: if `x` is not floating point.

    Example:
      >>> import rlx
      >>> round(float(rlx.power(rlx.power(3.0, 0.5), 2.0)), 4)
      3.0
    """
    (x,) = check("power", x=(x, "[*E]", "float"))
    check_numbers("power", p=(p, "(0, inf)"))
    root = jnp.sqrt(jnp.asarray(p, x.dtype))
    sign, size = _sign_and_size(x)
    return sign * (jnp.power(size / root + 1, p) - 1) / root


def hyperbolic_sin(x: ArrayLike) -> Array:
    """Hyperbolic sine: f(x) = (exp(x) - exp(-x)) / 2, the inverse of `hyperbolic_arcsin`.

    Args:
      x: floats of any shape.

    Returns:
      Floats of the shape of `x`.

    Raises:
      ArgumentError: if `x` is not floating point.

    Example:
      >>> import rlx
      >>> float(rlx.hyperbolic_sin(0.0))
      0.0
    """
    (x,) = check("hyperbolic_sin", x=(x, "[*E]", "float"))
    return jnp.sinh(x)


def hyperbolic_arcsin(x: ArrayLike) -> Array:
    """Inverse hyperbolic sine: f(x) = log(x + √(x² + 1)), linear near zero and logarithmic far from it.

    Args:
      x: floats of any shape.

    Returns:
      Floats of the shape of `x`.

    Raises:
      ArgumentError: if `x` is not floating point.

    Example:
      >>> import rlx
      >>> float(rlx.hyperbolic_arcsin(0.0))
      0.0
    """
    (x,) = check("hyperbolic_arcsin", x=(x, "[*E]", "float"))
    return jnp.arcsinh(x)


def _sign_and_size(x: Array) -> tuple[Array, Array]:
    """±1 and |x|, where zero counts as positive, so that odd functions built on them have their true slope there."""
    sign = jnp.where(x < 0, jnp.array(-1, x.dtype), jnp.array(1, x.dtype))
    return sign, sign * x


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
    # Parts of functions of this module, unlike functions made here, can be pickled: those of all pairs are such.
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


IDENTITY_PAIR = TxPair(identity, identity)
"""Leaves values as they are."""

SIGNED_LOGP1_PAIR = TxPair(signed_logp1, signed_expm1)
"""`signed_logp1` and its inverse."""

SIGNED_HYPERBOLIC_PAIR = TxPair(signed_hyperbolic, signed_parabolic)
"""`signed_hyperbolic` and its inverse, as used by R2D2 and MuZero."""

HYPERBOLIC_SIN_PAIR = TxPair(hyperbolic_arcsin, hyperbolic_sin)
"""`hyperbolic_arcsin` and its inverse."""

DISCOUNT_TRANSFORM_PAIR = TxPair(_stretched_discount, _discount_of_stretched)
"""Stretches discounts near 1: f(γ) = -log(1 - γ)."""
