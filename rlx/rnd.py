"""RND (random network distillation): the error in predicting a fixed random network measures novelty."""

import jax.numpy as jnp

from rlx.core.annotations import Float, Mask
from rlx.core.masking import masked_mean
from rlx.core.operator import maybe_stop, operator
from rlx.core.types import Array


@operator()
def rnd_intrinsic_rewards(predictions_t: Float[Array, "T M"], targets_t: Float[Array, "T M"]) -> Float[Array, "T"]:
    """Rewards of random network distillation: ‖f̂(s_t) - f(s_t)‖² / M.

    f is a network with fixed random parameters, and f̂ a network that learns to predict it (`rlx.rnd_loss`), most
    accurately in states it has visited. The paper whitens the observations of both by running statistics, clips them to
    [-5, 5], and divides the rewards by a running estimate of the standard deviation of their discounted sums, to keep
    both on a consistent scale; it learns separate, non-episodic values of these rewards. The paper uses the plain norm,
    its authors' code the mean over features; dividing by the standard deviation removes the difference. From
    "Exploration by Random Network Distillation", Burda et al. 2018 (https://arxiv.org/abs/1810.12894).

    Args:
      predictions_t: f̂(s_t) of the state reached, before the predictor learns from it.
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


@operator(masks={"mask_t": ("predictions_t", "targets_t")})
def rnd_loss(
    predictions_t: Float[Array, "T M"],
    targets_t: Float[Array, "T M"],
    stop_target_gradients: bool = True,
    *,
    mask_t: Mask[Array, "", "T"] | None = None,
) -> Float[Array, ""]:
    """The predictor loss of random network distillation: mean_t of ‖f̂(s_t) - f(s_t)‖² / M.

    From "Exploration by Random Network Distillation", Burda et al. 2018 (https://arxiv.org/abs/1810.12894), which uses
    only a random fraction of the steps with many environments, so that the predictor does not learn faster with more of
    them: `mask_t = jax.random.bernoulli(key, 0.25, [T])`.

    Args:
      predictions_t: f̂(s_t) of the predictor network.
      targets_t: f(s_t) of the fixed network.
      stop_target_gradients: whether to stop gradients through the targets.
      mask_t: false for steps to ignore, even if they contain NaN. By default all count.

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
