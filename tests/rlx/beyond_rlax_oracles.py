"""The operators that RLax lacks, each written as a NumPy loop from the equation in its paper (float64, no masks unless
the paper's sum runs over tokens). They share nothing with the code under test."""

import itertools
import math

import numpy as np


def softmax(x):
    weights = np.exp(x - np.max(x))
    return weights / weights.sum()


def log_softmax(x):
    return np.log(softmax(x))


def clip(x, low, high):
    return min(max(x, low), high)


def normal_cdf(x):
    return 0.5 * (1 + math.erf(x / math.sqrt(2)))


def logistic(x):
    return 1 / (1 + math.exp(-x))


# Values.


def munchausen_q_learning(
    q_tm1, a_tm1, r_t, discount_t, q_t, target_q_tm1, temperature=0.03, munchausen_scale=0.9, clip_value_min=-1.0
):
    log_policy = temperature * log_softmax(target_q_tm1 / temperature)[a_tm1]
    policy_t = softmax(q_t / temperature)
    soft_value = sum(p * (q - temperature * math.log(p)) for p, q in zip(policy_t, q_t, strict=True) if p > 0)
    target = r_t + munchausen_scale * clip(log_policy, clip_value_min, 0.0) + discount_t * soft_value
    return target - q_tm1[a_tm1]


def implicit_quantile_q_learning(
    dist_q_tm1, tau_q_tm1, a_tm1, r_t, discount_t, dist_q_t_selector, dist_q_t, huber_param=1.0
):
    best = int(np.argmax(dist_q_t_selector.mean(axis=0)))
    loss = 0.0
    for i, tau in enumerate(tau_q_tm1):
        for j in range(len(dist_q_t)):
            delta = r_t + discount_t * dist_q_t[j, best] - dist_q_tm1[i, a_tm1]
            if huber_param == 0:
                size = abs(delta)
            elif abs(delta) <= huber_param:
                size = 0.5 * delta**2 / huber_param
            else:
                size = abs(delta) - 0.5 * huber_param
            loss += abs(tau - (delta < 0)) * size / len(dist_q_t)
    return loss


def conservative_q_loss(q_tm1, a_tm1, temperature=1.0):
    return temperature * math.log(sum(math.exp(q / temperature) for q in q_tm1)) - q_tm1[a_tm1]


def sampled_conservative_q_loss(sample_q_tm1, sample_log_probs_tm1, q_tm1):
    weights = [math.exp(q) / math.exp(p) for q, p in zip(sample_q_tm1, sample_log_probs_tm1, strict=True)]
    return math.log(sum(weights) / len(weights)) - q_tm1


def conservative_q_learning(q_tm1, a_tm1, r_t, discount_t, q_t, conservative_weight=1.0):
    delta = r_t + discount_t * max(q_t) - q_tm1[a_tm1]
    return conservative_weight * conservative_q_loss(q_tm1, a_tm1) + 0.5 * delta**2


def expectile_value_loss(v_tm1, q_tm1, expectile=0.7):
    u = q_tm1 - v_tm1
    return (expectile if u >= 0 else 1 - expectile) * u**2


def clipped_double_q_learning(q_tm1, r_t, discount_t, q_t):
    return np.array([r_t + discount_t * min(q_t) - q for q in q_tm1])


def sac_critic_loss(q_tm1, r_t, discount_t, q_t, log_prob_t, temperature):
    target = r_t + discount_t * (min(q_t) - temperature * log_prob_t)
    return sum(0.5 * (target - q) ** 2 for q in q_tm1)


def sac_actor_loss(q_t, log_prob_t, temperature):
    return temperature * log_prob_t - min(q_t)


def sac_temperature_loss(temperature, log_prob_t, target_entropy):
    return -temperature * log_prob_t - temperature * target_entropy


def successor_feature_td(psi_tm1, phi_t, discount_t, psi_t):
    return np.array([phi_t[d] + discount_t * psi_t[d] - psi_tm1[d] for d in range(len(phi_t))])


def successor_feature_q_learning(psi_tm1, a_tm1, phi_t, discount_t, psi_t, w):
    values = [sum(psi[d] * w[d] for d in range(len(w))) for psi in psi_t]
    return successor_feature_td(psi_tm1[a_tm1], phi_t, discount_t, psi_t[int(np.argmax(values))])


def generalized_policy_improvement(psi_t, w):
    policies, actions, _ = psi_t.shape
    return np.array([max(float(np.dot(psi_t[i, a], w)) for i in range(policies)) for a in range(actions)])


