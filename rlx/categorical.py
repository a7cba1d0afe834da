"""C51: learning value distributions over a fixed set of atoms."""

import jax
import jax.numpy as jnp

from rlx.core.annotations import Float, Int, Real
from rlx.core.masking import weighted_sum
from rlx.core.operator import maybe_stop, operator
from rlx.core.types import Array
from rlx.divergences import categorical_cross_entropy


@operator(masks={"probs": ("z_p",)})
def categorical_l2_project(
    z_p: Float[Array, "L"], probs: Float[Array, "L"], z_q: Float[Array, "K", "increasing"]
) -> Float[Array, "K"]:
    """Projects a distribution on atoms z_p onto atoms z_q: each atom's mass goes to its two neighbours.

    The nearer neighbour gets the larger share, which minimises the L2 distance between the cumulative distribution
    functions (the Cramér distance). Mass outside the range of `z_q` goes to the first or last atom. From "A
    Distributional Perspective on Reinforcement Learning", Bellemare et al. 2017 (https://arxiv.org/abs/1707.06887) and
    "An Analysis of Categorical Distributional Reinforcement Learning", Rowland et al. 2018
    (https://arxiv.org/abs/1802.08163).

    Args:
      z_p: atoms of the distribution to project, in any order.
      probs: probabilities of the atoms `z_p`.
      z_q: atoms to project onto, in increasing order; they need not be evenly spaced.
        The order of traced atoms cannot be checked: if they are out of order, the result is wrong.

    Returns:
      Probabilities of the atoms `z_q`.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> rlx.categorical_l2_project(jnp.array([0.5, 9.0]), jnp.array([0.5, 0.5]), jnp.array([0.0, 1.0, 2.0])).tolist()
      [0.25, 0.25, 0.5]
    """
    gaps, end = jnp.diff(z_q), jnp.full(1, jnp.inf, z_q.dtype)  # after clipping, there is no mass beyond either end
    above, below = jnp.concatenate([gaps, end])[:, None], jnp.concatenate([end, gaps])[:, None]
    offset = jnp.clip(z_p, z_q[0], z_q[-1])[None, :] - z_q[:, None]
    is_above = offset >= 0
    distance = jnp.where(is_above, offset, -offset) / jnp.where(is_above, above, below)
    return jnp.sum(jnp.clip(1 - distance, 0, 1) * probs[None, :], axis=-1)


@operator(masks={"discount_t": ("v_atoms_t", "v_logits_t")})
def categorical_td_learning(
    v_atoms_tm1: Float[Array, "K", "increasing"],
    v_logits_tm1: Float[Array, "K"],
    r_t: Real[Array, ""],
    discount_t: Real[Array, ""],
    v_atoms_t: Float[Array, "L"],
    v_logits_t: Float[Array, "L"],
    stop_target_gradients: bool = True,
) -> Float[Array, ""]:
    """Categorical TD-learning loss: cross entropy between the Bellman target and the predicted value distribution.

    The target has probabilities softmax(v_logits_t) on the atoms r_t + γ_t z, and is projected onto `v_atoms_tm1`. From
    "A Distributional Perspective on Reinforcement Learning", Bellemare et al. 2017 (https://arxiv.org/abs/1707.06887).

    Args:
      v_atoms_tm1: atoms of the value distribution at time t-1, in increasing order.
      v_logits_tm1: logits over these atoms.
      r_t: reward at time t.
      discount_t: discount at time t.
      v_atoms_t: atoms of the value distribution at time t.
      v_logits_t: logits over these atoms.
      stop_target_gradients: whether to stop gradients through the target.

    Returns:
      The loss, bounded below by the entropy of the target.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> atoms, logits = jnp.array([0.0, 1.0]), jnp.zeros(2)
      >>> round(float(rlx.categorical_td_learning(atoms, logits, 0.0, 1.0, atoms, logits)), 4)
      0.6931
    """
    probs_t = jax.nn.softmax(v_logits_t)
    target_atoms = r_t + discount_t * v_atoms_t
    return _loss(v_atoms_tm1, v_logits_tm1, target_atoms, probs_t, stop_target_gradients)


