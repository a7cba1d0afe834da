"""Initializers: functions of `(shape, dtype)` that return the initial value of a parameter or a state.

They draw their keys from the running transform, so call them inside one. Usually `hkx.get_parameter` calls them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from hkx.arguments import checked_integer, checked_number
from hkx.arguments.vocabulary import Initializer as Initializer
from hkx.base.draws import Draw, check_dtype, check_fits, sample
from hkx.base.trees import unshared
from hkx.base.types import Array, DType, Shape
from hkx.core.frame import current_frame
from hkx.core.rng import next_rng_key
from hkx.errors.arguments import NotANumberError

__all__ = [
    "Constant",
    "Identity",
    "Initializer",
    "Orthogonal",
    "RandomNormal",
    "RandomUniform",
    "Sparse",
    "TorchEmbedding",
    "TorchUniform",
    "TruncatedNormal",
    "UniformScaling",
    "VarianceScaling",
]

_TRUNCATED_STD = 0.87962566103423978
"""The standard deviation of a normal distribution that is cut off at two standard deviations."""


def _drawn(draw: Draw) -> Array:
    key = next_rng_key()
    return current_frame("hkx.next_rng_key").maker.draw(draw, key)


def _number(value: Any, argument: str) -> Any:
    """A number or an array. An int that no dtype of integers holds becomes a float."""
    return float(value) if isinstance(checked_number(value, argument), int) and abs(value) >= 2**63 else value


def _one_real(value: Any, argument: str) -> Any:
    if np.size(value := _number(value, argument)) != 1 or np.iscomplexobj(value):
        raise NotANumberError(argument, value)
    return value


def _plain(value: Any) -> bool:
    """True if a scale or a bound is a plain number."""
    return isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)


def _normal(kind: Any, shape: Shape, dtype: DType, low: Any, high: Any, stddev: Any, mean: Any) -> jax.Array:
    check_dtype(dtype)
    shape, dtype = tuple(shape), np.dtype(dtype)
    bounds = _plain(low) and _plain(high)
    if bounds and _plain(stddev) and _plain(mean) and mean == 0 and stddev != 0:
        return _drawn(Draw(kind, shape, dtype, float(low), float(high), float(stddev)))
    check_fits(shape, dtype, stddev=stddev, mean=mean)
    if bounds:
        unit = _drawn(Draw(kind, shape, dtype, float(low), float(high)))
    else:
        check_fits((2, *shape) if jnp.issubdtype(dtype, jnp.complexfloating) else shape, dtype, lower=low, upper=high)
        unit = sample(Draw(kind, shape, dtype, low, high), next_rng_key())
    scale, shift = (jax.lax.convert_element_type(v, unit.dtype) for v in (stddev, mean))
    return scale * unit + shift


class Constant:
    """A constant: one number for every element, or an array that broadcasts to the shape.

    Args:
      constant: a number, or an array or nested lists of numbers that broadcast to the shape.

    Example:

      >>> import hkx, jax.numpy as jnp
      >>> hkx.testing.transform_and_run(lambda: hkx.initializers.Constant(3.0)([2], jnp.float32))()
      Array([3., 3.], dtype=float32)
    """

    def __init__(self, constant: Any):
        self.constant = constant if isinstance(constant, (list, tuple, range)) else _number(constant, "constant")

    def __call__(self, shape: Shape, dtype: DType) -> jax.Array:
        check_fits(shape, dtype, constant=self.constant)
        return jnp.broadcast_to(jnp.asarray(unshared(self.constant)), shape).astype(dtype)


class RandomNormal:
    """Normal distribution: `mean + stddev * z`.

    Args:
      stddev: the standard deviation.
      mean: the mean.

    Example:

      >>> import hkx, jax.numpy as jnp
      >>> hkx.testing.transform_and_run(lambda: hkx.initializers.RandomNormal(0.1)([2, 3], jnp.float32))().shape
      (2, 3)
    """

    def __init__(self, stddev: Any = 1.0, mean: Any = 0.0):
        self.stddev = checked_number(stddev, "stddev")
        self.mean = checked_number(mean, "mean")

    def __call__(self, shape: Shape, dtype: DType) -> jax.Array:
        return _normal("normal", shape, dtype, -np.inf, np.inf, self.stddev, self.mean)


class TruncatedNormal:
    """Truncated normal distribution: `mean + stddev * z`, where z is between `lower` and `upper`.

    Args:
      stddev: the standard deviation before truncation.
      mean: the mean before truncation.
      lower: the lower bound, in standard deviations: a number, or an array that broadcasts to the shape.
      upper: the upper bound, likewise.

    Example:

      >>> import hkx, jax.numpy as jnp
      >>> w = hkx.testing.transform_and_run(lambda: hkx.initializers.TruncatedNormal(0.1)([100], jnp.float32))()
      >>> bool((abs(w) <= 0.2).all())
      True
    """

    def __init__(self, stddev: Any = 1.0, mean: Any = 0.0, lower: Any = -2.0, upper: Any = 2.0):
        self.stddev = checked_number(stddev, "stddev")
        self.mean = checked_number(mean, "mean")
        self.lower = checked_number(lower, "lower")
        self.upper = checked_number(upper, "upper")

    def __call__(self, shape: Shape, dtype: DType) -> jax.Array:
        return _normal("truncated_normal", shape, dtype, self.lower, self.upper, self.stddev, self.mean)


class RandomUniform:
    """Uniform distribution between `minval` (included) and `maxval` (excluded).

    Args:
      minval: the lower bound.
      maxval: the upper bound.

    Example:

      >>> import hkx, jax.numpy as jnp
      >>> w = hkx.testing.transform_and_run(lambda: hkx.initializers.RandomUniform(-1, 1)([100], jnp.float32))()
      >>> bool((abs(w) <= 1).all())
      True
    """

    def __init__(self, minval: Any = 0.0, maxval: Any = 1.0):
        self.minval = checked_number(minval, "minval")
        self.maxval = checked_number(maxval, "maxval")

    def __call__(self, shape: Shape, dtype: DType) -> jax.Array:
        check_dtype(dtype, jnp.floating)
        if _plain(self.minval) and _plain(self.maxval) and np.issubdtype(np.dtype(dtype), np.floating):
            return _drawn(Draw("uniform", tuple(shape), np.dtype(dtype), float(self.minval), float(self.maxval)))
        check_fits(shape, dtype, minval=self.minval, maxval=self.maxval)
        return jax.random.uniform(next_rng_key(), shape, dtype, self.minval, self.maxval)


def _fans(shape: Shape, fan_in_axes: Sequence[int] | None = None) -> tuple[float, float]:
    """The numbers of inputs and outputs of a weight of this shape; the last axis is the outputs."""
    if len(shape) < 1:
        return 1, 1
    if len(shape) == 1:
        return shape[0], shape[0]
    if len(shape) == 2:
        return shape[0], shape[1]
    if fan_in_axes is not None:
        if not all(-len(shape) <= i < len(shape) for i in fan_in_axes):
            where = f"`fan_in_axes` of VarianceScaling is {fan_in_axes}"
            raise ValueError(f"{where}, expected axes of the shape {tuple(shape)}.")
        fan_in = np.prod([shape[i] for i in fan_in_axes])
        return float(fan_in), float(np.prod([s for i, s in enumerate(shape) if i not in fan_in_axes]))
    receptive = np.prod(shape[:-2])
    return float(shape[-2] * receptive), float(shape[-1] * receptive)


class VarianceScaling:
    """Distribution of mean 0 and variance `scale / n`, so that a layer preserves the variance of its input.

    `n` is the number of inputs (`fan_in`), of outputs (`fan_out`), or their mean (`fan_avg`). Glorot's distributions
    are `(1, "fan_avg", "truncated_normal" or "uniform")`, He's are `(2, "fan_in", …)`, LeCun's are `(1, "fan_in", …)`.

    References: Glorot & Bengio (2010), "Understanding the difficulty of training deep feedforward neural networks";
    He et al. (2015), "Delving deep into rectifiers", arXiv:1502.01852.

    Args:
      scale: the factor of the variance, at least 0.
      mode: `"fan_in"`, `"fan_out"` or `"fan_avg"`.
      distribution: `"truncated_normal"` (at two standard deviations), `"normal"` or `"uniform"`.
      fan_in_axes: for shapes with more than two dimensions, the axes that count as inputs; None means all but the last.
        In a matrix, the inputs are the first axis.

    Raises:
      ValueError: if an argument is not one of these.

    Example:

      >>> import hkx, jax.numpy as jnp
      >>> he = hkx.initializers.VarianceScaling(2.0)
      >>> hkx.testing.transform_and_run(lambda: he([3, 4], jnp.float32))().shape
      (3, 4)
    """

    def __init__(
        self,
        scale: float = 1.0,
        mode: str = "fan_in",
        distribution: str = "truncated_normal",
        fan_in_axes: Sequence[int] | None = None,
    ):
        if _one_real(scale, "scale") < 0.0:
            raise ValueError(f"`scale` must be a positive float, got {scale}.")
        if not isinstance(mode, str) or mode not in ("fan_in", "fan_out", "fan_avg"):
            raise ValueError(f"Invalid `mode` argument {mode!r}: it must be 'fan_in', 'fan_out' or 'fan_avg'.")
        distribution = str(distribution).lower()
        if distribution not in ("normal", "truncated_normal", "uniform"):
            raise ValueError(
                f"Invalid `distribution` argument {distribution!r}: "
                "it must be 'normal', 'truncated_normal' or 'uniform'."
            )
        self.scale = scale
        self.mode = mode
        self.distribution = distribution
        self.fan_in_axes = fan_in_axes

    def __call__(self, shape: Shape, dtype: DType) -> jax.Array:
        fan_in, fan_out = _fans(shape, self.fan_in_axes)
        count = {"fan_in": fan_in, "fan_out": fan_out, "fan_avg": (fan_in + fan_out) / 2.0}[self.mode]
        scale = self.scale / max(1.0, count)
        check_dtype(dtype)
        if self.distribution == "truncated_normal":
            return TruncatedNormal(stddev=np.sqrt(scale) / np.asarray(_TRUNCATED_STD, dtype))(shape, dtype)
        if self.distribution == "normal":
            return RandomNormal(stddev=np.sqrt(scale))(shape, dtype)
        limit = np.sqrt(3.0 * scale)
        return RandomUniform(minval=-limit, maxval=limit)(shape, dtype)


class UniformScaling:
    """Uniform distribution in `±scale * sqrt(3 / n)` for `n` inputs; the variance is `scale**2 / n`.

    Reference: Sussillo & Abbott (2014), "Random walk initialization for training very deep feedforward networks",
    arXiv:1412.6558.

    Args:
      scale: the factor of the bounds.

    Example:

      >>> import hkx, jax.numpy as jnp
      >>> w = hkx.testing.transform_and_run(lambda: hkx.initializers.UniformScaling()([3, 4], jnp.float32))()
      >>> bool((abs(w) <= 1).all())
      True
    """

    def __init__(self, scale: float = 1.0):
        self.scale = checked_number(scale, "scale")

    def __call__(self, shape: Shape, dtype: DType) -> jax.Array:
        inputs = np.prod(shape[:-1])
        limit = np.sqrt(3 / max(inputs, 1)) * self.scale
        return RandomUniform(-limit, limit)(shape, dtype)


class Orthogonal:
    """A uniformly distributed orthogonal matrix: Q of the QR decomposition of a normal matrix, with fixed signs.

    Reference: Saxe et al. (2014), "Exact solutions to the nonlinear dynamics of learning in deep linear neural
    networks", arXiv:1312.6120.

    Args:
      scale: a factor for the matrix.
      axis: the axis of the outputs; all other axes together are the inputs.

    Raises:
      ValueError: when called with a shape of fewer than two dimensions, or without that axis.

    Example:

      >>> import hkx, jax.numpy as jnp
      >>> w = hkx.testing.transform_and_run(lambda: hkx.initializers.Orthogonal()([3, 3], jnp.float32))()
      >>> bool(jnp.allclose(w @ w.T, jnp.eye(3), atol=1e-6))
      True
    """

    def __init__(self, scale: float = 1.0, axis: int = -1):
        self.scale = _number(scale, "scale")
        self.axis = checked_integer(axis, "axis", None)

    def __call__(self, shape: Shape, dtype: DType) -> jax.Array:
        if len(shape) < 2:
            raise ValueError(f"Orthogonal initializer requires at least a 2D shape. Got {tuple(shape)}.")
        if self.axis not in range(-len(shape), len(shape)):
            raise ValueError(f"`axis` of Orthogonal is {self.axis!r}, expected an axis of the shape {tuple(shape)}.")
        check_dtype(dtype)
        check_fits(shape, dtype, scale=self.scale)
        rows = shape[self.axis]
        columns = int(np.prod(shape)) // max(rows, 1)
        tall = (rows, columns) if rows > columns else (columns, rows)
        # JAX has no QR decomposition in half precision.
        wide = jnp.promote_types(dtype, jnp.float32) if jnp.issubdtype(dtype, jnp.floating) else dtype
        q, r = jnp.linalg.qr(jax.random.normal(next_rng_key(), tall, wide))
        q *= jnp.sign(jnp.diag(r))[None]
        if rows < columns:
            q = q.T
        others = tuple(np.delete(shape, self.axis).tolist())
        return (self.scale * jnp.moveaxis(q.reshape((rows, *others)), 0, self.axis)).astype(dtype)


class Identity:
    """The identity matrix, repeated over leading dimensions if there are any.

    Args:
      gain: a factor for the matrix.

    Raises:
      ValueError: when called with a shape of fewer than two dimensions.

    Example:

      >>> import hkx, jax.numpy as jnp
      >>> hkx.testing.transform_and_run(lambda: hkx.initializers.Identity(2.0)([2, 2], jnp.float32))()
      Array([[2., 0.],
             [0., 2.]], dtype=float32)
    """

    def __init__(self, gain: Any = 1.0):
        self.gain = _number(gain, "gain")

    def __call__(self, shape: Shape, dtype: DType) -> jax.Array:
        if len(shape) < 2:
            raise ValueError(f"Identity initializer requires at least a 2D shape. Got {tuple(shape)}.")
        check_fits(shape, dtype, gain=self.gain)
        eye = jnp.eye(shape[-2], shape[-1], dtype=dtype)
        return jax.lax.convert_element_type(self.gain, eye.dtype) * jnp.broadcast_to(eye, tuple(shape))


class Sparse:
    """Uniform distribution in `±1 / sqrt(fan_in)`, except that a random share of each output's weights is zero.

    Reference: Elsayed, Vasan & Mahmood (2024), "Streaming deep reinforcement learning finally works", arXiv:2410.14606.
    There, nine weights out of ten are zero, and biases start at zero.

    Args:
      sparsity: the share of the weights of each output that are zero, in `[0, 1]`: `ceil(sparsity * fan_in)` of them.

    Raises:
      ValueError: if `sparsity` is not between 0 and 1, or when called with a shape of fewer than two dimensions.

    Example:

      >>> import hkx, jax.numpy as jnp
      >>> w = hkx.testing.transform_and_run(lambda: hkx.initializers.Sparse(0.75)([8, 3], jnp.float32))()
      >>> print((w != 0).sum(axis=0))
      [2 2 2]
    """

    def __init__(self, sparsity: float = 0.9):
        if not 0 <= _one_real(sparsity, "sparsity") <= 1:
            raise ValueError(f"`sparsity` is the share of weights that are zero, between 0 and 1, got {sparsity}.")
        self.sparsity = sparsity

    def __call__(self, shape: Shape, dtype: DType) -> jax.Array:
        if len(shape) < 2:
            raise ValueError(f"Sparse initializer requires at least a 2D shape. Got {tuple(shape)}.")
        fan_in = int(np.prod(shape[:-1]))
        weights = TorchUniform()(shape, dtype)
        places = jnp.broadcast_to(jnp.arange(fan_in)[:, None], (fan_in, shape[-1]))
        order = jax.random.permutation(next_rng_key(), places, independent=True)
        zeros = (order < int(np.ceil(self.sparsity * fan_in))).reshape(shape)
        return jnp.where(zeros, jnp.zeros_like(weights), weights)


class TorchUniform:
    """The default of PyTorch's layers: uniform in `±1 / sqrt(fan_in)`, which has the variance `1 / (3 fan_in)`.

    It is the default of `torch.nn.Linear` and of all convolutions, for weights and biases. With the hidden size instead
    of `fan_in`, it is the default of all parameters of `torch.nn.RNN`, `LSTM` and `GRU`. (In transposed convolutions,
    PyTorch counts the outputs, which are in the same place in its weights.) `torch.nn.Embedding` starts from
    `TorchEmbedding`, and the normalisation layers from ones and zeros.

    Args:
      fan_in: the number of inputs of an output. None computes it from the shape of a weight, as the product of all
        sizes but the last. You have to give it for a bias, whose shape does not contain it.

    Raises:
      ValueError: when called with a shape of fewer than two dimensions and without `fan_in`.

    Example:

      >>> import hkx, jax, jax.numpy as jnp
      >>> def f(x):
      ...     torch = hkx.initializers.TorchUniform
      ...     return hkx.Linear(5, w_init=torch(), b_init=torch(fan_in=x.shape[-1]))(x)
      >>> params = hkx.transform(f).init(jax.random.key(0), jnp.ones([1, 4]))
      >>> bool((abs(params["linear"]["b"]) <= 0.5).all())
      True
    """

    def __init__(self, fan_in: int | None = None):
        self.fan_in = None if fan_in is None else _one_real(fan_in, "fan_in")

    def __call__(self, shape: Shape, dtype: DType) -> jax.Array:
        fan_in = self.fan_in
        if fan_in is None:
            if len(shape) < 2:
                raise ValueError(
                    f"The shape {tuple(shape)} does not tell the number of inputs: pass `TorchUniform(fan_in=...)`."
                )
            fan_in = int(np.prod(shape[:-1]))
        limit = 1 / np.sqrt(max(fan_in, 1) / 1)
        return RandomUniform(-limit, limit)(shape, dtype)


class TorchEmbedding(RandomNormal):
    """The default of `torch.nn.Embedding`: a normal distribution with standard deviation 1.

    Example:

      >>> import hkx, jax, jax.numpy as jnp
      >>> f = hkx.transform(lambda i: hkx.Embed(5, 3, w_init=hkx.initializers.TorchEmbedding())(i))
      >>> f.init(jax.random.key(0), jnp.array([0]))["embed"]["embeddings"].shape
      (5, 3)
    """

    def __init__(self) -> None:
        super().__init__(stddev=1.0, mean=0.0)