def uvfa_td_learning(v_tm1, r_t, discount_t, v_t):
    return np.array([r_t[g] + discount_t[g] * v_t[g] - v_tm1[g] for g in range(len(r_t))])


def uvfa_q_learning(q_tm1, a_tm1, r_t, discount_t, q_t):
    return np.array([r_t[g] + discount_t[g] * max(q_t[g]) - q_tm1[g, a_tm1] for g in range(len(r_t))])


def hl_gauss(scalar, min_value, max_value, num_bins, sigma):
    width = (max_value - min_value) / num_bins
    edges = [min_value + i * width for i in range(num_bins + 1)]
    inside = normal_cdf((max_value - scalar) / sigma) - normal_cdf((min_value - scalar) / sigma)
    return np.array(
        [
            (normal_cdf((high - scalar) / sigma) - normal_cdf((low - scalar) / sigma)) / inside
            for low, high in itertools.pairwise(edges)
        ]
    )


def hl_gauss_mean(probs, min_value, max_value):
    width = (max_value - min_value) / len(probs)
    return sum(p * (min_value + (i + 0.5) * width) for i, p in enumerate(probs))


def symlog(x):
    return math.copysign(math.log(abs(x) + 1), x)


def symexp(x):
    return math.copysign(math.exp(abs(x)) - 1, x)


def two_hot(x, bins):
    probs = np.zeros(len(bins))
    for k in range(len(bins) - 1):
        if bins[k] <= x <= bins[k + 1]:
            probs[k] = (bins[k + 1] - x) / (bins[k + 1] - bins[k])
            probs[k + 1] = 1 - probs[k]
            return probs
    probs[0 if x < bins[0] else -1] = 1
    return probs


def classification_value_loss(value_logits, target, labels_of):
    return -sum(p * x for p, x in zip(labels_of(target), log_softmax(value_logits), strict=True))


def classification_q_learning(q_logits_tm1, a_tm1, r_t, discount_t, q_logits_t, labels_of, mean_of):
    target = r_t + discount_t * max(mean_of(softmax(logits)) for logits in q_logits_t)
    return classification_value_loss(q_logits_tm1[a_tm1], target, labels_of)


# Returns.


def pqn_q_lambda(q, a_tm1, r_t, discount_t, lambda_):
    steps = len(r_t)
    errors, ahead = np.zeros(steps), None
    for t in reversed(range(steps)):
        greedy = max(q[t + 1])
        ahead = r_t[t] + discount_t[t] * (greedy if ahead is None else lambda_ * ahead + (1 - lambda_) * greedy)
        errors[t] = ahead - q[t, a_tm1[t]]
    return errors


def upgo_returns(r_t, discount_t, v_t):
    steps = len(r_t)
    returns = np.zeros(steps)
    for t in reversed(range(steps)):
        follow = t + 1 < steps and r_t[t + 1] + discount_t[t + 1] * v_t[t + 1] >= v_t[t]
        returns[t] = r_t[t] + discount_t[t] * (returns[t + 1] if follow else v_t[t])
    return returns


def upgo_advantages(v_tm1, v_t, r_t, discount_t, rho_tm1, clip_rho_threshold=1.0):
    returns = upgo_returns(r_t, discount_t, v_t)
    return np.array([min(rho, clip_rho_threshold) * (g - v) for rho, g, v in zip(rho_tm1, returns, v_tm1, strict=True)])


# Policies.


def counted(mask_t, steps):
    return [t for t in range(steps) if mask_t is None or mask_t[t]]


def mean(values):
    values = list(values)
    return sum(values) / len(values) if values else 0.0


def clipped_value_loss(v_t, old_v_t, target_t, epsilon, mask_t=None):
    losses = []
    for t in counted(mask_t, len(v_t)):
        clipped = old_v_t[t] + clip(v_t[t] - old_v_t[t], -epsilon, epsilon)
        losses.append(0.5 * max((v_t[t] - target_t[t]) ** 2, (clipped - target_t[t]) ** 2))
    return mean(losses)


def kl_penalty_pg_loss(prob_ratios_t, adv_t, kl_t, kl_weight, mask_t=None):
    steps = counted(mask_t, len(adv_t))
    return -mean(prob_ratios_t[t] * adv_t[t] - kl_weight * kl_t[t] for t in steps)


def advantage_weighted_loss(log_probs_t, adv_t, temperature=1.0, max_weight=20.0, mask_t=None):
    steps = counted(mask_t, len(adv_t))
    return -mean(min(math.exp(adv_t[t] / temperature), max_weight) * log_probs_t[t] for t in steps)


