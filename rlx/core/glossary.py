"""The field's names (RLax, Stable-Baselines3, CleanRL, TRL, PyTorch) for operators that have another name in rlx."""

_NAMES = {
    # Losses of policies and values
    "`rlx.clipped_surrogate_pg_loss`, with `rlx.clipped_value_loss` and `rlx.entropy_loss`": (
        "ppo_loss ppo ppo_trainer ppo_clip_loss ppo_policy_loss ppo_update clip_ppo_loss clip_loss clipped_loss "
        "clipped_policy_loss clipped_surrogate_loss surrogate_loss"
    ),
    "`rlx.clipped_value_loss` of PPO, or `rlx.td_learning`, whose error goes into `rlx.l2_loss`": (
        "value_loss vf_loss critic_loss value_function_loss ppo_value_loss baseline_loss"
    ),
    "`rlx.policy_gradient_loss`": (
        "a2c_loss a2c a3c a3c_loss reinforce reinforce_loss vanilla_policy_gradient vpg pg_loss policy_loss actor_loss "
        "actor_critic_loss"
    ),
    "`rlx.entropy_loss`, the negative entropy; of a distribution, `rlx.softmax().entropy(logits)`": (
        "entropy entropy_bonus policy_entropy categorical_entropy"
    ),
    "`rlx.vtrace_td_error_and_advantage`": "impala impala_loss vtrace_loss v_trace v_trace_loss",
    "`rlx.sac_critic_loss`, `rlx.sac_actor_loss` and `rlx.sac_temperature_loss`": (
        "sac_loss sac soft_actor_critic soft_actor_critic_loss"
    ),
    "`rlx.sac_temperature_loss`": "alpha_loss sac_alpha_loss temperature_loss entropy_coefficient_loss ent_coef_loss",
    "`rlx.clipped_double_q_learning`, `rlx.smoothed_target_action` and `rlx.dpg_loss`": "td3_loss td3",
    "`rlx.dpg_loss` for the actor, `rlx.td_learning` for the critic": (
        "ddpg_loss ddpg deterministic_policy_gradient deterministic_policy_gradient_loss"
    ),
    "`rlx.d4pg_critic_loss` and `rlx.d4pg_actor_loss`": "d4pg_loss d4pg",
    "`rlx.redq_critic_loss` and `rlx.redq_actor_loss`": "redq_loss redq",
    "`rlx.tqc_critic_loss`": "tqc_loss tqc",
    "`rlx.fast_td3_critic_loss`": "fast_td3_loss fast_td3",
    "`rlx.mpo_loss`": "mpo maximum_a_posteriori_policy_optimization",
    "`rlx.muesli_policy_loss`": "muesli_loss muesli",
    "`rlx.conservative_q_loss`": "cql_loss cql conservative_q",
    "`rlx.expectile_value_loss` and `rlx.advantage_weighted_loss`": "iql_loss iql implicit_q_learning",
    "`rlx.advantage_weighted_loss`": "awr_loss awr awac_loss awac advantage_weighted_regression crr_loss",
    "`rlx.td3_bc_actor_loss`": "td3_bc td3_bc_loss",
    # Losses of numbers
    "`rlx.l2_loss`, half of the square; `jnp.mean` of it is a scalar": (
        "mse_loss mse squared_error squared_loss mean_squared_error l2 square_loss"
    ),
    "`rlx.huber_loss`": "huber smooth_l1_loss smooth_l1 clipped_l2_loss",
    "`jnp.abs(predictions - targets)`": "l1_loss mae_loss absolute_error mean_absolute_error l1",
    "`rlx.categorical_cross_entropy(labels, logits)`, of labels that are probabilities": (
        "cross_entropy cross_entropy_loss softmax_cross_entropy nll_loss softmax_cross_entropy_with_integer_labels"
    ),
    "`rlx.log_loss`": "bce_loss binary_cross_entropy binary_cross_entropy_loss bce_with_logits_loss",
    "`rlx.quantile_regression_loss`": "quantile_huber_loss quantile_loss pinball_loss",
    "`rlx.clip_gradient` clips what flows back through a value; `optax.clip_by_global_norm` clips gradients": (
        "clip_grad_norm clip_grad_norm_ clip_grad clip_grads clip_gradients global_norm"
    ),
    # Values
    "`rlx.q_learning`, whose error goes into `rlx.l2_loss` or `rlx.huber_loss`": (
        "dqn_loss dqn q_loss q_learning_loss deep_q_learning td_loss_q"
    ),
    "`rlx.td_learning` of state values, `rlx.q_learning` of action values": (
        "td_error td_errors td_loss td temporal_difference temporal_difference_error td0 td_target bellman_error"
    ),
    "`rlx.double_q_learning`": "double_dqn double_dqn_loss ddqn ddqn_loss",
    "`rlx.categorical_q_learning`": "c51 c51_loss distributional_dqn distributional_q_learning categorical_dqn_loss",
    "`rlx.quantile_q_learning`": "qr_dqn qr_dqn_loss qr_loss quantile_dqn",
    "`rlx.implicit_quantile_q_learning`": "iqn iqn_loss implicit_quantile_loss",
    "`rlx.munchausen_q_learning`": "munchausen_dqn munchausen_dqn_loss munchausen_loss m_dqn",
    "`rlx.pqn_q_lambda`": "pqn pqn_loss",
    "`rlx.categorical_l2_project`": "project_distribution projection categorical_projection l2_project",
    "`rlx.vdn_joint_value`": "vdn vdn_mixer value_decomposition_network",
    "`hkx.nets.QMixer`": "qmix qmixer qmix_mixer",
    # Returns and advantages
    "`rlx.truncated_generalized_advantage_estimation`": (
        "gae compute_gae calculate_gae get_gae gae_advantages gae_returns generalized_advantage_estimation "
        "generalized_advantage_estimate compute_gae_advantage compute_advantages compute_advantage "
        "calculate_advantages get_advantages advantage advantages advantage_estimation "
        "truncated_gae"
    ),
    "`rlx.discounted_returns`": (
        "discounted_return discounted_rewards discount_rewards discounted_cumsum discount_cumsum discounted_sum "
        "reward_to_go rewards_to_go compute_returns calculate_returns monte_carlo_returns mc_returns cumulative_return"
    ),
    "`rlx.n_step_bootstrapped_returns`; for replayed steps `rlx.replay.n_step`": (
        "n_step n_step_returns n_step_return nstep_returns multi_step_returns n_step_bootstrap"
    ),
    "`rlx.lambda_returns`": "lambda_return td_lambda_returns td_lambda_return compute_lambda_returns",
    "`rlx.normalized_advantages`": (
        "normalize_advantages normalize_advantage advantage_normalization standardize_advantages whiten whitening "
        "masked_whiten"
    ),
    "`rlx.categorical_importance_sampling_ratios`, or `jnp.exp(log_prob - old_log_prob)`": (
        "importance_ratio importance_ratios importance_weight importance_sampling_ratio ratio rho"
    ),
    "`1 - jnp.var(returns - values) / jnp.var(returns)`": "explained_variance",
    # Divergences and distributions
    "`rlx.categorical_kl_divergence`, `rlx.multivariate_normal_kl_divergence`, or `rlx.kl_k3` of samples": (
        "kl kl_divergence kl_div kl_loss approx_kl kl_estimate kl_penalty compute_approx_kl"
    ),
    "`rlx.generalized_jensen_shannon_divergence`": (
        "js_divergence jsd jensen_shannon jensen_shannon_divergence gkd gkd_loss gkd_trainer generalized_jsd_loss"
    ),
    "`rlx.adaptive_kl_weight`": "adaptive_kl adaptive_kl_controller kl_controller kl_coef fixed_kl_controller",
    "`rlx.softmax()`, an object with `sample`, `logprob` and `entropy`": (
        "categorical categorical_distribution softmax_policy boltzmann boltzmann_exploration discrete_distribution"
    ),
    "`rlx.gaussian_diagonal()`, an object with `sample`, `logprob` and `entropy`": (
        "normal normal_distribution gaussian gaussian_distribution gaussian_policy diag_gaussian "
        "diag_gaussian_distribution multivariate_normal_diag"
    ),
    "`rlx.squashed_gaussian()`, an object with `sample`, `logprob` and `entropy`": (
        "tanh_normal tanh_gaussian tanh_transform squashed_normal squashed_diag_gaussian_distribution tanh_policy"
    ),
    "methods of distributions, such as `rlx.softmax().logprob(action, logits)`": (
        "log_prob log_probs logprob logprobs sample sample_action logprobs_from_logits selective_log_softmax "
        "get_per_token_logps"
    ),
    "`rlx.greedy()`, or `jnp.argmax`": "argmax greedy_policy greedy_action",
    "`rlx.epsilon_greedy(epsilon)`": "eps_greedy egreedy e_greedy epsilon_greedy_policy",
    "`rlx.symlog_twohot_pair`, `rlx.muzero_pair` and others in docs/api/rlx/transformed.md": (
        "two_hot twohot two_hot_encode symlog symexp value_transform h_transform value_rescaling"
    ),
    "`rlx.hl_gauss_pair`": "hl_gauss hl_gauss_loss histogram_loss",
    # Exploration
    "`rlx.add_ornstein_uhlenbeck_noise`": "ornstein_uhlenbeck ou_noise ornstein_uhlenbeck_noise ou_process "
    "ornstein_uhlenbeck_action_noise",
    "`rlx.add_gaussian_noise`": "gaussian_noise action_noise normal_action_noise exploration_noise",
    "`rlx.rnd_loss` and `rlx.rnd_intrinsic_rewards`": "rnd random_network_distillation curiosity intrinsic_reward",
    # Experience, target networks, running statistics
    "`rlx.replay.uniform(capacity)`; `rlx.replay` has others": (
        "replay_buffer replay_memory uniform_replay_buffer uniform_replay uniform_buffer buffer memory "
        "dict_replay_buffer experience_replay flat_buffer item_buffer make_flat_buffer"
    ),
    "`rlx.replay.prioritised(capacity, exponent, beta)`": (
        "prioritized_replay_buffer prioritised_replay_buffer prioritized_replay prioritised_replay per sum_tree "
        "prioritized prioritised prioritized_experience_replay make_prioritised_flat_buffer"
    ),
    "`rlx.replay.sequences`": "sequence_buffer trajectory_buffer make_trajectory_buffer sequence_replay episode_buffer",
    "`jax.lax.scan` stacks the steps of a rollout; `rlx` works on these arrays": "rollout_buffer rollout_storage",
    "any tree of arrays is an item of `rlx.replay`; `rlx.replay.n_step` makes `rlx.replay.Transition`": (
        "transition transitions experience time_step timestep trajectory"
    ),
    "`optax.incremental_update` moves part of the way, `rlx.periodic_update` copies now and then": (
        "soft_update soft_target_update polyak polyak_update polyak_averaging target_update update_target "
        "update_target_network update_targets hard_update hard_target_update ema_update incremental_update "
        "exponential_moving_average target_network_update"
    ),
    "`rlx.running_statistics`": (
        "running_mean_std running_mean running_stats running_norm running_moments running_normalizer "
        "normalize_observation normalize_observations normalize_obs vec_normalize obs_normalizer welford "
        "observation_normalizer"
    ),
    "`rlx.scale_rewards`": "normalize_reward normalize_rewards reward_scaling reward_scaler reward_normalization",
    "`rlx.popart`": "pop_art",
    # Preferences and language models
    "`rlx.dpo_loss`": "dpo dpo_trainer direct_preference_optimization online_dpo_trainer cdpo_loss",
    "`rlx.ipo_loss`": "ipo ipo_trainer",
    "`rlx.kto_loss`": "kto kto_trainer",
    "`rlx.orpo_loss`": "orpo orpo_trainer",
    "`rlx.simpo_loss`": "simpo simpo_trainer",
    "`rlx.grpo_loss`, of `rlx.group_relative_advantages`": "grpo grpo_trainer grpo_advantages",
    "`rlx.group_relative_advantages`": "group_advantages group_normalized_advantages group_norm_advantages",
    "`rlx.rloo_loss`": "rloo rloo_trainer",
    "`rlx.dapo_loss`": "dapo dapo_trainer",
    "`rlx.bradley_terry_loss`": (
        "reward_loss reward_model_loss reward_trainer preference_loss pairwise_loss ranking_loss bradley_terry"
    ),
    "`-jnp.mean(log_probs_t)`": "sft_loss sft sft_trainer bc_loss behavior_cloning behaviour_cloning "
    "behavior_cloning_loss",
    "`jnp.mean(x, where=mask)`": "masked_mean",
    # Outside of rlx
    "`optax` has optimisers and schedules": (
        "adam adamw sgd rmsprop optimizer optim optimizers schedule linear_schedule exponential_schedule "
        "cosine_schedule annealing"
    ),
    "environments are those of other packages, such as Gymnasium, gymnax and dm_env": (
        "env environment environments make make_env wrapper wrappers vec_env gym"
    ),
    "`hkx` has networks": "mlp network networks actor critic policy q_network module nn",
    "`jax.tree.map`": "tree_map tree_multimap",
    "search is in the package mctx": "mcts muzero_search tree_search gumbel_muzero_policy muzero_policy",
}

OF_RLX = {name: advice for advice, names in _NAMES.items() for name in names.split()}
