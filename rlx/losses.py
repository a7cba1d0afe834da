"""Elementary losses of predictions against targets, and gradient clipping."""

import inspect

import jax
import jax.numpy as jnp

from rlx.core.checks import check, check_ascending, check_broadcast
from rlx.core.masking import weigh
from rlx.core.types import Array, ArrayLike


def l2_loss(predictions: ArrayLike, targets: ArrayLike | None = None) -> Array:
    """Half the squared error, entry by entry: ½ (predictions - targets)².

    Args:
      predictions: floats of any shape.
      targets: floats that broadcast against `predictions`; zeros if not given.

    Returns:
      Float array of the broadcast shape.

    Raises:
      ArgumentError: if an argument is not floating point, or the shapes do not broadcast.

    Example:
      >>> import rlx
      >>> float(rlx.l2_loss(3.0, 1.0))
      2.0
    """
    if targets is None:
        (predictions,) = check("l2_loss", predictions=(predictions, "[*P]", "float"))
        return 0.5 * jnp.square(predictions)
    predictions, targets = check_broadcast("l2_loss", predictions=(predictions, "float"), targets=(targets, "float"))
    return 0.5 * jnp.square(predictions - targets)


def expectile_loss(predictions: ArrayLike, targets: ArrayLike, expectile: ArrayLike) -> Array:
    """Asymmetric squared error whose minimiser is an expectile: |τ - 1{u < 0}| u² with u = targets - predictions.

    From "Statistics and Samples in Distributional Reinforcement Learning", Rowland et al. 2019
    (https://arxiv.org/abs/1902.08102). At τ = ½ it is `l2_loss`.

    Args:
      predictions: floats of any shape.
      targets: floats that broadcast against `predictions`.
      expectile: τ, float that broadcasts, in [0, 1].

    Returns:
      Float array of the broadcast shape.

    Raises:
      ArgumentError: if an argument is not floating point, or the shapes do not broadcast.

    Example:
      >>> import rlx
      >>> round(float(rlx.expectile_loss(0.0, 2.0, 0.25)), 6)
      1.0
    """
    predictions, targets, expectile = check_broadcast(
        "expectile_loss",
        predictions=(predictions, "real"),
        targets=(targets, "real"),
        expectile=(expectile, "real in [0, 1]"),
    )
    error = targets - predictions
    return jnp.abs(expectile - (error < 0)) * jnp.square(error)


def likelihood(predictions: ArrayLike, targets: ArrayLike) -> Array:
    """Likelihood of binary targets under predicted probabilities: pᵗ (1 - p)¹⁻ᵗ, entry by entry.

    Args:
      predictions: p, floats in [0, 1] of any shape.
      targets: t, floats in [0, 1] that broadcast against `predictions`.

    Returns:
      Float array of the broadcast shape.

    Raises:
      ArgumentError: if an argument is not floating point, or the shapes do not broadcast.

    Example:
      >>> import rlx
      >>> float(rlx.likelihood(0.75, 1.0))
      0.75
    """
    predictions, targets = check_broadcast("likelihood", predictions=(predictions, "float"), targets=(targets, "float"))
    return _power(predictions, targets) * _power(1.0 - predictions, 1.0 - targets)


def log_loss(predictions: ArrayLike, targets: ArrayLike) -> Array:
    """Negative log-likelihood of binary targets: -(t log p + (1 - t) log(1 - p)), entry by entry.

    Where t is 0 or 1 the term that it switches off is dropped, so a certain and right prediction costs 0 and has a
    finite gradient.

    Args:
      predictions: p, floats in [0, 1] of any shape.
      targets: t, floats in [0, 1] that broadcast against `predictions`.

    Returns:
      Float array of the broadcast shape.

    Raises:
      ArgumentError: if an argument is not floating point, or the shapes do not broadcast.

    Example:
      >>> import rlx
      >>> round(float(rlx.log_loss(0.5, 1.0)), 4)
      0.6931
    """
    predictions, targets = check_broadcast("log_loss", predictions=(predictions, "float"), targets=(targets, "float"))
    return -_times_log(targets, predictions) - _times_log(1.0 - targets, 1.0 - predictions)


