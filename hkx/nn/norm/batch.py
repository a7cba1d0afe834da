"""Batch normalisation."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from hkx import ExponentialMovingAverage, Module, get_channel_index, running_init, traced_once, transparent
from hkx.arguments import Axes, Flag, Num, Number
from hkx.initializers import Initializer
from hkx.nn.norm.affine import (
    check_axes,
    check_given,
    check_inits,
    nonnegative,
    normalized,
    parameter_or_given,
    resolved_axes,
)
from hkx.nn.numerics import (
    cast,
    check_dtype,
    check_state,
    constant,
    narrowed,
    statistics_dtypes,
    widened,
    without_leading_ones,
)
from hkx.nn.replicas import mean_over_replicas


class BatchNorm(Module):
    """Normalises each channel by the mean and variance of the batch, or by their moving averages.

    `y = (x - E[x]) / sqrt(Var[x] + eps) * scale + offset`, with mean and variance over all dimensions but the channels
    (or over `axis`). As in Haiku, `Var[x] = E[x**2] - E[x]**2`; this loses precision if a mean is thousands of times as
    large as the standard deviation, so subtract a constant from such inputs first. The moving averages are the state
    of two `hkx.ExponentialMovingAverage` in this module, `mean_ema` and `var_ema`. Until the first update they contain
    the statistics of the example that was passed to `init`. If `init` was given shapes instead of arrays, or the
    example is empty, they contain mean 0 and variance 1 (see `hkx.from_example`).

    Reference: Ioffe & Szegedy (2015), "Batch normalization: accelerating deep network training by reducing internal
    covariate shift", arXiv:1502.03167.

    Args:
      create_scale: whether there is a parameter `scale`.
      create_offset: whether there is a parameter `offset`.
      decay_rate: the decay of the moving averages, such as 0.9.
      eps: a constant that is added to the variance.
      scale_init: initializer of `scale`; ones by default.
      offset_init: initializer of `offset`; zeros by default.
      axis: the dimensions over which the statistics are computed, counted from the front; None: all but the channels.
      cross_replica_axis: the name of a mapped axis (of `jax.vmap`, `jax.pmap` or `jax.shard_map`), or several names,
        over which the statistics are averaged too. `init` may run without that axis; it then uses only its own example.
      cross_replica_axis_index_groups: groups of indices along that axis; averages are computed within each group.
      data_format: where the channels are; see `hkx.get_channel_index`.
      name: the module's name.

    Raises:
      ValueError: if an initializer is given for a parameter that is not created, `data_format` does not say where the
        channels are, or there are groups without an axis.

    Example:

      >>> import hkx, jax, jax.numpy as jnp
      >>> def f(x, is_training):
      ...     return hkx.BatchNorm(create_scale=True, create_offset=True, decay_rate=0.9)(x, is_training)
      >>> model = hkx.transform_with_state(f)
      >>> x = jnp.array([[1.0], [3.0]])
      >>> params, state = model.init(None, x, is_training=True)
      >>> y, state = model.apply(params, state, None, x, is_training=True)
      >>> print(y.ravel().round(2))
      [-1.  1.]
    """

    def __init__(
        self,
        create_scale: Flag,
        create_offset: Flag,
        decay_rate: Number[float, "[0, 1]"],
        eps: Number[float, "[0, inf)", "..."] = 1e-5,
        scale_init: Initializer | None = None,
        offset_init: Initializer | None = None,
        axis: Axes | None = None,
        cross_replica_axis: str | Sequence[str] | None = None,
        cross_replica_axis_index_groups: Sequence[Sequence[int]] | None = None,
        data_format: str = "channels_last",
        name: str | None = None,
    ):
        super().__init__(name=name)
        check_inits(create_scale, create_offset, scale_init, offset_init)
        if cross_replica_axis is None and cross_replica_axis_index_groups is not None:
            raise ValueError(
                "`cross_replica_axis` name must be specified if `cross_replica_axis_index_groups` are used."
            )
        self.create_scale = create_scale
        self.create_offset = create_offset
        self.eps = eps
        self.scale_init = scale_init or jnp.ones
        self.offset_init = offset_init or jnp.zeros
        self.axis = axis
        self.cross_replica_axis = cross_replica_axis
        self.cross_replica_axis_index_groups = cross_replica_axis_index_groups
        self.channel_index = get_channel_index(data_format)
        self.mean_ema = ExponentialMovingAverage(decay_rate, name="mean_ema")
        self.var_ema = ExponentialMovingAverage(decay_rate, name="var_ema")
        self.var_ema.without_example = 1

    def __call__(
        self,
        inputs: Num[jax.Array, "..."],
        is_training: Flag,
        test_local_stats: Flag = False,
        scale: Num[jax.Array, "..."] | None = None,
        offset: Num[jax.Array, "..."] | None = None,
    ) -> jax.Array:
        """Normalises `inputs`.

        Args:
          inputs: `[N, ..., C]` or `[N, C, ...]`, by the data format; of any floating dtype.
          is_training: whether the statistics of the batch are used, and the moving averages updated.
          test_local_stats: whether the statistics of the batch are used when `is_training` is false.
          scale: a factor, if `create_scale` is false; it broadcasts to `inputs`.
          offset: a term to add, if `create_offset` is false; it broadcasts to `inputs`.

        Returns:
          An array of the shape of `inputs`.

        Raises:
          ValueError: if a scale or an offset is passed, but the layer has its own, or the batch is empty and its
            statistics are asked for, other than in `init`, which takes mean 0 and variance 1 for those.
          InvalidInputError: if `inputs` is not an array.
          MissingAverageError: if the moving averages are asked for and nothing has been averaged yet.
          StateShapeError: if the moving averages are those of inputs with other channels.
          InputDTypeError: if `inputs` are integers and the moving averages are asked for.
        """
        check_given(self.create_scale, self.create_offset, scale, offset)
        shape, dtype = inputs.shape, inputs.dtype
        channel = self.channel_index + len(shape) if self.channel_index < 0 else self.channel_index
        others = tuple(i for i in range(len(shape)) if i != channel)
        axis = others if self.axis is None else resolved_axes(self.axis, len(shape))
        check_axes(axis, shape, "hkx.BatchNorm")
        wide = widened(inputs) if jnp.issubdtype(dtype, jnp.inexact) else inputs
        if is_training or test_local_stats:
            mean, variance = self._statistics(wide, axis)
        else:
            mean, variance = self._moving(inputs, axis, wide.dtype)
        if is_training:
            mean, variance = self._averaged(mean, variance, inputs, axis)
        own = [1 if i in axis else size for i, size in enumerate(shape)]
        scale = parameter_or_given("scale", self.create_scale, scale, own, dtype, self.scale_init)
        offset = parameter_or_given("offset", self.create_offset, offset, own, dtype, self.offset_init)
        out = normalized(wide, mean, variance, self.eps, widened(scale), widened(offset))
        return narrowed(out, inputs, scale, offset)

    @transparent
    def _moving(self, inputs: jax.Array, axis: tuple[int, ...], dtype: Any) -> tuple[jax.Array, jax.Array]:
        """The moving averages; raises an error unless their shape matches the channels of `inputs`."""
        floating = jnp.issubdtype(dtype, jnp.inexact)
        check_dtype(floating, self, "inputs", dtype, "a floating dtype when the moving averages are used")
        over = [i % inputs.ndim for i in axis]
        wanted = [1 if i in over else n for i, n in enumerate(inputs.shape)]
        averages = []
        for ema in (self.mean_ema, self.var_ema):
            average = ema.average
            fits = without_leading_ones(average.shape) == without_leading_ones(wanted)
            check_state(fits, ema, "average", average, wanted, "inputs", inputs)
            averages.append(average.astype(dtype))
        return averages[0], averages[1]

    @transparent
    def _averaged(
        self, mean: jax.Array, variance: jax.Array, inputs: jax.Array, axis: tuple[int, ...]
    ) -> tuple[jax.Array, jax.Array]:
        """Updates the moving averages; returns the mean and variance by which a training batch is normalised."""
        _, dtype = statistics_dtypes(inputs.dtype)
        self.mean_ema(cast(mean, dtype))
        self.var_ema(cast(variance, dtype))
        return mean, variance

    @transparent
    def _statistics(self, inputs: Any, axis: tuple[int, ...]) -> tuple[jax.Array, jax.Array]:
        shape = inputs.shape
        if any(shape[i] == 0 for i in axis):
            if running_init():  # programs may pass an empty batch to save time
                kept = [1 if i in axis else n for i, n in enumerate(shape)]
                return jnp.zeros(kept, inputs.dtype), jnp.ones(kept, inputs.dtype)
            raise ValueError(
                f"`inputs` of shape {shape} has nothing to take mean and variance of along the dimensions {axis}: skip "
                "empty batches, or use the moving averages (`is_training=False`)."
            )
        wide_dtype, dtype = statistics_dtypes(inputs.dtype)
        wide = cast(inputs, wide_dtype)  # in float16, squares overflow
        mean, squares = _mean_and_squares(wide, axis=axis)
        moments, groups = (mean, squares), self.cross_replica_axis_index_groups
        mean, squares = mean_over_replicas(moments, self.cross_replica_axis, groups)
        return cast(mean, dtype), cast(_variance(mean, squares), dtype)


@functools.partial(traced_once, static_argnames="axis")
def _mean_and_squares(inputs: Any, *, axis: tuple[int, ...]) -> tuple[jax.Array, jax.Array]:
    return jnp.mean(inputs, axis, keepdims=True), jnp.mean(jnp.square(inputs), axis, keepdims=True)


@traced_once
def _variance(mean: Any, squares: Any) -> jax.Array:
    return nonnegative(squares - jnp.square(mean))


class BatchRenorm(BatchNorm):
    """Batch normalisation that is corrected towards the moving averages, which evaluation uses, in training too.

    `y = ((x - E[x]) / σ * r + d) * scale + offset` with `σ = sqrt(Var[x] + eps)`, `r = clip(σ / σ', 1 / r_max, r_max)`
    and `d = clip((E[x] - μ') / σ', -d_max, d_max)`, where μ' and σ' are the moving averages before the batch, and r and
    d are constants to gradients. With `r_max=1` and `d_max=0` it is `hkx.BatchNorm`, which both papers use for the
    first steps: `r_max=jnp.where(step < 100_000, 1.0, 3.0)`. State and parameters are those of `hkx.BatchNorm`.

    CrossQ learns values without target networks by normalising the batch of both states and actions as one, as the
    example does; its loss is that of soft actor-critic, whose target is a constant.

    References: Ioffe (2017), "Batch renormalization: towards reducing minibatch dependence in batch-normalized models",
    arXiv:1702.03275; Bhatt et al. (2024), "CrossQ: batch normalization in deep reinforcement learning for greater
    sample efficiency and simplicity", arXiv:1902.05605.

    Args:
      create_scale: whether there is a parameter `scale`.
      create_offset: whether there is a parameter `offset`.
      decay_rate: the decay of the moving averages, such as 0.99.
      eps: a constant that is added to the variance.
      r_max: the bound on the correction of the scale, 1 or more; it may be traced.
      d_max: the bound on the correction of the shift, 0 or more; it may be traced.
      **options: the other arguments of `hkx.BatchNorm`.

    Raises:
      ValueError: as for `hkx.BatchNorm`, and if `r_max` or `d_max` is out of range; in training, if the inputs
        are complex.

    Example:

      >>> import hkx, jax, jax.numpy as jnp
      >>> def critic(observation, action, is_training):
      ...     x = jnp.concatenate([observation, action], axis=-1)
      ...     x = jax.nn.relu(hkx.Linear(16)(hkx.BatchRenorm(True, True, 0.99)(x, is_training)))
      ...     return hkx.Linear(1)(hkx.BatchRenorm(True, True, 0.99)(x, is_training))[:, 0]
      >>> def both(s_tm1, a_tm1, s_t, a_t):  # one pass, so that the statistics are those of the mixture
      ...     values = critic(jnp.concatenate([s_tm1, s_t]), jnp.concatenate([a_tm1, a_t]), is_training=True)
      ...     return jnp.split(values, 2)
      >>> model = hkx.transform_with_state(both)
      >>> batch = jnp.ones([8, 3]), jnp.ones([8, 1]), jnp.zeros([8, 3]), jnp.zeros([8, 1])
      >>> params, state = model.init(jax.random.key(0), *batch)
      >>> (q_tm1, q_t), state = model.apply(params, state, None, *batch)
      >>> q_tm1.shape, q_t.shape
      ((8,), (8,))
    """

    def __init__(
        self,
        create_scale: Flag,
        create_offset: Flag,
        decay_rate: Number[float, "[0, 1]"],
        eps: Number[float, "[0, inf)", "..."] = 1e-3,
        r_max: Number[Any, "[1, inf)"] = 3.0,
        d_max: Number[Any, "[0, inf)"] = 5.0,
        **options: Any,
    ):
        super().__init__(create_scale, create_offset, decay_rate, eps, **options)
        self.r_max, self.d_max = r_max, d_max

    @transparent
    def _averaged(
        self, mean: jax.Array, variance: jax.Array, inputs: jax.Array, axis: tuple[int, ...]
    ) -> tuple[jax.Array, jax.Array]:
        check_dtype(not jnp.iscomplexobj(inputs), self, "inputs", inputs.dtype, "a real one")
        if running_init():  # the averages begin with this batch
            return super()._averaged(mean, variance, inputs, axis)
        eps = constant(self.eps, variance.dtype)
        old_mean, old_variance = self._moving(inputs, axis, mean.dtype)
        super()._averaged(mean, variance, inputs, axis)
        r_max, d_max = (jnp.asarray(x, mean.dtype) for x in (self.r_max, self.d_max))
        r = jnp.clip(jnp.sqrt((variance + eps) / (old_variance + eps)), 1 / r_max, r_max)
        d = jnp.clip((mean - old_mean) * jax.lax.rsqrt(old_variance + eps), -d_max, d_max)
        # (x - mean) / σ * r + d is (x - shifted) / (σ / r).
        r, d = jax.lax.stop_gradient((r, d))
        return mean - d * jnp.sqrt(variance + eps) / r, (variance + eps) / jnp.square(r) - eps
