"""What type checkers read of rlx. Written by tests/rlx/face_stub.py."""

# ruff: noqa: I001
# fmt: off

from rlx.core.operator import operator
from rlx.core.types import Array, ArrayLike
from collections.abc import Callable
from rlx.core.types import PyTree
from typing import Any
from rlx.core.errors import ArgumentError as ArgumentError
from rlx.core.errors import DTypeError as DTypeError
from rlx.core.errors import OptionError as OptionError
from rlx.core.errors import RankError as RankError
from rlx.core.errors import ShapeError as ShapeError
from rlx.vtrace import VTraceOutput as VTraceOutput
from rlx.transformed import transform_values as transform_values
from rlx.policies.policy_gradient import clipped_surrogate_pg_loss as clipped_surrogate_pg_loss
from rlx.policies.policy_gradient import dpg_loss as dpg_loss
from rlx.policies.policy_gradient import entropy_loss as entropy_loss
from rlx.policies.policy_gradient import policy_gradient_loss as policy_gradient_loss
from rlx.policies.policy_gradient import qpg_loss as qpg_loss
from rlx.policies.policy_gradient import rm_loss as rm_loss
from rlx.policies.policy_gradient import rpg_loss as rpg_loss
from rlx.policies.mpo import LagrangePenalty as LagrangePenalty
from rlx.policies.mpo import MpoOutputs as MpoOutputs
from rlx.policies.mpo import compute_parametric_kl_penalty_and_dual_loss as compute_parametric_kl_penalty_and_dual_loss
from rlx.policies.mpo import kl_constraint_loss as kl_constraint_loss
from rlx.policies.mpo import mpo_compute_weights_and_temperature_loss as mpo_compute_weights_and_temperature_loss
from rlx.policies.mpo import mpo_loss as mpo_loss
from rlx.policies.vmpo import get_top_k_weights as get_top_k_weights
from rlx.policies.vmpo import vmpo_compute_weights_and_temperature_loss as vmpo_compute_weights_and_temperature_loss
from rlx.policies.vmpo import vmpo_loss as vmpo_loss
from rlx.policies.targets import PolicyTarget as PolicyTarget
from rlx.policies.targets import constant_policy_targets as constant_policy_targets
from rlx.policies.targets import sampled_policy_distillation_loss as sampled_policy_distillation_loss
from rlx.policies.targets import zero_policy_targets as zero_policy_targets
from rlx.distributions import clipped_entropy_softmax as clipped_entropy_softmax
from rlx.distributions import epsilon_greedy as epsilon_greedy
from rlx.distributions import greedy as greedy
from rlx.distributions import softmax as softmax
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
from rlx.values.conservative import conservative_q_learning as conservative_q_learning
from rlx.values.conservative import conservative_q_loss as conservative_q_loss
from rlx.values.conservative import sampled_conservative_q_loss as sampled_conservative_q_loss
from rlx.values.expectile import expectile_value_loss as expectile_value_loss
from rlx.values.twin_critics import clipped_double_q_learning as clipped_double_q_learning
from rlx.values.twin_critics import sac_critic_loss as sac_critic_loss
from rlx.classification import hl_gauss_pair as hl_gauss_pair
from rlx.policies.sac import sac_actor_loss as sac_actor_loss
from rlx.policies.sac import sac_temperature_loss as sac_temperature_loss
from rlx.policies.target_smoothing import smoothed_target_action as smoothed_target_action
from rlx.policies.ppo import adaptive_kl_weight as adaptive_kl_weight
from rlx.policies.ppo import clipped_value_loss as clipped_value_loss
from rlx.policies.ppo import kl_penalty_pg_loss as kl_penalty_pg_loss
from rlx.policies.advantage_weighted import advantage_weighted_loss as advantage_weighted_loss
from rlx.policies.muesli import cmpo_loss as cmpo_loss
from rlx.policies.muesli import cmpo_policy as cmpo_policy
from rlx.policies.muesli import muesli_policy_loss as muesli_policy_loss
from rlx.policies.muesli import sampled_cmpo_loss as sampled_cmpo_loss
from rlx.preferences.advantages import group_relative_advantages as group_relative_advantages
from rlx.preferences.advantages import leave_one_out_advantages as leave_one_out_advantages
from rlx.preferences.group_losses import cispo_loss as cispo_loss
from rlx.preferences.group_losses import dapo_loss as dapo_loss
from rlx.preferences.group_losses import rloo_loss as rloo_loss
from rlx.preferences.kl import kl_k1 as kl_k1
from rlx.preferences.kl import kl_k2 as kl_k2
from rlx.preferences.kl import kl_k3 as kl_k3
from rlx.preferences.preference_losses import dpo_loss as dpo_loss
from rlx.preferences.preference_losses import ipo_loss as ipo_loss
from rlx.preferences.preference_losses import kto_loss as kto_loss
from rlx.preferences.preference_losses import kto_reference_point as kto_reference_point
from rlx.preferences.sequence_losses import dr_grpo_loss as dr_grpo_loss
from rlx.preferences.sequence_losses import grpo_loss as grpo_loss
from rlx.preferences.sequence_losses import gspo_loss as gspo_loss
from rlx.preferences.sequence_losses import sequence_policy_gradient_loss as sequence_policy_gradient_loss
from rlx.normalisation import EmaMoments as EmaMoments
from rlx.normalisation import EmaState as EmaState
from rlx.normalisation import PopArtOutput as PopArtOutput
from rlx.normalisation import PopArtState as PopArtState
from rlx.normalisation import create_ema as create_ema
from rlx.normalisation import pop as pop
from rlx.normalisation import popart as popart
from rlx.exploration import IntrinsicRewardState as IntrinsicRewardState
from rlx.exploration import KNNQueryResult as KNNQueryResult
from rlx import replay as replay
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
def categorical_cross_entropy(labels: ArrayLike, logits: ArrayLike) -> Array: ...
@operator()
def categorical_importance_sampling_ratios(pi_logits_t: ArrayLike, mu_logits_t: ArrayLike, a_t: ArrayLike) -> Array: ...
@operator()
def categorical_kl_divergence(p_logits: ArrayLike, q_logits: ArrayLike, temperature: ArrayLike = 1.0) -> Array: ...
@operator()
def categorical_sample(key: Array, probs: ArrayLike) -> Array: ...
@operator()
def multivariate_normal_kl_divergence(
    mu_0: ArrayLike,
    sigma_0: ArrayLike,
    mu_1: ArrayLike,
    sigma_1: ArrayLike,
) -> Array: ...
@operator()
def clip_gradient(x: ArrayLike, gradient_min: ArrayLike, gradient_max: ArrayLike) -> Array: ...
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
def art(
    state: PopArtState,
    targets: ArrayLike,
    indices: ArrayLike,
    step_size: ArrayLike,
    scale_lb: ArrayLike,
    scale_ub: ArrayLike,
    axis_name: Any = None,
) -> PopArtState: ...
@operator()
def normalize(state: PopArtState, unnormalized: ArrayLike, indices: ArrayLike) -> Array: ...
@operator()
def unnormalize(state: PopArtState, normalized: ArrayLike, indices: ArrayLike) -> Array: ...
@operator()
def unnormalize_linear(state: PopArtState, inputs: ArrayLike, indices: ArrayLike) -> PopArtOutput: ...
@operator()
def add_dirichlet_noise(
    key: Array,
    prior: ArrayLike,
    dirichlet_alpha: ArrayLike,
    dirichlet_fraction: ArrayLike,
) -> Array: ...
@operator()
def add_gaussian_noise(key: Array, action: ArrayLike, stddev: ArrayLike) -> Array: ...
@operator()
def add_ornstein_uhlenbeck_noise(
    key: Array,
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
def sample_start_indices(
    rng_key: Array,
    batch_size: int,
    num_start_indices: int,
    max_valid_start_idx: int,
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
