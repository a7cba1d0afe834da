"""The operators of RLax in NumPy, one loop each, written from the equations of the papers."""

import numpy as np
from rlax_elementary_oracles import *  # noqa: F403
from rlax_elementary_oracles import huber_loss


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def at(values, indices):
    return np.take_along_axis(np.asarray(values), np.asarray(indices)[..., None], -1)[..., 0]


# One step.


def td_learning(v_tm1, r_t, discount_t, v_t):
    return r_t + discount_t * v_t - v_tm1


def qv_max(v_tm1, r_t, discount_t, q_t):
    return r_t + discount_t * max(q_t) - v_tm1


def q_learning(q_tm1, a_tm1, r_t, discount_t, q_t):
    return r_t + discount_t * max(q_t) - q_tm1[a_tm1]


def double_q_learning(q_tm1, a_tm1, r_t, discount_t, q_t_value, q_t_selector):
    return r_t + discount_t * q_t_value[int(np.argmax(q_t_selector))] - q_tm1[a_tm1]


def persistent_q_learning(q_tm1, a_tm1, r_t, discount_t, q_t, action_gap_scale):
    mixed = (1 - action_gap_scale) * max(q_t) + action_gap_scale * q_t[a_tm1]
    return r_t + discount_t * mixed - q_tm1[a_tm1]


def sarsa(q_tm1, a_tm1, r_t, discount_t, q_t, a_t):
    return r_t + discount_t * q_t[a_t] - q_tm1[a_tm1]


def expected_sarsa(q_tm1, a_tm1, r_t, discount_t, q_t, probs_a_t):
    return r_t + discount_t * np.dot(q_t, probs_a_t) - q_tm1[a_tm1]


def qv_learning(q_tm1, a_tm1, r_t, discount_t, v_t):
    return r_t + discount_t * v_t - q_tm1[a_tm1]


# Sequences.


def lambda_returns(r_t, discount_t, v_t, lambda_=1.0):
    lambda_ = np.broadcast_to(lambda_, len(r_t))
    returns = np.zeros(len(r_t))
    for t in reversed(range(len(r_t))):
        ahead = v_t[t] if t == len(r_t) - 1 else (1 - lambda_[t]) * v_t[t] + lambda_[t] * returns[t + 1]
        returns[t] = r_t[t] + discount_t[t] * ahead
    return returns


def discounted_returns(r_t, discount_t, v_t):
    v_t = np.broadcast_to(v_t, len(r_t))
    return lambda_returns(r_t, discount_t, v_t, 1.0)


def n_step_bootstrapped_returns(r_t, discount_t, v_t, n, lambda_t=1.0):
    lambda_t = np.broadcast_to(lambda_t, len(r_t))

    def value(t, steps):
        if t == len(r_t) - 1 or steps == 1:
            return r_t[t] + discount_t[t] * v_t[t]
        return r_t[t] + discount_t[t] * ((1 - lambda_t[t]) * v_t[t] + lambda_t[t] * value(t + 1, steps - 1))

    return np.array([value(t, n) for t in range(len(r_t))])


def truncated_generalized_advantage_estimation(r_t, discount_t, lambda_, values):
    v_t = values[1:]
    lambda_ = np.broadcast_to(lambda_, len(r_t))
    advantages = np.zeros(len(r_t))
    for t in range(len(r_t)):
        weight = 1.0
        for k in range(t, len(r_t)):
            advantages[t] += weight * (r_t[k] + discount_t[k] * v_t[k] - values[k])
            weight *= discount_t[k] * lambda_[k]
    return advantages


def importance_corrected_td_errors(r_t, discount_t, rho_tm1, lambda_, values):
    v_t = values[1:]
    lambda_ = np.broadcast_to(lambda_, len(r_t))
    errors = np.zeros(len(r_t))
    for t in range(len(r_t)):
        weight = rho_tm1[t]
        for k in range(t, len(r_t)):
            errors[t] += weight * (r_t[k] + discount_t[k] * v_t[k] - values[k])
            weight *= discount_t[k] * lambda_[k] * rho_tm1[min(k + 1, len(r_t) - 1)]
    return errors


def general_off_policy_returns_from_action_values(q_t, a_t, r_t, discount_t, c_t, pi_t):
    v_t = (np.asarray(q_t) * pi_t).sum(-1)
    return general_off_policy_returns_from_q_and_v(at(q_t, a_t)[:-1], v_t, r_t, discount_t, c_t[:-1])