def cmpo_policy(prior_logits, adv, clip_value=1.0):
    prior = softmax(prior_logits)
    weights = np.array([p * math.exp(clip(a, -clip_value, clip_value)) for p, a in zip(prior, adv, strict=True)])
    return weights / weights.sum()


def cmpo_loss(logits, prior_logits, adv, clip_value=1.0):
    target, policy = cmpo_policy(prior_logits, adv, clip_value), softmax(logits)
    return sum(p * math.log(p / q) for p, q in zip(target, policy, strict=True))


def sampled_cmpo_loss(sample_log_probs, sample_adv, clip_value=1.0, initial_normalizer=1.0):
    number = len(sample_adv)
    gains = [math.exp(clip(a, -clip_value, clip_value)) for a in sample_adv]
    total = 0.0
    for i in range(number):
        normalizer = (initial_normalizer + sum(gains[k] for k in range(number) if k != i)) / number
        total += gains[i] / normalizer * sample_log_probs[i]
    return -total / number


def muesli_policy_loss(
    logits_t,
    a_t,
    adv_t,
    rho_t,
    prior_logits_t,
    q_adv_t,
    kl_weight=1.0,
    clip_value=1.0,
    clip_rho_threshold=1.0,
    mask_t=None,
):
    losses = []
    for t in counted(mask_t, len(a_t)):
        gradient_term = min(rho_t[t], clip_rho_threshold) * adv_t[t] * log_softmax(logits_t[t])[a_t[t]]
        losses.append(-gradient_term + kl_weight * cmpo_loss(logits_t[t], prior_logits_t[t], q_adv_t[t], clip_value))
    return mean(losses)


# Preferences.


def kl_k1(log_probs_t, ref_log_probs_t):
    return np.array([math.log(math.exp(p) / math.exp(q)) for p, q in zip(log_probs_t, ref_log_probs_t, strict=True)])


def kl_k2(log_probs_t, ref_log_probs_t):
    return np.array([(p - q) ** 2 / 2 for p, q in zip(log_probs_t, ref_log_probs_t, strict=True)])


def kl_k3(log_probs_t, ref_log_probs_t):
    ratios = [math.exp(q) / math.exp(p) for p, q in zip(log_probs_t, ref_log_probs_t, strict=True)]
    return np.array([(ratio - 1) - math.log(ratio) for ratio in ratios])


def group_relative_advantages(rewards, scale_by_std=True, epsilon=1e-6):
    center = mean(rewards)
    spread = math.sqrt(mean((r - center) ** 2 for r in rewards)) + epsilon if scale_by_std else 1.0
    return np.array([(r - center) / spread for r in rewards])


def leave_one_out_advantages(rewards):
    return np.array([r - mean(other for j, other in enumerate(rewards) if j != i) for i, r in enumerate(rewards)])


def sequence_policy_gradient_loss(log_probs_t, adv_t, mask_t=None):
    return -sum(adv_t * log_probs_t[t] for t in counted(mask_t, len(log_probs_t)))


def surrogate(ratio, adv, low, high):
    return min(ratio * adv, clip(ratio, 1 - low, 1 + high) * adv)


def grpo_terms(log_probs_t, old_log_probs_t, adv_t, mask_t, epsilon, ref_log_probs_t, kl_weight):
    for t in counted(mask_t, len(log_probs_t)):
        term = surrogate(math.exp(log_probs_t[t]) / math.exp(old_log_probs_t[t]), adv_t, epsilon, epsilon)
        if ref_log_probs_t is not None:
            ratio = math.exp(ref_log_probs_t[t]) / math.exp(log_probs_t[t])
            term -= kl_weight * (ratio - math.log(ratio) - 1)
        yield term


def grpo_loss(log_probs_t, old_log_probs_t, adv_t, mask_t=None, epsilon=0.2, ref_log_probs_t=None, kl_weight=0.04):
    return -mean(grpo_terms(log_probs_t, old_log_probs_t, adv_t, mask_t, epsilon, ref_log_probs_t, kl_weight))


def dr_grpo_loss(
    log_probs_t,
    old_log_probs_t,
    adv_t,
    mask_t=None,
    epsilon=0.2,
    max_length=None,
    ref_log_probs_t=None,
    kl_weight=0.04,
):
    length = len(log_probs_t) if max_length is None else max_length
    terms = grpo_terms(log_probs_t, old_log_probs_t, adv_t, mask_t, epsilon, ref_log_probs_t, kl_weight)
    return -sum(terms) / max(length, 1)


