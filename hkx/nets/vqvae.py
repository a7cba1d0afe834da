"""Vector quantisation: each vector is replaced by its nearest learnt code vector."""

from __future__ import annotations

from typing import Any, TypedDict

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike

from hkx import ExponentialMovingAverage, Module, get_parameter, get_state, set_state, transparent
from hkx.arguments import Flag, Number, PositiveSize, Real
from hkx.errors import FeatureSizeError
from hkx.initializers import VarianceScaling
from hkx.nn.numerics import (
    check_state,
    constant,
    divided,
    narrowed,
    rows_at,
    state_array,
    widened,
)
from hkx.nn.replicas import over_replicas


class Quantized(TypedDict):
    """The output of a vector quantiser.

    Attributes:
      quantize: the quantised vectors, in the shape of the input; their gradient is that of the input
        (straight through).
      loss: a scalar to add to the training loss.
      perplexity: the effective number of code vectors in use, `exp(-Σ p log p)`; a scalar.
      encodings: one-hot, `[N, num_embeddings]`, where N is the number of vectors in the input.
      encoding_indices: the index of the code vector that replaced each input, in the input's shape without the last
        axis.
      distances: the squared distances, `[N, num_embeddings]`.
    """

    quantize: jax.Array
    loss: jax.Array
    perplexity: jax.Array
    encodings: jax.Array
    encoding_indices: jax.Array
    distances: jax.Array


