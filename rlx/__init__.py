"""rlx: the operators of reinforcement learning as pure functions, on JAX and NumPy alone.

Operators take one sequence or one transition (`[T]`, `[A]`, `[]`), check their arguments by name, and are meant for
`jax.vmap`. `_tm1` marks the source of a transition, `_t` its destination.

    lambda_returns, vtrace, upgo_returns, ...            returns and advantages of sequences
    td_learning, q_learning, sarsa, retrace, ...         learning values
    categorical_td_learning, quantile_q_learning, ...    learning distributions of returns
    policy_gradient_loss, clipped_surrogate_pg_loss, ... learning policies
    dpo_loss, grpo_loss, gspo_loss, ...                  learning from preferences and rewards of whole answers
    softmax, epsilon_greedy, gaussian_diagonal, ...      distributions over actions
    popart, create_ema, periodic_update, ...             normalising, running statistics, target networks
    add_gaussian_noise, knn_query, ...                   exploring
    replay                                               experience replay: uniform, prioritised and others

`help(rlx.q_learning)` and so on say more of each; `dir(rlx)` lists all names.

Masks and numbers. One rule holds in all operators:

- What a mask leaves out, or a weight of exactly zero, has no influence on a value or on a gradient, whatever it holds:
  any number, NaN or an infinity. Masks are the arguments called so and `truncation_t`. Weights are the arguments called
  so, and discounts, λ and traces c_t, probabilities of actions, advantages as weights of log-probabilities, and the
  coefficients of a loss's terms (label smoothing, penalties, temperatures of entropy bonuses). A discount of 0 ends an
  episode: neither the next state nor what follows it in the array reaches the steps before.
- Minus infinity as a logit, a log-probability or the value of one action among others means that it is impossible, and
  it is as good as not there.
- All else is IEEE's: a NaN that counts shows in the result, and 0 · ∞ of two numbers that both count is NaN.
- Where a value is finite, its gradient is finite.

Example:
  >>> import jax, jax.numpy as jnp
  >>> import rlx
  >>> q_tm1, q_t = jnp.zeros([2, 3]), jnp.ones([2, 3])
  >>> a_tm1, r_t, discount_t = jnp.array([0, 2]), jnp.array([1.0, 0.0]), jnp.array([0.5, 0.0])
  >>> jax.vmap(rlx.q_learning)(q_tm1, a_tm1, r_t, discount_t, q_t).tolist()
  [1.5, 0.0]
"""

# ruff: noqa: I001, E501 -- grouped by purpose, one name per line.

from typing import TYPE_CHECKING

from rlx.core.lazy import lazy_exports

