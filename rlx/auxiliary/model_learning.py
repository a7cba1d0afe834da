"""Cutting subsequences out of trajectories, for learning models that are unrolled over several steps."""

import jax
import jax.numpy as jnp

from rlx.core.checks import check, require, whole_number
from rlx.core.errors import ShapeError
from rlx.core.types import Array, ArrayLike


def extract_subsequences(
    trajectories: ArrayLike,
    start_indices: ArrayLike,
    subsequence_len: int = 1,
    max_valid_start_idx: int | None = None,
) -> Array:
    """Extracts subsequences, which may overlap, from a batch of trajectories.

    out[k, b, s] = trajectories[start_indices[b, s] + k, b]. An index past the end gives the last step.

    Args:
      trajectories: array [T, B, ...].
      start_indices: where the subsequences start, integers [B, S].
      subsequence_len: their length L, a Python integer.
      max_valid_start_idx: the largest start index there can be, to check that the trajectories are long enough.

    Returns:
      Array [L, B, S, ...].

    Raises:
      ArgumentError: if shapes do not fit, or the trajectories are shorter than max_valid_start_idx + subsequence_len.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> rlx.extract_subsequences(jnp.arange(5)[:, None], jnp.array([[0, 2]]), 3)[:, 0].tolist()
      [[0, 2], [1, 3], [2, 4]]
    """
    name = "extract_subsequences"
    subsequence_len = whole_number(name, "subsequence_len", subsequence_len, "a number of steps", 0)
    (start_indices,) = check(name, start_indices=(start_indices, "[B, S]", "int"))
    batch = start_indices.shape[0]
    (trajectories,) = check(name, trajectories=(trajectories, f"[T, {batch}, *E]", "any"))
    if max_valid_start_idx is not None:
        max_valid_start_idx = whole_number(name, "max_valid_start_idx", max_valid_start_idx, "an index of a step", 0)
        length, needed = trajectories.shape[0], max_valid_start_idx + subsequence_len
        if length < needed:
            raise ShapeError(
                f"{name}: argument `trajectories` has length {length}. Expected len >= {needed}, for subsequences of "
                f"length {subsequence_len} that start as late as at step {max_valid_start_idx}."
            )
    times = start_indices[None] + jnp.arange(subsequence_len)[:, None, None]
    times = jnp.clip(times, 0, trajectories.shape[0] - 1)
    return trajectories[times, jnp.arange(batch)[None, :, None]]


def sample_start_indices(rng_key: Array, batch_size: int, num_start_indices: int, max_valid_start_idx: int) -> Array:
    """Samples start indices for `extract_subsequences`, uniformly and for each trajectory without repetition.

    Args:
      rng_key: a key of `jax.random`.
      batch_size: B, number of trajectories.
      num_start_indices: S, number of indices for each.
      max_valid_start_idx: the largest index there can be.

    Returns:
      Integers [B, S] in [0, max_valid_start_idx].

    Raises:
      ArgumentError: if there are fewer than S indices to choose from.

    Example:
      >>> import jax
      >>> import rlx
      >>> sorted(rlx.sample_start_indices(jax.random.key(0), 1, 3, 2)[0].tolist())
      [0, 1, 2]
    """
    name, number = "sample_start_indices", "a whole number of at least 0"
    batch_size = whole_number(name, "batch_size", batch_size, number, 0)
    num_start_indices = whole_number(name, "num_start_indices", num_start_indices, number, 0)
    available = whole_number(name, "max_valid_start_idx", max_valid_start_idx, number, 0) + 1
    enough = num_start_indices <= available
    require(name, "num_start_indices", enough, num_start_indices, f"at most {available}")

    def sample(key: Array) -> Array:
        return jax.random.choice(key, jnp.arange(available), (num_start_indices,), replace=False)

    return jax.vmap(sample)(jax.random.split(rng_key, batch_size))
