"""rlx: reinforcement learning operators as pure functions, with only JAX and NumPy as dependencies.

Operators take a single sequence or transition (`[T]`, `[A]`, `[]`), check their arguments by name, and are meant to be
used with `rlx.batched` for [B, T] and `rlx.time_major` for [T, B]. `_tm1` marks the source of a transition, `_t` its
destination.

    lambda_returns, vtrace, upgo_returns, ...            returns and advantages of sequences
    td_learning, q_learning, sarsa, retrace, ...         learning values
    categorical_td_learning, quantile_q_learning, ...    learning distributions of returns
    policy_gradient_loss, clipped_surrogate_pg_loss, ... learning policies
    dpo_loss, grpo_loss, gspo_loss, ...                  learning from preferences and sequence rewards
    softmax, epsilon_greedy, gaussian_diagonal, ...      distributions over actions
    popart, running_statistics, periodic_update, ...     normalisation, running statistics, target networks
    add_gaussian_noise, knn_query, ...                   exploring
    batched, time_major                                  operators on batches
    replay, evaluation                                   experience replay; statistics of a few runs
    spr_loss, latent_consistency_loss                    self-predictive latents
    vdn_joint_value                                      team values (QMIX's network: `hkx.nets.QMixer`)
    obgd                                                 streaming learning, without replay

See `help(rlx.q_learning)` and so on for details; `dir(rlx)` lists all names. In a signature, `Float[ArrayLike, "T A"]`
is a floating-point array of shape [T, A]. Each file holds one algorithm or a family of them, and an operator's `kernel`
is its equation alone: `rlx.q_learning.kernel` takes arrays and checks nothing.

Masks and numerics. All operators follow the same rules:

- An entry that is masked out, or has a weight of exactly zero, affects neither values nor gradients, even if it is NaN
  or infinite. Masks are the arguments with that name and `truncation_t`. Weights are the arguments with that name, and
  discounts, λ and traces c_t, action probabilities, advantages as weights of log-probabilities, and the coefficients of
  loss terms (label smoothing, penalties, temperatures of entropy bonuses). A discount of 0 ends an episode: neither the
  next state nor anything after it in the array affects earlier steps.
- Minus infinity as a logit, a log-probability or the value of one of several actions means that the action is
  impossible: it is treated as if it did not exist.
- Everything else follows IEEE 754: an unmasked NaN appears in the result, and 0 · ∞ of two unmasked numbers is NaN.
- Where a value is finite, its gradient is finite, unless the slope itself is infinite (as in `likelihood`, at 0 and 1)
  or too large for the dtype.

Example:
  >>> import jax.numpy as jnp
  >>> import rlx
  >>> q_tm1, q_t = jnp.zeros([2, 3]), jnp.ones([2, 3])
  >>> a_tm1, r_t, discount_t = jnp.array([0, 2]), jnp.array([1.0, 0.0]), jnp.array([0.5, 0.0])
  >>> rlx.batched(rlx.q_learning)(q_tm1, a_tm1, r_t, discount_t, q_t).tolist()
  [1.5, 0.0]
"""

from rlx.core.lazy import lazy_exports

