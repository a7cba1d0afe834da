"""Noise on actions and on policies."""

import jax
import jax.numpy as jnp

from rlx.core.checks import check
from rlx.core.masking import weigh
from rlx.core.types import Array, ArrayLike


def add_gaussian_noise(key: Array, action: ArrayLike, stddev: ArrayLike) -> Array:
    """Adds Gaussian noise: a + stddev · ε with ε ~ N(0, 1).

    Args:
      key: a key of `jax.random`.
      action: continuous action, floats [*E].
      stddev: standard deviation, not negative, number [] or [*E].

    Returns:
      Floats [*E].

    Raises:
      ArgumentError: if `action` is not floating point.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> import rlx
      >>> rlx.add_gaussian_noise(jax.random.key(0), jnp.ones(2), 0.0).tolist()
      [1.0, 1.0]
    """
    action, stddev = check(
        "add_gaussian_noise", action=(action, "[*E]", "float"), stddev=(stddev, "[] or [*E]", "real in [0, inf)")
    )
    return action + stddev * jax.random.normal(key, action.shape, action.dtype)


def add_ornstein_uhlenbeck_noise(
    key: Array, action: ArrayLike, noise_tm1: ArrayLike, damping: ArrayLike, stddev: ArrayLike
) -> Array:
    """Adds noise that is correlated in time: a + (1 - damping) n_{t-1} + stddev · ε with ε ~ N(0, 1).

    From "On the Theory of the Brownian Motion", Uhlenbeck and Ornstein 1930
    (https://journals.aps.org/pr/abstract/10.1103/PhysRev.36.823).

    Args:
      key: a key of `jax.random`.
      action: continuous action, floats [*E].
      noise_tm1: n_{t-1}, the noise of the step before, floats [*E].
      damping: how fast noise decays, number [] in [0, 1]; 1 is uncorrelated noise.
      stddev: standard deviation, not negative, number [] or [*E].

    Returns:
      Floats [*E]; the difference to `action` is the noise n_t.

    Raises:
      ArgumentError: if shapes differ, or an argument is not floating point.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> import rlx
      >>> rlx.add_ornstein_uhlenbeck_noise(jax.random.key(0), jnp.ones(2), jnp.ones(2), 0.5, 0.0).tolist()
      [1.5, 1.5]
    """
    action, noise_tm1, damping, stddev = check(
        "add_ornstein_uhlenbeck_noise",
        action=(action, "[*E]", "float"),
        noise_tm1=(noise_tm1, "[*E]", "float"),
        damping=(damping, "[] or [*E]", "real in [0, 1]"),
        stddev=(stddev, "[] or [*E]", "real in [0, inf)"),
    )
    return action + weigh(1 - damping, noise_tm1) + stddev * jax.random.normal(key, action.shape, action.dtype)


def add_dirichlet_noise(
    key: Array, prior: ArrayLike, dirichlet_alpha: ArrayLike, dirichlet_fraction: ArrayLike
) -> Array:
    """Mixes policies with Dirichlet noise: (1 - f) prior + f n with n ~ Dirichlet(α, ..., α).

    From "Mastering the Game of Go without Human Knowledge", Silver et al. 2017; AlphaZero uses α = 0.3, 0.15 and 0.03
    for chess, shogi and Go, MuZero 0.25 for Atari, all with f = 0.25.

    Args:
      key: a key of `jax.random`.
      prior: probabilities of actions, floats [B, A] or [A].
      dirichlet_alpha: α, positive number [].
      dirichlet_fraction: f in [0, 1], number [].

    Returns:
      Probabilities of the shape of `prior`.

    Raises:
      ArgumentError: if `prior` is not a vector or matrix of floats.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> import rlx
      >>> rlx.add_dirichlet_noise(jax.random.key(0), jnp.array([[0.5, 0.5]]), 0.3, 0.0).tolist()
      [[0.5, 0.5]]
    """
    prior, dirichlet_alpha, dirichlet_fraction = check(
        "add_dirichlet_noise",
        prior=(prior, "[B, A] or [A]", "float"),
        dirichlet_alpha=(dirichlet_alpha, "[]", "real in (0, inf)"),
        dirichlet_fraction=(dirichlet_fraction, "[]", "real in [0, 1]"),
    )
    alphas = jnp.full(prior.shape[-1:], dirichlet_alpha, prior.dtype)
    noise = jax.random.dirichlet(key, alphas, prior.shape[:-1])
    return weigh(1 - dirichlet_fraction, prior) + weigh(dirichlet_fraction, noise)
