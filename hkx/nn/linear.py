"""Linear layers, biases and sequences of layers."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Generic, TypeVar, overload

import jax
import jax.numpy as jnp
import numpy as np

from hkx import Module, get_parameter, initializers, traced_once
from hkx.arguments import checked_flag, checked_function, checked_integer, is_iterable
from hkx.errors import NotABoolError, NotAListError
from hkx.initializers import Initializer
from hkx.nn.inputs import array_of, array_with_dimensions, entries_in, given_or, without_leading_ones

R = TypeVar("R")


@functools.lru_cache  # called whenever the layer runs, but only needed in `init`
def _default_init(input_size: int) -> Initializer:
    return initializers.TruncatedNormal(stddev=1.0 / np.sqrt(max(input_size, 1)))


class Linear(Module):
    """`y = x w + b` over the last dimension.

    Args:
      output_size: the size of the last dimension of the output.
      with_bias: whether `b` is added.
      w_init: initializer of `w`, shape `[input_size, output_size]`; by default a normal distribution of standard
        deviation `1 / sqrt(input_size)`, truncated at two standard deviations.
      b_init: initializer of `b`, shape `[output_size]`; zeros by default.
      name: the module's name.

    Raises:
      NotABoolError: if the second argument is a number above 1, as in `Linear(784, 10)`: do not pass the input size.

    Example:

      >>> import hkx, jax, jax.numpy as jnp
      >>> model = hkx.transform(lambda x: hkx.Linear(2)(x))
      >>> params = model.init(jax.random.key(0), jnp.ones([5, 3]))
      >>> jax.tree.map(jnp.shape, params)
      {'linear': {'b': (2,), 'w': (3, 2)}}
    """

    def __new__(cls, *args: Any, **kwargs: Any) -> Linear:
        # Checked here, because `__init__` cannot tell a positional argument from `with_bias=2`. Programs written for
        # Haiku may pass 0 and 1 as flags.
        if cls.__init__ is Linear.__init__ and len(args) > 1 and type(args[1]) is int and args[1] not in (0, 1):
            raise NotABoolError("hkx.Linear", "with_bias", args[1])
        return super().__new__(cls)

    def __init__(
        self,
        output_size: int,
        with_bias: bool = True,
        w_init: Initializer | None = None,
        b_init: Initializer | None = None,
        name: str | None = None,
    ):
        super().__init__(name=name)
        self.input_size: int | None = None
        self.output_size = output_size
        self.with_bias = with_bias
        self.w_init = w_init
        self.b_init = given_or(b_init, jnp.zeros)

    def __call__(self, inputs: jax.Array, *, precision: jax.lax.PrecisionLike = None) -> jax.Array:
        """Applies the layer.

        Args:
          inputs: `[..., input_size]`, of any floating dtype; the parameters are created in this dtype.
          precision: the precision of the matrix product; see `jax.lax.dot`.

        Returns:
          `[..., output_size]`.

        Raises:
          ScalarInputError: if `inputs` is a scalar.
          InvalidInputError: if it is not an array.
        """
        inputs = array_with_dimensions(inputs, self)
        input_size = self.input_size = inputs.shape[-1]
        w_init = _default_init(input_size) if self.w_init is None else self.w_init
        output_size = checked_integer(self.output_size, "output_size")
        w = get_parameter("w", [input_size, output_size], inputs.dtype, init=w_init)
        has_bias = checked_flag(self.with_bias, "with_bias", type(self).__name__)
        b = get_parameter("b", [output_size], inputs.dtype, init=self.b_init) if has_bias else None
        return _affine(inputs, w, b, precision=precision)


@functools.partial(traced_once, static_argnames="precision")
def _affine(inputs: Any, w: Any, b: Any, *, precision: Any) -> jax.Array:
    out = jnp.dot(inputs, w, precision=precision)
    return out if b is None else out + jnp.broadcast_to(b, out.shape)


class Bias(Module):
    """`y = x + multiplier * b`.

    Args:
      output_size: the shape of the input without its batch dimension; checked if given.
      bias_dims: the dimensions along which `b` has one entry for each element. All other dimensions of `b` have size 1;
        leading dimensions of size 1 are omitted. None means all but the first; an empty sequence gives a single number.
      b_init: initializer of `b`; zeros by default.
      name: the module's name.

    Example:

      >>> import hkx, jax, jax.numpy as jnp
      >>> model = hkx.transform(lambda x: hkx.Bias(bias_dims=[-1])(x))
      >>> jax.tree.map(jnp.shape, model.init(jax.random.key(0), jnp.ones([2, 4, 3])))
      {'bias': {'b': (3,)}}
    """

    def __init__(
        self,
        output_size: Sequence[int] | None = None,
        bias_dims: Sequence[int] | None = None,
        b_init: Initializer | None = None,
        name: str | None = None,
    ):
        super().__init__(name=name)
        self.output_size = output_size
        self.bias_dims = bias_dims
        self.b_init = given_or(b_init, jnp.zeros)
        self.bias_shape: tuple[int, ...] | None = None
        self.input_size: tuple[int, ...] | None = None

    def __call__(self, inputs: jax.Array, multiplier: float | jax.Array | None = None) -> jax.Array:
        """Applies the layer.

        Args:
          inputs: an array with a leading batch dimension, of any floating dtype.
          multiplier: a number, or an array that broadcasts to `inputs`; 1 by default.

        Returns:
          An array of the shape of `inputs`.

        Raises:
          ValueError: if the shape of `inputs` does not agree with `output_size`, or has fewer than two dimensions.
        """
        inputs = array_of(inputs, self)
        shape = inputs.shape
        if len(shape) < 2:
            raise ValueError(
                f"Input to Bias must have rank >= 2, a batch dimension and others: `inputs` has shape {shape}."
            )
        if self.output_size is not None and _sequence(self.output_size, "output_size") != shape[1:]:
            raise ValueError(
                f"Input shape must be {(-1, *self.output_size)}, with -1 for the batch, but `inputs` has shape {shape}."
            )
        self.input_size = shape[1:]
        self.bias_shape = _bias_shape(shape, self.bias_dims)
        b = get_parameter("b", self.bias_shape, inputs.dtype, init=self.b_init)
        b = jnp.broadcast_to(b, shape)
        return inputs + (b if multiplier is None else b * multiplier)


def _sequence(value: Any, argument: str) -> tuple[Any, ...]:
    if not is_iterable(value):
        raise TypeError(f"`{argument}` of `hkx.Bias` must be a sequence of whole numbers, got {value!r}: [{value!r}].")
    return tuple(value)


def _bias_shape(shape: tuple[int, ...], bias_dims: Sequence[int] | None) -> tuple[int, ...]:
    if bias_dims is None:
        return shape[1:]
    if entries_in(bias_dims) == 0 or (not hasattr(bias_dims, "shape") and not bias_dims):
        return ()
    rank, given = len(shape), [checked_integer(dim, "bias_dims", None) for dim in _sequence(bias_dims, "bias_dims")]
    for dim in given:
        if dim == 0 or not -rank < dim < rank:
            raise ValueError(
                f"Dimension {dim} (`bias_dims`) is out of range for input of rank {rank}: it must be one of {shape}, "
                "without the first."
            )
    dims = {dim % rank for dim in given}
    full = [size if i in dims else 1 for i, size in enumerate(shape)]
    return without_leading_ones(full)


class Sequential(Module, Generic[R]):
    """Calls layers one after the other, each on the result of the previous one.

    Args:
      layers: modules or functions.
      name: the module's name.

    Raises:
      NotAListError: if `layers` is a single module or function.

    Example:

      >>> import hkx, jax, jax.numpy as jnp
      >>> f = hkx.transform(lambda x: hkx.Sequential([hkx.Linear(4), jax.nn.relu, hkx.Linear(1)])(x))
      >>> f.apply(f.init(jax.random.key(0), jnp.ones([2, 3])), None, jnp.ones([2, 3])).shape
      (2, 1)
    """

    @overload
    def __init__(self, layers: Iterable[Callable[..., R]], name: str | None = None): ...
    @overload
    def __init__(self: Sequential[jax.Array], layers: Iterable[Callable[..., Any]], name: str | None = None): ...
    def __init__(self, layers: Iterable[Callable[..., Any]], name: str | None = None):
        super().__init__(name=name)
        if not is_iterable(layers) and (hasattr(layers, "ndim") or not hasattr(layers, "__getitem__")):
            raise NotAListError("hkx.Sequential", "layers", layers)
        self.layers = tuple(layers)

    def __call__(self, inputs: Any, *args: Any, **kwargs: Any) -> R:
        """Calls the first layer with all arguments, and every other layer with the result of the previous one."""
        out = inputs
        for i, layer in enumerate(self.layers):
            checked_function(layer, "hkx.Sequential", "layers")
            out = layer(out, *args, **kwargs) if i == 0 else layer(out)
        return out
