"""Embeddings."""

from __future__ import annotations

import enum
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from hkx import Module, get_parameter, initializers
from hkx.arguments import Int, Num, Size
from hkx.errors import UnknownLookupStyleError
from hkx.initializers import Initializer
from hkx.nn.numerics import divided, in_32_bits, parts_of_rows, rows_at


class EmbedLookupStyle(enum.Enum):
    """Methods by which `hkx.Embed` reads the rows of its matrix.

    Example:

      >>> import hkx
      >>> hkx.EmbedLookupStyle["ONE_HOT"].name
      'ONE_HOT'
    """

    ARRAY_INDEX = 1
    """By indexing: fast on CPU and GPU, and for large vocabularies."""
    ONE_HOT = 2
    """By a product with one-hot vectors: may be faster on accelerators that are slow at indexing."""


def _style(value: str | EmbedLookupStyle) -> EmbedLookupStyle:
    name = value.upper() if isinstance(value, str) else getattr(value, "name", "")
    if name not in EmbedLookupStyle.__members__:
        raise UnknownLookupStyleError(value, EmbedLookupStyle.__members__)
    return EmbedLookupStyle[name]


class Embed(Module):
    """A vector for each integer: `y = E[i]`.

    Args:
      vocab_size: the number of integers.
      embed_dim: the size of a vector.
      embedding_matrix: the initial value of the parameter `embeddings`, `[vocab_size, embed_dim]`, instead of a random
        one; it determines both sizes.
      w_init: initializer of `embeddings`; by default a normal distribution with standard deviation 1, truncated at two
        standard deviations.
      lookup_style: `"ARRAY_INDEX"` or `"ONE_HOT"`, or a member of `hkx.EmbedLookupStyle`.
      name: the module's name.
      precision: the precision of the matrix product with one-hot vectors; see `jax.lax.dot`.

    Raises:
      ValueError: if neither a matrix nor both sizes are given, or they contradict each other.

    Example:

      >>> import hkx, jax, jax.numpy as jnp
      >>> model = hkx.transform(lambda ids: hkx.Embed(vocab_size=10, embed_dim=4)(ids))
      >>> ids = jnp.array([[1, 2, 3]])
      >>> model.apply(model.init(jax.random.key(0), ids), None, ids).shape
      (1, 3, 4)
    """

    def __init__(
        self,
        vocab_size: Size | None = None,
        embed_dim: Size | None = None,
        embedding_matrix: Num[jax.Array | np.ndarray, "V D"] | None = None,
        w_init: Initializer | None = None,
        lookup_style: str | EmbedLookupStyle = "ARRAY_INDEX",
        name: str | None = None,
        precision: jax.lax.PrecisionLike = jax.lax.Precision.HIGHEST,
    ):
        super().__init__(name=name)
        self.dtype: Any = jnp.float32
        if embedding_matrix is not None:
            _check_sizes(embedding_matrix.shape, vocab_size, embed_dim)
            vocab_size, embed_dim = embedding_matrix.shape
            self.dtype, w_init = embedding_matrix.dtype, initializers.Constant(embedding_matrix)
        if not (vocab_size and embed_dim):
            raise ValueError(
                "hkx.Embed must be supplied either with an `embedding_matrix`, which has a size, or with both sizes, "
                "`vocab_size` and `embed_dim`."
            )
        self.vocab_size = vocab_size
        self.embed_dim = embed_dim
        self.lookup_style = lookup_style
        self.precision = precision
        self.w_init = w_init or initializers.TruncatedNormal()

    @property
    def embeddings(self) -> jax.Array:
        """The matrix, `[vocab_size, embed_dim]`."""
        return get_parameter("embeddings", [self.vocab_size, self.embed_dim], self.dtype, init=self.w_init)

    def __call__(
        self,
        ids: Int[Any, "..."],
        lookup_style: str | EmbedLookupStyle | None = None,
        precision: jax.lax.PrecisionLike = None,
    ) -> jax.Array:
        """Looks vectors up.

        Args:
          ids: integers of any shape, from 0 to `vocab_size - 1`. With `"ARRAY_INDEX"`, other integers give the nearest
            vector (negative ones count from the end); with `"ONE_HOT"`, they give zeros.
          lookup_style: a different style for this call.
          precision: a different precision for this call.

        Returns:
          `[*ids.shape, embed_dim]`.

        Raises:
          ValueError: if `ids` are not integers.
          UnknownLookupStyleError: if there is no such style.
        """
        ids = in_32_bits(ids)
        style = _style(self.lookup_style if lookup_style is None else lookup_style)
        matrix = jnp.asarray(self.embeddings)  # [V, D]
        if style is EmbedLookupStyle.ARRAY_INDEX:
            return rows_at(matrix, ids)  # [..., D]
        product = functools.partial(jnp.dot, precision=self.precision if precision is None else precision)
        return divided(product, *parts_of_rows(matrix, ids))(jax.nn.one_hot(ids, self.vocab_size), matrix)  # [..., D]


def _check_sizes(shape: tuple[int, ...], vocab_size: int | None, embed_dim: int | None) -> None:
    for name, given, actual in (("vocab_size", vocab_size, shape[0]), ("embed_dim", embed_dim, shape[1])):
        if given is not None and given != actual:
            raise ValueError(
                f"An `embedding_matrix` was supplied but the `{name}` of {given} was not consistent with its shape "
                f"{shape}."
            )
