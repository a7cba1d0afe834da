"""Operators for language models of 2023 to 2026, each written as a NumPy loop from the equation in its paper."""

import itertools
import math

import numpy as np
from beyond_rlax_oracles import counted, log_ratio, mean


def importance_weights(
    log_probs_t, behaviour_log_probs_t, mask_t=None, level="sequence", mode="mask", min_weight=0.0, max_weight=3.0
):
    out, steps = np.zeros(len(log_probs_t)), counted(mask_t, len(log_probs_t))
    ratios = {t: math.exp(log_probs_t[t]) / math.exp(behaviour_log_probs_t[t]) for t in steps}
    for t in steps:
        w = ratios[t] if level == "token" else math.prod(ratios.values())
        w = w ** (1 / len(steps)) if level == "geometric" else w
        inside = min_weight <= w <= max_weight
        out[t] = min(max(w, min_weight), max_weight) if mode == "truncate" else w * inside
    return out


def gmpo_loss(log_probs_t, old_log_probs_t, adv, mask_t=None, epsilon_low=0.4, epsilon_high=0.4):
    ratios = [math.exp(log_probs_t[t] - old_log_probs_t[t]) for t in counted(mask_t, len(log_probs_t))]
    if not ratios:
        return 0.0
    clipped = [min(r, math.exp(epsilon_high)) if adv > 0 else max(r, math.exp(-epsilon_low)) for r in ratios]
    return -adv * math.prod(clipped) ** (1 / len(clipped))


def gspo_token_loss(log_probs_t, old_log_probs_t, adv_t, mask_t=None, epsilon_low=3e-4, epsilon_high=4e-4):
    steps = counted(mask_t, len(log_probs_t))
    if not steps:
        return 0.0
    s = math.prod(math.exp(log_probs_t[t] - old_log_probs_t[t]) for t in steps) ** (1 / len(steps))
    clipped = min(max(s, 1 - epsilon_low), 1 + epsilon_high)
    return -mean(min(s * adv_t[t], clipped * adv_t[t]) for t in steps)


def reinforce_plus_plus_advantages(rewards, with_baseline=True, epsilon=1e-6):
    x = np.array([[r - mean(row) * with_baseline for r in row] for row in rewards])
    return (x - x.mean()) / (x.std() + epsilon)


def optimal_baseline_advantages(rewards, lengths):
    baseline = sum(n * r for n, r in zip(lengths, rewards, strict=True)) / sum(lengths)
    return np.array([r - baseline for r in rewards])


def remax_advantages(rewards, greedy_reward):
    return np.array([r - greedy_reward for r in rewards])


def covariances(log_probs_t, adv, mask_t):
    """By token that counts: of its log-probability and its advantage, less their means."""
    tokens = [
        (i, t) for i, row in enumerate(log_probs_t) for t in counted(None if mask_t is None else mask_t[i], len(row))
    ]
    if not tokens:
        return {}
    mean_p, mean_a = mean(log_probs_t[x] for x in tokens), mean(adv[i] for i, _ in tokens)
    return {(i, t): (log_probs_t[i, t] - mean_p) * (adv[i] - mean_a) for i, t in tokens}


def clip_cov_loss(
    log_probs_t, old_log_probs_t, adv, uniform_t, mask_t=None, fraction=2e-4, min_covariance=1.0, max_covariance=5.0,
    epsilon_low=0.2, epsilon_high=0.2,
):  # fmt: skip
    found = covariances(log_probs_t, adv, mask_t)
    terms, may = {}, []
    for (i, t), covariance in found.items():
        ratio = math.exp(log_probs_t[i, t] - old_log_probs_t[i, t])
        clipped = min(max(ratio, 1 - epsilon_low), 1 + epsilon_high)
        terms[i, t] = max(-ratio * adv[i], -clipped * adv[i])
        if min_covariance < covariance < max_covariance and not -clipped * adv[i] > -ratio * adv[i]:
            may.append((i, t))
    for x in sorted(may, key=lambda x: uniform_t[x])[: max(int(fraction * len(found)), 1)]:
        terms[x] = 0.0
    return sum(terms.values()) / max(len(terms), 1)