@operator(masks={"discount_t": ("q_atoms_t", "q_logits_t")})
def categorical_q_learning(
    q_atoms_tm1: Float[Array, "K", "increasing"],
    q_logits_tm1: Float[Array, "A K"],
    a_tm1: Int[Array, "", "in [0, A)"],
    r_t: Real[Array, ""],
    discount_t: Real[Array, ""],
    q_atoms_t: Float[Array, "L"],
    q_logits_t: Float[Array, "A L"],
    stop_target_gradients: bool = True,
) -> Float[Array, ""]:
    """Categorical Q-learning loss (C51): the next action is the one whose distribution has the largest mean.

    The predicted distribution of `a_tm1` is trained by cross entropy on that of the next action, shifted to the atoms
    r_t + γ_t z and projected onto `q_atoms_tm1`. From "A Distributional Perspective on Reinforcement Learning",
    Bellemare et al. 2017 (https://arxiv.org/abs/1707.06887).

    Args:
      q_atoms_tm1: atoms of the distributions at time t-1, in increasing order.
      q_logits_tm1: logits over these atoms for each action.
      a_tm1: action at time t-1.
      r_t: reward at time t.
      discount_t: discount at time t.
      q_atoms_t: atoms of the distributions at time t.
      q_logits_t: logits over these atoms for each action.
      stop_target_gradients: whether to stop gradients through the target.

    Returns:
      The loss.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> atoms, logits = jnp.array([0.0, 1.0]), jnp.zeros([3, 2])
      >>> round(float(rlx.categorical_q_learning(atoms, logits, 1, 0.0, 1.0, atoms, logits)), 4)
      0.6931
    """
    probs_t = jax.nn.softmax(q_logits_t)
    best = jnp.argmax(weighted_sum(probs_t, q_atoms_t[None, :], axis=-1))
    target_atoms = r_t + discount_t * q_atoms_t
    return _loss(q_atoms_tm1, q_logits_tm1[a_tm1], target_atoms, probs_t[best], stop_target_gradients)


@operator(masks={"discount_t": ("q_atoms_t", "q_logits_t")})
def categorical_double_q_learning(
    q_atoms_tm1: Float[Array, "K", "increasing"],
    q_logits_tm1: Float[Array, "A K"],
    a_tm1: Int[Array, "", "in [0, A)"],
    r_t: Real[Array, ""],
    discount_t: Real[Array, ""],
    q_atoms_t: Float[Array, "L"],
    q_logits_t: Float[Array, "A L"],
    q_t_selector: Float[Array, "A"],
    stop_target_gradients: bool = True,
) -> Float[Array, ""]:
    """Categorical double Q-learning loss: `categorical_q_learning` with the next action selected by other values.

    From "A Distributional Perspective on Reinforcement Learning", Bellemare et al. 2017
    (https://arxiv.org/abs/1707.06887) and "Double Q-learning", van Hasselt 2010
    (https://papers.nips.cc/paper/3964-double-q-learning.pdf).

    Args:
      q_atoms_tm1: atoms of the distributions at time t-1, in increasing order.
      q_logits_tm1: logits over these atoms for each action.
      a_tm1: action at time t-1.
      r_t: reward at time t.
      discount_t: discount at time t.
      q_atoms_t: atoms of the distributions at time t.
      q_logits_t: logits over these atoms for each action.
      q_t_selector: action values at time t whose maximum selects the next action.
      stop_target_gradients: whether to stop gradients through the target.

    Returns:
      The loss.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> atoms, logits = jnp.array([0.0, 1.0]), jnp.zeros([3, 2])
      >>> loss = rlx.categorical_double_q_learning(atoms, logits, 1, 0.0, 1.0, atoms, logits, jnp.arange(3.0))
      >>> round(float(loss), 4)
      0.6931
    """
    probs_t = jax.nn.softmax(q_logits_t[jnp.argmax(q_t_selector)])
    target_atoms = r_t + discount_t * q_atoms_t
    return _loss(q_atoms_tm1, q_logits_tm1[a_tm1], target_atoms, probs_t, stop_target_gradients)


def _loss(atoms_tm1: Array, logits_tm1: Array, target_atoms: Array, target_probs: Array, stop: bool) -> Array:
    target = categorical_l2_project.kernel(target_atoms, target_probs, atoms_tm1)
    return categorical_cross_entropy.kernel(maybe_stop(target, stop), logits_tm1)
