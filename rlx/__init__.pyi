"""What type checkers read of rlx. Written by tests/rlx/face_stub.py."""

# ruff: noqa: I001
# fmt: off

from rlx.core.operator import operator
from rlx.core.types import Array, ArrayLike
from collections.abc import Callable
from collections.abc import Sequence
from rlx.core.types import AxisName
from rlx.core.types import Key
from rlx.core.types import Projection
from rlx.core.types import PyTree
from rlx.muesli import ActionDistribution
from typing import Any
from rlx.core.errors import ArgumentError as ArgumentError
from rlx.core.errors import DTypeError as DTypeError
from rlx.core.errors import OptionError as OptionError
from rlx.core.errors import RankError as RankError
from rlx.core.errors import ShapeError as ShapeError
from rlx.batching import batched as batched
from rlx.batching import time_major as time_major
from rlx.vtrace import VTraceOutput as VTraceOutput
from rlx.transformed import transform_values as transform_values
from rlx.mpo import LagrangePenalty as LagrangePenalty
from rlx.mpo import MpoOutputs as MpoOutputs
from rlx.muesli import PolicyTarget as PolicyTarget
from rlx.distributions import clipped_entropy_softmax as clipped_entropy_softmax
from rlx.distributions import epsilon_greedy as epsilon_greedy
from rlx.distributions import greedy as greedy
from rlx.distributions import softmax as softmax
from rlx.truncated_softmax import min_p as min_p
from rlx.truncated_softmax import top_k as top_k
from rlx.truncated_softmax import top_p as top_p
from rlx.gaussians import gaussian_diagonal as gaussian_diagonal
from rlx.gaussians import squashed_gaussian as squashed_gaussian
from rlx.value_transforms import DISCOUNT_TRANSFORM_PAIR as DISCOUNT_TRANSFORM_PAIR
from rlx.value_transforms import HYPERBOLIC_SIN_PAIR as HYPERBOLIC_SIN_PAIR
from rlx.value_transforms import IDENTITY_PAIR as IDENTITY_PAIR
from rlx.value_transforms import SIGNED_HYPERBOLIC_PAIR as SIGNED_HYPERBOLIC_PAIR
from rlx.value_transforms import SIGNED_LOGP1_PAIR as SIGNED_LOGP1_PAIR
from rlx.value_transforms import TxPair as TxPair
from rlx.value_transforms import compose_tx as compose_tx
from rlx.two_hot import muzero_pair as muzero_pair
from rlx.two_hot import symexp_twohot_pair as symexp_twohot_pair
from rlx.two_hot import symlog_twohot_pair as symlog_twohot_pair
from rlx.two_hot import twohot_pair as twohot_pair
from rlx.two_hot import unbiased_transform_pair as unbiased_transform_pair
from rlx.classification import hl_gauss_pair as hl_gauss_pair
from rlx.normalisation import EmaMoments as EmaMoments
from rlx.normalisation import EmaState as EmaState
from rlx.normalisation import PopArtOutput as PopArtOutput
from rlx.normalisation import PopArtState as PopArtState
from rlx.normalisation import create_ema as create_ema
from rlx.normalisation import pop as pop
from rlx.normalisation import popart as popart
from rlx.return_scaling import RewardScale as RewardScale
from rlx.return_scaling import initial_reward_scale as initial_reward_scale
from rlx.exploration import IntrinsicRewardState as IntrinsicRewardState
from rlx.exploration import KNNQueryResult as KNNQueryResult
from rlx.streaming import obgd as obgd
from rlx import evaluation as evaluation
from rlx import replay as replay
from rlx import running_statistics as running_statistics
from rlx.core.arrays import AllSum as AllSum
from rlx.core.trees import transpose_first_axis_to_last as transpose_first_axis_to_last
from rlx.core.trees import transpose_last_axis_to_first as transpose_last_axis_to_first
from rlx.core.trees import tree_fn as tree_fn
from rlx.core.trees import tree_map_zipped as tree_map_zipped
from rlx.core.trees import tree_split_key as tree_split_key
from rlx.core.trees import tree_split_leaves as tree_split_leaves
@operator()
def discounted_returns(
    r_t: ArrayLike,
    discount_t: ArrayLike,
    v_t: ArrayLike,
    stop_target_gradients: bool = False,
    *,
    truncation_t: ArrayLike | None = None,
    truncation_value_t: ArrayLike | None = None,
    use_stop_gradient: bool = ...,
) -> Array: ...
@operator()
def lambda_returns(
    r_t: ArrayLike,
    discount_t: ArrayLike,
    v_t: ArrayLike,
    lambda_: ArrayLike = 1.0,
    stop_target_gradients: bool = False,
    *,
    truncation_t: ArrayLike | None = None,
    truncation_value_t: ArrayLike | None = None,
    use_stop_gradient: bool = ...,
) -> Array: ...
@operator()
def n_step_bootstrapped_returns(
    r_t: ArrayLike,
    discount_t: ArrayLike,
    v_t: ArrayLike,
    n: int,
    lambda_t: ArrayLike = 1.0,
    stop_target_gradients: bool = False,
    *,
    truncation_t: ArrayLike | None = None,
    truncation_value_t: ArrayLike | None = None,
    use_stop_gradient: bool = ...,
) -> Array: ...
@operator()
def truncated_generalized_advantage_estimation(
    r_t: ArrayLike,
    discount_t: ArrayLike,
    lambda_: ArrayLike,
    values: ArrayLike,
    stop_target_gradients: bool = False,
    *,
    truncation_t: ArrayLike | None = None,
    truncation_value_t: ArrayLike | None = None,
    use_stop_gradient: bool = ...,
) -> Array: ...
@operator()
def upgo_advantages(
    v_tm1: ArrayLike,
    v_t: ArrayLike,
    r_t: ArrayLike,
    discount_t: ArrayLike,
    rho_tm1: ArrayLike,
    clip_rho_threshold: ArrayLike = 1.0,
    stop_target_gradients: bool = True,
    *,
    truncation_t: ArrayLike | None = None,
    truncation_value_t: ArrayLike | None = None,
    use_stop_gradient: bool = ...,
) -> Array: ...
@operator()
def upgo_returns(
    r_t: ArrayLike,
    discount_t: ArrayLike,
    v_t: ArrayLike,
    stop_target_gradients: bool = False,
    *,
    truncation_t: ArrayLike | None = None,
    truncation_value_t: ArrayLike | None = None,
    use_stop_gradient: bool = ...,
) -> Array: ...
@operator()
def general_off_policy_returns_from_action_values(
    q_t: ArrayLike,
    a_t: ArrayLike,
    r_t: ArrayLike,
    discount_t: ArrayLike,
    c_t: ArrayLike,
    pi_t: ArrayLike,
    stop_target_gradients: bool = False,
    *,
    truncation_t: ArrayLike | None = None,
    truncation_value_t: ArrayLike | None = None,
    use_stop_gradient: bool = ...,
) -> Array: ...
@operator()
def general_off_policy_returns_from_q_and_v(
    q_t: ArrayLike,
    v_t: ArrayLike,
    r_t: ArrayLike,
    discount_t: ArrayLike,
    c_t: ArrayLike,
    stop_target_gradients: bool = False,
    *,
    truncation_t: ArrayLike | None = None,
    truncation_value_t: ArrayLike | None = None,
    use_stop_gradient: bool = ...,
) -> Array: ...
@operator()
def retrace(
    q_tm1: ArrayLike,
    q_t: ArrayLike,
    a_tm1: ArrayLike,
    a_t: ArrayLike,
    r_t: ArrayLike,
    discount_t: ArrayLike,
    pi_t: ArrayLike,
    mu_t: ArrayLike,
    lambda_: ArrayLike,
    eps: ArrayLike = 1e-08,
    stop_target_gradients: bool = True,
    *,
    truncation_t: ArrayLike | None = None,
    truncation_value_t: ArrayLike | None = None,
    use_stop_gradient: bool = ...,
) -> Array: ...
@operator()
def retrace_continuous(
    q_tm1: ArrayLike,
    q_t: ArrayLike,
    v_t: ArrayLike,
    r_t: ArrayLike,
    discount_t: ArrayLike,
    log_rhos: ArrayLike,
    lambda_: ArrayLike,
    stop_target_gradients: bool = True,
    *,
    truncation_t: ArrayLike | None = None,
    truncation_value_t: ArrayLike | None = None,
    use_stop_gradient: bool = ...,
) -> Array: ...
@operator()
def leaky_vtrace(
    v_tm1: ArrayLike,
    v_t: ArrayLike,
    r_t: ArrayLike,
    discount_t: ArrayLike,
    rho_tm1: ArrayLike,
    alpha_: ArrayLike = 1.0,
    lambda_: ArrayLike = 1.0,
    clip_rho_threshold: ArrayLike = 1.0,
    stop_target_gradients: bool = True,
    sample_mask: ArrayLike | None = None,
    *,
    truncation_t: ArrayLike | None = None,
    truncation_value_t: ArrayLike | None = None,
    use_stop_gradient: bool = ...,
) -> Array: ...
@operator()
def leaky_vtrace_td_error_and_advantage(
    v_tm1: ArrayLike,
    v_t: ArrayLike,
    r_t: ArrayLike,
    discount_t: ArrayLike,
    rho_tm1: ArrayLike,
    alpha: ArrayLike = 1.0,
    lambda_: ArrayLike = 1.0,
    clip_rho_threshold: ArrayLike = 1.0,
    clip_pg_rho_threshold: ArrayLike = 1.0,
    stop_target_gradients: bool = True,
    sample_mask: ArrayLike | None = None,
    *,
    truncation_t: ArrayLike | None = None,
    truncation_value_t: ArrayLike | None = None,
    use_stop_gradient: bool = ...,
) -> VTraceOutput: ...
@operator()
def vtrace(
    v_tm1: ArrayLike,
    v_t: ArrayLike,
    r_t: ArrayLike,
    discount_t: ArrayLike,
    rho_tm1: ArrayLike,
    lambda_: ArrayLike = 1.0,
    clip_rho_threshold: ArrayLike = 1.0,
    stop_target_gradients: bool = True,
    sample_mask: ArrayLike | None = None,
    *,
    truncation_t: ArrayLike | None = None,
    truncation_value_t: ArrayLike | None = None,
    use_stop_gradient: bool = ...,
) -> Array: ...
@operator()
def vtrace_td_error_and_advantage(
    v_tm1: ArrayLike,
    v_t: ArrayLike,
    r_t: ArrayLike,
    discount_t: ArrayLike,
    rho_tm1: ArrayLike,
    lambda_: ArrayLike = 1.0,
    clip_rho_threshold: ArrayLike = 1.0,
    clip_pg_rho_threshold: ArrayLike = 1.0,
    stop_target_gradients: bool = True,
    sample_mask: ArrayLike | None = None,
    *,
    truncation_t: ArrayLike | None = None,
    truncation_value_t: ArrayLike | None = None,
    use_stop_gradient: bool = ...,
) -> VTraceOutput: ...
@operator()
def transformed_general_off_policy_returns_from_action_values(
    tx_pair: TxPair,
    q_t: ArrayLike,
    a_t: ArrayLike,
    r_t: ArrayLike,
    discount_t: ArrayLike,
    c_t: ArrayLike,
    pi_t: ArrayLike,
    stop_target_gradients: bool = False,
    *,
    truncation_t: ArrayLike | None = None,
    truncation_value_t: ArrayLike | None = None,
    use_stop_gradient: bool = ...,
) -> Array: ...
@operator()
def transformed_lambda_returns(
    tx_pair: TxPair,
    r_t: ArrayLike,
    discount_t: ArrayLike,
    v_t: ArrayLike,
    lambda_: ArrayLike = 1.0,
    stop_target_gradients: bool = False,
    *,
    truncation_t: ArrayLike | None = None,
    truncation_value_t: ArrayLike | None = None,
    use_stop_gradient: bool = ...,
) -> Array: ...
@operator()
def transformed_n_step_q_learning(
    q_tm1: ArrayLike,
    a_tm1: ArrayLike,
    target_q_t: ArrayLike,
    a_t: ArrayLike,
    r_t: ArrayLike,
    discount_t: ArrayLike,
    n: int,
    stop_target_gradients: bool = True,
    tx_pair: TxPair = ...,
    *,
    truncation_t: ArrayLike | None = None,
    truncation_value_t: ArrayLike | None = None,
    use_stop_gradient: bool = ...,
) -> Array: ...
@operator()
def transformed_n_step_returns(
    tx_pair: TxPair,
    r_t: ArrayLike,
    discount_t: ArrayLike,
    v_t: ArrayLike,
    n: int,
    lambda_t: ArrayLike = 1.0,
    stop_target_gradients: bool = False,
    *,
    truncation_t: ArrayLike | None = None,
    truncation_value_t: ArrayLike | None = None,
    use_stop_gradient: bool = ...,
) -> Array: ...
@operator()
def transformed_q_lambda(
    q_tm1: ArrayLike,
    a_tm1: ArrayLike,
    r_t: ArrayLike,
    discount_t: ArrayLike,
    q_t: ArrayLike,
    lambda_: ArrayLike,
    stop_target_gradients: bool = True,
    tx_pair: TxPair = ...,
    *,
    truncation_t: ArrayLike | None = None,
    truncation_value_t: ArrayLike | None = None,
    use_stop_gradient: bool = ...,
) -> Array: ...
@operator()
def transformed_retrace(
    q_tm1: ArrayLike,
    q_t: ArrayLike,
    a_tm1: ArrayLike,
    a_t: ArrayLike,
    r_t: ArrayLike,
    discount_t: ArrayLike,
    pi_t: ArrayLike,
    mu_t: ArrayLike,
    lambda_: ArrayLike,
    eps: ArrayLike = 1e-08,
    stop_target_gradients: bool = True,
    tx_pair: TxPair = ...,
    *,
    truncation_t: ArrayLike | None = None,
    truncation_value_t: ArrayLike | None = None,
    use_stop_gradient: bool = ...,
) -> Array: ...
@operator()
def expected_sarsa(
    q_tm1: ArrayLike,
    a_tm1: ArrayLike,
    r_t: ArrayLike,
    discount_t: ArrayLike,
    q_t: ArrayLike,
    probs_a_t: ArrayLike,
    stop_target_gradients: bool = True,
    *,
    use_stop_gradient: bool = ...,
) -> Array: ...
@operator()
def importance_corrected_td_errors(
    r_t: ArrayLike,
    discount_t: ArrayLike,
    rho_tm1: ArrayLike,
    lambda_: ArrayLike,
    values: ArrayLike,
    stop_target_gradients: bool = False,
    *,
    truncation_t: ArrayLike | None = None,
    truncation_value_t: ArrayLike | None = None,
    use_stop_gradient: bool = ...,
) -> Array: ...
@operator()
def qv_learning(
    q_tm1: ArrayLike,
    a_tm1: ArrayLike,
    r_t: ArrayLike,
    discount_t: ArrayLike,
    v_t: ArrayLike,
    stop_target_gradients: bool = True,
    *,
    use_stop_gradient: bool = ...,
) -> Array: ...
@operator()
def qv_max(
    v_tm1: ArrayLike,
    r_t: ArrayLike,
    discount_t: ArrayLike,
    q_t: ArrayLike,
    stop_target_gradients: bool = True,
    *,
    use_stop_gradient: bool = ...,
) -> Array: ...
@operator()
def sarsa(
    q_tm1: ArrayLike,
    a_tm1: ArrayLike,
    r_t: ArrayLike,
    discount_t: ArrayLike,
    q_t: ArrayLike,
    a_t: ArrayLike,
    stop_target_gradients: bool = True,
    *,
    use_stop_gradient: bool = ...,
) -> Array: ...
@operator()
def sarsa_lambda(
    q_tm1: ArrayLike,
    a_tm1: ArrayLike,
    r_t: ArrayLike,
    discount_t: ArrayLike,
    q_t: ArrayLike,
    a_t: ArrayLike,
    lambda_: ArrayLike,
    stop_target_gradients: bool = True,
    *,
    truncation_t: ArrayLike | None = None,
    truncation_value_t: ArrayLike | None = None,
    use_stop_gradient: bool = ...,
) -> Array: ...
@operator()
def td_lambda(
    v_tm1: ArrayLike,
    r_t: ArrayLike,
    discount_t: ArrayLike,
    v_t: ArrayLike,
    lambda_: ArrayLike,
    stop_target_gradients: bool = True,
    *,
    truncation_t: ArrayLike | None = None,
    truncation_value_t: ArrayLike | None = None,
    use_stop_gradient: bool = ...,
) -> Array: ...
@operator()
def td_learning(
    v_tm1: ArrayLike,
    r_t: ArrayLike,
    discount_t: ArrayLike,
    v_t: ArrayLike,
    stop_target_gradients: bool = True,
    *,
    use_stop_gradient: bool = ...,
) -> Array: ...
@operator()
def double_q_learning(
    q_tm1: ArrayLike,
    a_tm1: ArrayLike,
    r_t: ArrayLike,
    discount_t: ArrayLike,
    q_t_value: ArrayLike,
    q_t_selector: ArrayLike,
    stop_target_gradients: bool = True,
    *,
    use_stop_gradient: bool = ...,
) -> Array: ...
@operator()
def dqn_reg_loss(
    q_tm1: ArrayLike,
    a_tm1: ArrayLike,
    r_t: ArrayLike,
    discount_t: ArrayLike,
    q_t: ArrayLike,
    value_weight: ArrayLike = 0.1,
    stop_target_gradients: bool = True,
    *,
    use_stop_gradient: bool = ...,
) -> Array: ...
@operator()
def munchausen_q_learning(
    q_tm1: ArrayLike,
    a_tm1: ArrayLike,
    r_t: ArrayLike,
    discount_t: ArrayLike,
    q_t: ArrayLike,
    target_q_tm1: ArrayLike,
    temperature: ArrayLike = 0.03,
    munchausen_scale: ArrayLike = 0.9,
    clip_value_min: ArrayLike = -1.0,
    stop_target_gradients: bool = True,
    *,
    use_stop_gradient: bool = ...,
) -> Array: ...
@operator()
def persistent_q_learning(
    q_tm1: ArrayLike,
    a_tm1: ArrayLike,
    r_t: ArrayLike,
    discount_t: ArrayLike,
    q_t: ArrayLike,
    action_gap_scale: ArrayLike,
    stop_target_gradients: bool = True,
    *,
    use_stop_gradient: bool = ...,
) -> Array: ...
@operator()
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
    use_stop_gradient: bool = ...,
) -> Array: ...
@operator()
def q_lambda(
    q_tm1: ArrayLike,
    a_tm1: ArrayLike,
    r_t: ArrayLike,
    discount_t: ArrayLike,
    q_t: ArrayLike,
    lambda_: ArrayLike,
    stop_target_gradients: bool = True,
    *,
    truncation_t: ArrayLike | None = None,
    truncation_value_t: ArrayLike | None = None,
    use_stop_gradient: bool = ...,
) -> Array: ...
@operator()
def q_learning(
    q_tm1: ArrayLike,
    a_tm1: ArrayLike,
    r_t: ArrayLike,
    discount_t: ArrayLike,
    q_t: ArrayLike,
    stop_target_gradients: bool = True,
    *,
    use_stop_gradient: bool = ...,
) -> Array: ...
@operator()
def categorical_double_q_learning(
    q_atoms_tm1: ArrayLike,
    q_logits_tm1: ArrayLike,
    a_tm1: ArrayLike,
    r_t: ArrayLike,
    discount_t: ArrayLike,
    q_atoms_t: ArrayLike,
    q_logits_t: ArrayLike,
    q_t_selector: ArrayLike,
    stop_target_gradients: bool = True,
    *,
    use_stop_gradient: bool = ...,
) -> Array: ...
@operator()
def categorical_l2_project(z_p: ArrayLike, probs: ArrayLike, z_q: ArrayLike) -> Array: ...
@operator()
def categorical_q_learning(
    q_atoms_tm1: ArrayLike,
    q_logits_tm1: ArrayLike,
    a_tm1: ArrayLike,
    r_t: ArrayLike,
    discount_t: ArrayLike,
    q_atoms_t: ArrayLike,
    q_logits_t: ArrayLike,
    stop_target_gradients: bool = True,
    *,
    use_stop_gradient: bool = ...,
) -> Array: ...
@operator()
def categorical_td_learning(
    v_atoms_tm1: ArrayLike,
    v_logits_tm1: ArrayLike,
    r_t: ArrayLike,
    discount_t: ArrayLike,
    v_atoms_t: ArrayLike,
    v_logits_t: ArrayLike,
    stop_target_gradients: bool = True,
    *,
    use_stop_gradient: bool = ...,
) -> Array: ...
@operator()
def implicit_quantile_q_learning(
    dist_q_tm1: ArrayLike,
    tau_q_tm1: ArrayLike,
    a_tm1: ArrayLike,
    r_t: ArrayLike,
    discount_t: ArrayLike,
    dist_q_t_selector: ArrayLike,
    dist_q_t: ArrayLike,
    huber_param: ArrayLike = 1.0,
    stop_target_gradients: bool = True,
    *,
    use_stop_gradient: bool = ...,
) -> Array: ...
@operator()
def quantile_expected_sarsa(
    dist_q_tm1: ArrayLike,
    tau_q_tm1: ArrayLike,
    a_tm1: ArrayLike,
    r_t: ArrayLike,
    discount_t: ArrayLike,
    dist_q_t: ArrayLike,
    probs_a_t: ArrayLike,
    huber_param: ArrayLike = 0.0,
    stop_target_gradients: bool = True,
    *,
    use_stop_gradient: bool = ...,
) -> Array: ...
@operator()
def quantile_q_learning(
    dist_q_tm1: ArrayLike,
    tau_q_tm1: ArrayLike,
    a_tm1: ArrayLike,
    r_t: ArrayLike,
    discount_t: ArrayLike,
    dist_q_t_selector: ArrayLike,
    dist_q_t: ArrayLike,
    huber_param: ArrayLike = 0.0,
    stop_target_gradients: bool = True,
    *,
    use_stop_gradient: bool = ...,
) -> Array: ...
@operator()
def quantile_regression_loss(
    dist_src: ArrayLike,
    tau_src: ArrayLike,
    dist_target: ArrayLike,
    huber_param: ArrayLike = 0.0,
    stop_target_gradients: bool = True,
    *,
    use_stop_gradient: bool = ...,
) -> Array: ...
@operator()
def entropy_loss(logits_t: ArrayLike, w_t: ArrayLike) -> Array: ...
@operator()
def policy_gradient_loss(
    logits_t: ArrayLike,
    a_t: ArrayLike,
    adv_t: ArrayLike,
    w_t: ArrayLike,
    use_stop_gradient: bool = True,
    *,
    stop_target_gradients: bool = ...,
) -> Array: ...
@operator()
def qpg_loss(
    logits_t: ArrayLike,
    q_t: ArrayLike,
    use_stop_gradient: bool = True,
    *,
    stop_target_gradients: bool = ...,
) -> Array: ...
@operator()
def rm_loss(
    logits_t: ArrayLike,
    q_t: ArrayLike,
    use_stop_gradient: bool = True,
    *,
    stop_target_gradients: bool = ...,
) -> Array: ...
@operator()
def rpg_loss(
    logits_t: ArrayLike,
    q_t: ArrayLike,
    use_stop_gradient: bool = True,
    *,
    stop_target_gradients: bool = ...,
) -> Array: ...
@operator()
def adaptive_kl_weight(
    kl_weight: ArrayLike,
    kl: ArrayLike,
    target_kl: ArrayLike,
    tolerance: ArrayLike = 1.5,
    factor: ArrayLike = 2.0,
) -> Array: ...
@operator()
def clipped_surrogate_pg_loss(
    prob_ratios_t: ArrayLike,
    adv_t: ArrayLike,
    epsilon: ArrayLike,
    use_stop_gradient: bool = True,
    *,
    stop_target_gradients: bool = ...,
) -> Array: ...
@operator()
def clipped_value_loss(
    v_t: ArrayLike,
    old_v_t: ArrayLike,
    target_t: ArrayLike,
    epsilon: ArrayLike,
    stop_target_gradients: bool = True,
    *,
    mask_t: ArrayLike | None = None,
    use_stop_gradient: bool = ...,
) -> Array: ...
@operator()
def dual_clipped_surrogate_pg_loss(
    prob_ratios_t: ArrayLike,
    adv_t: ArrayLike,
    epsilon_low: ArrayLike = 0.2,
    epsilon_high: ArrayLike = 0.2,
    max_ratio: ArrayLike = 3.0,
    stop_target_gradients: bool = True,
    *,
    mask_t: ArrayLike | None = None,
    use_stop_gradient: bool = ...,
) -> Array: ...
@operator()
def kl_penalty_pg_loss(
    prob_ratios_t: ArrayLike,
    adv_t: ArrayLike,
    kl_t: ArrayLike,
    kl_weight: ArrayLike,
    stop_target_gradients: bool = True,
    *,
    mask_t: ArrayLike | None = None,
    use_stop_gradient: bool = ...,
) -> Array: ...
@operator()
def normalized_advantages(
    adv: ArrayLike,
    epsilon: ArrayLike = 1e-08,
    *,
    mask: ArrayLike | None = None,
    axis_name: AxisName = None,
) -> Array: ...
@operator()
def compute_parametric_kl_penalty_and_dual_loss(
    kl_constraints: Sequence[tuple[ArrayLike, LagrangePenalty]],
    projection_operator: Projection,
    use_stop_gradient: bool = True,
    *,
    stop_target_gradients: bool = ...,
) -> tuple[Array, Array]: ...
@operator()
def get_top_k_weights(
    top_k_fraction: float,
    restarting_weights: ArrayLike,
    scaled_advantages: ArrayLike,
    axis_name: AxisName = None,
    use_stop_gradient: bool = True,
    *,
    stop_target_gradients: bool = ...,
) -> Array: ...
@operator()
def kl_constraint_loss(
    kl: ArrayLike,
    penalty: LagrangePenalty,
    projection_operator: Projection,
    use_stop_gradient: bool = True,
    *,
    stop_target_gradients: bool = ...,
) -> tuple[Array, Array, Array]: ...
@operator()
def mpo_compute_weights_and_temperature_loss(
    sample_q_values: ArrayLike,
    temperature_constraint: LagrangePenalty,
    projection_operator: Projection,
    sample_axis: int = 0,
) -> tuple[Array, Array, int]: ...
@operator()
def mpo_loss(
    sample_log_probs: ArrayLike,
    sample_q_values: ArrayLike,
    temperature_constraint: LagrangePenalty,
    kl_constraints: Sequence[tuple[ArrayLike, LagrangePenalty]],
    projection_operator: Projection = ...,
    policy_loss_weight: ArrayLike = 1.0,
    temperature_loss_weight: ArrayLike = 1.0,
    kl_loss_weight: ArrayLike = 1.0,
    alpha_loss_weight: ArrayLike = 1.0,
    sample_axis: int = 0,
    use_stop_gradient: bool = True,
    *,
    stop_target_gradients: bool = ...,
) -> tuple[Array, MpoOutputs]: ...
@operator()
def vmpo_compute_weights_and_temperature_loss(
    advantages: ArrayLike,
    restarting_weights: ArrayLike | None,
    importance_weights: ArrayLike | None,
    temperature_constraint: LagrangePenalty,
    projection_operator: Projection,
    top_k_fraction: float,
    axis_name: AxisName = None,
    use_stop_gradient: bool = True,
    *,
    stop_target_gradients: bool = ...,
) -> tuple[Array, Array, Array]: ...
@operator()
def vmpo_loss(
    sample_log_probs: ArrayLike,
    advantages: ArrayLike,
    temperature_constraint: LagrangePenalty,
    kl_constraints: Sequence[tuple[ArrayLike, LagrangePenalty]],
    projection_operator: Projection = ...,
    restarting_weights: ArrayLike | None = None,
    importance_weights: ArrayLike | None = None,
    top_k_fraction: float = 0.5,
    policy_loss_weight: ArrayLike = 1.0,
    temperature_loss_weight: ArrayLike = 1.0,
    kl_loss_weight: ArrayLike = 1.0,
    alpha_loss_weight: ArrayLike = 1.0,
    axis_name: AxisName = None,
    use_stop_gradient: bool = True,
    *,
    stop_target_gradients: bool = ...,
) -> tuple[Array, MpoOutputs]: ...
@operator()
def cmpo_loss(
    logits: ArrayLike,
    prior_logits: ArrayLike,
    adv: ArrayLike,
    clip_value: ArrayLike = 1.0,
    stop_target_gradients: bool = True,
    *,
    use_stop_gradient: bool = ...,
) -> Array: ...
@operator()
def cmpo_policy(prior_logits: ArrayLike, adv: ArrayLike, clip_value: ArrayLike = 1.0) -> Array: ...
@operator()
def constant_policy_targets(
    distribution: Any,
    rng_key: Array,
    num_samples: int,
    weights_scale: ArrayLike = 1.0,
) -> PolicyTarget: ...
@operator()
def muesli_policy_loss(
    logits_t: ArrayLike,
    a_t: ArrayLike,
    adv_t: ArrayLike,
    rho_t: ArrayLike,
    prior_logits_t: ArrayLike,
    q_adv_t: ArrayLike,
    kl_weight: ArrayLike = 1.0,
    clip_value: ArrayLike = 1.0,
    clip_rho_threshold: ArrayLike = 1.0,
    stop_target_gradients: bool = True,
    *,
    mask_t: ArrayLike | None = None,
    use_stop_gradient: bool = ...,
) -> Array: ...
@operator()
def sampled_cmpo_loss(
    sample_log_probs: ArrayLike,
    sample_adv: ArrayLike,
    clip_value: ArrayLike = 1.0,
    initial_normalizer: ArrayLike = 1.0,
    stop_target_gradients: bool = True,
    *,
    use_stop_gradient: bool = ...,
) -> Array: ...
@operator()
def sampled_policy_distillation_loss(
    distribution: ActionDistribution,
    policy_targets: PolicyTarget,
    stop_target_gradients: bool = True,
    *,
    use_stop_gradient: bool = ...,
) -> Array: ...
@operator()
def zero_policy_targets(
    distribution: Any,
    rng_key: Array,
    num_samples: int,
    *,
    weights_scale: ArrayLike = 0.0,
) -> PolicyTarget: ...
@operator()
def repetition_penalty(logits: ArrayLike, seen: ArrayLike, penalty: ArrayLike = 1.2) -> Array: ...
@operator()
def categorical_cross_entropy(labels: ArrayLike, logits: ArrayLike) -> Array: ...
@operator()
def categorical_importance_sampling_ratios(pi_logits_t: ArrayLike, mu_logits_t: ArrayLike, a_t: ArrayLike) -> Array: ...
@operator()
def categorical_kl_divergence(p_logits: ArrayLike, q_logits: ArrayLike, temperature: ArrayLike = 1.0) -> Array: ...
@operator()
def categorical_sample(key: Key, probs: ArrayLike) -> Array: ...
@operator()
def generalized_jensen_shannon_divergence(p_logits: ArrayLike, q_logits: ArrayLike, beta: ArrayLike = 0.5) -> Array: ...
@operator()
def multivariate_normal_kl_divergence(
    mu_0: ArrayLike,
    sigma_0: ArrayLike,
    mu_1: ArrayLike,
    sigma_1: ArrayLike,
) -> Array: ...
@operator()
def clip_gradient(x: PyTree, gradient_min: ArrayLike, gradient_max: ArrayLike) -> PyTree: ...
@operator()
def expectile_loss(predictions: ArrayLike, targets: ArrayLike, expectile: ArrayLike) -> Array: ...
@operator()
def huber_loss(x: ArrayLike, delta: ArrayLike = 1.0) -> Array: ...
@operator()
def l2_loss(predictions: ArrayLike, targets: ArrayLike | None = None) -> Array: ...
@operator()
def likelihood(predictions: ArrayLike, targets: ArrayLike) -> Array: ...
@operator()
def log_loss(predictions: ArrayLike, targets: ArrayLike) -> Array: ...
@operator()
def hyperbolic_arcsin(x: ArrayLike) -> Array: ...
@operator()
def hyperbolic_sin(x: ArrayLike) -> Array: ...
@operator()
def identity(x: ArrayLike) -> Array: ...
@operator()
def logit(x: ArrayLike) -> Array: ...
@operator()
def power(x: ArrayLike, p: ArrayLike) -> Array: ...
@operator()
def sigmoid(x: ArrayLike) -> Array: ...
@operator()
def signed_expm1(x: ArrayLike) -> Array: ...
@operator()
def signed_hyperbolic(x: ArrayLike, eps: ArrayLike = 0.001) -> Array: ...
@operator()
def signed_logp1(x: ArrayLike) -> Array: ...
@operator()
def signed_parabolic(x: ArrayLike, eps: ArrayLike = 0.001) -> Array: ...
@operator()
def transform_from_2hot(probs: ArrayLike, min_value: ArrayLike, max_value: ArrayLike, num_bins: int) -> Array: ...
@operator()
def transform_to_2hot(scalar: ArrayLike, min_value: ArrayLike, max_value: ArrayLike, num_bins: int) -> Array: ...
@operator()
def advantage_weighted_loss(
    log_probs_t: ArrayLike,
    adv_t: ArrayLike,
    temperature: ArrayLike = 1.0,
    max_weight: ArrayLike = 20.0,
    stop_target_gradients: bool = True,
    *,
    mask_t: ArrayLike | None = None,
    use_stop_gradient: bool = ...,
) -> Array: ...
@operator()
def conservative_q_learning(
    q_tm1: ArrayLike,
    a_tm1: ArrayLike,
    r_t: ArrayLike,
    discount_t: ArrayLike,
    q_t: ArrayLike,
    conservative_weight: ArrayLike = 1.0,
    stop_target_gradients: bool = True,
    *,
    use_stop_gradient: bool = ...,
) -> Array: ...
@operator()
def conservative_q_loss(q_tm1: ArrayLike, a_tm1: ArrayLike, temperature: ArrayLike = 1.0) -> Array: ...
@operator()
def expectile_value_loss(
    v_tm1: ArrayLike,
    q_tm1: ArrayLike,
    expectile: ArrayLike = 0.7,
    stop_target_gradients: bool = True,
    *,
    use_stop_gradient: bool = ...,
) -> Array: ...
@operator()
def sampled_conservative_q_loss(
    sample_q_tm1: ArrayLike,
    sample_log_probs_tm1: ArrayLike,
    q_tm1: ArrayLike,
) -> Array: ...
@operator()
def generalized_policy_improvement(psi_t: ArrayLike, w: ArrayLike) -> Array: ...
@operator()
def successor_feature_q_learning(
    psi_tm1: ArrayLike,
    a_tm1: ArrayLike,
    phi_t: ArrayLike,
    discount_t: ArrayLike,
    psi_t: ArrayLike,
    w: ArrayLike,
    stop_target_gradients: bool = True,
    *,
    use_stop_gradient: bool = ...,
) -> Array: ...
@operator()
def successor_feature_td(
    psi_tm1: ArrayLike,
    phi_t: ArrayLike,
    discount_t: ArrayLike,
    psi_t: ArrayLike,
    stop_target_gradients: bool = True,
    *,
    use_stop_gradient: bool = ...,
) -> Array: ...
@operator()
def uvfa_q_learning(
    q_tm1: ArrayLike,
    a_tm1: ArrayLike,
    r_t: ArrayLike,
    discount_t: ArrayLike,
    q_t: ArrayLike,
    stop_target_gradients: bool = True,
    *,
    use_stop_gradient: bool = ...,
) -> Array: ...
@operator()
def uvfa_td_learning(
    v_tm1: ArrayLike,
    r_t: ArrayLike,
    discount_t: ArrayLike,
    v_t: ArrayLike,
    stop_target_gradients: bool = True,
    *,
    use_stop_gradient: bool = ...,
) -> Array: ...
@operator()
def classification_q_learning(
    q_logits_tm1: ArrayLike,
    a_tm1: ArrayLike,
    r_t: ArrayLike,
    discount_t: ArrayLike,
    q_logits_t: ArrayLike,
    tx_pair: TxPair,
    stop_target_gradients: bool = True,
    *,
    use_stop_gradient: bool = ...,
) -> Array: ...
@operator()
def classification_value_loss(
    value_logits: ArrayLike,
    target: ArrayLike,
    tx_pair: TxPair,
    stop_target_gradients: bool = True,
    *,
    use_stop_gradient: bool = ...,
) -> Array: ...
@operator()
def transform_from_hl_gauss(probs: ArrayLike, min_value: ArrayLike, max_value: ArrayLike, num_bins: int) -> Array: ...
@operator()
def transform_to_hl_gauss(
    scalar: ArrayLike,
    min_value: ArrayLike,
    max_value: ArrayLike,
    num_bins: int,
    sigma: ArrayLike | None = None,
) -> Array: ...
@operator()
def sac_actor_loss(
    q_t: ArrayLike,
    log_prob_t: ArrayLike,
    temperature: ArrayLike,
    stop_target_gradients: bool = True,
    *,
    use_stop_gradient: bool = ...,
) -> Array: ...
@operator()
def sac_critic_loss(
    q_tm1: ArrayLike,
    r_t: ArrayLike,
    discount_t: ArrayLike,
    q_t: ArrayLike,
    log_prob_t: ArrayLike,
    temperature: ArrayLike,
    stop_target_gradients: bool = True,
    *,
    use_stop_gradient: bool = ...,
) -> Array: ...
@operator()
def sac_discrete_actor_loss(
    q_t: ArrayLike,
    logits_t: ArrayLike,
    temperature: ArrayLike,
    stop_target_gradients: bool = True,
    *,
    use_stop_gradient: bool = ...,
) -> Array: ...
@operator()
def sac_discrete_critic_loss(
    q_tm1: ArrayLike,
    a_tm1: ArrayLike,
    r_t: ArrayLike,
    discount_t: ArrayLike,
    q_t: ArrayLike,
    logits_t: ArrayLike,
    temperature: ArrayLike,
    stop_target_gradients: bool = True,
    *,
    use_stop_gradient: bool = ...,
) -> Array: ...
@operator()
def sac_temperature_loss(
    temperature: ArrayLike,
    log_prob_t: ArrayLike,
    target_entropy: ArrayLike,
    stop_target_gradients: bool = True,
    *,
    use_stop_gradient: bool = ...,
) -> Array: ...
@operator()
def clipped_double_q_learning(
    q_tm1: ArrayLike,
    r_t: ArrayLike,
    discount_t: ArrayLike,
    q_t: ArrayLike,
    stop_target_gradients: bool = True,
    *,
    use_stop_gradient: bool = ...,
) -> Array: ...
@operator()
def dpg_loss(
    a_t: ArrayLike,
    dqda_t: ArrayLike,
    dqda_clipping: ArrayLike | None = None,
    use_stop_gradient: bool = True,
    *,
    stop_target_gradients: bool = ...,
) -> Array: ...
@operator()
def smoothed_target_action(
    key: Key,
    a_t: ArrayLike,
    stddev: ArrayLike = 0.2,
    noise_clip: ArrayLike = 0.5,
    min_action: ArrayLike = -1.0,
    max_action: ArrayLike = 1.0,
) -> Array: ...
@operator()
def td3_bc_actor_loss(
    q_t: ArrayLike,
    a_t: ArrayLike,
    data_a_t: ArrayLike,
    value_weight: ArrayLike = 2.5,
    *,
    mask: ArrayLike | None = None,
) -> Array: ...
@operator()
def info_nce_loss(logits: ArrayLike, logsumexp_weight: ArrayLike = 0.0, *, mask: ArrayLike | None = None) -> Array: ...
@operator()
def d4pg_actor_loss(q_atoms_t: ArrayLike, q_logits_t: ArrayLike) -> Array: ...
@operator()
def d4pg_critic_loss(
    q_atoms_tm1: ArrayLike,
    q_logits_tm1: ArrayLike,
    r_t: ArrayLike,
    discount_t: ArrayLike,
    q_atoms_t: ArrayLike,
    q_logits_t: ArrayLike,
    stop_target_gradients: bool = True,
    *,
    use_stop_gradient: bool = ...,
) -> Array: ...
@operator()
def discovered_policy_loss(
    prob_ratios_t: ArrayLike,
    adv_t: ArrayLike,
    alpha: ArrayLike = 2.0,
    beta: ArrayLike = 0.6,
    stop_target_gradients: bool = True,
    *,
    mask_t: ArrayLike | None = None,
    use_stop_gradient: bool = ...,
) -> Array: ...
@operator()
def learnt_drift_inputs(prob_ratios_t: ArrayLike, adv_t: ArrayLike, *, mask_t: ArrayLike | None = None) -> Array: ...
@operator()
def learnt_policy_loss(
    prob_ratios_t: ArrayLike,
    adv_t: ArrayLike,
    scores_t: ArrayLike,
    threshold: ArrayLike = 1e-06,
    stop_target_gradients: bool = True,
    *,
    mask_t: ArrayLike | None = None,
    use_stop_gradient: bool = ...,
) -> Array: ...
@operator()
def fast_td3_critic_loss(
    q_atoms_tm1: ArrayLike,
    q_logits_tm1: ArrayLike,
    r_t: ArrayLike,
    discount_t: ArrayLike,
    q_atoms_t: ArrayLike,
    q_logits_t: ArrayLike,
    stop_target_gradients: bool = True,
    *,
    use_stop_gradient: bool = ...,
) -> Array: ...
@operator()
def orpo_loss(
    chosen_log_probs_t: ArrayLike,
    rejected_log_probs_t: ArrayLike,
    odds_weight: ArrayLike = 0.1,
    *,
    chosen_mask_t: ArrayLike | None = None,
    rejected_mask_t: ArrayLike | None = None,
) -> Array: ...
@operator()
def redq_actor_loss(
    q_t: ArrayLike,
    log_prob_t: ArrayLike,
    temperature: ArrayLike,
    stop_target_gradients: bool = True,
    *,
    use_stop_gradient: bool = ...,
) -> Array: ...
@operator()
def redq_critic_loss(
    q_tm1: ArrayLike,
    r_t: ArrayLike,
    discount_t: ArrayLike,
    q_t: ArrayLike,
    log_prob_t: ArrayLike,
    temperature: ArrayLike,
    subset: ArrayLike,
    stop_target_gradients: bool = True,
    *,
    use_stop_gradient: bool = ...,
) -> Array: ...
@operator()
def sapo_loss(
    log_probs_t: ArrayLike,
    old_log_probs_t: ArrayLike,
    adv_t: ArrayLike,
    mask_t: ArrayLike | None = None,
    temperature_positive: ArrayLike = 1.0,
    temperature_negative: ArrayLike = 1.05,
    stop_target_gradients: bool = True,
    *,
    use_stop_gradient: bool = ...,
) -> Array: ...
@operator()
def bradley_terry_loss(chosen_reward: ArrayLike, rejected_reward: ArrayLike, margin: ArrayLike = 0.0) -> Array: ...
@operator()
def overlong_penalty(length: ArrayLike, max_length: ArrayLike, buffer: ArrayLike) -> Array: ...
@operator()
def simpo_loss(
    chosen_log_probs_t: ArrayLike,
    rejected_log_probs_t: ArrayLike,
    beta: ArrayLike = 2.0,
    margin: ArrayLike = 0.5,
    *,
    chosen_mask_t: ArrayLike | None = None,
    rejected_mask_t: ArrayLike | None = None,
) -> Array: ...
@operator()
def tqc_critic_loss(
    dist_q_tm1: ArrayLike,
    r_t: ArrayLike,
    discount_t: ArrayLike,
    dist_q_t: ArrayLike,
    log_prob_t: ArrayLike,
    temperature: ArrayLike,
    num_dropped: int = 2,
    huber_param: ArrayLike = 1.0,
    stop_target_gradients: bool = True,
    *,
    use_stop_gradient: bool = ...,
) -> Array: ...
@operator()
def truncated_quantiles(dist_q: ArrayLike, num_dropped: int = 2) -> Array: ...
@operator()
def token_log_probs(
    hidden: ArrayLike,
    head: ArrayLike,
    tokens: ArrayLike,
    *,
    chunk_size: int = 512,
    temperature: ArrayLike = 1.0,
    soft_cap: ArrayLike | None = None,
    with_entropy: bool = False,
) -> Any: ...
@operator()
def truncated_importance_weights(
    log_probs_t: ArrayLike,
    behaviour_log_probs_t: ArrayLike,
    max_weight: ArrayLike = 2.0,
    *,
    mask_t: ArrayLike | None = None,
) -> Array: ...
@operator()
def dpo_loss(
    chosen_log_probs_t: ArrayLike,
    rejected_log_probs_t: ArrayLike,
    ref_chosen_log_probs_t: ArrayLike,
    ref_rejected_log_probs_t: ArrayLike,
    beta: ArrayLike = 0.1,
    stop_target_gradients: bool = True,
    *,
    chosen_mask_t: ArrayLike | None = None,
    rejected_mask_t: ArrayLike | None = None,
    label_smoothing: ArrayLike = 0.0,
    use_stop_gradient: bool = ...,
) -> Array: ...
@operator()
def ipo_loss(
    chosen_log_probs_t: ArrayLike,
    rejected_log_probs_t: ArrayLike,
    ref_chosen_log_probs_t: ArrayLike,
    ref_rejected_log_probs_t: ArrayLike,
    tau: ArrayLike = 0.1,
    stop_target_gradients: bool = True,
    *,
    chosen_mask_t: ArrayLike | None = None,
    rejected_mask_t: ArrayLike | None = None,
    use_stop_gradient: bool = ...,
) -> Array: ...
@operator()
def kto_loss(
    log_probs_t: ArrayLike,
    ref_log_probs_t: ArrayLike,
    desirable: ArrayLike,
    reference_point: ArrayLike,
    beta: ArrayLike = 0.1,
    stop_target_gradients: bool = True,
    *,
    mask_t: ArrayLike | None = None,
    desirable_weight: ArrayLike = 1.0,
    undesirable_weight: ArrayLike = 1.0,
    use_stop_gradient: bool = ...,
) -> Array: ...
@operator()
def kto_reference_point(
    log_probs_t: ArrayLike,
    ref_log_probs_t: ArrayLike,
    mask_t: ArrayLike | None = None,
    stop_target_gradients: bool = True,
    *,
    axis_name: AxisName = None,
    use_stop_gradient: bool = ...,
) -> Array: ...
@operator()
def cispo_loss(
    log_probs_t: ArrayLike,
    old_log_probs_t: ArrayLike,
    adv: ArrayLike,
    mask_t: ArrayLike | None = None,
    epsilon_low: ArrayLike = 1.0,
    epsilon_high: ArrayLike = 0.28,
    stop_target_gradients: bool = True,
    *,
    aggregation: str = 'token_mean',
    normalizer: ArrayLike | None = None,
    axis_name: AxisName = None,
    use_stop_gradient: bool = ...,
) -> Array: ...
@operator()
def dapo_loss(
    log_probs_t: ArrayLike,
    old_log_probs_t: ArrayLike,
    adv: ArrayLike,
    mask_t: ArrayLike | None = None,
    epsilon_low: ArrayLike = 0.2,
    epsilon_high: ArrayLike = 0.28,
    stop_target_gradients: bool = True,
    *,
    aggregation: str = 'token_mean',
    normalizer: ArrayLike | None = None,
    axis_name: AxisName = None,
    use_stop_gradient: bool = ...,
) -> Array: ...
@operator()
def dr_grpo_loss(
    log_probs_t: ArrayLike,
    old_log_probs_t: ArrayLike,
    adv_t: ArrayLike,
    mask_t: ArrayLike | None = None,
    epsilon: ArrayLike = 0.2,
    stop_target_gradients: bool = True,
    *,
    max_length: int | None = None,
    ref_log_probs_t: ArrayLike | None = None,
    kl_weight: ArrayLike = 0.04,
    epsilon_high: ArrayLike | None = None,
    max_ratio: ArrayLike = ...,
    kl_estimator: str = 'k3',
    use_stop_gradient: bool = ...,
) -> Array: ...
@operator()
def grpo_loss(
    log_probs_t: ArrayLike,
    old_log_probs_t: ArrayLike,
    adv_t: ArrayLike,
    mask_t: ArrayLike | None = None,
    epsilon: ArrayLike = 0.2,
    stop_target_gradients: bool = True,
    *,
    ref_log_probs_t: ArrayLike | None = None,
    kl_weight: ArrayLike = 0.04,
    epsilon_high: ArrayLike | None = None,
    max_ratio: ArrayLike = ...,
    kl_estimator: str = 'k3',
    use_stop_gradient: bool = ...,
) -> Array: ...
@operator()
def gspo_loss(
    log_probs_t: ArrayLike,
    old_log_probs_t: ArrayLike,
    adv: ArrayLike,
    mask_t: ArrayLike | None = None,
    epsilon_low: ArrayLike = 0.0003,
    epsilon_high: ArrayLike = 0.0004,
    stop_target_gradients: bool = True,
    *,
    use_stop_gradient: bool = ...,
) -> Array: ...
@operator()
def rloo_loss(
    log_probs_t: ArrayLike,
    rewards: ArrayLike,
    mask_t: ArrayLike | None = None,
    stop_target_gradients: bool = True,
    *,
    use_stop_gradient: bool = ...,
) -> Array: ...
@operator()
def sequence_policy_gradient_loss(
    log_probs_t: ArrayLike,
    adv_t: ArrayLike,
    mask_t: ArrayLike | None = None,
    stop_target_gradients: bool = True,
    *,
    use_stop_gradient: bool = ...,
) -> Array: ...
@operator()
def group_relative_advantages(
    rewards: ArrayLike,
    scale_by_std: bool = True,
    epsilon: ArrayLike = 1e-06,
    stop_target_gradients: bool = False,
    *,
    mask: ArrayLike | None = None,
    ddof: int = 0,
    use_stop_gradient: bool = ...,
) -> Array: ...
@operator()
def leave_one_out_advantages(
    rewards: ArrayLike,
    stop_target_gradients: bool = False,
    *,
    mask: ArrayLike | None = None,
    use_stop_gradient: bool = ...,
) -> Array: ...
@operator()
def decoupled_advantages(rewards: ArrayLike, weights: ArrayLike | None = None, epsilon: ArrayLike = 1e-06) -> Array: ...
@operator()
def optimal_baseline_advantages(rewards: ArrayLike, lengths: ArrayLike) -> Array: ...
@operator()
def pass_at_k_advantages(correct: ArrayLike, k: int) -> Array: ...
@operator()
def reinforce_plus_plus_advantages(
    rewards: ArrayLike,
    with_baseline: bool = True,
    epsilon: ArrayLike = 1e-06,
) -> Array: ...
@operator()
def remax_advantages(rewards: ArrayLike, greedy_reward: ArrayLike) -> Array: ...
@operator()
def clip_cov_loss(
    log_probs_t: ArrayLike,
    old_log_probs_t: ArrayLike,
    adv: ArrayLike,
    uniform_t: ArrayLike,
    mask_t: ArrayLike | None = None,
    fraction: ArrayLike = 0.0002,
    min_covariance: ArrayLike = 1.0,
    max_covariance: ArrayLike = 5.0,
    epsilon_low: ArrayLike = 0.2,
    epsilon_high: ArrayLike = 0.2,
    stop_target_gradients: bool = True,
    *,
    aggregation: str = 'token_mean',
    normalizer: ArrayLike | None = None,
    axis_name: AxisName = None,
    use_stop_gradient: bool = ...,
) -> Array: ...
@operator()
def kl_cov_loss(
    log_probs_t: ArrayLike,
    old_log_probs_t: ArrayLike,
    adv: ArrayLike,
    mask_t: ArrayLike | None = None,
    fraction: ArrayLike = 0.002,
    kl_weight: ArrayLike = 1.0,
    stop_target_gradients: bool = True,
    *,
    aggregation: str = 'token_mean',
    normalizer: ArrayLike | None = None,
    axis_name: AxisName = None,
    use_stop_gradient: bool = ...,
) -> Array: ...
@operator()
def gmpo_loss(
    log_probs_t: ArrayLike,
    old_log_probs_t: ArrayLike,
    adv: ArrayLike,
    mask_t: ArrayLike | None = None,
    epsilon_low: ArrayLike = 0.4,
    epsilon_high: ArrayLike = 0.4,
    stop_target_gradients: bool = True,
    *,
    use_stop_gradient: bool = ...,
) -> Array: ...
@operator()
def gspo_token_loss(
    log_probs_t: ArrayLike,
    old_log_probs_t: ArrayLike,
    adv_t: ArrayLike,
    mask_t: ArrayLike | None = None,
    epsilon_low: ArrayLike = 0.0003,
    epsilon_high: ArrayLike = 0.0004,
    stop_target_gradients: bool = True,
    *,
    use_stop_gradient: bool = ...,
) -> Array: ...
@operator()
def importance_weights(
    log_probs_t: ArrayLike,
    behaviour_log_probs_t: ArrayLike,
    mask_t: ArrayLike | None = None,
    *,
    level: str = 'sequence',
    mode: str = 'mask',
    min_weight: ArrayLike = 0.0,
    max_weight: ArrayLike = 3.0,
) -> Array: ...
@operator()
def apo_loss(
    chosen_log_probs_t: ArrayLike,
    rejected_log_probs_t: ArrayLike,
    ref_chosen_log_probs_t: ArrayLike,
    ref_rejected_log_probs_t: ArrayLike,
    beta: ArrayLike = 0.1,
    stop_target_gradients: bool = True,
    *,
    chosen_mask_t: ArrayLike | None = None,
    rejected_mask_t: ArrayLike | None = None,
    chosen_is_better: bool = True,
    use_stop_gradient: bool = ...,
) -> Array: ...
@operator()
def robust_dpo_loss(
    chosen_log_probs_t: ArrayLike,
    rejected_log_probs_t: ArrayLike,
    ref_chosen_log_probs_t: ArrayLike,
    ref_rejected_log_probs_t: ArrayLike,
    beta: ArrayLike = 0.1,
    stop_target_gradients: bool = True,
    *,
    chosen_mask_t: ArrayLike | None = None,
    rejected_mask_t: ArrayLike | None = None,
    flip_probability: ArrayLike = 0.1,
    use_stop_gradient: bool = ...,
) -> Array: ...
@operator()
def slic_loss(
    chosen_log_probs_t: ArrayLike,
    rejected_log_probs_t: ArrayLike,
    ref_chosen_log_probs_t: ArrayLike,
    ref_rejected_log_probs_t: ArrayLike,
    beta: ArrayLike = 0.1,
    stop_target_gradients: bool = True,
    *,
    chosen_mask_t: ArrayLike | None = None,
    rejected_mask_t: ArrayLike | None = None,
    use_stop_gradient: bool = ...,
) -> Array: ...
@operator()
def distillation_advantages(
    log_probs_t: ArrayLike,
    teacher_log_probs_t: ArrayLike,
    *,
    mask_t: ArrayLike | None = None,
) -> Array: ...
@operator()
def kl_shaped_rewards(
    reward: ArrayLike,
    log_probs_t: ArrayLike,
    ref_log_probs_t: ArrayLike,
    kl_weight: ArrayLike = 0.05,
    *,
    mask_t: ArrayLike | None = None,
) -> Array: ...
@operator()
def kl_k1(log_probs_t: ArrayLike, ref_log_probs_t: ArrayLike, mask_t: ArrayLike | None = None) -> Array: ...
@operator()
def kl_k2(log_probs_t: ArrayLike, ref_log_probs_t: ArrayLike, mask_t: ArrayLike | None = None) -> Array: ...
@operator()
def kl_k3(log_probs_t: ArrayLike, ref_log_probs_t: ArrayLike, mask_t: ArrayLike | None = None) -> Array: ...
@operator()
def art(
    state: PopArtState,
    targets: ArrayLike,
    indices: ArrayLike,
    step_size: ArrayLike,
    scale_lb: ArrayLike,
    scale_ub: ArrayLike,
    axis_name: AxisName = None,
) -> PopArtState: ...
@operator()
def normalize(state: PopArtState, unnormalized: ArrayLike, indices: ArrayLike) -> Array: ...
@operator()
def unnormalize(state: PopArtState, normalized: ArrayLike, indices: ArrayLike) -> Array: ...
@operator()
def unnormalize_linear(state: PopArtState, inputs: ArrayLike, indices: ArrayLike) -> PopArtOutput: ...
@operator()
def percentile_range(
    range_tm1: ArrayLike,
    returns: ArrayLike,
    decay: ArrayLike = 0.99,
    low: ArrayLike = 5.0,
    high: ArrayLike = 95.0,
    *,
    mask: ArrayLike | None = None,
    axis_name: AxisName = None,
) -> Array: ...
@operator()
def scale_rewards(
    state: RewardScale,
    r_t: ArrayLike,
    discount_t: ArrayLike,
    max_abs: ArrayLike = 10.0,
    epsilon: ArrayLike = 1e-08,
    *,
    mask: ArrayLike | None = None,
    axis_name: AxisName = None,
) -> tuple[Array, RewardScale]: ...
@operator()
def add_dirichlet_noise(
    key: Key,
    prior: ArrayLike,
    dirichlet_alpha: ArrayLike,
    dirichlet_fraction: ArrayLike,
) -> Array: ...
@operator()
def add_gaussian_noise(key: Key, action: ArrayLike, stddev: ArrayLike) -> Array: ...
@operator()
def add_ornstein_uhlenbeck_noise(
    key: Key,
    action: ArrayLike,
    noise_tm1: ArrayLike,
    damping: ArrayLike,
    stddev: ArrayLike,
) -> Array: ...
@operator()
def episodic_memory_intrinsic_rewards(
    embeddings: ArrayLike,
    num_neighbors: int,
    reward_scale: ArrayLike,
    intrinsic_reward_state: IntrinsicRewardState | None = None,
    constant: ArrayLike = 0.001,
    epsilon: ArrayLike = 0.0001,
    cluster_distance: ArrayLike = 0.008,
    max_similarity: ArrayLike = 8.0,
    max_memory_size: int = 30000,
) -> tuple[Array, IntrinsicRewardState]: ...
@operator()
def knn_query(
    data: ArrayLike,
    query_points: ArrayLike,
    num_neighbors: int,
    metric: Callable[[Array, Array], Array] = ...,
) -> KNNQueryResult: ...
@operator()
def conditional_update(new_tensors: PyTree, old_tensors: PyTree, is_time: ArrayLike) -> PyTree: ...
@operator()
def embed_oar(features: ArrayLike, action: ArrayLike, reward: ArrayLike, num_actions: int) -> Array: ...
@operator()
def extract_subsequences(
    trajectories: ArrayLike,
    start_indices: ArrayLike,
    subsequence_len: int = 1,
    max_valid_start_idx: int | None = None,
) -> Array: ...
@operator()
def feature_control_rewards(
    features: ArrayLike,
    cumulant_type: str = 'absolute_change',
    discount: ArrayLike | None = None,
) -> Array: ...
@operator()
def fix_step_type_on_interruptions(step_type: ArrayLike) -> Array: ...
@operator()
def periodic_update(new_tensors: PyTree, old_tensors: PyTree, steps: ArrayLike, update_period: ArrayLike) -> PyTree: ...
@operator()
def pixel_control_loss(
    observations: ArrayLike,
    actions: ArrayLike,
    action_values: ArrayLike,
    discount_factor: ArrayLike,
    cell_size: int,
) -> Array: ...
@operator()
def pixel_control_rewards(observations: ArrayLike, cell_size: int) -> Array: ...
@operator()
def sample_start_indices(rng_key: Key, batch_size: int, num_start_indices: int, max_valid_start_idx: int) -> Array: ...
@operator()
def simple_policy_optimization_loss(
    prob_ratios_t: ArrayLike,
    adv_t: ArrayLike,
    epsilon: ArrayLike = 0.2,
    use_stop_gradient: bool = True,
    *,
    mask_t: ArrayLike | None = None,
    stop_target_gradients: bool = ...,
) -> Array: ...
@operator()
def sequential_monte_carlo_log_weights(
    log_weights_tm1: ArrayLike,
    r_t: ArrayLike,
    discount_t: ArrayLike,
    v_tm1: ArrayLike,
    v_t: ArrayLike,
    temperature: ArrayLike,
    log_ratios_tm1: ArrayLike | None = None,
) -> Array: ...
@operator()
def vdn_joint_value(agent_values: ArrayLike, *, agent_mask: ArrayLike | None = None) -> Array: ...
@operator()
def spr_loss(
    predictions_t: ArrayLike,
    targets_t: ArrayLike,
    stop_target_gradients: bool = True,
    *,
    mask_t: ArrayLike | None = None,
    use_stop_gradient: bool = ...,
) -> Array: ...
@operator()
def latent_consistency_loss(
    predictions_t: ArrayLike,
    targets_t: ArrayLike,
    rho: ArrayLike = 0.5,
    stop_target_gradients: bool = True,
    *,
    mask_t: ArrayLike | None = None,
    use_stop_gradient: bool = ...,
) -> Array: ...
@operator()
def rnd_intrinsic_rewards(predictions_t: ArrayLike, targets_t: ArrayLike) -> Array: ...
@operator()
def rnd_loss(
    predictions_t: ArrayLike,
    targets_t: ArrayLike,
    stop_target_gradients: bool = True,
    *,
    mask_t: ArrayLike | None = None,
    use_stop_gradient: bool = ...,
) -> Array: ...
@operator()
def batched_index(values: ArrayLike, indices: ArrayLike, keepdims: bool = False) -> Array: ...
@operator()
def lhs_broadcast(source: ArrayLike, target: ArrayLike) -> Array: ...
@operator()
def one_hot(indices: ArrayLike, num_classes: int, dtype: Any = ...) -> Array: ...
@operator()
def replace_masked(data: ArrayLike, replacement: ArrayLike | None, mask: ArrayLike) -> Array: ...
@operator()
def tree_replace_masked(tree_data: PyTree, tree_replacement: PyTree | None, mask: ArrayLike) -> PyTree: ...
@operator()
def tree_select(pred: ArrayLike, on_true: PyTree, on_false: PyTree) -> PyTree: ...
__all__: list[str]
__version__: str
