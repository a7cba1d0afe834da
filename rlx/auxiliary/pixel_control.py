"""Pixel control: auxiliary tasks of changing what cells of the screen show."""

import jax
import jax.numpy as jnp
import numpy as np

from rlx.core.checks import check, require, whole_number
from rlx.core.errors import RankError, ShapeError
from rlx.core.types import Array, ArrayLike
from rlx.returns import lambda_returns


def pixel_control_rewards(observations: ArrayLike, cell_size: int) -> Array:
    """Rewards for changing the image: the mean absolute change of the pixels in each square cell.

    From "Reinforcement Learning with Unsupervised Auxiliary Tasks", Jaderberg et al. 2016
    (https://arxiv.org/abs/1611.05397).

    Args:
      observations: images scaled to [0, 1], floats [T+1, H, W, C]; H and W are multiples of `cell_size`.
      cell_size: side of a cell in pixels, a Python integer.

    Returns:
      Floats [T, H / cell_size, W / cell_size].

    Raises:
      ArgumentError: if `observations` is not floats of rank 4, or `cell_size` does not divide its height and width.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> rlx.pixel_control_rewards(jnp.stack([jnp.zeros([4, 2, 1]), jnp.ones([4, 2, 1])]), 2).tolist()
      [[[1.0], [1.0]]]
    """
    return _rewards("pixel_control_rewards", observations, cell_size)


def _rewards(function: str, observations: ArrayLike, cell_size: int) -> Array:
    (observations,) = check(function, observations=(observations, "[T+1, H, W, C]", "float"))
    steps, height, width, channels = observations.shape
    expected = f"a divisor of the height {height} and the width {width} of `observations`; crop them to fit"
    cell_size = whole_number(function, "cell_size", cell_size, expected)
    fits = height % cell_size == 0 and width % cell_size == 0
    require(function, "cell_size", fits, cell_size, expected)
    change = jnp.abs(jnp.diff(observations, axis=0))
    cells = change.reshape(steps - 1, height // cell_size, cell_size, width // cell_size, cell_size, channels)
    return jnp.mean(cells, axis=(2, 4, 5))


def pixel_control_loss(
    observations: ArrayLike,
    actions: ArrayLike,
    action_values: ArrayLike,
    discount_factor: ArrayLike,
    cell_size: int,
) -> Array:
    """Multi-step Q-learning loss of action values that predict `pixel_control_rewards`, for each cell.

    ½ (G_{t-1} - q_{t-1}[a_{t-1}])² with G_{t-1} = r_t + γ_t G_t and G_T = max_a q_T[a]; targets are constants to
    gradients. From "Reinforcement Learning with Unsupervised Auxiliary Tasks", Jaderberg et al. 2016
    (https://arxiv.org/abs/1611.05397).

    Args:
      observations: images scaled to [0, 1], floats [T+1, H·cell_size, W·cell_size, C].
      actions: actions at times [0, ..., T-1], integers [T].
      action_values: action values of each cell at times [0, ..., T], floats [T+1, H, W, A].
      discount_factor: γ, number [] or [T].
      cell_size: side of a cell in pixels, a Python integer.

    Returns:
      The loss of each step and cell, floats [T, H, W].

    Raises:
      ArgumentError: if the cells of `action_values` are not those of `observations`, or another shape or kind is wrong.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> frames = jnp.stack([jnp.zeros([2, 2, 1]), jnp.ones([2, 2, 1])])
      >>> rlx.pixel_control_loss(frames, jnp.array([0]), jnp.zeros([2, 1, 1, 3]), 0.9, 2).tolist()
      [[[0.5]]]
    """
    name = "pixel_control_loss"
    if np.ndim(discount_factor) > 1:
        raise RankError(
            f"{name}: argument `discount_factor` has rank {np.ndim(discount_factor)}, expected shape [] or [T]: "
            "discount_factor must be a scalar or a tensor of rank 1."
        )
    observations, actions, action_values, discount_factor = check(
        name,
        observations=(observations, "[T+1, Y, X, C]", "float"),
        actions=(actions, "[T]", "int"),
        action_values=(action_values, "[T+1, H, W, A]", "float"),
        discount_factor=(discount_factor, "[] or [T]", "real in [0, 1] if []"),
    )
    rewards = _rewards(name, observations, cell_size)
    if rewards.shape[1:] != action_values.shape[1:3]:
        raise ShapeError(
            f"{name}: argument `action_values` has {list(action_values.shape[1:3])} cells, expected "
            f"{list(rewards.shape[1:])}, the cells of size {cell_size} in `observations`.\n"
            "Pixel Control values are not compatible with images of other cells."
        )
    bootstrap = jnp.max(action_values[1:], axis=-1)
    discounts = jnp.broadcast_to(discount_factor, actions.shape)
    over_cells = jax.vmap(jax.vmap(lambda_returns, (1, None, 1), 1), (2, None, 2), 2)
    targets = jax.lax.stop_gradient(over_cells(rewards, discounts, bootstrap))
    chosen = jnp.broadcast_to(actions[:, None, None, None], (*rewards.shape, 1))
    predictions = jnp.take_along_axis(action_values[:-1], chosen, axis=-1)[..., 0]
    return 0.5 * jnp.square(targets - predictions)
