"""Nearest neighbours in a memory of embeddings, and the exploration rewards built on them."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from rlx.core.checks import check, check_numbers, whole_number
from rlx.core.trees import Record, record
from rlx.core.types import Array, ArrayLike


@record
class KNNQueryResult(Record):
    """The nearest neighbours of each query point, nearest first.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> rlx.knn_query(jnp.array([[0.0], [1.0]]), jnp.array([[3.0]]), 1).neighbors.tolist()
      [[[1.0]]]
    """

    neighbors: Array  # [Q, K, D], the points
    neighbor_indices: Array  # [Q, K], where they are in the data
    neighbor_neg_distances: Array  # [Q, K], minus their distances


@record
class IntrinsicRewardState(Record):
    """What `episodic_memory_intrinsic_rewards` remembers between calls.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> _, state = rlx.episodic_memory_intrinsic_rewards(jnp.ones([2, 3]), 1, 1.0, max_memory_size=4)
      >>> state.memory.shape, int(state.next_memory_index)
      ((4, 3), 2)
    """

    memory: Array  # [max_memory_size, D], infinite where nothing is stored yet
    next_memory_index: Any = 0  # [] where the next embeddings go
    distance_sum: Any = 0  # [] sum of all minus squared distances so far
    distance_count: Any = 0  # [] how many there were


def _squared_distance(x: Array, y: Array) -> Array:
    difference = x - y  # a constant where nothing is stored: the slope of an infinite square is no number
    return jnp.sum(jnp.square(jnp.where(jnp.isfinite(difference), difference, jax.lax.stop_gradient(difference))))


def knn_query(
    data: ArrayLike,
    query_points: ArrayLike,
    num_neighbors: int,
    metric: Callable[[Array, Array], Array] = _squared_distance,
) -> KNNQueryResult:
    """Finds the nearest neighbours of query points among data points.

    Args:
      data: points to search, floats [N, D].
      query_points: points to find the neighbours of, floats [Q, D].
      num_neighbors: how many neighbours, a Python integer; at most N are returned.
      metric: distance of two points [D], a function; the squared Euclidean distance by default.

    Returns:
      `KNNQueryResult(neighbors [Q, K, D], neighbor_indices [Q, K], neighbor_neg_distances [Q, K])`, nearest first, with
      K = min(num_neighbors, N).

    Raises:
      ArgumentError: if an argument has another rank or kind, or the dimensions differ.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> result = rlx.knn_query(jnp.array([[0.0], [1.0], [5.0]]), jnp.array([[4.0]]), 2)
      >>> result.neighbor_indices.tolist(), result.neighbor_neg_distances.tolist()
      ([[2, 1]], [[-1.0, -9.0]])
    """
    data, query_points = check(
        "knn_query", data=(data, "[N, D]", "float"), query_points=(query_points, "[Q, D]", "float")
    )
    num_neighbors = whole_number("knn_query", "num_neighbors", num_neighbors, "a positive number")
    distances = jax.vmap(lambda query: jax.vmap(lambda point: metric(point, query))(data))(query_points)
    neg_distances, indices = jax.lax.top_k(-distances, min(num_neighbors, data.shape[0]))
    return KNNQueryResult(data[indices], indices, neg_distances)


def episodic_memory_intrinsic_rewards(
    embeddings: ArrayLike,
    num_neighbors: int,
    reward_scale: ArrayLike,
    intrinsic_reward_state: IntrinsicRewardState | None = None,
    constant: float = 1e-3,
    epsilon: float = 1e-4,
    cluster_distance: float = 8e-3,
    max_similarity: float = 8.0,
    max_memory_size: int = 30_000,
) -> tuple[Array, IntrinsicRewardState]:
    """Exploration rewards that are larger the farther a state is from those seen in the episode.

    With d_i the squared distances to the K nearest memories, d_m their running mean over all calls and
    κ_i = ε / (max(d_i / (d_m + c) - ξ, 0) + ε), the reward is β / (√(Σ_i κ_i) + c), or 0 where that root plus c exceeds
    `max_similarity`. RLax divides by d_m - c, so that where d_m is below c every state counts as seen; where it is far
    above c both agree. From "Never Give Up: Learning Directed Exploration Strategies", Puigdomènech Badia et al. 2020
    (https://arxiv.org/abs/2002.06038).

    Args:
      embeddings: embeddings of new states, floats [T, D].
      num_neighbors: K, a Python integer.
      reward_scale: β ≥ 0, number [].
      intrinsic_reward_state: state of the call before, or None for the first of an episode.
      constant: c ≥ 0, for stability.
      epsilon: ε > 0 of the kernel.
      cluster_distance: ξ ≥ 0; neighbours nearer than this fraction of the mean distance count as the same.
      max_similarity: above it there is no reward.
      max_memory_size: number of embeddings that a new memory holds, the oldest are overwritten.

    Returns:
      (rewards [T], new state).

    Raises:
      ArgumentError: if `embeddings` is not a matrix of floats, or its dimension differs from that of the memory.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> near, state = rlx.episodic_memory_intrinsic_rewards(jnp.ones([2, 1]), 1, 1.0, max_memory_size=4)
      >>> again, _ = rlx.episodic_memory_intrinsic_rewards(jnp.array([[1.0], [9.0]]), 1, 1.0, state)
      >>> bool(again[0] < again[1])
      True
    """
    name = "episodic_memory_intrinsic_rewards"
    embeddings, reward_scale = check(
        name, embeddings=(embeddings, "[T, D]", "float"), reward_scale=(reward_scale, "[]", "real in [0, inf)")
    )
    num_neighbors = whole_number(name, "num_neighbors", num_neighbors, "a positive number")
    check_numbers(
        name,
        constant=(constant, "[0, inf)"),
        epsilon=(epsilon, "(0, inf)"),
        cluster_distance=(cluster_distance, "[0, inf)"),
        max_similarity=(max_similarity, "[0, inf]"),
    )
    state = intrinsic_reward_state
    if state is None:
        max_memory_size = whole_number(name, "max_memory_size", max_memory_size, "a positive number")
        memory = jnp.full((max_memory_size, embeddings.shape[-1]), jnp.inf, embeddings.dtype)
        # The origin stands in for the neighbours that an empty memory does not have.
        zero = jnp.zeros((), jnp.int32)
        state = IntrinsicRewardState(memory.at[:num_neighbors].set(0), zero, jnp.zeros((), memory.dtype), zero)
    embeddings, memory = check(
        name, embeddings=(embeddings, "[T, D]", "float"), memory=(state.memory, "[S, D]", "float")
    )
    neg_distances = knn_query(memory, embeddings, num_neighbors).neighbor_neg_distances

    size, count = memory.shape[0], embeddings.shape[0]
    start = jnp.mod(jnp.asarray(state.next_memory_index, jnp.int32), size)
    newest = embeddings[-size:]  # of more embeddings than fit, only the last stay
    places = jnp.mod(start + max(count - size, 0) + jnp.arange(newest.shape[0]), size)
    memory = memory.at[places].set(newest)

    # The mean stays what it is once no more can be counted, after two thousand million distances.
    room = state.distance_count <= jnp.iinfo(jnp.int32).max - neg_distances.size
    distance_sum = state.distance_sum + jnp.where(room, jnp.sum(neg_distances), 0)
    distance_count = state.distance_count + jnp.where(room, neg_distances.size, 0)
    mean_distance = -distance_sum / distance_count
    excess = jnp.maximum(-neg_distances / (mean_distance + constant) - cluster_distance, 0)
    similarity = jnp.sqrt(jnp.sum(epsilon / (excess + epsilon), axis=-1)) + constant
    rewards = jnp.where(similarity > max_similarity, 0, reward_scale / similarity)
    new_state = IntrinsicRewardState(memory, jnp.mod(start + count, size), distance_sum, distance_count)
    return rewards, new_state