def general_off_policy_returns_from_q_and_v(q_t, v_t, r_t, discount_t, c_t):
    returns = np.zeros(len(r_t))
    for t in reversed(range(len(r_t))):
        ahead = v_t[t] if t == len(r_t) - 1 else v_t[t] + c_t[t] * (returns[t + 1] - q_t[t])
        returns[t] = r_t[t] + discount_t[t] * ahead
    return returns


def vtrace(v_tm1, v_t, r_t, discount_t, rho_tm1, lambda_=1.0, **more):
    return leaky_vtrace(v_tm1, v_t, r_t, discount_t, rho_tm1, 1.0, lambda_, **more)


def leaky_vtrace(
    v_tm1,
    v_t,
    r_t,
    discount_t,
    rho_tm1,
    alpha_=1.0,
    lambda_=1.0,
    clip_rho_threshold=1.0,
    sample_mask=None,
):
    lambda_ = np.broadcast_to(lambda_, len(r_t))
    errors = np.zeros(len(r_t))
    for t in reversed(range(len(r_t))):
        later = 0.0 if t == len(r_t) - 1 else errors[t + 1]
        if sample_mask is not None and not sample_mask[t]:
            errors[t] = later
            continue
        rho = alpha_ * min(clip_rho_threshold, rho_tm1[t]) + (1 - alpha_) * rho_tm1[t]
        c = alpha_ * min(1.0, rho_tm1[t]) + (1 - alpha_) * rho_tm1[t]
        errors[t] = rho * (r_t[t] + discount_t[t] * v_t[t] - v_tm1[t]) + discount_t[t] * lambda_[t] * c * later
    return errors


def vtrace_td_error_and_advantage(v_tm1, v_t, r_t, discount_t, rho_tm1, lambda_=1.0, **more):
    return leaky_vtrace_td_error_and_advantage(v_tm1, v_t, r_t, discount_t, rho_tm1, 1.0, lambda_, **more)


def leaky_vtrace_td_error_and_advantage(
    v_tm1,
    v_t,
    r_t,
    discount_t,
    rho_tm1,
    alpha=1.0,
    lambda_=1.0,
    clip_rho_threshold=1.0,
    clip_pg_rho_threshold=1.0,
    **more,
):
    errors = leaky_vtrace(
        v_tm1, v_t, r_t, discount_t, rho_tm1, alpha, lambda_, clip_rho_threshold,
        **more,
    )  # fmt: skip
    lambda_ = np.broadcast_to(lambda_, len(r_t))
    q = np.zeros(len(r_t))
    for t in range(len(r_t)):
        ahead = v_t[t] if t == len(r_t) - 1 else v_tm1[t + 1] + lambda_[t] * errors[t + 1]
        q[t] = r_t[t] + discount_t[t] * ahead
    rho = alpha * np.minimum(clip_pg_rho_threshold, rho_tm1) + (1 - alpha) * np.asarray(rho_tm1)
    return errors, rho * (q - v_tm1), q


def td_lambda(v_tm1, r_t, discount_t, v_t, lambda_):
    return lambda_returns(r_t, discount_t, v_t, lambda_) - v_tm1


def q_lambda(q_tm1, a_tm1, r_t, discount_t, q_t, lambda_):
    return lambda_returns(r_t, discount_t, np.max(q_t, -1), lambda_) - at(q_tm1, a_tm1)


def sarsa_lambda(q_tm1, a_tm1, r_t, discount_t, q_t, a_t, lambda_):
    return lambda_returns(r_t, discount_t, at(q_t, a_t), lambda_) - at(q_tm1, a_tm1)


def retrace(q_tm1, a_tm1, r_t, discount_t, q_t, a_t, pi_t, mu_t, lambda_):
    c_t = lambda_ * np.minimum(1.0, at(pi_t, a_t) / (np.asarray(mu_t) + 1e-8))
    returns = general_off_policy_returns_from_action_values(q_t, a_t, r_t, discount_t, c_t, pi_t)
    return returns - at(q_tm1, a_tm1)


def retrace_continuous(q_tm1, q_t, v_t, r_t, discount_t, log_rhos, lambda_):
    c_t = lambda_ * np.minimum(1.0, np.exp(log_rhos))
    return general_off_policy_returns_from_q_and_v(q_t, v_t, r_t, discount_t, c_t) - q_tm1


