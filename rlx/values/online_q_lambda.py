"""Q(λ) that learns from its own current values, without a target network or a replay buffer."""

from rlx.core.checks import check
from rlx.core.gradients import stoppable
from rlx.core.types import Array, ArrayLike
from rlx.values.multi_step import q_lambda


@stoppable
def pqn_q_lambda(
    q: ArrayLike,
    a_tm1: ArrayLike,
    r_t: ArrayLike,
    discount_t: ArrayLike,
    lambda_: ArrayLike,
    stop_target_gradients: bool = True,
    *,
    truncation_t: ArrayLike | None = None,
    truncation_value_t: ArrayLike | None = None,
) -> Array:
    """PQN's temporal-difference errors: λ-returns of the network's own greedy values, minus those values.

    G_{t-1} = r_t + γ_t (λ G_t + (1 - λ) max_a q_t[a]) with G_{T-1} = r_T + γ_T max_a q_T[a]; the errors are
    G_{t-1} - q_{t-1}[a_{t-1}]. One pass of one network over T + 1 observations gives both predictions and targets: with
    layer normalisation and many environments in parallel no target network is needed. From "Simplifying Deep Temporal
    Difference Learning", Gallici et al. 2024 (https://arxiv.org/abs/2407.04811). It is `rlx.q_lambda` with `q[:-1]` as
    the source and `q[1:]` as the destination.

    Args:
      q: action values of one network at times [0, ..., T], floats [T+1, A].
      a_tm1: actions at times [0, ..., T-1], integers [T].
      r_t: rewards at times [1, ..., T], numbers [T].
      discount_t: discounts at times [1, ..., T], numbers [T]; 0 where an episode terminated.
      lambda_: λ in [0, 1], number [] or [T].
      stop_target_gradients: whether the λ-returns are constants to gradients.
      truncation_t: mask [T], true where the sequence was cut at time t without terminating: the target of that step
        bootstraps, and the next step starts a new piece. The results are those of the pieces one by one.
      truncation_value_t: values of the states at which it was cut, floats [T], read where `truncation_t` is true; by
        default max_a q_t[a].

    Returns:
      Errors at times [0, ..., T-1], floats [T].

    Raises:
      ArgumentError: if an argument has another rank, length or kind; map over batches with `jax.vmap`.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> q, half = jnp.array([[1.0, 1.0], [4.0, 0.0], [0.0, 8.0]]), jnp.array([0.5, 0.5])
      >>> rlx.pqn_q_lambda(q, jnp.array([0, 1]), jnp.array([1.0, 2.0]), half, 0.5).tolist()
      [2.5, 6.0]
    """
    q, a_tm1, r_t, discount_t, lambda_ = check(
        "pqn_q_lambda",
        q=(q, "[T+1, A]", "float"),
        a_tm1=(a_tm1, "[T]", "int"),
        r_t=(r_t, "[T]", "real"),
        discount_t=(discount_t, "[T]", "real"),
        lambda_=(lambda_, "[] or [T]", "real in [0, 1] if []"),
    )
    return q_lambda(
        q[:-1],
        a_tm1,
        r_t,
        discount_t,
        q[1:],
        lambda_,
        stop_target_gradients,
        truncation_t=truncation_t,
        truncation_value_t=truncation_value_t,
    )