def kl_cov_loss(log_probs_t, old_log_probs_t, adv, mask_t=None, fraction=2e-3, kl_weight=1.0):
    found = covariances(log_probs_t, adv, mask_t)
    log_ratio = {x: log_probs_t[x] - old_log_probs_t[x] for x in found}
    terms = {x: -math.exp(log_ratio[x]) * adv[x[0]] for x in found}
    for x in sorted(found, key=lambda x: -found[x])[: max(int(fraction * len(found)), 1)]:
        terms[x] += kl_weight * abs(log_ratio[x])
    return sum(terms.values()) / max(len(terms), 1)


def pass_at_k_advantages(correct, k):
    """By all subsets of k answers: the mean of their normalised rewards over those that an answer is in."""
    subsets = list(itertools.combinations(range(len(correct)), k))
    passes = np.array([float(any(correct[i] for i in subset)) for subset in subsets])
    scale = passes.std() or 1.0
    adv = (passes - passes.mean()) / scale
    return np.array(
        [mean(a for a, subset in zip(adv, subsets, strict=True) if i in subset) for i in range(len(correct))]
    )


def decoupled_advantages(rewards, weights=None, epsilon=1e-6):
    weights = np.ones(rewards.shape[1]) if weights is None else weights
    return sum(w * (x - x.mean()) / (x.std() + epsilon) for w, x in zip(weights, rewards.T, strict=True))


def log_ratios(chosen, rejected, ref_chosen, ref_rejected, chosen_mask, rejected_mask):
    return log_ratio(chosen, ref_chosen, chosen_mask), log_ratio(rejected, ref_rejected, rejected_mask)


def sigmoid(x):
    return 1 / (1 + math.exp(-x))


def slic_loss(
    chosen_log_probs_t,
    rejected_log_probs_t,
    ref_chosen_log_probs_t,
    ref_rejected_log_probs_t,
    beta=0.1,
    chosen_mask_t=None,
    rejected_mask_t=None,
):
    logs = chosen_log_probs_t, rejected_log_probs_t, ref_chosen_log_probs_t, ref_rejected_log_probs_t
    w, l = log_ratios(*logs, chosen_mask_t, rejected_mask_t)
    return max(0.0, 1 - beta * (w - l))


def robust_dpo_loss(
    chosen_log_probs_t,
    rejected_log_probs_t,
    ref_chosen_log_probs_t,
    ref_rejected_log_probs_t,
    beta=0.1,
    chosen_mask_t=None,
    rejected_mask_t=None,
    flip_probability=0.1,
):
    logs = chosen_log_probs_t, rejected_log_probs_t, ref_chosen_log_probs_t, ref_rejected_log_probs_t
    w, l = log_ratios(*logs, chosen_mask_t, rejected_mask_t)
    x, e = beta * (w - l), flip_probability
    return (-(1 - e) * math.log(sigmoid(x)) + e * math.log(sigmoid(-x))) / (1 - 2 * e)


def apo_loss(
    chosen_log_probs_t,
    rejected_log_probs_t,
    ref_chosen_log_probs_t,
    ref_rejected_log_probs_t,
    beta=0.1,
    chosen_mask_t=None,
    rejected_mask_t=None,
    chosen_is_better=True,
):
    logs = chosen_log_probs_t, rejected_log_probs_t, ref_chosen_log_probs_t, ref_rejected_log_probs_t
    w, l = log_ratios(*logs, chosen_mask_t, rejected_mask_t)
    if chosen_is_better:
        return 1 - sigmoid(beta * w) + sigmoid(beta * l)
    return sigmoid(beta * w) + 1 - sigmoid(beta * (w - l))


def kl_shaped_rewards(reward, log_probs_t, ref_log_probs_t, kl_weight=0.05, mask_t=None):
    out, steps = np.zeros(len(log_probs_t)), counted(mask_t, len(log_probs_t))
    for t in steps:
        out[t] = -kl_weight * (log_probs_t[t] - ref_log_probs_t[t]) + reward * (t == steps[-1])
    return out


def distillation_advantages(log_probs_t, teacher_log_probs_t, mask_t=None):
    steps = counted(mask_t, len(log_probs_t))
    return np.array([(teacher_log_probs_t[t] - log_probs_t[t]) * (t in steps) for t in range(len(log_probs_t))])
