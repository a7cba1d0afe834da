"""The operators of recent papers as NumPy loops over scalars, written from their equations, in float64."""

import math

import numpy as np
import rlax_oracles
from beyond_rlax_oracles import counted, logistic, mean, softmax

# Scales.


def percentile_range(range_tm1, returns, decay=0.99, low=5.0, high=95.0, mask=None):
    chosen = [returns[i] for i in counted(mask, len(returns))]
    if not chosen:
        return range_tm1
    spread = np.percentile(chosen, high) - np.percentile(chosen, low)
    return decay * range_tm1 + (1 - decay) * spread


def normalized_advantages(adv, epsilon=1e-8, mask=None):
    chosen = counted(mask, len(adv))
    center = mean(adv[i] for i in chosen)
    variance = mean((adv[i] - center) ** 2 for i in chosen)
    return np.array([(x - center) / math.sqrt(variance + epsilon) if i in chosen else 0 for i, x in enumerate(adv)])


# Policies.


def repetition_penalty(logits, seen, penalty=1.2):
    pairs = zip(np.ravel(logits), np.ravel(seen), strict=True)
    return np.reshape([(x / penalty if x > 0 else x * penalty) if s else x for x, s in pairs], np.shape(logits))


def discovered_policy_loss(prob_ratios_t, adv_t, alpha=2.0, beta=0.6, mask_t=None):
    def drift(ratio, adv):
        x, size = ((ratio - 1) * adv, alpha) if adv >= 0 else (math.log(ratio) * adv, beta)
        return max(x - size * math.tanh(x / size), 0)

    return -mean(r * a - drift(r, a) for r, a in ((prob_ratios_t[t], adv_t[t]) for t in counted(mask_t, len(adv_t))))


def learnt_policy_loss(prob_ratios_t, adv_t, scores_t, threshold=1e-6, mask_t=None):
    steps = counted(mask_t, len(adv_t))
    return -mean(prob_ratios_t[t] * adv_t[t] - max(0, scores_t[t] - threshold) for t in steps)


def learnt_drift_inputs(prob_ratios_t, adv_t, mask_t=None):
    inputs = np.zeros([len(adv_t), 8])
    for t in counted(mask_t, len(adv_t)):
        x, l = prob_ratios_t[t] - 1, math.log(prob_ratios_t[t])
        inputs[t] = [x, x**2, l, l**2, x * adv_t[t], x**2 * adv_t[t], l * adv_t[t], l**2 * adv_t[t]]
    return inputs


def dual_clipped_surrogate_pg_loss(prob_ratios_t, adv_t, epsilon_low=0.2, epsilon_high=0.2, max_ratio=3.0, mask_t=None):
    def gain(ratio, adv):
        ppo = min(ratio * adv, min(max(ratio, 1 - epsilon_low), 1 + epsilon_high) * adv)
        return max(ppo, max_ratio * adv) if adv < 0 else ppo

    return -mean(gain(prob_ratios_t[t], adv_t[t]) for t in counted(mask_t, len(adv_t)))


def generalized_jensen_shannon_divergence(p_logits, q_logits, beta=0.5):
    def divergence(p, q):
        m = beta * p + (1 - beta) * q
        return sum(
            beta * a * math.log(a / c) + (1 - beta) * b * math.log(b / c) for a, b, c in zip(p, q, m, strict=True)
        )

    return np.array([divergence(softmax(p), softmax(q)) for p, q in zip(p_logits, q_logits, strict=True)])


# Critics.


def dqn_reg_loss(q_tm1, a_tm1, r_t, discount_t, q_t, value_weight=0.1):
    error = q_tm1[a_tm1] - (r_t + discount_t * max(q_t))
    return value_weight * q_tm1[a_tm1] + error**2


def d4pg_critic_loss(q_atoms_tm1, q_logits_tm1, r_t, discount_t, q_atoms_t, q_logits_t):
    moved, discount = np.zeros(len(q_atoms_t)), 1.0
    for reward, gamma in zip(r_t, discount_t, strict=True):
        moved += discount * reward
        discount *= gamma
    target = rlax_oracles.categorical_l2_project(moved + discount * q_atoms_t, softmax(q_logits_t), q_atoms_tm1)
    return -sum(p * math.log(q) for p, q in zip(target, softmax(q_logits_tm1), strict=True))


def d4pg_actor_loss(q_atoms_t, q_logits_t):
    return -sum(p * z for p, z in zip(softmax(q_logits_t), q_atoms_t, strict=True))


def truncated_quantiles(dist_q, num_dropped=2):
    together = sorted(x for row in dist_q for x in row)
    return np.array(together[: len(together) - num_dropped * len(dist_q)])


def tqc_critic_loss(dist_q_tm1, r_t, discount_t, dist_q_t, log_prob_t, temperature, num_dropped=2, huber_param=1.0):
    kept, total, number = truncated_quantiles(dist_q_t, num_dropped), 0.0, dist_q_tm1.shape[1]
    for row in dist_q_tm1:
        for k, quantile in enumerate(row):
            for z in kept:
                u = r_t + discount_t * (z - temperature * log_prob_t) - quantile
                small = abs(u) <= huber_param
                huber = 0.5 * u**2 if small else huber_param * (abs(u) - 0.5 * huber_param)
                total += abs((2 * k + 1) / (2 * number) - (u < 0)) * huber / (number * len(kept))
    return total