# Names that are imported on first use, by module; `__init__.pyi` has the same for type checkers.
_EXPORTS = {
    # Errors.
    "rlx.core.errors": "ArgumentError DTypeError OptionError RankError ShapeError",
    # Batches.
    "rlx.batching": "batched time_major",
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
        "transformed_n_step_q_learning transformed_n_step_returns transformed_q_lambda transformed_retrace"
    ),
    # Learning values.
    "rlx.td": (
        "expected_sarsa importance_corrected_td_errors qv_learning qv_max sarsa sarsa_lambda td_lambda td_learning"
    ),
    "rlx.q_learning": (
        "double_q_learning dqn_reg_loss munchausen_q_learning persistent_q_learning pqn_q_lambda q_lambda q_learning"
    ),
    # Learning distributions of values.
    "rlx.categorical": (
        "categorical_double_q_learning categorical_l2_project categorical_q_learning categorical_td_learning"
    ),
    "rlx.quantile": (
        "implicit_quantile_q_learning quantile_expected_sarsa quantile_q_learning quantile_regression_loss"
    ),
    # Learning policies.
    "rlx.policy_gradient": "entropy_loss policy_gradient_loss qpg_loss rm_loss rpg_loss",
    "rlx.ppo": (
        "adaptive_kl_weight clipped_surrogate_pg_loss clipped_value_loss dual_clipped_surrogate_pg_loss "
        "kl_penalty_pg_loss normalized_advantages"
    ),
    "rlx.mpo": (
        "LagrangePenalty MpoOutputs compute_parametric_kl_penalty_and_dual_loss get_top_k_weights kl_constraint_loss "
        "mpo_compute_weights_and_temperature_loss mpo_loss vmpo_compute_weights_and_temperature_loss vmpo_loss"
    ),
    "rlx.muesli": (
        "PolicyTarget cmpo_loss cmpo_policy constant_policy_targets muesli_policy_loss sampled_cmpo_loss "
        "sampled_policy_distillation_loss zero_policy_targets"
    ),
    # Distributions.
    "rlx.distributions": "clipped_entropy_softmax epsilon_greedy greedy softmax",
    "rlx.truncated_softmax": "min_p repetition_penalty top_k top_p",
    "rlx.divergences": (
        "categorical_cross_entropy categorical_importance_sampling_ratios categorical_kl_divergence "
        "categorical_sample generalized_jensen_shannon_divergence multivariate_normal_kl_divergence"
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
    "rlx.two_hot": (
        "muzero_pair symexp_twohot_pair symlog_twohot_pair transform_from_2hot transform_to_2hot twohot_pair "
        "unbiased_transform_pair"
    ),
    # Beyond RLax: returns and values.
    "rlx.offline": (
        "advantage_weighted_loss conservative_q_learning conservative_q_loss expectile_value_loss "
        "sampled_conservative_q_loss"
    ),
    "rlx.successor_features": (
        "generalized_policy_improvement successor_feature_q_learning successor_feature_td uvfa_q_learning "
        "uvfa_td_learning"
    ),
    "rlx.classification": (
        "classification_q_learning classification_value_loss hl_gauss_pair transform_from_hl_gauss "
        "transform_to_hl_gauss"
    ),
    # Beyond RLax: policies.
    "rlx.sac": "sac_actor_loss sac_critic_loss sac_discrete_actor_loss sac_discrete_critic_loss sac_temperature_loss",
    "rlx.td3": "clipped_double_q_learning dpg_loss smoothed_target_action td3_bc_actor_loss",
    "rlx.contrastive": "info_nce_loss",
    "rlx.d4pg": "d4pg_actor_loss d4pg_critic_loss",
    "rlx.discovered_policy": "discovered_policy_loss learnt_drift_inputs learnt_policy_loss",
    "rlx.fast_td3": "fast_td3_critic_loss",
    "rlx.orpo": "orpo_loss",
    "rlx.redq": "redq_actor_loss redq_critic_loss",
    "rlx.sapo": "sapo_loss",
    "rlx.sequence_rewards": "bradley_terry_loss overlong_penalty",
    "rlx.simpo": "simpo_loss",
    "rlx.tqc": "tqc_critic_loss truncated_quantiles",
    "rlx.token_log_probs": "token_log_probs",
    "rlx.truncated_importance_sampling": "truncated_importance_weights",
    # Beyond RLax: sequence policies, as of language models.
    "rlx.dpo": "dpo_loss ipo_loss kto_loss kto_reference_point",
    "rlx.grpo": ("cispo_loss dapo_loss dr_grpo_loss grpo_loss gspo_loss rloo_loss sequence_policy_gradient_loss"),
    "rlx.group_advantages": "group_relative_advantages leave_one_out_advantages",
    "rlx.batch_advantages": (
        "decoupled_advantages optimal_baseline_advantages pass_at_k_advantages reinforce_plus_plus_advantages "
        "remax_advantages"
    ),
    "rlx.clip_cov": "clip_cov_loss kl_cov_loss",
    "rlx.gmpo": "gmpo_loss gspo_token_loss",
    "rlx.importance_weights": "importance_weights",
    "rlx.preference_variants": "apo_loss robust_dpo_loss slic_loss",
    "rlx.token_rewards": "distillation_advantages kl_shaped_rewards",
    "rlx.kl": "kl_k1 kl_k2 kl_k3",
    # Normalising, exploring, and the rest of an agent.
    "rlx.normalisation": (
        "EmaMoments EmaState PopArtOutput PopArtState art create_ema normalize pop popart unnormalize "
        "unnormalize_linear"
    ),
    "rlx.return_scaling": "RewardScale initial_reward_scale percentile_range scale_rewards",
    "rlx.exploration": (
        "IntrinsicRewardState KNNQueryResult add_dirichlet_noise add_gaussian_noise add_ornstein_uhlenbeck_noise "
        "episodic_memory_intrinsic_rewards knn_query"
    ),
    "rlx.agent_loop": (
        "conditional_update embed_oar extract_subsequences feature_control_rewards fix_step_type_on_interruptions "
        "periodic_update pixel_control_loss pixel_control_rewards sample_start_indices"
    ),
    # Beyond RLax: values of teams, latents, curiosity, streams, and both algorithms that are called SPO.
    "rlx.simple_policy_optimization": "simple_policy_optimization_loss",
    "rlx.sequential_monte_carlo": "sequential_monte_carlo_log_weights",
    "rlx.value_decomposition": "vdn_joint_value",
    "rlx.spr": "spr_loss",
    "rlx.tdmpc2": "latent_consistency_loss",
    "rlx.rnd": "rnd_intrinsic_rewards rnd_loss",
    "rlx.streaming": "obgd",
    # Modules: experience replay, running statistics, statistics of runs.
    "rlx": "evaluation replay running_statistics",
    # Arrays and trees.
    "rlx.core.arrays": "AllSum batched_index lhs_broadcast one_hot replace_masked",
    "rlx.core.trees": (
        "transpose_first_axis_to_last transpose_last_axis_to_first tree_fn tree_map_zipped tree_replace_masked "
        "tree_select tree_split_key tree_split_leaves"
    ),
}
__getattr__, __dir__, __all__ = lazy_exports(__name__, _EXPORTS, "rlx.core.glossary:OF_RLX")  # pyright: ignore[reportUnsupportedDunderAll]
