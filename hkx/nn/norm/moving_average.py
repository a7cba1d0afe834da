"""Exponential moving averages, of one value and of a tree of parameters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.core
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike

from hkx import Module, from_example, get_state, initializers, set_state, traced_once
from hkx.arguments import Flag, Num, Number, deprecated_argument
from hkx.errors import MissingAverageError, MissingStateError
from hkx.nn.norm.params_tree import map_params
from hkx.nn.numerics import broadcast, cast, check_state, constant, state_array, statistics_dtypes


class ExponentialMovingAverage(Module):
    """Stores `hidden <- decay * hidden + (1 - decay) * value` as state, starting from zero.

    With `zero_debias`, the average is `hidden / (1 - decay**n)` after n values (Kingma & Ba, 2015, "Adam: a method for
    stochastic optimization", section 3), else it is `hidden`.

    The state is `hidden`, `average` and `counter`. The counter counts the values from `-warmup_length`, and stops at
    the greatest integer of its dtype. `init` starts `average` at the average of its example, or at 0 if it was
    given a shape instead of an array (see `hkx.from_example`); no later average depends on it.

    Args:
      decay: the factor of the old average at each step, in `[0, 1]`: usually near 1.
      zero_debias: whether to correct for the start from zero.
      warmup_length: the number of first values for which the decay is 0, so that the average is the last value.
      name: the module's name.

    Raises:
      ValueError: if `warmup_length` is negative, or is given together with `zero_debias`.

    Example:

      >>> import hkx
      >>> f = hkx.transform_with_state(lambda x: hkx.ExponentialMovingAverage(0.5)(x))
      >>> _, state = f.init(None, 1.0)
      >>> for x in (1.0, 2.0, 4.0):
      ...     average, state = f.apply({}, state, None, x)
      >>> print(round(float(average), 3))  # (1 * 0.125 + 2 * 0.25 + 4 * 0.5) / 0.875
      3.0
    """

    def __init__(
        self,
        decay: Number[Any, "[0, 1]", "..."],
        zero_debias: Flag = True,
        warmup_length: Number[int, "[0, 2147483647]"] = 0,
        name: str | None = None,
    ):
        super().__init__(name=name)
        if warmup_length and zero_debias:
            raise ValueError(
                "`zero_debias` and `warmup_length` correct for the same thing, the start from zero: "
                f"pass zero_debias=False with warmup_length={warmup_length}."
            )
        self.decay = decay
        self.zero_debias = zero_debias
        self.warmup_length = warmup_length
        self.init = initializers.Constant(0 - warmup_length)
        self.without_example = 0

    def initialize(self, shape: Any, dtype: DTypeLike = jnp.float32) -> None:
        """Starts the average at zero, if it has not been started yet, so that you can read it before the first value.

        Args:
          shape: the shape of the values. Passing an array of that shape and dtype is deprecated.
          dtype: the dtype of the values.

        Warns:
          DeprecationWarning: if `shape` is an array, as Haiku does.
        """
        if hasattr(shape, "dtype"):  # in programs written for early releases of Haiku
            instead = "as an array, write initialize(value.shape, value.dtype)"
            deprecated_argument("shape", "ExponentialMovingAverage.initialize", instead)
            shape, dtype = jnp.shape(shape), shape.dtype
        get_state("hidden", shape, dtype, init=jnp.zeros)
        get_state("average", shape, dtype, init=jnp.zeros)

    def __call__(self, value: Num[Any, "..."], update_stats: Flag = True) -> jax.Array:
        """Averages one more value.

        Args:
          value: an array or a number, of any floating dtype.
          update_stats: whether the state is updated.

        Returns:
          The average that includes `value`, with its shape.

        Raises:
          StateShapeError: if neither `value` nor the average so far broadcasts to the other.
          NotAnArrayError: if the state is not made of arrays.
        """
        wide, dtype = statistics_dtypes(value.dtype)  # in half precision, 0.999 rounds to 1; as an integer, 0.9 is 0
        one, decay = constant(1, wide), constant(self.decay, wide)
        counter = state_array(self, "counter", get_state("counter", (), jnp.int32, init=self.init))
        counter = _next(jnp.asarray(counter))
        if self.warmup_length > 0:
            where = jax.lax.select if not counter.ndim else jnp.where
            decay = where(counter <= 0, jnp.zeros_like(decay), jnp.asarray(decay))
        hidden = state_array(self, "hidden", get_state("hidden", value.shape, dtype, init=jnp.zeros))
        fits = broadcast(hidden.shape, value.shape) in (hidden.shape, value.shape)
        check_state(fits, self, "hidden", hidden, value.shape, "value", value)
        dtype = dtype if hidden.dtype == dtype else jnp.promote_types(hidden.dtype, dtype)
        hidden = _moved(cast(hidden, wide), cast(value, wide), decay, one - decay)
        average = hidden
        if self.zero_debias and (isinstance(decay, jax.Array) or np.any(decay != one)):  # for 1 there is no bias
            average = _without_bias(average, decay, one, counter)
        if update_stats:
            set_state("counter", counter)
            set_state("hidden", cast(hidden, dtype))
            set_state("average", from_example(cast(average, dtype), self.without_example))
        return cast(average, dtype)

    @property
    def average(self) -> jax.Array:
        """The average of the values so far.

        Raises:
          MissingAverageError: if there have been none, and `initialize` was not called.
          NotAnArrayError: if the state is not an array.
        """
        try:
            return state_array(self, "average", get_state("average"))
        except MissingStateError:
            raise MissingAverageError(f"{self.module_name}/average") from None


@traced_once
def _moved(average: Any, value: Any, decay: Any, rest: Any) -> jax.Array:
    return average * decay + value * rest


@traced_once
def _without_bias(average: Any, decay: Any, one: Any, counter: Any) -> jax.Array:
    if not jnp.issubdtype(counter.dtype, jnp.integer):  # a custom getter has cast it
        counter = cast(counter, average.dtype)
    elif not counter.ndim and _on_host(counter):  # a known number: products, as in `jnp.power`
        return average / (one - jax.lax.integer_pow(decay, int(counter)))
    decay, counter = jnp.broadcast_arrays(decay, counter)  # stacked averages may have separate counters
    return average / (one - jax.lax.pow(decay, counter))


def _on_host(x: jax.Array) -> bool:
    """True if the values of `x` can be read without waiting for an accelerator."""
    return not isinstance(x, jax.core.Tracer) and all(device.platform == "cpu" for device in x.devices())


def _next(counter: jax.Array) -> jax.Array:
    """Increments the counter, without overflowing."""
    if not jnp.issubdtype(counter.dtype, jnp.integer):
        return counter + 1
    last = np.asarray(jnp.iinfo(counter.dtype).max, counter.dtype)
    return jax.lax.min(counter, last - 1) + 1


class EMAParamsTree(Module):
    """Stores an `hkx.ExponentialMovingAverage` of every parameter of a tree.

    Args:
      decay: see `hkx.ExponentialMovingAverage`.
      zero_debias: see `hkx.ExponentialMovingAverage`.
      warmup_length: see `hkx.ExponentialMovingAverage`.
      ignore_regex: parameters whose path (`"mlp/~/linear_0/b"`) matches this regular expression at its start are
        returned unchanged.
      name: the module's name.

    Example:

      >>> import hkx, jax.numpy as jnp
      >>> f = hkx.transform_with_state(lambda p: hkx.EMAParamsTree(0.9)(p))
      >>> params, state = f.init(None, {"linear": {"w": jnp.ones([2, 2])}})
      >>> averages, state = f.apply(params, state, None, {"linear": {"w": jnp.ones([2, 2])}})
      >>> list(state)
      ['ema_params_tree/linear__w']
    """

    def __init__(
        self,
        decay: Number[Any, "[0, 1]", "..."],
        zero_debias: Flag = True,
        warmup_length: Number[int, "[0, 2147483647]"] = 0,
        ignore_regex: str = "",
        name: str | None = None,
    ):
        super().__init__(name=name)
        self.decay = decay
        self.zero_debias = zero_debias
        self.warmup_length = warmup_length
        self.ignore_regex = ignore_regex

    def __call__(self, tree: Mapping[str, Mapping[str, Any]], update_stats: Flag = True) -> dict[str, dict[str, Any]]:
        """Averages the parameters.

        Args:
          tree: parameters as `init` returns them.
          update_stats: whether the state is updated.

        Returns:
          A tree of the same structure: the averages that include `tree`.

        Raises:
          TypeError: if `tree` is not a dict of dicts.
        """

        def average(name: str, value: Any) -> jax.Array:
            ema = ExponentialMovingAverage(self.decay, self.zero_debias, self.warmup_length, name=name)
            return ema(value, update_stats=update_stats)

        return map_params(tree, average, self.ignore_regex, tilde="_tilde_")
