"""Elementary losses between predictions and targets, and gradient clipping."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax.custom_derivatives import SymbolicZero

from rlx.core.annotations import Float, Number, Real
from rlx.core.arguments import as_arrays, require_ascending, require_broadcast
from rlx.core.arrays import half_square
from rlx.core.operator import operator
from rlx.core.tracing import traced_once
from rlx.core.types import Array, PyTree


@operator()
def l2_loss(predictions: Float[Array, "*##E"], targets: Float[Array, "*##E"] | None = None) -> Float[Array, "*E"]:
    """Half the squared error, elementwise: ½ (predictions - targets)².

    One of the arguments broadcasts to the shape of the other. [B] and [B, 1] would give [B, B], and are an error.

    Args:
      predictions: predictions, or errors if no targets are given.
      targets: target values; zeros by default.

    Returns:
      The elementwise losses.

    Example:
      >>> import rlx
      >>> float(rlx.l2_loss(3.0, 1.0))
      2.0
    """
    error = predictions if targets is None else predictions - targets
    return half_square(error)


@operator()
def expectile_loss(
    predictions: Real[Array, "*E"], targets: Real[Array, "*E"], expectile: Real[Array, "*P", "in [0, 1]"]
) -> Float[Array, "*E"]:
    """Asymmetric squared error whose minimiser is an expectile: |τ - 1{u < 0}| u² with u = targets - predictions.

    From "Statistics and Samples in Distributional Reinforcement Learning", Rowland et al. 2019
    (https://arxiv.org/abs/1902.08102). At τ = ½ it is `l2_loss`.

    Args:
      predictions: predicted values.
      targets: target values.
      expectile: τ in [0, 1], of a shape that broadcasts against theirs.

    Returns:
      The losses.

    Example:
      >>> import rlx
      >>> round(float(rlx.expectile_loss(0.0, 2.0, 0.25)), 6)
      1.0
    """
    require_broadcast(targets=targets, expectile=expectile)
    error, expectile = jnp.broadcast_arrays(targets - predictions, expectile)
    return jnp.where(error < 0, 1 - expectile, expectile) * error * error  # whose square alone may overflow


@operator()
def likelihood(predictions: Float[Array, "*##E"], targets: Float[Array, "*##E"]) -> Float[Array, "*E"]:
    """Likelihood of binary targets under predicted probabilities: pᵗ (1 - p)¹⁻ᵗ, elementwise.

    Args:
      predictions: p in [0, 1].
      targets: t in [0, 1].

    Returns:
      The likelihoods.

    Example:
      >>> import rlx
      >>> float(rlx.likelihood(0.75, 1.0))
      0.75
    """
    return _power(predictions, targets) * _power(1.0 - predictions, 1.0 - targets)


@operator()
def log_loss(predictions: Float[Array, "*##E"], targets: Float[Array, "*##E"]) -> Float[Array, "*E"]:
    """Negative log-likelihood of binary targets: -(t log p + (1 - t) log(1 - p)), elementwise.

    For t of 0 or 1, the term with zero weight is dropped, so a correct prediction with full certainty has loss 0 and
    a finite gradient.

    Args:
      predictions: p in [0, 1].
      targets: t in [0, 1].

    Returns:
      The losses.

    Example:
      >>> import rlx
      >>> round(float(rlx.log_loss(0.5, 1.0)), 4)
      0.6931
    """
    return -_times_log(targets, predictions) - _times_log(1.0 - targets, 1.0 - predictions)


@operator()
def huber_loss(
    x: Float[Array, "*##E"], delta: Real[Array | float, "*##E", "", "in [0, inf]"] = 1.0
) -> Float[Array, "*E"]:
    """Quadratic near zero and linear beyond `delta`: ½ x² where |x| ≤ δ, else δ (|x| - ½ δ).

    From "Robust Estimation of a Location Parameter", Huber 1964. Its gradient is x clipped to [-δ, δ].

    Args:
      x: usually errors.
      delta: δ ≥ 0.

    Returns:
      The losses.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> rlx.huber_loss(jnp.array([0.5, -3.0]), 1.0).tolist()
      [0.125, 2.5]
    """
    return _huber(x, delta)


@operator()
def clip_gradient(x: PyTree, gradient_min: Number[Array, "*#E"], gradient_max: Number[Array, "*#E"]) -> PyTree:
    """The identity function, with its gradient clipped to [gradient_min, gradient_max] in the backward pass.

    Args:
      x: an array of floats, or a tree of them, returned unchanged.
      gradient_min: lower bound of each entry of the gradient.
      gradient_max: upper bound of each entry of the gradient, at least `gradient_min`.

    Returns:
      `x`.

    Example:
      >>> import jax
      >>> import rlx
      >>> float(jax.grad(lambda x: 10.0 * rlx.clip_gradient(x, -1.0, 1.0))(2.0))
      1.0
    """
    require_ascending(strictly=False, gradient_min=gradient_min, gradient_max=gradient_max)

    def clip(path: Any, leaf: Any) -> Array:
        place = f"x{jax.tree_util.keystr(path)}"
        (leaf,) = as_arrays("clip_gradient", **{place: (leaf, Float[Array, "*E"])})
        require_broadcast(**{place: leaf, "gradient_min": gradient_min, "gradient_max": gradient_max})
        return _clip_gradient(leaf, gradient_min.astype(leaf.dtype), gradient_max.astype(leaf.dtype))

    return jax.tree_util.tree_map_with_path(clip, x, is_leaf=lambda leaf: leaf is None)


@jax.custom_vjp
def _clip_gradient(x: Array, low: Array, high: Array) -> Array:
    return x


def _clip_gradient_forward(x: Array, low: Array, high: Array) -> tuple[Array, tuple[Array, Array]]:
    return x, (low, high)


def _clip_gradient_backward(bounds: tuple[Array, Array], gradient: Array) -> tuple[Array, Array, Array]:
    low, high = bounds
    clipped = jnp.clip(gradient, *(jnp.broadcast_to(bound, gradient.shape) for bound in bounds))
    return clipped.astype(gradient.dtype), jnp.zeros_like(low), jnp.zeros_like(high)


_clip_gradient.defvjp(_clip_gradient_forward, _clip_gradient_backward)


@traced_once
def _times_log(weight: Array, x: Array) -> Array:
    """weight * log(x), or 0 with zero gradients where both are 0."""
    return weight * jnp.log(jnp.where((weight == 0) & (x == 0), 1, x))


@traced_once
def _power(base: Array, exponent: Array) -> Array:
    """base ** exponent, with the right derivatives at a base of 0 for exponents of 0 and 1."""
    edge = (base == 0) & ((exponent == 0) | (exponent == 1))
    return jnp.where(edge, jnp.where(exponent == 1, base, 1), jnp.power(jnp.where(edge, 1, base), exponent))


@traced_once
def _huber(x: Array, delta: Array | float) -> Array:
    return linear_beyond(x, delta, delta)


@jax.custom_jvp
def linear_beyond(x: Array, limit: Array, slope: Array) -> Array:
    """½ x² where |x| ≤ limit, else slope (|x| - ½ limit). With a slope of 0 there is no limit to be beyond."""
    size = jnp.abs(x)
    return jnp.where(
        _is_beyond(size, limit, slope), slope * (size - 0.5 * limit), half_square(jnp.minimum(size, limit))
    )


def _is_beyond(size: Array, limit: Array, slope: Array) -> Array:
    return size > jnp.where(slope > 0, limit, jnp.inf)


def _slope_of_linear_beyond(primals: tuple[Array, ...], tangents: tuple[Any, ...]) -> tuple[Array, Array]:
    # On a CPU, what JAX derives from the value takes several times as long.
    (x, limit, slope), (x_dot, limit_dot, slope_dot) = primals, tangents
    size = jnp.abs(x)
    terms: list[Array] = []
    beyond = _is_beyond(size, limit, slope)
    if not isinstance(x_dot, SymbolicZero):
        terms.append(jnp.where(beyond, jnp.where(x < 0, -slope, slope), jnp.clip(x, -limit, limit)) * x_dot)
    if not isinstance(limit_dot, SymbolicZero):
        terms.append(jnp.where(beyond, -0.5 * slope, 0) * limit_dot)
    if not isinstance(slope_dot, SymbolicZero):
        terms.append(jnp.where(size > limit, size - 0.5 * limit, 0) * slope_dot)
    return linear_beyond(*primals), functools.reduce(jnp.add, terms)


linear_beyond.defjvp(_slope_of_linear_beyond, symbolic_zeros=True)
