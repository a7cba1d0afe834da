"""Agent loop utilities: target networks, repaired step types, subsequences, UNREAL's auxiliary tasks."""

from __future__ import annotations

from typing import Annotated

import jax
import jax.numpy as jnp

from rlx.core.annotations import Float, Int, Mask, Num, Number, Real
from rlx.core.arguments import require
from rlx.core.arrays import half_square, one_hot
from rlx.core.errors import OptionError, ShapeError
from rlx.core.operator import operator
from rlx.core.trees import selected
from rlx.core.types import Array, Key, PyTree, in_32_bits
from rlx.returns import lambda_returns

_FIRST, _MID, _LAST = 0, 1, 2  # dm_env's step types
_CUMULANT_TYPES = ("feature", "absolute_change", "increase", "decrease", "potential")
_NUMBER = "a whole number of at least 0"


@operator()
def conditional_update(new_tensors: PyTree, old_tensors: PyTree, is_time: Mask[Array, "*E"]) -> PyTree:
    """Returns the new tree if it is time to update, otherwise the old one.

    Args:
      new_tensors: tree of arrays.
      old_tensors: tree of the same structure, shapes and dtypes.
      is_time: whether to update, a scalar or an array of the shape of every leaf.

    Returns:
      A tree like `old_tensors`.

    Example:
      >>> import rlx
      >>> rlx.conditional_update({"w": 2.0}, {"w": 1.0}, False)["w"].tolist()
      1.0
    """
    return selected(is_time=is_time, new_tensors=new_tensors, old_tensors=old_tensors)


@operator()
def periodic_update(
    new_tensors: PyTree, old_tensors: PyTree, steps: Number[Array, ""], update_period: Number[Array, "", "in (0, inf]"]
) -> PyTree:
    """Returns the new tree every `update_period` steps, otherwise the old one, as for target networks.

    Args:
      new_tensors: tree of arrays, such as the online parameters.
      old_tensors: tree of the same structure, shapes and dtypes, such as the target network's parameters.
      steps: number of steps so far.
      update_period: number of steps between updates, positive.

    Returns:
      `new_tensors` if `steps` is a multiple of `update_period` (including 0), otherwise `old_tensors`.

    Example:
      >>> import rlx
      >>> rlx.periodic_update({"w": 2.0}, {"w": 1.0}, steps=4, update_period=2)["w"].tolist()
      2.0
    """
    return conditional_update.kernel(new_tensors, old_tensors, jnp.mod(in_32_bits(steps), update_period) == 0)


@operator()
def embed_oar(
    features: Real[Array, "B D"],
    action: Int[Array, "B", "in [-1, {num_actions})"],
    reward: Real[Array, "B"],
    num_actions: Annotated[int, "a positive number"],
) -> Float[Array, "B E"]:
    """Concatenates observation features, the one-hot encoded last action, and the tanh of the last reward.

    Args:
      features: observation features, one row per example.
      action: the last action, in [0, num_actions).
      reward: the last reward.
      num_actions: number of actions.

    Returns:
      Floats [B, D + num_actions + 1].

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> rlx.embed_oar(jnp.array([[5.0]]), jnp.array([1]), jnp.array([0.0]), 2).tolist()
      [[5.0, 0.0, 1.0, 0.0]]
    """
    require(num_actions >= 1, "num_actions", num_actions, "a positive number")
    last_action = one_hot.kernel(action, num_actions, features.dtype)
    return jnp.concatenate([features, last_action, jnp.expand_dims(jnp.tanh(reward), -1)], axis=-1)


@operator()
def fix_step_type_on_interruptions(step_type: Number[Array, "T B", "T"]) -> Number[Array, "T *E"]:
    """Marks a step as the last of its episode where the next step starts a new episode.

    An environment that crashes or is reset leaves a middle step right before a first step; it is changed to a last
    step. The discount, and not the step type, says that the episode terminated: it is 0 only then.

    Args:
      step_type: dm_env step types (0 first, 1 middle, 2 last).

    Returns:
      Step types of the same shape.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> rlx.fix_step_type_on_interruptions(jnp.array([0, 1, 1, 0, 1])).tolist()
      [0, 1, 2, 0, 1]
    """
    cut = (step_type[:-1] == _MID) & (step_type[1:] == _FIRST)
    return jnp.concatenate([jnp.where(cut, jnp.asarray(_LAST, step_type.dtype), step_type[:-1]), step_type[-1:]])