def transformed_q_lambda(q_tm1, a_tm1, r_t, discount_t, q_t, lambda_, tx_pair):
    v_t = tx_pair.apply_inv(np.max(q_t, -1))
    return tx_pair.apply(lambda_returns(r_t, discount_t, v_t, lambda_)) - at(q_tm1, a_tm1)


def transformed_n_step_q_learning(q_tm1, a_tm1, r_t, discount_t, target_q_t, a_t, n, tx_pair):
    v_t = tx_pair.apply_inv(at(target_q_t, a_t))
    returns = n_step_bootstrapped_returns(r_t, discount_t, v_t, n)
    return tx_pair.apply(returns) - at(q_tm1, a_tm1)


def transformed_retrace(q_tm1, a_tm1, r_t, discount_t, q_t, a_t, pi_t, mu_t, lambda_, tx_pair):
    q = tx_pair.apply_inv(np.asarray(q_t))
    zero = np.zeros_like(q_tm1)
    returns = retrace(zero, a_tm1, r_t, discount_t, q, a_t, pi_t, mu_t, lambda_)
    return tx_pair.apply(returns) - at(q_tm1, a_tm1)


# Distributions of values.


def categorical_l2_project(z_p, probs, z_q):
    out = np.zeros(len(z_q))
    for z, p in zip(z_p, probs, strict=True):
        z = min(max(z, z_q[0]), z_q[-1])
        high = int(np.searchsorted(z_q, z))
        if z_q[high] == z:
            out[high] += p
        else:
            share = (z - z_q[high - 1]) / (z_q[high] - z_q[high - 1])
            out[high] += p * share
            out[high - 1] += p * (1 - share)
    return out


def cross_entropy(target, logits):
    return -sum(t * np.log(p) for t, p in zip(target, softmax(logits), strict=True))


def categorical_td_learning(v_atoms_tm1, v_logits_tm1, r_t, discount_t, v_atoms_t, v_logits_t):
    target = categorical_l2_project(r_t + discount_t * v_atoms_t, softmax(v_logits_t), v_atoms_tm1)
    return cross_entropy(target, v_logits_tm1)


def categorical_q_learning(q_atoms_tm1, q_logits_tm1, a_tm1, r_t, discount_t, q_atoms_t, q_logits_t):
    means = softmax(q_logits_t) @ q_atoms_t
    return categorical_double_q_learning(
        q_atoms_tm1, q_logits_tm1, a_tm1, r_t, discount_t, q_atoms_t, q_logits_t, means
    )


def categorical_double_q_learning(
    q_atoms_tm1, q_logits_tm1, a_tm1, r_t, discount_t, q_atoms_t, q_logits_t, q_t_selector
):
    chosen = q_logits_t[int(np.argmax(q_t_selector))]
    return categorical_td_learning(q_atoms_tm1, q_logits_tm1[a_tm1], r_t, discount_t, q_atoms_t, chosen)


def quantile_regression_loss(dist_src, tau_src, dist_target, huber_param=0.0):
    loss = 0.0
    for q, tau in zip(dist_src, tau_src, strict=True):
        for target in dist_target:
            u = target - q
            size = abs(u) if huber_param == 0 else huber_loss(u, huber_param)
            loss += abs(tau - (u < 0)) * size / len(dist_target)
    return loss


def quantile_q_learning(dist_q_tm1, tau_q_tm1, a_tm1, r_t, discount_t, dist_q_t_selector, dist_q_t, huber_param=0.0):
    best = int(np.argmax(np.mean(dist_q_t_selector, 0)))
    return quantile_regression_loss(dist_q_tm1[:, a_tm1], tau_q_tm1, r_t + discount_t * dist_q_t[:, best], huber_param)


def quantile_expected_sarsa(dist_q_tm1, tau_q_tm1, a_tm1, r_t, discount_t, dist_q_t, probs_a_t, huber_param=0.0):
    return sum(
        p * quantile_regression_loss(dist_q_tm1[:, a_tm1], tau_q_tm1, r_t + discount_t * dist_q_t[:, a], huber_param)
        for a, p in enumerate(probs_a_t)
    )


# Policies.


def policy_gradient_loss(logits_t, a_t, adv_t, w_t):
    return -np.mean([np.log(softmax(x)[a]) * adv * w for x, a, adv, w in zip(logits_t, a_t, adv_t, w_t, strict=True)])


