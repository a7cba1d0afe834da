"""Exploration: noise on actions and policies, and nearest neighbours in an episodic memory (NGU)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import jax
import jax.numpy as jnp

from rlx.core.annotations import Float, Real
from rlx.core.arguments import require, require_broadcast_to_first, require_parts
from rlx.core.arrays import at_indices
from rlx.core.errors import ShapeError
from rlx.core.masking import weighted
from rlx.core.operator import operator
from rlx.core.sampling import normal
from rlx.core.trees import Record, record
from rlx.core.types import Array, Key, wide_dtype


@operator()
def add_gaussian_noise(
    key: Key, action: Float[Array, "*#E"], stddev: Real[Array, "*#E", "in [0, inf)"]
) -> Float[Array, "*E"]:
    """Adds Gaussian noise: a + stddev · ε with ε ~ N(0, 1).

    Args:
      key: a key of `jax.random`.
      action: continuous action.
      stddev: standard deviation; for a batch of actions [B, A] it may have shape [A] or [B, 1].

    Returns:
      The action with noise.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> import rlx
      >>> rlx.add_gaussian_noise(jax.random.key(0), jnp.ones(2), 0.0).tolist()
      [1.0, 1.0]
    """
    return action + stddev * normal(key, action.shape, action.dtype)


@operator()
def add_ornstein_uhlenbeck_noise(
    key: Key,
    action: Float[Array, "*E"],
    noise_tm1: Float[Array, "*E"],
    damping: Real[Array, "*P", "in [0, 1]"],
    stddev: Real[Array, "*S", "in [0, inf)"],
) -> Float[Array, "*E"]:
    """Adds temporally correlated noise: a + (1 - damping) n_{t-1} + stddev · ε with ε ~ N(0, 1).

    From "On the Theory of the Brownian Motion", Uhlenbeck and Ornstein 1930
    (https://journals.aps.org/pr/abstract/10.1103/PhysRev.36.823).

    Args:
      key: a key of `jax.random`.
      action: continuous action.
      noise_tm1: n_{t-1}, the noise of the previous step.
      damping: how fast the noise decays; 1 gives uncorrelated noise.
      stddev: standard deviation; for a batch of actions [B, A] both may have shape [A] or [B, 1].

    Returns:
      The action with noise; its difference from `action` is the noise n_t.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> import rlx
      >>> rlx.add_ornstein_uhlenbeck_noise(jax.random.key(0), jnp.ones(2), jnp.ones(2), 0.5, 0.0).tolist()
      [1.5, 1.5]
    """
    require_broadcast_to_first(action=action, damping=damping, stddev=stddev)
    damping, stddev = (jnp.broadcast_to(x, action.shape) for x in (damping, stddev))
    noise_t = weighted(1 - damping, noise_tm1) + stddev * normal(key, action.shape, action.dtype)
    return action + noise_t


@operator(widen=False)
def add_dirichlet_noise(
    key: Key,
    prior: Float[Array, "B A", "A"],
    dirichlet_alpha: Real[Array, "", "#A", "in (0, inf)"],
    dirichlet_fraction: Real[Array, "", "in [0, 1]"],
) -> Float[Array, "*E"]:
    """Mixes policies with Dirichlet noise: (1 - f) prior + f n with n ~ Dirichlet(α, ..., α).

    From "Mastering the Game of Go without Human Knowledge", Silver et al. 2017; AlphaZero uses α = 0.3, 0.15 and 0.03
    for chess, shogi and Go, MuZero 0.25 for Atari, all with f = 0.25.

    Args:
      key: a key of `jax.random`.
      prior: probabilities of actions.
      dirichlet_alpha: α; or one for each action.
      dirichlet_fraction: f.

    Returns:
      Probabilities.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> import rlx
      >>> rlx.add_dirichlet_noise(jax.random.key(0), jnp.array([[0.5, 0.5]]), 0.3, 0.0).tolist()
      [[0.5, 0.5]]
    """
    alphas = jnp.full(prior.shape[-1:], dirichlet_alpha, prior.dtype)
    noise = jax.random.dirichlet(key, alphas, prior.shape[:-1]).astype(prior.dtype)  # drawn in JAX's default dtype
    fraction = dirichlet_fraction.astype(prior.dtype)
    return weighted(1 - fraction, prior) + weighted(fraction, noise)


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


_MOST_DISTANCES = 2**24
"""From this count on, the mean of distances is one in which old ones count for less and less."""


@record
class IntrinsicRewardState(Record):
    """The state that `episodic_memory_intrinsic_rewards` keeps between calls.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> _, state = rlx.episodic_memory_intrinsic_rewards(jnp.ones([2, 3]), 1, 1.0, max_memory_size=4)
      >>> state.memory.shape, int(state.next_memory_index)
      ((4, 3), 2)
    """

    memory: Array  # [max_memory_size, D], infinite where nothing is stored yet
    next_memory_index: Any = 0  # [] where the next embeddings go
    distance_sum: Any = 0  # [] sum of all minus squared distances so far; of half-precision embeddings in float32
    distance_count: Any = 0  # [] how many there were; sum and count are halved when there are 2²⁴ of them


def _squared_distance(x: Array, y: Array) -> Array:
    difference = x - y  # made constant where nothing is stored, because the derivative of an infinite square is NaN
    return jnp.sum(jnp.square(jnp.where(jnp.isfinite(difference), difference, jax.lax.stop_gradient(difference))))


@operator()
def knn_query(
    data: Float[Array, "N D"],
    query_points: Float[Array, "Q D"],
    num_neighbors: Annotated[int, "a positive number"],
    metric: Callable[[Array, Array], Array] = _squared_distance,
) -> KNNQueryResult:
    """Finds the nearest neighbours of query points among data points.

    Args:
      data: the points to search.
      query_points: the points whose neighbours to find.
      num_neighbors: number of neighbours, a Python integer; at most N are returned.
      metric: function giving the distance between two points [D]; the squared Euclidean distance by default.

    Returns:
      `KNNQueryResult(neighbors [Q, K, D], neighbor_indices [Q, K], neighbor_neg_distances [Q, K])`, nearest first, with
      K = min(num_neighbors, N).

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> result = rlx.knn_query(jnp.array([[0.0], [1.0], [5.0]]), jnp.array([[4.0]]), 2)
      >>> result.neighbor_indices.tolist(), result.neighbor_neg_distances.tolist()
      ([[2, 1]], [[-1.0, -9.0]])
    """
    require(num_neighbors >= 1, "num_neighbors", num_neighbors, "a positive number")
    require(callable(metric), "metric", metric, "a function of two points")
    distances = jax.vmap(lambda query: jax.vmap(lambda point: metric(point, query))(data))(query_points)
    neg_distances, indices = jax.lax.top_k(-distances, min(num_neighbors, data.shape[0]))
    return KNNQueryResult(at_indices(data, indices), indices, neg_distances)


@operator(widen=False)
def episodic_memory_intrinsic_rewards(
    embeddings: Float[Array, "T D"],
    num_neighbors: Annotated[int, "a positive number"],
    reward_scale: Real[Array, "", "in [0, inf)"],
    intrinsic_reward_state: IntrinsicRewardState | None = None,
    constant: Real[Array | float, "", "in [0, inf)"] = 1e-3,
    epsilon: Real[Array | float, "", "in (0, inf)"] = 1e-4,
    cluster_distance: Real[Array | float, "", "in [0, inf)"] = 8e-3,
    max_similarity: Real[Array | float, "", "in [0, inf]"] = 8.0,
    max_memory_size: Annotated[int, "a positive number"] = 30_000,
) -> tuple[Array, IntrinsicRewardState]:
    """Exploration rewards that grow with a state's distance from the states seen in the episode.

    With d_i the squared distances to the K nearest memories, d_m their running mean over all calls (from 2²⁴ distances
    on, older ones count for less) and κ_i = ε / (max(d_i / (d_m + c) - ξ, 0) + ε), the reward is β / (√(Σ_i κ_i) + c),
    or 0 where √(Σ_i κ_i) + c exceeds `max_similarity`. RLax divides by d_m - c instead, so every state counts as seen
    where d_m is below c; the two agree where d_m is far above c. From "Never Give Up: Learning Directed Exploration
    Strategies", Puigdomènech Badia et al. 2020 (https://arxiv.org/abs/2002.06038).

    Args:
      embeddings: embeddings of new states.
      num_neighbors: K, a Python integer; as many as there are if the memory holds fewer.
      reward_scale: β.
      intrinsic_reward_state: the state from the previous call, or None for the first call of an episode.
      constant: c, for numerical stability.
      epsilon: ε of the kernel.
      cluster_distance: ξ; neighbours closer than this fraction of the mean distance count as identical.
      max_similarity: the similarity above which there is no reward.
      max_memory_size: capacity of a new memory; the oldest embeddings are overwritten.

    Returns:
      (rewards [T], new state).

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> near, state = rlx.episodic_memory_intrinsic_rewards(jnp.ones([2, 1]), 1, 1.0, max_memory_size=4)
      >>> again, _ = rlx.episodic_memory_intrinsic_rewards(jnp.array([[1.0], [9.0]]), 1, 1.0, state)
      >>> bool(again[0] < again[1])
      True
    """
    require(num_neighbors >= 1, "num_neighbors", num_neighbors, "a positive number")
    state = intrinsic_reward_state
    if state is None:
        require(max_memory_size >= 1, "max_memory_size", max_memory_size, "a positive number")
        memory = jnp.full((max_memory_size, embeddings.shape[1]), jnp.inf, embeddings.dtype)
        # An empty memory has no neighbours: use the origin instead.
        zero, zero_sum = jnp.zeros((), jnp.int32), jnp.zeros((), wide_dtype(embeddings.dtype))
        state = IntrinsicRewardState(memory.at[:num_neighbors].set(0), zero, zero_sum, zero)
    parts = IntrinsicRewardState._fields()
    require_parts("intrinsic_reward_state", state, parts, "an `rlx.IntrinsicRewardState`, or None")
    memory = jnp.asarray(state.memory)
    if memory.ndim != 2 or memory.shape[1] != embeddings.shape[1]:
        raise ShapeError(
            f"argument `intrinsic_reward_state.memory` has shape {list(memory.shape)}, expected shape [S, D] with "
            f"D = {embeddings.shape[1]} from `embeddings`."
        )
    wide = wide_dtype(embeddings.dtype)
    neg_distances = knn_query.kernel(memory, embeddings, num_neighbors).neighbor_neg_distances.astype(wide)
    is_stored = ~jnp.isneginf(neg_distances)  # there may be fewer embeddings in the memory than neighbours asked for
    neg_distances = jnp.where(is_stored, neg_distances, 0)
    size, count = memory.shape[0], embeddings.shape[0]
    start = jnp.mod(jnp.asarray(state.next_memory_index, jnp.int32), size)
    newest = embeddings[-size:]  # if there are more embeddings than fit, keep the last ones
    slots = jnp.mod(start + max(count - size, 0) + jnp.arange(newest.shape[0], dtype=jnp.int32), size)
    memory = memory.at[slots].set(newest)
    # A sum of float32 would no longer change from some count on, and the mean would fall. Halves have the same mean.
    past_count = jnp.asarray(state.distance_count)
    is_full = past_count >= _MOST_DISTANCES
    past_sum = jnp.where(is_full, 0.5, 1).astype(wide) * jnp.asarray(state.distance_sum, wide)
    distance_sum = past_sum + jnp.sum(neg_distances)
    distance_count = jnp.where(is_full, past_count // 2, past_count) + jnp.sum(is_stored, dtype=jnp.int32)
    mean_distance = -distance_sum / jnp.maximum(distance_count, 1).astype(wide)
    excess = jnp.maximum(-neg_distances / (mean_distance + constant) - cluster_distance, 0)
    total = jnp.sum(jnp.where(is_stored, epsilon / (excess + epsilon), 0), axis=-1)
    is_alone = total == 0  # where the derivative of the root is infinite
    similarity = jnp.where(is_alone, 0, jnp.sqrt(jnp.where(is_alone, 1, total))) + constant
    rewards = jnp.where(similarity > max_similarity, 0, reward_scale / similarity)
    dtype = getattr(state.distance_sum, "dtype", wide)
    if jnp.issubdtype(dtype, jnp.floating):  # as the carry of a loop, it keeps its dtype
        distance_sum = distance_sum.astype(dtype)
    new_state = IntrinsicRewardState(memory, jnp.mod(start + count, size), distance_sum, distance_count)
    return rewards.astype(embeddings.dtype), new_state