if TYPE_CHECKING:
    # Errors.
    from rlx.core.errors import ArgumentError as ArgumentError
    from rlx.core.errors import DTypeError as DTypeError
    from rlx.core.errors import OptionError as OptionError
    from rlx.core.errors import RankError as RankError
    from rlx.core.errors import ShapeError as ShapeError

    # Returns and advantages of sequences.
    from rlx.returns import discounted_returns as discounted_returns
    from rlx.returns import lambda_returns as lambda_returns
    from rlx.returns import n_step_bootstrapped_returns as n_step_bootstrapped_returns
    from rlx.td import importance_corrected_td_errors as importance_corrected_td_errors
    from rlx.returns import (
        truncated_generalized_advantage_estimation as truncated_generalized_advantage_estimation,
    )
    from rlx.retrace import (
        general_off_policy_returns_from_action_values as general_off_policy_returns_from_action_values,
    )
    from rlx.retrace import (
        general_off_policy_returns_from_q_and_v as general_off_policy_returns_from_q_and_v,
    )
    from rlx.vtrace import VTraceOutput as VTraceOutput
    from rlx.vtrace import leaky_vtrace as leaky_vtrace
    from rlx.vtrace import leaky_vtrace_td_error_and_advantage as leaky_vtrace_td_error_and_advantage
    from rlx.vtrace import vtrace as vtrace
    from rlx.vtrace import vtrace_td_error_and_advantage as vtrace_td_error_and_advantage
    from rlx.transformed import transform_values as transform_values
    from rlx.transformed import (
        transformed_general_off_policy_returns_from_action_values as transformed_general_off_policy_returns_from_action_values,
    )
    from rlx.transformed import transformed_lambda_returns as transformed_lambda_returns
    from rlx.transformed import transformed_n_step_returns as transformed_n_step_returns

    # Learning values.
    from rlx.td import qv_max as qv_max
    from rlx.td import td_learning as td_learning
    from rlx.q_learning import double_q_learning as double_q_learning
    from rlx.td import expected_sarsa as expected_sarsa
    from rlx.q_learning import persistent_q_learning as persistent_q_learning
    from rlx.q_learning import q_learning as q_learning
    from rlx.td import qv_learning as qv_learning
    from rlx.td import sarsa as sarsa
    from rlx.q_learning import q_lambda as q_lambda
    from rlx.retrace import retrace as retrace
    from rlx.retrace import retrace_continuous as retrace_continuous
    from rlx.td import sarsa_lambda as sarsa_lambda
    from rlx.td import td_lambda as td_lambda
    from rlx.values.transformed import transformed_n_step_q_learning as transformed_n_step_q_learning
    from rlx.values.transformed import transformed_q_lambda as transformed_q_lambda
    from rlx.values.transformed import transformed_retrace as transformed_retrace

    # Learning distributions of values.
    from rlx.values.categorical import categorical_double_q_learning as categorical_double_q_learning
    from rlx.values.categorical import categorical_l2_project as categorical_l2_project
    from rlx.values.categorical import categorical_q_learning as categorical_q_learning
    from rlx.values.categorical import categorical_td_learning as categorical_td_learning
    from rlx.values.quantile import quantile_expected_sarsa as quantile_expected_sarsa
    from rlx.values.quantile import quantile_q_learning as quantile_q_learning
    from rlx.values.quantile import quantile_regression_loss as quantile_regression_loss

    # Learning policies.
    from rlx.policies.policy_gradient import clipped_surrogate_pg_loss as clipped_surrogate_pg_loss
    from rlx.policies.policy_gradient import dpg_loss as dpg_loss
    from rlx.policies.policy_gradient import entropy_loss as entropy_loss
    from rlx.policies.policy_gradient import policy_gradient_loss as policy_gradient_loss
    from rlx.policies.policy_gradient import qpg_loss as qpg_loss
    from rlx.policies.policy_gradient import rm_loss as rm_loss
    from rlx.policies.policy_gradient import rpg_loss as rpg_loss
    from rlx.policies.mpo import LagrangePenalty as LagrangePenalty
    from rlx.policies.mpo import MpoOutputs as MpoOutputs
    from rlx.policies.mpo import (
        compute_parametric_kl_penalty_and_dual_loss as compute_parametric_kl_penalty_and_dual_loss,
    )
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

    # Distributions.
    from rlx.distributions import clipped_entropy_softmax as clipped_entropy_softmax
    from rlx.distributions import epsilon_greedy as epsilon_greedy
    from rlx.gaussians import gaussian_diagonal as gaussian_diagonal
    from rlx.distributions import greedy as greedy
    from rlx.distributions import softmax as softmax
    from rlx.gaussians import squashed_gaussian as squashed_gaussian
    from rlx.divergences import categorical_cross_entropy as categorical_cross_entropy
    from rlx.divergences import categorical_importance_sampling_ratios as categorical_importance_sampling_ratios
    from rlx.divergences import categorical_kl_divergence as categorical_kl_divergence
    from rlx.divergences import categorical_sample as categorical_sample
    from rlx.divergences import multivariate_normal_kl_divergence as multivariate_normal_kl_divergence

    # Elementary losses.
    from rlx.losses import clip_gradient as clip_gradient
    from rlx.losses import expectile_loss as expectile_loss
    from rlx.losses import huber_loss as huber_loss
    from rlx.losses import l2_loss as l2_loss
    from rlx.losses import likelihood as likelihood
    from rlx.losses import log_loss as log_loss

    # Transforms of values.
    from rlx.value_transforms import DISCOUNT_TRANSFORM_PAIR as DISCOUNT_TRANSFORM_PAIR
    from rlx.value_transforms import HYPERBOLIC_SIN_PAIR as HYPERBOLIC_SIN_PAIR
    from rlx.value_transforms import IDENTITY_PAIR as IDENTITY_PAIR
    from rlx.value_transforms import SIGNED_HYPERBOLIC_PAIR as SIGNED_HYPERBOLIC_PAIR
    from rlx.value_transforms import SIGNED_LOGP1_PAIR as SIGNED_LOGP1_PAIR
    from rlx.value_transforms import TxPair as TxPair
    from rlx.value_transforms import compose_tx as compose_tx
    from rlx.value_transforms import hyperbolic_arcsin as hyperbolic_arcsin
    from rlx.value_transforms import hyperbolic_sin as hyperbolic_sin
    from rlx.value_transforms import identity as identity
    from rlx.value_transforms import logit as logit
    from rlx.value_transforms import power as power
    from rlx.value_transforms import sigmoid as sigmoid
    from rlx.value_transforms import signed_expm1 as signed_expm1
    from rlx.value_transforms import signed_hyperbolic as signed_hyperbolic
    from rlx.value_transforms import signed_logp1 as signed_logp1
    from rlx.value_transforms import signed_parabolic as signed_parabolic
    from rlx.two_hot import muzero_pair as muzero_pair
    from rlx.two_hot import transform_from_2hot as transform_from_2hot
    from rlx.two_hot import transform_to_2hot as transform_to_2hot
    from rlx.two_hot import twohot_pair as twohot_pair
    from rlx.two_hot import unbiased_transform_pair as unbiased_transform_pair

    # Beyond RLax: returns and values.
    from rlx.q_learning import munchausen_q_learning as munchausen_q_learning
    from rlx.values.conservative import conservative_q_learning as conservative_q_learning
    from rlx.values.conservative import conservative_q_loss as conservative_q_loss
    from rlx.values.conservative import sampled_conservative_q_loss as sampled_conservative_q_loss
    from rlx.values.expectile import expectile_value_loss as expectile_value_loss
    from rlx.values.twin_critics import clipped_double_q_learning as clipped_double_q_learning
    from rlx.values.twin_critics import sac_critic_loss as sac_critic_loss
    from rlx.values.universal import generalized_policy_improvement as generalized_policy_improvement
    from rlx.values.universal import successor_feature_q_learning as successor_feature_q_learning
    from rlx.values.universal import successor_feature_td as successor_feature_td
    from rlx.values.universal import uvfa_q_learning as uvfa_q_learning
    from rlx.values.universal import uvfa_td_learning as uvfa_td_learning
    from rlx.values.implicit_quantile import implicit_quantile_q_learning as implicit_quantile_q_learning
    from rlx.values.classification import classification_q_learning as classification_q_learning
    from rlx.values.classification import classification_value_loss as classification_value_loss
    from rlx.values.classification import hl_gauss_pair as hl_gauss_pair
    from rlx.values.classification import symexp_twohot_pair as symexp_twohot_pair
    from rlx.values.classification import symlog_twohot_pair as symlog_twohot_pair
    from rlx.values.classification import transform_from_hl_gauss as transform_from_hl_gauss
    from rlx.values.classification import transform_to_hl_gauss as transform_to_hl_gauss
    from rlx.q_learning import pqn_q_lambda as pqn_q_lambda
    from rlx.returns import upgo_advantages as upgo_advantages
    from rlx.returns import upgo_returns as upgo_returns

    # Beyond RLax: policies.
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

    # Beyond RLax: sequence policies, as of language models.
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

    # Normalising targets, running statistics, updating parameters.
    from rlx.auxiliary.popart import PopArtOutput as PopArtOutput
    from rlx.auxiliary.popart import PopArtState as PopArtState
    from rlx.auxiliary.popart import art as art
    from rlx.auxiliary.popart import normalize as normalize
    from rlx.auxiliary.popart import pop as pop
    from rlx.auxiliary.popart import popart as popart
    from rlx.auxiliary.popart import unnormalize as unnormalize
    from rlx.auxiliary.popart import unnormalize_linear as unnormalize_linear
    from rlx.auxiliary.moving_averages import EmaMoments as EmaMoments
    from rlx.auxiliary.moving_averages import EmaState as EmaState
    from rlx.auxiliary.moving_averages import create_ema as create_ema
    from rlx.auxiliary.updates import conditional_update as conditional_update
    from rlx.auxiliary.updates import periodic_update as periodic_update

    # Exploring.
    from rlx.auxiliary.exploration import add_dirichlet_noise as add_dirichlet_noise
    from rlx.auxiliary.exploration import add_gaussian_noise as add_gaussian_noise
    from rlx.auxiliary.exploration import add_ornstein_uhlenbeck_noise as add_ornstein_uhlenbeck_noise
    from rlx.auxiliary.episodic_memory import IntrinsicRewardState as IntrinsicRewardState
    from rlx.auxiliary.episodic_memory import KNNQueryResult as KNNQueryResult
    from rlx.auxiliary.episodic_memory import episodic_memory_intrinsic_rewards as episodic_memory_intrinsic_rewards
    from rlx.auxiliary.episodic_memory import knn_query as knn_query

    # Auxiliary tasks, models, inputs.
    from rlx.auxiliary.pixel_control import pixel_control_loss as pixel_control_loss
    from rlx.auxiliary.pixel_control import pixel_control_rewards as pixel_control_rewards
    from rlx.auxiliary.feature_control import feature_control_rewards as feature_control_rewards
    from rlx.auxiliary.model_learning import extract_subsequences as extract_subsequences
    from rlx.auxiliary.model_learning import sample_start_indices as sample_start_indices
    from rlx.auxiliary.embedding import embed_oar as embed_oar
    from rlx.auxiliary.interruptions import fix_step_type_on_interruptions as fix_step_type_on_interruptions

    # Experience replay.
    from rlx import replay as replay

    # Arrays and trees.
    from rlx.core.arrays import AllSum as AllSum
    from rlx.core.arrays import batched_index as batched_index
    from rlx.core.arrays import lhs_broadcast as lhs_broadcast
    from rlx.core.arrays import one_hot as one_hot
    from rlx.core.arrays import replace_masked as replace_masked
    from rlx.core.trees import transpose_first_axis_to_last as transpose_first_axis_to_last
    from rlx.core.trees import transpose_last_axis_to_first as transpose_last_axis_to_first
    from rlx.core.trees import tree_fn as tree_fn
    from rlx.core.trees import tree_map_zipped as tree_map_zipped
    from rlx.core.trees import tree_replace_masked as tree_replace_masked
    from rlx.core.trees import tree_select as tree_select
    from rlx.core.trees import tree_split_key as tree_split_key
    from rlx.core.trees import tree_split_leaves as tree_split_leaves