def huber_loss(x: ArrayLike, delta: ArrayLike = 1.0) -> Array:
    """Quadratic near zero and linear beyond `delta`: ½ x² where |x| ≤ δ, else δ (|x| - ½ δ).

    From "Robust Estimation of a Location Parameter", Huber 1964. Its gradient is x clipped to [-δ, δ].

    Args:
      x: floats of any shape, usually errors.
      delta: δ ≥ 0, float that broadcasts against `x`.

    Returns:
      Float array of the broadcast shape.

    Raises:
      ArgumentError: if `x` is not floating point, or the shapes do not broadcast.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> rlx.huber_loss(jnp.array([0.5, -3.0]), 1.0).tolist()
      [0.125, 2.5]
    """
    x, delta = check_broadcast("huber_loss", x=(x, "float"), delta=(delta, "real in [0, inf]"))
    size = jnp.abs(x)
    quadratic = jnp.minimum(size, delta)
    # Of no limit, an infinite δ, there is no linear part.
    return 0.5 * jnp.square(quadratic) + weigh(jnp.where(size < delta, 0, delta), size - quadratic)


def clip_gradient(x: ArrayLike, gradient_min: ArrayLike, gradient_max: ArrayLike) -> Array:
    """The identity, whose gradient is clipped to [gradient_min, gradient_max] on the way back.

    Args:
      x: floats of any shape.
      gradient_min: lower bound of each entry of the gradient.
      gradient_max: upper bound of each entry of the gradient, at least `gradient_min`.

    Returns:
      `x`.

    Raises:
      ArgumentError: if `x` is not floating point, or the shapes do not broadcast.

    Example:
      >>> import jax
      >>> import rlx
      >>> float(jax.grad(lambda x: 10.0 * rlx.clip_gradient(x, -1.0, 1.0))(2.0))
      1.0
    """
    x, low, high = check_broadcast(
        "clip_gradient", x=(x, "float"), gradient_min=(gradient_min, "real"), gradient_max=(gradient_max, "real")
    )
    check_ascending("clip_gradient", strictly=False, gradient_min=gradient_min, gradient_max=gradient_max)
    return _clip_gradient(x, low, high)


# RLax's is a `jax.custom_vjp`, whose signature reads like this; code that compares signatures finds the same.
clip_gradient.__signature__ = inspect.Signature(  # pyright: ignore[reportFunctionMemberAccess]
    [
        inspect.Parameter("args", inspect.Parameter.VAR_POSITIONAL),
        inspect.Parameter("kwargs", inspect.Parameter.VAR_KEYWORD),
    ]
)


@jax.custom_vjp
def _clip_gradient(x: Array, low: Array, high: Array) -> Array:
    return x


def _clip_gradient_forward(x: Array, low: Array, high: Array) -> tuple[Array, tuple[Array, Array]]:
    return x, (low, high)


def _clip_gradient_backward(bounds: tuple[Array, Array], gradient: Array) -> tuple[Array, Array, Array]:
    low, high = bounds
    return jnp.clip(gradient, low, high).astype(gradient.dtype), jnp.zeros_like(low), jnp.zeros_like(high)


_clip_gradient.defvjp(_clip_gradient_forward, _clip_gradient_backward)


def _times_log(weight: Array, x: Array) -> Array:
    """weight * log(x), and 0 with zero gradients where both are 0."""
    return weight * jnp.log(jnp.where((weight == 0) & (x == 0), 1, x))


def _power(base: Array, exponent: Array) -> Array:
    """base ** exponent with the derivatives of its limits where the exponent is 0 or 1."""
    whole = (exponent == 0) | (exponent == 1)
    simple = jnp.where(exponent == 1, base, 1)
    return jnp.where(whole, simple, jnp.power(jnp.where(whole, 1, base), exponent))
