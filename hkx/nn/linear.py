"""Linear layers, biases and sequences of layers."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Annotated, Any, Generic, TypeVar, overload

import jax
import jax.numpy as jnp
import numpy as np

from hkx import Module, get_parameter, initializers, traced_once
from hkx.arguments import Flag, Function, Items, Num, Rule, Size, checked_integer, is_iterable
from hkx.errors import NotAListError
from hkx.initializers import Initializer
from hkx.nn.numerics import without_leading_ones

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
      NotABoolError: if `with_bias` is a number above 1, as in `Linear(784, 10)`: do not pass the input size.

    Example:

      >>> import hkx, jax, jax.numpy as jnp
      >>> model = hkx.transform(lambda x: hkx.Linear(2)(x))
      >>> params = model.init(jax.random.key(0), jnp.ones([5, 3]))
      >>> jax.tree.map(jnp.shape, params)
      {'linear': {'b': (2,), 'w': (3, 2)}}
    """

    def __init__(
        self,
        output_size: Size,
        with_bias: Flag = True,
        w_init: Initializer | None = None,
        b_init: Initializer | None = None,
        name: str | None = None,
    ):
        super().__init__(name=name)
        self.input_size: int | None = None
        self.output_size = output_size
        self.with_bias = with_bias
        self.w_init = w_init
        self.b_init = b_init or jnp.zeros

    def __call__(self, inputs: Num[jax.Array, "... D"], *, precision: jax.lax.PrecisionLike = None) -> jax.Array:
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
        input_size = self.input_size = inputs.shape[-1]
        w_init = _default_init(input_size) if self.w_init is None else self.w_init
        w = get_parameter("w", [input_size, self.output_size], inputs.dtype, init=w_init)
        b = get_parameter("b", [self.output_size], inputs.dtype, init=self.b_init) if self.with_bias else None
        return _affine(inputs, w, b, precision=precision)


@functools.partial(traced_once, static_argnames="precision")
def _affine(inputs: Any, w: Any, b: Any, *, precision: Any) -> jax.Array:
    out = jnp.dot(inputs, w, precision=precision)  # [..., output_size]
    return out if b is None else out + jnp.broadcast_to(b, out.shape)


def _bias_dims(value: Any, argument: str, taker: str) -> tuple[int, ...]:
    if not hasattr(value, "shape") and not value:  # 0 too, as in Haiku
        return ()
    if not is_iterable(value):
        raise NotAListError(taker, argument, value)
    return tuple(checked_integer(dim, argument, None, taker) for dim in value)


BiasDims = Annotated[Iterable[int], Rule(_bias_dims)]


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
        output_size: Items[Size] | None = None,
        bias_dims: BiasDims | None = None,
        b_init: Initializer | None = None,
        name: str | None = None,
    ):
        super().__init__(name=name)
        self.output_size = output_size
        self.bias_dims = bias_dims
        self.b_init = b_init or jnp.zeros
        self.bias_shape: tuple[int, ...] | None = None
        self.input_size: tuple[int, ...] | None = None

    def __call__(self, inputs: Num[jax.Array, "..."], multiplier: float | jax.Array | None = None) -> jax.Array:
        """Applies the layer.

        Args:
          inputs: an array with a leading batch dimension, of any floating dtype.
          multiplier: a number, or an array that broadcasts to `inputs`; 1 by default.

        Returns:
          An array of the shape of `inputs`.

        Raises:
          ValueError: if the shape of `inputs` does not agree with `output_size`, or has fewer than two dimensions.
        """
        shape = inputs.shape
        if len(shape) < 2:
            raise ValueError(
                f"Input to Bias must have rank >= 2, a batch dimension and others: `inputs` has shape {shape}."
            )
        if self.output_size is not None and tuple(self.output_size) != shape[1:]:
            raise ValueError(
                f"Input shape must be {(-1, *self.output_size)}, with -1 for the batch, but `inputs` has shape {shape}."
            )
        self.input_size = shape[1:]
        self.bias_shape = _bias_shape(shape, self.bias_dims)
        b = get_parameter("b", self.bias_shape, inputs.dtype, init=self.b_init)
        b = jnp.broadcast_to(b, shape)
        return inputs + (b if multiplier is None else b * multiplier)


def _bias_shape(shape: tuple[int, ...], bias_dims: Iterable[int] | None) -> tuple[int, ...]:
    if bias_dims is None:
        return shape[1:]
    rank, dims = len(shape), set()
    for dim in bias_dims:
        if dim == 0 or not -rank < dim < rank:
            raise ValueError(
                f"Dimension {dim} (`bias_dims`) is out of range for input of rank {rank}: it must be one of {shape}, "
                "without the first."
            )
        dims.add(dim % rank)
    full = [size if i in dims else 1 for i, size in enumerate(shape)]
    return without_leading_ones(full) if dims else ()


class Sequential(Module, Generic[R]):
    """Calls layers one after the other, each on the result of the previous one.

    Args:
      layers: modules or functions.
      name: the module's name.

    Raises:
      NotAListError: if `layers` is a single module or function.
      NotAFunctionError: if one of them is not callable.

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
    def __init__(self, layers: Items[Function], name: str | None = None):
        super().__init__(name=name)
        self.layers = tuple(layers)

    def __call__(self, inputs: Any, *args: Any, **kwargs: Any) -> R:
        """Calls the first layer with all arguments, and every other layer with the result of the previous one."""
        out = inputs
        for i, layer in enumerate(self.layers):
            out = layer(out, *args, **kwargs) if i == 0 else layer(out)
        return out