# The same by module: what is imported when its name is first asked for.
_EXPORTS = {
    # Errors.
    "rlx.core.errors": "ArgumentError DTypeError OptionError RankError ShapeError",
    # Returns and advantages of sequences.
    "rlx.returns": (
        "discounted_returns lambda_returns n_step_bootstrapped_returns truncated_generalized_advantage_estimation "
        "upgo_advantages upgo_returns"
    ),
    "rlx.retrace": (
        "general_off_policy_returns_from_action_values general_off_policy_returns_from_q_and_v retrace "
        "retrace_continuous"
    ),
    "rlx.vtrace": (
        "VTraceOutput leaky_vtrace leaky_vtrace_td_error_and_advantage vtrace vtrace_td_error_and_advantage"
    ),
    "rlx.transformed": (
        "transform_values transformed_general_off_policy_returns_from_action_values transformed_lambda_returns "
        "transformed_n_step_returns"
    ),
    # Learning values.
    "rlx.td": (
        "expected_sarsa importance_corrected_td_errors qv_learning qv_max sarsa sarsa_lambda td_lambda td_learning"
    ),
    "rlx.q_learning": (
        "double_q_learning munchausen_q_learning persistent_q_learning pqn_q_lambda q_lambda q_learning"
    ),
    "rlx.values.transformed": "transformed_n_step_q_learning transformed_q_lambda transformed_retrace",
    # Learning distributions of values.
    "rlx.values.categorical": (
        "categorical_double_q_learning categorical_l2_project categorical_q_learning categorical_td_learning"
    ),
    "rlx.values.quantile": "quantile_expected_sarsa quantile_q_learning quantile_regression_loss",
    # Learning policies.
    "rlx.policies.policy_gradient": (
        "clipped_surrogate_pg_loss dpg_loss entropy_loss policy_gradient_loss qpg_loss rm_loss rpg_loss"
    ),
    "rlx.policies.mpo": (
        "LagrangePenalty MpoOutputs compute_parametric_kl_penalty_and_dual_loss kl_constraint_loss "
        "mpo_compute_weights_and_temperature_loss mpo_loss"
    ),
    "rlx.policies.vmpo": "get_top_k_weights vmpo_compute_weights_and_temperature_loss vmpo_loss",
    "rlx.policies.targets": "PolicyTarget constant_policy_targets sampled_policy_distillation_loss zero_policy_targets",
    # Distributions.
    "rlx.distributions": "clipped_entropy_softmax epsilon_greedy greedy softmax",
    "rlx.divergences": (
        "categorical_cross_entropy categorical_importance_sampling_ratios categorical_kl_divergence "
        "categorical_sample multivariate_normal_kl_divergence"
    ),
    "rlx.gaussians": "gaussian_diagonal squashed_gaussian",
    # Elementary losses.
    "rlx.losses": "clip_gradient expectile_loss huber_loss l2_loss likelihood log_loss",
    # Transforms of values.
    "rlx.value_transforms": (
        "DISCOUNT_TRANSFORM_PAIR HYPERBOLIC_SIN_PAIR IDENTITY_PAIR SIGNED_HYPERBOLIC_PAIR SIGNED_LOGP1_PAIR "
        "TxPair compose_tx hyperbolic_arcsin hyperbolic_sin identity logit power sigmoid signed_expm1 "
        "signed_hyperbolic signed_logp1 signed_parabolic"
    ),
    "rlx.two_hot": "muzero_pair transform_from_2hot transform_to_2hot twohot_pair unbiased_transform_pair",
    # Beyond RLax: returns and values.
    "rlx.values.conservative": "conservative_q_learning conservative_q_loss sampled_conservative_q_loss",
    "rlx.values.expectile": "expectile_value_loss",
    "rlx.values.twin_critics": "clipped_double_q_learning sac_critic_loss",
    "rlx.values.universal": (
        "generalized_policy_improvement successor_feature_q_learning successor_feature_td uvfa_q_learning "
        "uvfa_td_learning"
    ),
    "rlx.values.implicit_quantile": "implicit_quantile_q_learning",
    "rlx.values.classification": (
        "classification_q_learning classification_value_loss hl_gauss_pair symexp_twohot_pair symlog_twohot_pair "
        "transform_from_hl_gauss transform_to_hl_gauss"
    ),
    # Beyond RLax: policies.
    "rlx.policies.sac": "sac_actor_loss sac_temperature_loss",
    "rlx.policies.target_smoothing": "smoothed_target_action",
    "rlx.policies.ppo": "adaptive_kl_weight clipped_value_loss kl_penalty_pg_loss",
    "rlx.policies.advantage_weighted": "advantage_weighted_loss",
    "rlx.policies.muesli": "cmpo_loss cmpo_policy muesli_policy_loss sampled_cmpo_loss",
    # Beyond RLax: sequence policies, as of language models.
    "rlx.preferences.advantages": "group_relative_advantages leave_one_out_advantages",
    "rlx.preferences.group_losses": "cispo_loss dapo_loss rloo_loss",
    "rlx.preferences.kl": "kl_k1 kl_k2 kl_k3",
    "rlx.preferences.preference_losses": "dpo_loss ipo_loss kto_loss kto_reference_point",
    "rlx.preferences.sequence_losses": "dr_grpo_loss grpo_loss gspo_loss sequence_policy_gradient_loss",
    # Normalising targets, running statistics, updating parameters.
    "rlx.auxiliary.popart": "PopArtOutput PopArtState art normalize pop popart unnormalize unnormalize_linear",
    "rlx.auxiliary.moving_averages": "EmaMoments EmaState create_ema",
    "rlx.auxiliary.updates": "conditional_update periodic_update",
    # Exploring.
    "rlx.auxiliary.exploration": "add_dirichlet_noise add_gaussian_noise add_ornstein_uhlenbeck_noise",
    "rlx.auxiliary.episodic_memory": "IntrinsicRewardState KNNQueryResult episodic_memory_intrinsic_rewards knn_query",
    # Auxiliary tasks, models, inputs.
    "rlx.auxiliary.pixel_control": "pixel_control_loss pixel_control_rewards",
    "rlx.auxiliary.feature_control": "feature_control_rewards",
    "rlx.auxiliary.model_learning": "extract_subsequences sample_start_indices",
    "rlx.auxiliary.embedding": "embed_oar",
    "rlx.auxiliary.interruptions": "fix_step_type_on_interruptions",
    # Experience replay.
    "rlx": "replay",
    # Arrays and trees.
    "rlx.core.arrays": "AllSum batched_index lhs_broadcast one_hot replace_masked",
    "rlx.core.trees": (
        "transpose_first_axis_to_last transpose_last_axis_to_first tree_fn tree_map_zipped tree_replace_masked "
        "tree_select tree_split_key tree_split_leaves"
    ),
}
__getattr__, __dir__, __all__ = lazy_exports(__name__, _EXPORTS)  # pyright: ignore[reportUnsupportedDunderAll]
