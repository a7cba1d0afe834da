"""A linear layer for any Einstein sum."""

from __future__ import annotations

import re
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from hkx import Module, get_parameter, initializers
from hkx.arguments import Flag, Num, checked_integer, is_iterable
from hkx.initializers import Initializer

_EQUATION = re.compile(r"([A-Za-z.]+),([A-Za-z]+)->([A-Za-z.]+)")


class Einsum(Module):
    """`y = einsum(equation, x, w) + b`.

    Args:
      shape: the shape of `w`, with one size for each letter of the second operand.
      equation: an Einstein sum of the input and `w`, such as `"...d,dhk->...hk"`.
      with_bias: whether `b` is added. It has the dimensions of the output that come from `w`.
      w_init: initializer of `w`; by default a normal distribution with standard deviation `1 / sqrt(n)`, truncated at
        two standard deviations, where n is the number of terms in the sum.
      b_init: initializer of `b`; zeros by default.
      name: the module's name.

    Raises:
      ValueError: if the equation does not have two operands and one result, or one letter for each size of `shape`.

    Example:

      >>> import hkx, jax, jax.numpy as jnp
      >>> model = hkx.transform(lambda x: hkx.Einsum([3, 2, 4], "...d,dhk->...hk")(x))
      >>> params = model.init(jax.random.key(0), jnp.ones([5, 3]))
      >>> model.apply(params, None, jnp.ones([5, 3])).shape, params["einsum"]["b"].shape
      ((5, 2, 4), (2, 4))
    """

    def __init__(
        self,
        shape: Sequence[int],
        equation: str,
        with_bias: Flag = True,
        w_init: Initializer | None = None,
        b_init: Initializer | None = None,
        name: str | None = None,
    ):
        super().__init__(name=name)
        match = _EQUATION.fullmatch(str(equation).replace(" ", ""))
        if match is None:
            raise ValueError(
                f"`equation` must be like '...d,dh->...h', without dots in the second operand; got {equation!r}."
            )
        _, self._kernel, self._output = match.groups()
        sizes = shape if is_iterable(shape) else (shape,)
        self.shape = tuple(checked_integer(size, "shape") for size in sizes)
        if len(self._kernel) != len(self.shape):
            raise ValueError(f"`shape` {self.shape} must have one size for each letter of {self._kernel!r}.")
        self.equation = equation
        self.with_bias = with_bias
        self.w_init = w_init
        self.b_init = b_init or jnp.zeros

    def __call__(self, x: Num[jax.Array, "..."], *, precision: jax.lax.PrecisionLike = None) -> jax.Array:
        """Applies the layer.

        Args:
          x: the first operand, of any floating dtype; the parameters are created in this dtype.
          precision: the precision of the products; see `jax.numpy.einsum`.

        Returns:
          The result, with the shape that the equation gives.

        Raises:
          ValueError: if `x` does not have the number of dimensions of the equation, or the size of a letter is not that
            in `shape`.
        """
        sizes = dict(zip(self._kernel, self.shape, strict=True))
        terms = int(np.prod([n for letter, n in sizes.items() if letter not in self._output]))
        w_init = self.w_init or initializers.TruncatedNormal(1.0 / np.sqrt(max(terms, 1)))
        w = get_parameter("w", self.shape, jnp.result_type(x), init=w_init)
        y = jnp.einsum(self.equation, x, w, precision=precision)
        if not self.with_bias:
            return y
        letters = self._output.replace(".", "")
        b = get_parameter("b", [sizes[i] for i in letters if i in sizes], w.dtype, init=self.b_init)
        after_dots = len(self._output.rpartition(".")[2])
        places = [
            k - len(letters) if len(letters) - k <= after_dots else k for k, i in enumerate(letters) if i in sizes
        ]
        dimensions = [p % y.ndim for p in places]
        return y + jax.lax.broadcast_in_dim(b, y.shape, dimensions)
