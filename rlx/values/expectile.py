"""Values by expectile regression, as implicit Q-learning uses them."""

from rlx.core.checks import check
from rlx.core.gradients import maybe_stop, stoppable
from rlx.core.types import Array, ArrayLike
from rlx.losses import expectile_loss


@stoppable
def expectile_value_loss(
    v_tm1: ArrayLike,
    q_tm1: ArrayLike,
    expectile: ArrayLike = 0.7,
    stop_target_gradients: bool = True,
) -> Array:
    """IQL's value loss: |τ - 1{u < 0}| u² with u = Q(s, a) - V(s), for an action of the data.

    As τ → 1 the value tends to that of the best action that the data contains, without asking for the value of any
    other. The other parts of IQL are `rlx.qv_learning` for the action values and `rlx.advantage_weighted_loss` for the
    policy. From "Offline Reinforcement Learning with Implicit Q-Learning", Kostrikov et al. 2021
    (https://arxiv.org/abs/2110.06169), equation 5. At τ = ½ it is `rlx.l2_loss`.

    Args:
      v_tm1: value of the state at time t-1, float [].
      q_tm1: value of the action at time t-1 under the target network (the least of two critics), float [].
      expectile: τ in [0, 1], number [].
      stop_target_gradients: whether `q_tm1` is a constant to gradients.

    Returns:
      The loss, float [].

    Raises:
      ArgumentError: if an argument has another rank or kind; map over batches with `jax.vmap`.

    Example:
      >>> import rlx
      >>> round(float(rlx.expectile_value_loss(1.0, 3.0, expectile=0.75)), 4)
      3.0
    """
    v_tm1, q_tm1, expectile = check(
        "expectile_value_loss",
        v_tm1=(v_tm1, "[]", "float"),
        q_tm1=(q_tm1, "[]", "float"),
        expectile=(expectile, "[]", "real in [0, 1]"),
    )
    return expectile_loss(v_tm1, maybe_stop(q_tm1, stop_target_gradients), expectile)