def gspo_loss(log_probs_t, old_log_probs_t, adv, mask_t=None, epsilon_low=3e-4, epsilon_high=4e-4):
    steps = counted(mask_t, len(log_probs_t))
    if not steps:
        return 0.0
    whole = math.prod(math.exp(log_probs_t[t] - old_log_probs_t[t]) for t in steps)
    return -surrogate(whole ** (1 / len(steps)), adv, epsilon_low, epsilon_high)


def dapo_loss(log_probs_t, old_log_probs_t, adv, mask_t=None, epsilon_low=0.2, epsilon_high=0.28):
    return -mean(
        surrogate(math.exp(log_probs_t[i, t] - old_log_probs_t[i, t]), adv[i], epsilon_low, epsilon_high)
        for i in range(len(adv))
        for t in counted(None if mask_t is None else mask_t[i], log_probs_t.shape[1])
    )


def cispo_loss(log_probs_t, old_log_probs_t, adv, mask_t=None, epsilon_low=1.0, epsilon_high=0.28, weights_from=None):
    """`weights_from`: the log-probabilities in the weights, which are constants to the gradient of the paper."""
    weights_from = log_probs_t if weights_from is None else weights_from
    return -mean(
        clip(math.exp(weights_from[i, t] - old_log_probs_t[i, t]), 1 - epsilon_low, 1 + epsilon_high)
        * adv[i]
        * log_probs_t[i, t]
        for i in range(len(adv))
        for t in counted(None if mask_t is None else mask_t[i], log_probs_t.shape[1])
    )


def rloo_loss(log_probs_t, rewards, mask_t=None):
    adv = leave_one_out_advantages(rewards)
    return mean(
        sequence_policy_gradient_loss(log_probs_t[i], adv[i], None if mask_t is None else mask_t[i])
        for i in range(len(rewards))
    )


def log_ratio(log_probs_t, ref_log_probs_t, mask_t):
    return sum(log_probs_t[t] - ref_log_probs_t[t] for t in counted(mask_t, len(log_probs_t)))


def pair_margin(chosen, rejected, ref_chosen, ref_rejected, chosen_mask, rejected_mask):
    return log_ratio(chosen, ref_chosen, chosen_mask) - log_ratio(rejected, ref_rejected, rejected_mask)


def dpo_loss(
    chosen_log_probs_t,
    rejected_log_probs_t,
    ref_chosen_log_probs_t,
    ref_rejected_log_probs_t,
    beta=0.1,
    chosen_mask_t=None,
    rejected_mask_t=None,
    label_smoothing=0.0,
):
    margin = beta * pair_margin(
        chosen_log_probs_t,
        rejected_log_probs_t,
        ref_chosen_log_probs_t,
        ref_rejected_log_probs_t,
        chosen_mask_t,
        rejected_mask_t,
    )
    right, wrong = -math.log(logistic(margin)), -math.log(logistic(-margin))
    return (1 - label_smoothing) * right + label_smoothing * wrong


def ipo_loss(
    chosen_log_probs_t,
    rejected_log_probs_t,
    ref_chosen_log_probs_t,
    ref_rejected_log_probs_t,
    tau=0.1,
    chosen_mask_t=None,
    rejected_mask_t=None,
):
    margin = pair_margin(
        chosen_log_probs_t,
        rejected_log_probs_t,
        ref_chosen_log_probs_t,
        ref_rejected_log_probs_t,
        chosen_mask_t,
        rejected_mask_t,
    )
    return (margin - 1 / (2 * tau)) ** 2


def kto_loss(
    log_probs_t,
    ref_log_probs_t,
    desirable,
    reference_point,
    beta=0.1,
    mask_t=None,
    desirable_weight=1.0,
    undesirable_weight=1.0,
):
    reward = log_ratio(log_probs_t, ref_log_probs_t, mask_t)
    if desirable:
        return desirable_weight - desirable_weight * logistic(beta * (reward - reference_point))
    return undesirable_weight - undesirable_weight * logistic(beta * (reference_point - reward))


def kto_reference_point(log_probs_t, ref_log_probs_t, mask_t=None):
    ratios = [
        log_ratio(log_probs_t[i], ref_log_probs_t[i], None if mask_t is None else mask_t[i])
        for i in range(len(log_probs_t))
    ]
    return max(0.0, mean(ratios))