def entropy_loss(logits_t, w_t):
    return np.mean([w * np.sum(softmax(x) * np.log(softmax(x))) for x, w in zip(logits_t, w_t, strict=True)])


def regrets(logits, q):
    return q - np.dot(softmax(logits), q)


def qpg_loss(logits_t, q_t):
    return -np.mean([np.dot(softmax(x), regrets(x, q)) for x, q in zip(logits_t, q_t, strict=True)])


def rm_loss(logits_t, q_t):
    return -np.mean([np.dot(softmax(x), np.maximum(regrets(x, q), 0)) for x, q in zip(logits_t, q_t, strict=True)])


def rpg_loss(logits_t, q_t):
    return np.mean([np.sum(np.maximum(regrets(x, q), 0)) for x, q in zip(logits_t, q_t, strict=True)])


def clipped_surrogate_pg_loss(prob_ratios_t, adv_t, epsilon):
    low, high = 1 - epsilon, 1 + epsilon
    return -np.mean([min(r * a, min(max(r, low), high) * a) for r, a in zip(prob_ratios_t, adv_t, strict=True)])


def dpg_loss(a_t, dqda_t, dqda_clipping):
    norm = np.sqrt(np.sum(dqda_t**2))
    return 0.5 * (dqda_t * min(1.0, dqda_clipping / norm)) ** 2


# Losses, transforms and the rest.


def transform_to_2hot(scalar, min_value, max_value, num_bins):
    bins = np.linspace(min_value, max_value, num_bins)
    return np.stack([categorical_l2_project([x], [1.0], bins) for x in scalar])


def transform_from_2hot(probs, min_value, max_value, num_bins):
    return probs @ np.linspace(min_value, max_value, num_bins)


def categorical_cross_entropy(labels, logits):
    return np.array([cross_entropy(p / np.sum(p), x) for p, x in zip(labels, logits, strict=True)])


def categorical_kl_divergence(p_logits, q_logits, temperature):
    p, q = softmax(p_logits / temperature), softmax(q_logits / temperature)
    return np.sum(p * np.log(p / q), -1)


def categorical_importance_sampling_ratios(pi_logits_t, mu_logits_t, a_t):
    return at(softmax(pi_logits_t), a_t) / at(softmax(mu_logits_t), a_t)


def multivariate_normal_kl_divergence(mu_0, sigma_0, mu_1, sigma_1):
    """From the formula for full covariance matrices."""
    s0, s1 = np.diag(sigma_0**2), np.diag(sigma_1**2)
    inverse, offset = np.linalg.inv(s1), mu_1 - mu_0
    log_ratio = np.log(np.linalg.det(s1) / np.linalg.det(s0))
    return 0.5 * (np.trace(inverse @ s0) + offset @ inverse @ offset - len(mu_0) + log_ratio)


def batched_index(values, indices):
    return np.array([v[i] for v, i in zip(values, indices, strict=True)])


def pixel_control_rewards(observations, cell_size):
    steps, height, width, _ = observations.shape
    out = np.zeros((steps - 1, height // cell_size, width // cell_size))
    for t, y, x in np.ndindex(out.shape):
        cell = observations[:, y * cell_size : (y + 1) * cell_size, x * cell_size : (x + 1) * cell_size]
        out[t, y, x] = np.mean(np.abs(cell[t + 1] - cell[t]))
    return out


def pixel_control_loss(observations, actions, action_values, discount_factor, cell_size):
    rewards = pixel_control_rewards(observations, cell_size)
    out = np.zeros(rewards.shape)
    discounts = np.full(len(actions), discount_factor)
    for y, x in np.ndindex(rewards.shape[1:]):
        returns = discounted_returns(rewards[:, y, x], discounts, np.max(action_values[-1, y, x]))
        out[:, y, x] = 0.5 * (returns - at(action_values[:-1, y, x], actions)) ** 2
    return out


def feature_control_rewards(features, discount, cumulant_type):
    assert cumulant_type == "potential"
    return discount * features[1:] - features[:-1]


def embed_oar(features, action, reward, num_actions):
    eye = np.eye(num_actions)
    rows = zip(features, action, reward, strict=True)
    return np.stack([np.concatenate([f, eye[a], [np.tanh(r)]]) for f, a, r in rows])
