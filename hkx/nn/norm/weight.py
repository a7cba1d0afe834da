"""Weight normalisation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from hkx import GetterContext, Module, custom_getter, get_parameter, transparent
from hkx.arguments import Function, Index, Number, is_iterable
from hkx.errors import UnusedNameError
from hkx.initializers import Initializer
from hkx.nn.numerics import constant, dimension_of, narrowed, widened


class WeightNorm(Module):
    """Gives the weights of a layer a separate length: `w = g * v / ||v||`, for each output.

    v is the unchanged parameter of the layer, and g is an additional parameter, with `_scale` added to the name.

    Reference: Salimans & Kingma (2016), "Weight normalization: a simple reparameterization to accelerate training of
    deep neural networks", arXiv:1602.07868.

    Args:
      layer: a module, or a function that calls modules.
      parameters: the names of the parameters to normalise, or a single name.
      feature_axis: the dimension of the weights along which each element has its own g; the norm is over the others.
      eps: a constant that is added to the squared norm.
      scale_init: initializer of g; ones by default.
      name: the module's name.

    Example:

      >>> import hkx, jax, jax.numpy as jnp
      >>> model = hkx.transform(lambda x: hkx.WeightNorm(hkx.Linear(2))(x))
      >>> jax.tree.map(jnp.shape, model.init(jax.random.key(0), jnp.ones([1, 3])))
      {'linear': {'b': (2,), 'w': (3, 2), 'w_scale': (2,)}}
    """

    def __init__(
        self,
        layer: Function,
        parameters: Sequence[str] | str = ("w",),
        feature_axis: Index = -1,
        eps: Number[float, "[0, inf)", "..."] = 1e-12,
        scale_init: Initializer | None = None,
        name: str | None = None,
    ):
        super().__init__(name=name)
        self.layer = layer
        names: Any = tuple(parameters) if is_iterable(parameters) else (parameters,)
        if not all(isinstance(name, str) for name in names):
            raise TypeError(f"`parameters` of `hkx.WeightNorm` must be a list of names, got {parameters!r}.")
        self.parameters: tuple[str, ...] = names
        self.feature_axis = feature_axis
        self.eps = eps
        self.scale_init = scale_init or jnp.ones

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Calls the layer with normalised weights.

        Raises:
          UnusedNameError: if the layer asks for no parameter of one of the given names.
        """
        asked: set[str] = set()  # the names of the layer's parameters, and of their lengths

        def getter(next_getter: Callable[[Any], Any], value: jax.Array, context: GetterContext) -> Any:
            asked.add(context.name)
            value = next_getter(value)
            if context.name not in self.parameters or not hasattr(value, "shape"):  # get_parameter raises an error then
                return value
            return self._normalised(value, context)

        with custom_getter(getter):
            out = self.layer(*args, **kwargs)
        for name in self.parameters:
            if name not in asked:
                raise UnusedNameError("hkx.WeightNorm", "parameters", name, asked - set(map(_scale, self.parameters)))
        return out

    @transparent
    def _normalised(self, value: jax.Array, context: GetterContext) -> Any:
        axis = dimension_of(self.feature_axis, value.shape, "hkx.WeightNorm", "feature_axis")
        scale = get_parameter(_scale(context.name), [value.shape[axis]], value.dtype, init=self.scale_init)
        others = tuple(i for i in range(value.ndim) if i != axis)
        wide = widened(value)
        squares = jnp.sum(jnp.square(wide), axis=others)
        squares += constant(self.eps, squares.dtype)
        lengths = jax.lax.broadcast_in_dim(widened(scale) * jax.lax.rsqrt(squares), value.shape, (axis,))
        return narrowed(wide * lengths, value, scale)


def _scale(name: str) -> str:
    """The name of the parameter that holds the length g of another one."""
    return f"{name}_scale"
