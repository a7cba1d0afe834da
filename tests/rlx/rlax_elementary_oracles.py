"""Elementwise losses and transforms in NumPy, from their definitions."""

import numpy as np


def l2_loss(predictions, targets):
    return 0.5 * (predictions - targets) ** 2


def expectile_loss(predictions, targets, expectile):
    error = targets - predictions
    return np.where(error < 0, 1 - expectile, expectile) * error**2


def likelihood(predictions, targets):
    return predictions**targets * (1 - predictions) ** (1 - targets)


def log_loss(predictions, targets):
    return -(targets * np.log(predictions) + (1 - targets) * np.log(1 - predictions))


def huber_loss(x, delta):
    return np.where(np.abs(x) <= delta, 0.5 * x**2, delta * (np.abs(x) - 0.5 * delta))


def identity(x):
    return x


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def logit(x):
    return np.log(x / (1 - x))


def signed_logp1(x):
    return np.sign(x) * np.log(np.abs(x) + 1)


def signed_expm1(x):
    return np.sign(x) * (np.exp(np.abs(x)) - 1)


def signed_hyperbolic(x, eps=1e-3):
    return np.sign(x) * (np.sqrt(np.abs(x) + 1) - 1) + eps * x


def signed_parabolic(x, eps=1e-3):
    return np.sign(x) * (((np.sqrt(1 + 4 * eps * (np.abs(x) + 1 + eps)) - 1) / (2 * eps)) ** 2 - 1)


def hyperbolic_sin(x):
    return (np.exp(x) - np.exp(-x)) / 2


def hyperbolic_arcsin(x):
    return np.log(x + np.sqrt(x**2 + 1))


def power(x, p):
    return np.sign(x) * ((np.abs(x) / np.sqrt(p) + 1) ** p - 1) / np.sqrt(p)


SIGNED_HYPERBOLIC_PAIR = (signed_hyperbolic, signed_parabolic)
SIGNED_LOGP1_PAIR = (signed_logp1, signed_expm1)