@operator()
def pixel_control_rewards(
    observations: Float[Array, "T+1 H W C"], cell_size: Annotated[int, "a divisor of the height and the width"]
) -> Float[Array, "T Y X"]:
    """Pixel control rewards: the mean absolute change of the pixels in each square cell of the image.

    From "Reinforcement Learning with Unsupervised Auxiliary Tasks", Jaderberg et al. 2016
    (https://arxiv.org/abs/1611.05397).

    Args:
      observations: images at times [0, ..., T], scaled to [0, 1]; height and width are multiples of `cell_size`.
      cell_size: side of a cell in pixels, a Python integer.

    Returns:
      The rewards for each cell, [T, H / cell_size, W / cell_size].

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> rlx.pixel_control_rewards(jnp.stack([jnp.zeros([4, 2, 1]), jnp.ones([4, 2, 1])]), 2).tolist()
      [[[1.0], [1.0]]]
    """
    steps, height, width, channels = observations.shape
    fits = cell_size >= 1 and height % cell_size == 0 and width % cell_size == 0
    expected = f"a divisor of the height {height} and the width {width} of `observations`; crop them to fit"
    require(fits, "cell_size", cell_size, expected)
    change = jnp.abs(jnp.diff(observations, axis=0))
    cells = change.reshape(steps - 1, height // cell_size, cell_size, width // cell_size, cell_size, channels)
    return jnp.mean(cells, axis=(2, 4, 5))


@operator()
def pixel_control_loss(
    observations: Float[Array, "T+1 Y X C"],
    actions: Int[Array, "T", "in [-1, A)"],
    action_values: Float[Array, "T+1 H W A"],
    discount_factor: Real[Array, "", "T", "in [0, 1] if scalar"],
    cell_size: Annotated[int, "a divisor of the height and the width"],
) -> Float[Array, "T H W"]:
    """Multi-step Q-learning loss on `pixel_control_rewards`, for each cell.

    ½ (G_{t-1} - q_{t-1}[a_{t-1}])² with G_{t-1} = r_t + γ_t G_t and G_T = max_a q_T[a]; gradients are stopped through
    targets. From "Reinforcement Learning with Unsupervised Auxiliary Tasks", Jaderberg et al. 2016
    (https://arxiv.org/abs/1611.05397).

    Args:
      observations: images scaled to [0, 1].
      actions: actions at times [0, ..., T-1].
      action_values: action values of each cell at times [0, ..., T].
      discount_factor: γ.
      cell_size: side of a cell in pixels, a Python integer.

    Returns:
      The loss for each step and cell.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> frames = jnp.stack([jnp.zeros([2, 2, 1]), jnp.ones([2, 2, 1])])
      >>> rlx.pixel_control_loss(frames, jnp.array([0]), jnp.zeros([2, 1, 1, 3]), 0.9, 2).tolist()
      [[[0.5]]]
    """
    rewards = pixel_control_rewards.kernel(observations, cell_size)
    if rewards.shape[1:] != action_values.shape[1:3]:
        raise ShapeError(
            f"argument `action_values` has {list(action_values.shape[1:3])} cells, expected "
            f"{list(rewards.shape[1:])}, the cells of size {cell_size} in `observations`.\n"
            "Pixel Control values are not compatible with images of other cells."
        )
    v_t = jnp.max(action_values[1:], axis=-1)
    discount_t = jnp.broadcast_to(discount_factor, actions.shape)
    over_cells = jax.vmap(jax.vmap(lambda_returns.kernel, (1, None, 1), 1), (2, None, 2), 2)
    targets = jax.lax.stop_gradient(over_cells(rewards, discount_t, v_t))
    chosen = jnp.broadcast_to(actions[:, None, None, None], (*rewards.shape, 1))
    predictions = jnp.take_along_axis(action_values[:-1], chosen, axis=-1)[..., 0]
    return half_square(targets - predictions)


@operator()
def feature_control_rewards(
    features: Float[Array, "T+1 D"],
    cumulant_type: str = "absolute_change",
    discount: Real[Array, "", "#D", "T #D", "in [0, 1] if scalar"] | None = None,
) -> Float[Array, "T D"]:
    """Rewards for features or for changes in them, one per feature.

    For features φ, `feature` gives φ_t, `absolute_change` |φ_t - φ_{t-1}|, `increase` φ_t - φ_{t-1}, `decrease`
    φ_{t-1} - φ_t, and `potential` γ φ_t - φ_{t-1}. From "Reinforcement Learning with Unsupervised Auxiliary Tasks",
    Jaderberg et al. 2016 (https://arxiv.org/abs/1611.05397).

    Args:
      features: φ at times [0, ..., T].
      cumulant_type: one of the types above.
      discount: γ, used only by `potential`: one number, or one for each feature, or [T, 1] for each step.

    Returns:
      Rewards at times [1, ..., T].

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> rlx.feature_control_rewards(jnp.array([[1.0, 2.0], [3.0, 1.0]]), "increase").tolist()
      [[2.0, -1.0]]
    """
    known = isinstance(cumulant_type, str) and cumulant_type in _CUMULANT_TYPES
    require(known, "cumulant_type", cumulant_type, f"one of {', '.join(_CUMULANT_TYPES)}")
    before, after = features[:-1], features[1:]
    if cumulant_type == "feature":
        return after
    if cumulant_type == "absolute_change":
        return jnp.abs(after - before)
    if cumulant_type == "increase":
        return after - before
    if cumulant_type == "decrease":
        return before - after
    if discount is None:
        raise OptionError("argument `discount` is None, expected a number, for cumulant_type='potential'.")
    return (discount[None] if discount.ndim == 1 else discount) * after - before


@operator()
def extract_subsequences(
    trajectories: Num[Array, "T B *E"],
    start_indices: Int[Array, "B S"],
    subsequence_len: Annotated[int, "a number of steps"] = 1,
    max_valid_start_idx: int | None = None,
) -> Num[Array, "{subsequence_len} B S *E"]:
    """Extracts (possibly overlapping) subsequences from a batch of trajectories.

    out[k, b, s] = trajectories[start_indices[b, s] + k, b]. An index past the end gives the last step, and a negative
    one counts from the end.

    Args:
      trajectories: steps of the trajectories, time first.
      start_indices: start indices of the subsequences.
      subsequence_len: length L of the subsequences, a Python integer.
      max_valid_start_idx: the largest possible start index, to check that the trajectories are long enough.

    Returns:
      The subsequences, with axes for time, trajectory, subsequence, and then those of a step.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> rlx.extract_subsequences(jnp.arange(5)[:, None], jnp.array([[0, 2]]), 3)[:, 0].tolist()
      [[0, 2], [1, 3], [2, 4]]
    """
    require(subsequence_len >= 0, "subsequence_len", subsequence_len, "a number of steps")
    if max_valid_start_idx is not None:
        require(max_valid_start_idx >= 0, "max_valid_start_idx", max_valid_start_idx, "an index of a step")
        length, needed = trajectories.shape[0], max_valid_start_idx + subsequence_len
        if length < needed:
            raise ShapeError(
                f"argument `trajectories` has length {length}. Expected len >= {needed}, for subsequences of "
                f"length {subsequence_len} that start as late as at step {max_valid_start_idx}."
            )
    times = start_indices[None] + jnp.arange(subsequence_len, dtype=start_indices.dtype)[:, None, None]
    return trajectories.at[times, jnp.arange(start_indices.shape[0])[None, :, None]].get(mode="clip")


@operator()
def sample_start_indices(
    rng_key: Key,
    batch_size: Annotated[int, _NUMBER],
    num_start_indices: Annotated[int, _NUMBER],
    max_valid_start_idx: Annotated[int, _NUMBER],
) -> Int[Array, "{batch_size} {num_start_indices}"]:
    """Samples start indices for `extract_subsequences`, uniformly without replacement for each trajectory.

    Args:
      rng_key: a key of `jax.random`.
      batch_size: B, number of trajectories.
      num_start_indices: S, number of indices per trajectory.
      max_valid_start_idx: the largest possible index.

    Returns:
      Integers [B, S] in [0, max_valid_start_idx].

    Example:
      >>> import jax
      >>> import rlx
      >>> sorted(rlx.sample_start_indices(jax.random.key(0), 1, 3, 2)[0].tolist())
      [0, 1, 2]
    """
    require(batch_size >= 0, "batch_size", batch_size, _NUMBER)
    require(max_valid_start_idx >= 0, "max_valid_start_idx", max_valid_start_idx, _NUMBER)
    available = max_valid_start_idx + 1
    enough = 0 <= num_start_indices <= available
    require(enough, "num_start_indices", num_start_indices, f"a whole number from 0 to {available}")

    def sample(key: Array) -> Array:
        return jax.random.choice(key, jnp.arange(available), (num_start_indices,), replace=False)

    return jax.vmap(sample)(jax.random.split(rng_key, batch_size))