def redq_critic_loss(q_tm1, r_t, discount_t, q_t, log_prob_t, temperature, subset):
    target = r_t + discount_t * (min(q_t[j] for j in subset) - temperature * log_prob_t)
    return sum(0.5 * (target - q) ** 2 for q in q_tm1)


def redq_actor_loss(q_t, log_prob_t, temperature):
    return temperature * log_prob_t - mean(q_t)


def sac_discrete_critic_loss(q_tm1, a_tm1, r_t, discount_t, q_t, logits_t, temperature):
    target = r_t - discount_t * sac_discrete_actor_loss(q_t, logits_t, temperature)
    return sum(0.5 * (target - q[a_tm1]) ** 2 for q in q_tm1)


def sac_discrete_actor_loss(q_t, logits_t, temperature):
    least = [min(q[a] for q in q_t) for a in range(len(logits_t))]
    return sum(p * (temperature * math.log(p) - q) for p, q in zip(softmax(logits_t), least, strict=True))


def td3_bc_actor_loss(q_t, a_t, data_a_t, value_weight=2.5, mask=None):
    chosen = counted(mask, len(q_t))
    if not chosen:
        return 0.0
    weight = value_weight / mean(abs(q_t[i]) for i in chosen)
    return mean(mean((a_t[i] - data_a_t[i]) ** 2) - weight * q_t[i] for i in chosen)


def fast_td3_critic_loss(q_atoms_tm1, q_logits_tm1, r_t, discount_t, q_atoms_t, q_logits_t):
    least = min((-d4pg_actor_loss(q_atoms_t, logits), list(logits)) for logits in q_logits_t)[1]
    one_step = np.array([r_t]), np.array([discount_t])
    return sum(d4pg_critic_loss(q_atoms_tm1, logits, *one_step, q_atoms_t, np.array(least)) for logits in q_logits_tm1)


def info_nce_loss(logits, logsumexp_weight=0.0, mask=None):
    chosen = counted(mask, len(logits))
    normalizers = [math.log(sum(math.exp(logits[i, j]) for j in chosen)) for i in chosen]
    return mean(z - logits[i, i] + logsumexp_weight * z**2 for i, z in zip(chosen, normalizers, strict=True))


# Answers.


def sapo_loss(log_probs_t, old_log_probs_t, adv_t, mask_t=None, temperature_positive=1.0, temperature_negative=1.05):
    tau = temperature_positive if adv_t > 0 else temperature_negative
    ratios = [math.exp(log_probs_t[t]) / math.exp(old_log_probs_t[t]) for t in counted(mask_t, len(log_probs_t))]
    return -mean(adv_t * logistic(tau * (ratio - 1)) * 4 / tau for ratio in ratios)


def mean_log_prob(log_probs_t, mask_t):
    return mean(log_probs_t[t] for t in counted(mask_t, len(log_probs_t)))


def simpo_loss(
    chosen_log_probs_t, rejected_log_probs_t, beta=2.0, margin=0.5, chosen_mask_t=None, rejected_mask_t=None
):
    chosen, rejected = (
        mean_log_prob(chosen_log_probs_t, chosen_mask_t),
        mean_log_prob(rejected_log_probs_t, rejected_mask_t),
    )
    return -math.log(logistic(beta * chosen - beta * rejected - margin))


def orpo_loss(chosen_log_probs_t, rejected_log_probs_t, odds_weight=0.1, chosen_mask_t=None, rejected_mask_t=None):
    def odds(log_prob):
        return math.exp(log_prob) / (1 - math.exp(log_prob)) if log_prob else 1.0  # 0 of an empty answer

    chosen, rejected = (
        mean_log_prob(chosen_log_probs_t, chosen_mask_t),
        mean_log_prob(rejected_log_probs_t, rejected_mask_t),
    )
    return -chosen - odds_weight * math.log(logistic(math.log(odds(chosen) / odds(rejected))))


def truncated_importance_weights(log_probs_t, behaviour_log_probs_t, max_weight=2.0, mask_t=None):
    ratios = [math.exp(p) / math.exp(q) for p, q in zip(log_probs_t, behaviour_log_probs_t, strict=True)]
    return np.array([min(x, max_weight) if mask_t is None or mask_t[t] else 0 for t, x in enumerate(ratios)])


def bradley_terry_loss(chosen_reward, rejected_reward, margin=0.0):
    return -math.log(logistic(chosen_reward - rejected_reward - margin))


def overlong_penalty(length, max_length, buffer):
    free = max_length - buffer
    return np.array([0 if n <= free else -1 if n > max_length else (free - n) / buffer for n in length])


def token_log_probs(hidden, head, tokens, temperature=1.0, soft_cap=None):
    log_probs, entropies = [], []
    for h, y in zip(hidden, tokens, strict=True):
        z = [sum(w * x for w, x in zip(row, h, strict=True)) for row in head]
        z = [(x if soft_cap is None else soft_cap * math.tanh(x / soft_cap)) / temperature for x in z]
        normaliser = math.log(math.fsum(math.exp(x) for x in z))
        log_probs.append(z[y] - normaliser)
        entropies.append(-math.fsum(math.exp(x - normaliser) * (x - normaliser) for x in z))
    return np.array(log_probs), np.array(entropies)
