"""RND, random network distillation: how badly a network predicts another, fixed one is how new a state is."""

import jax.numpy as jnp

from rlx.core.annotations import Float, Mask
from rlx.core.masking import masked_mean
from rlx.core.operator import maybe_stop, operator
from rlx.core.types import Array


@operator()
def rnd_intrinsic_rewards(predictions_t: Float[Array, "T M"], targets_t: Float[Array, "T M"]) -> Float[Array, "T"]:
    """Rewards of random network distillation: ‖f̂(s_t) - f(s_t)‖² / M.

    f is a network that keeps its random initial parameters, f̂ one that learns to predict it (`rlx.rnd_loss`), best
    where it has been. The paper feeds both with observations that are whitened by running statistics and clipped to
    [-5, 5], and divides the rewards by a running estimate of the standard deviation of their discounted sums, without
    which neither stays on one scale; it then learns values of them apart from those of the other rewards, without
    episodes. The paper has the plain norm, its authors' code the mean over features; the division by the standard
    deviation removes the difference. From "Exploration by Random Network Distillation", Burda et al. 2018
    (https://arxiv.org/abs/1810.12894).

    Args:
      predictions_t: f̂(s_t), of the state that was reached, as the predictor is before it learns from it.
      targets_t: f(s_t).

    Returns:
      The rewards.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> rlx.rnd_intrinsic_rewards(jnp.array([[1.0, 2.0], [3.0, 3.0]]), jnp.array([[1.0, 2.0], [3.0, 1.0]])).tolist()
      [0.0, 2.0]
    """
    return jnp.mean(jnp.square(predictions_t - targets_t), axis=-1)


@operator(counts={"mask_t": ("predictions_t", "targets_t")})
def rnd_loss(
    predictions_t: Float[Array, "T M"],
    targets_t: Float[Array, "T M"],
    stop_target_gradients: bool = True,
    *,
    mask_t: Mask[Array, "", "T"] | None = None,
) -> Float[Array, ""]:
    """The loss of random network distillation's predictor: mean_t of ‖f̂(s_t) - f(s_t)‖² / M.

    From "Exploration by Random Network Distillation", Burda et al. 2018 (https://arxiv.org/abs/1810.12894), which with
    many environments lets a random part of the steps count, so that the predictor does not learn faster with more of
    them: `mask_t = jax.random.bernoulli(key, 0.25, [T])`.

    Args:
      predictions_t: f̂(s_t), of the network that learns.
      targets_t: f(s_t), of the fixed network.
      stop_target_gradients: whether the targets are constants to gradients.
      mask_t: false for steps that do not count, whatever they hold. By default all count.

    Returns:
      The loss; 0 if no step counts.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> float(rlx.rnd_loss(jnp.array([[1.0, 2.0], [3.0, 3.0]]), jnp.array([[1.0, 2.0], [3.0, 1.0]])))
      1.0
    """
    errors_t = rnd_intrinsic_rewards.kernel(predictions_t, maybe_stop(targets_t, stop_target_gradients))
    return masked_mean(errors_t, mask_t)