class _Quantizer(Module):
    """The common base of both quantisers."""

    embedding_dim: int
    num_embeddings: int
    cross_replica_axis: str | None

    @property
    def embeddings(self) -> jax.Array:
        raise NotImplementedError

    @property
    def _table_shape(self) -> list[int]:
        return [self.embedding_dim, self.num_embeddings]

    def quantize(self, encoding_indices: jax.Array) -> jax.Array:
        """The code vectors at the given indices: integers of any shape `[...]` to `[..., embedding_dim]`."""
        return rows_at(jnp.transpose(self.embeddings), jnp.asarray(encoding_indices))

    @transparent
    def nearest(self, inputs: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
        """The input as rows, the squared distances, and the nearest vectors as one-hot rows and as indices."""
        shape = self._table_shape
        if not inputs.ndim or inputs.shape[-1] != self.embedding_dim:
            raise FeatureSizeError(type(self).__name__, inputs.shape, "embedding_dim", self.embedding_dim)
        rows, table = jnp.reshape(inputs, [-1, self.embedding_dim]), self.embeddings  # [N, D], [D, num_embeddings]
        check_state(list(table.shape) == shape, self, "embeddings", table, shape, "inputs", inputs)
        wide_rows, wide_table = widened(rows), widened(table)
        wide = (
            jnp.sum(jnp.square(wide_rows), 1, keepdims=True)
            - 2 * jnp.matmul(wide_rows, wide_table)
            + jnp.sum(jnp.square(wide_table), 0, keepdims=True)
        )
        numbers, distances = jnp.argmax(-wide, 1), narrowed(wide, rows, table)  # [N], [N, num_embeddings]
        encodings = jax.nn.one_hot(numbers, self.num_embeddings, dtype=distances.dtype)
        return rows, distances, encodings, jnp.reshape(numbers, inputs.shape[:-1])

    @transparent
    def perplexity(self, encodings: jax.Array) -> jax.Array:
        """`exp(-Σ p log p)`, where p is how often each vector is used, over all replicas."""
        used = over_replicas(jax.lax.pmean, jnp.mean(widened(encodings), 0), self.cross_replica_axis)
        return narrowed(jnp.exp(-jnp.sum(used * jnp.log(used + 1e-10))), encodings)


def _mean_square(x: jax.Array) -> jax.Array:
    return narrowed(jnp.mean(jnp.square(widened(x))), x)


def _sampled(shape: Any, dtype: DTypeLike) -> jax.Array:
    return VarianceScaling(distribution="uniform")(shape, dtype)


class VectorQuantizer(_Quantizer):
    """Replaces each vector by the nearest column of a table that is learnt by gradient descent.

    With `q` the nearest column to `x` and `sg` stopping gradients, the loss is `|q - sg(x)|² + commitment_cost |sg(q) -
    x|²`, averaged over elements, and the result is `x + sg(q - x)`.

    Reference: van den Oord et al. (2017), "Neural discrete representation learning", arXiv:1711.00937.

    Args:
      embedding_dim: the size of the vectors.
      num_embeddings: the number of columns of the table.
      commitment_cost: the weight of the second term; 0.25 in the paper.
      dtype: the dtype of the table.
      name: the module's name.
      cross_replica_axis: the name of a mapped axis over which the perplexity is computed.

    Example:

      >>> import hkx, jax, jax.numpy as jnp
      >>> model = hkx.transform(lambda x: hkx.nets.VectorQuantizer(4, 16, 0.25)(x, is_training=True))
      >>> x = jax.random.normal(jax.random.key(0), [2, 3, 4])
      >>> out = model.apply(model.init(jax.random.key(1), x), None, x)
      >>> out["quantize"].shape, out["encoding_indices"].shape
      ((2, 3, 4), (2, 3))
    """

    def __init__(
        self,
        embedding_dim: PositiveSize,
        num_embeddings: PositiveSize,
        commitment_cost: Number[float, "any"],
        dtype: DTypeLike = jnp.float32,
        name: str | None = None,
        cross_replica_axis: str | None = None,
    ):
        super().__init__(name=name)
        self.embedding_dim = embedding_dim
        self.num_embeddings = num_embeddings
        self.commitment_cost = commitment_cost
        self.cross_replica_axis = cross_replica_axis
        self._dtype = dtype

    @property
    def embeddings(self) -> jax.Array:
        """The table, shape `[embedding_dim, num_embeddings]`."""
        return get_parameter("embeddings", self._table_shape, self._dtype, init=_sampled)

    def __call__(self, inputs: Real[jax.Array, "..."], is_training: bool) -> Quantized:
        """Quantises.

        Args:
          inputs: `[..., embedding_dim]`.
          is_training: unused; present for the same interface as the quantiser with moving averages.

        Returns:
          A dict; see `Quantized`.

        Raises:
          FeatureSizeError: if the last axis of `inputs` does not have size `embedding_dim`.
          InputDTypeError: if `inputs` is complex.
          InvalidInputError: if `inputs` is not an array.
        """
        del is_training
        _, distances, encodings, numbers = self.nearest(inputs)
        quantized = self.quantize(numbers)
        commitment = _mean_square(jax.lax.stop_gradient(quantized) - inputs)
        codebook = _mean_square(quantized - jax.lax.stop_gradient(inputs))
        return {
            "quantize": inputs + jax.lax.stop_gradient(quantized - inputs),
            "loss": codebook + constant(self.commitment_cost, commitment.dtype) * commitment,
            "perplexity": self.perplexity(encodings),
            "encodings": encodings,
            "encoding_indices": numbers,
            "distances": distances,
        }


class VectorQuantizerEMA(_Quantizer):
    """Replaces each vector by the nearest column of a table that tracks the vectors by moving averages.

    Column `i` is `m_i / n_i`, where `m_i` is a moving average of the sum of the vectors it has replaced and `n_i` one
    of their number, smoothed by `epsilon`. The table is state, not a parameter. The loss is the commitment term alone,
    `commitment_cost |sg(q) - x|²` averaged over elements.

    Reference: van den Oord et al. (2017), "Neural discrete representation learning", arXiv:1711.00937, appendix A.1.

    Args:
      embedding_dim: the size of the vectors.
      num_embeddings: the number of columns of the table.
      commitment_cost: the weight of the loss; 0.25 in the paper.
      decay: the decay of the moving averages, in `[0, 1]`; 0.99 in the paper.
      epsilon: added to the counts of replaced vectors, so that none is zero.
      dtype: the dtype of the table and of the moving averages.
      cross_replica_axis: the name of a mapped axis over which the table and the perplexity are computed.
      name: the module's name.

    Raises:
      ValueError: if `decay` is not in `[0, 1]`.

    Example:

      >>> import hkx, jax, jax.numpy as jnp
      >>> def f(x):
      ...     return hkx.nets.VectorQuantizerEMA(4, 16, 0.25, decay=0.99)(x, is_training=True)
      >>> model = hkx.transform_with_state(f)
      >>> x = jax.random.normal(jax.random.key(0), [2, 3, 4])
      >>> params, state = model.init(jax.random.key(1), x)
      >>> out, state = model.apply(params, state, None, x)
      >>> out["quantize"].shape
      (2, 3, 4)
    """

    def __init__(
        self,
        embedding_dim: PositiveSize,
        num_embeddings: PositiveSize,
        commitment_cost: Number[float, "any"],
        decay: Number[float, "[0, 1]"],
        epsilon: Number[float, "[0, inf)"] = 1e-5,
        dtype: DTypeLike = jnp.float32,
        cross_replica_axis: str | None = None,
        name: str | None = None,
    ):
        super().__init__(name=name)
        self.embedding_dim = embedding_dim
        self.num_embeddings = num_embeddings
        self.commitment_cost = commitment_cost
        self.decay = decay
        self.epsilon = epsilon
        self.cross_replica_axis = cross_replica_axis
        self._dtype = dtype
        self._ema_cluster_size = ExponentialMovingAverage(decay, name="ema_cluster_size")
        self._ema_dw = ExponentialMovingAverage(decay, name="ema_dw")

    @property
    def embeddings(self) -> jax.Array:
        """The table, shape `[embedding_dim, num_embeddings]`."""
        return state_array(self, "embeddings", get_state("embeddings", self._table_shape, self._dtype, init=_sampled))

    @property
    def ema_cluster_size(self) -> ExponentialMovingAverage:
        """The moving average of how many vectors each column has replaced."""
        self._ema_cluster_size.initialize([self.num_embeddings], self._dtype)
        return self._ema_cluster_size

    @property
    def ema_dw(self) -> ExponentialMovingAverage:
        """The moving average of the sum of the vectors that each column has replaced."""
        self._ema_dw.initialize(self._table_shape, self._dtype)
        return self._ema_dw

    def __call__(self, inputs: Real[jax.Array, "..."], is_training: Flag) -> Quantized:
        """Quantises.

        Args:
          inputs: `[..., embedding_dim]`.
          is_training: whether to update the table afterwards.

        Returns:
          A dict; see `Quantized`.

        Raises:
          FeatureSizeError: if the last axis of `inputs` does not have size `embedding_dim`.
          InputDTypeError: if `inputs` is complex.
          InvalidInputError: if `inputs` is not an array.
          StateShapeError: if the state is a table of a different size.
        """
        rows, distances, encodings, numbers = self.nearest(inputs)
        quantized = self.quantize(numbers)
        commitment = _mean_square(jax.lax.stop_gradient(quantized) - inputs)
        if is_training:
            self._move(rows, encodings)
        return {
            "quantize": inputs + jax.lax.stop_gradient(quantized - inputs),
            "loss": constant(self.commitment_cost, commitment.dtype) * commitment,
            "perplexity": self.perplexity(encodings),
            "encodings": encodings,
            "encoding_indices": numbers,
            "distances": distances,
        }

    @transparent
    def _move(self, rows: jax.Array, encodings: jax.Array) -> None:
        of_this = jnp.sum(encodings, axis=0), divided(jnp.matmul)(rows.T, encodings)
        counts, sums = over_replicas(jax.lax.psum, of_this, self.cross_replica_axis)
        counts, sums = self.ema_cluster_size(counts), self.ema_dw(sums)
        total = jnp.sum(counts)
        epsilon = constant(self.epsilon, counts.dtype)
        smooth = (counts + epsilon) / (total + self.num_embeddings * epsilon) * total
        set_state("embeddings", sums / smooth.reshape([1, -1]))
