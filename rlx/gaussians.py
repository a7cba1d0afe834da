"""Gaussian policies: small trees of parameters with methods, like those of `rlx.distributions`."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from rlx.core.annotations import Float, Number, Real
from rlx.core.arguments import as_arrays, require, require_ascending, require_parts
from rlx.core.arrays import half_square
from rlx.core.sampling import either, key_and_shape, normal
from rlx.core.types import Array, ArrayLike
from rlx.divergences import log_deviation, multivariate_normal_kl_divergence, require_events

_HALF_LOG_TAU = 0.5 * math.log(2 * math.pi)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class DiagonalGaussian:
    """Independent Gaussians along the last axis; see `rlx.gaussian_diagonal`.

    `sigma` broadcasts against `mu` [..., D]; the fields are used where a method does not receive these arguments.
    """

    sigma: Any = None
    mu: Any = None

    def sample(
        self,
        key: Array | int | None = None,
        mu: ArrayLike | None = None,
        sigma: ArrayLike | None = None,
        *,
        seed: Array | int | None = None,
        sample_shape: Sequence[int] | int = (),
    ) -> Array:
        """Actions [*sample_shape, ..., D]; `seed` is an alias of `key`."""
        key, shape = key_and_shape("gaussian_diagonal.sample", key, seed, sample_shape)
        mu, sigma = jnp.broadcast_arrays(*self._parameters("sample", mu, sigma))
        noise = normal(key, shape + mu.shape, mu.dtype)
        mu, sigma = (jnp.broadcast_to(x, noise.shape) for x in (mu, sigma))
        return mu + sigma * noise

    def prob(self, sample: ArrayLike, mu: ArrayLike | None = None, sigma: ArrayLike | None = None) -> Array:
        """Densities [...] of the actions `sample` [..., D]."""
        return jnp.exp(self.logprob(sample, mu, sigma))

    def logprob(self, sample: ArrayLike, mu: ArrayLike | None = None, sigma: ArrayLike | None = None) -> Array:
        """Log-densities [...] of the actions `sample` [..., D]."""
        mu, sigma = self._parameters("logprob", mu, sigma)
        sample, mu, sigma = as_arrays(
            "gaussian_diagonal.logprob",
            sample=(sample, Real[Array, "*#E"]),
            mu=(mu, Float[Array, "*#E"]),
            sigma=(sigma, Float[Array, "*#E"]),
        )
        return _normal_logprob(sample, mu, sigma, log_deviation(sigma))

    log_prob = logprob

    def entropy(self, mu: ArrayLike | None = None, sigma: ArrayLike | None = None) -> Array:
        """Differential entropies [...] in nats: Σ_i [½ + ½ log 2π + log σ_i]."""
        mu, sigma = self._parameters("entropy", mu, sigma)
        return jnp.sum(
            0.5 + _HALF_LOG_TAU + log_deviation(jnp.broadcast_to(sigma, jnp.broadcast_shapes(mu.shape, sigma.shape))),
            axis=-1,
        )

    def kl_to_standard_normal(self, mu: ArrayLike | None = None, sigma: ArrayLike | None = None) -> Array:
        """Kullback-Leibler divergences [...] to a Gaussian of mean 0 and standard deviation 1."""
        mu, sigma = self._parameters("kl_to_standard_normal", mu, sigma)
        return multivariate_normal_kl_divergence.kernel(mu, sigma, jnp.zeros_like(mu), jnp.ones_like(sigma))

    def kl(self, mu_0: ArrayLike, sigma_0: ArrayLike | None, mu_1: ArrayLike, sigma_1: ArrayLike | None) -> Array:
        """Kullback-Leibler divergences [...] between two such Gaussians."""
        mu_0, sigma_0 = self._parameters("kl", mu_0, sigma_0, "_0")
        mu_1, sigma_1 = self._parameters("kl", mu_1, sigma_1, "_1")
        mu_0, sigma_0, mu_1, sigma_1 = as_arrays(
            "gaussian_diagonal.kl",
            mu_0=(mu_0, Float[Array, "*#E"]),
            sigma_0=(sigma_0, Real[Array, "*#E"]),
            mu_1=(mu_1, Float[Array, "*#E"]),
            sigma_1=(sigma_1, Real[Array, "*#E"]),
        )
        require_events({"mu_0": mu_0, "mu_1": mu_1}, {}, "gaussian_diagonal.kl")
        return multivariate_normal_kl_divergence.kernel(mu_0, sigma_0, mu_1, sigma_1)

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """The leading axes of the means and standard deviations that the policy was created with."""
        mu, sigma = self._parameters("batch_shape", None, None)
        return jnp.broadcast_shapes(mu.shape, sigma.shape)[:-1]

    def _parameters(
        self, method: str, mu: ArrayLike | None, sigma: ArrayLike | None, which: str = ""
    ) -> tuple[Array, Array]:
        function, mu_name, sigma_name = f"gaussian_diagonal.{method}", f"mu{which}", f"sigma{which}"
        mu = either(function, mu_name, mu, self.mu)
        sigma = self.sigma if sigma is None else sigma
        expected = "standard deviations, here or when the policy is created"
        require(sigma is not None, sigma_name, None, expected, function)
        wanted = {mu_name: (mu, Float[Array, "*#E"]), sigma_name: (sigma, Real[Array, "*#E", "in [0, inf) if scalar"])}
        mean, deviation = as_arrays(function, **wanted)
        require_events({mu_name: mean}, {sigma_name: deviation}, function)
        return mean, deviation


class _Bounds(NamedTuple):
    """The bounds of an `action_spec`, as a tree that can be passed through `jit`."""

    minimum: Any = -1.0
    maximum: Any = 1.0


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class SquashedGaussian:
    """A Gaussian pushed through tanh into the bounds of an action; see `rlx.squashed_gaussian`.

    `mu` and `sigma` [..., D] are unbounded network outputs: the Gaussian's mean is tanh(mu), and its log standard
    deviation goes from `sigma_min` to `sigma_max` with ½ (tanh(sigma) + 1). `action_spec` has the attributes `minimum`
    and `maximum`, as dm_env's bounded arrays do; without one, the bounds are -1 and 1. `entropy` and the divergences
    are those of the Gaussian before tanh.
    """

    sigma_min: Any
    sigma_max: Any
    mu: Any = None
    sigma: Any = None
    action_spec: Any = None

    def sample(
        self,
        key: Array | int | None = None,
        mu: ArrayLike | None = None,
        sigma: ArrayLike | None = None,
        action_spec: Any = None,
        *,
        seed: Array | int | None = None,
        sample_shape: Sequence[int] | int = (),
    ) -> Array:
        """Actions [*sample_shape, ..., D] between the bounds of `action_spec`; `seed` is an alias of `key`."""
        key, shape = key_and_shape("squashed_gaussian.sample", key, seed, sample_shape)
        mu, sigma = self._gaussian("sample", mu, sigma)
        action = jnp.tanh(DiagonalGaussian().sample(key, mu, sigma, sample_shape=shape))
        low, half_range = self._bounds("sample", action, action_spec)
        return low + half_range * (action + 1)

    def prob(
        self, sample: ArrayLike, mu: ArrayLike | None = None, sigma: ArrayLike | None = None, action_spec: Any = None
    ) -> Array:
        """Densities [...] of the actions `sample` [..., D]."""
        return jnp.exp(self.logprob(sample, mu, sigma, action_spec))

    def logprob(
        self, sample: ArrayLike, mu: ArrayLike | None = None, sigma: ArrayLike | None = None, action_spec: Any = None
    ) -> Array:
        """Log-densities [...] of the actions `sample` [..., D].

        An action at a bound, or outside by at most 1 % of half the range, as rounding may leave it, is treated as just
        inside. Further outside the density is 0, and its logarithm -inf.
        """
        mu, sigma = self._gaussian("logprob", mu, sigma)
        sample, mu, sigma = as_arrays(
            "squashed_gaussian.logprob",
            sample=(sample, Real[Array, "*#E"]),
            mu=(mu, Float[Array, "*#E"]),
            sigma=(sigma, Float[Array, "*#E"]),
        )
        low, half_range = self._bounds("logprob", sample, action_spec)
        limit = 1 - jnp.finfo(sample.dtype).epsneg
        place = (sample - low) / half_range - 1
        squashed = jnp.clip(place, -limit, limit)
        log_slope = jnp.log1p(-jnp.square(squashed)) + jnp.log(half_range)
        log_slope = jnp.where(jnp.abs(place) > 1.01, jnp.inf, log_slope)
        # A single number applies to all dimensions, so it counts once for each.
        log_slope = jnp.broadcast_to(log_slope, jnp.broadcast_shapes(log_slope.shape, mu.shape, sigma.shape))
        return _normal_logprob(jnp.arctanh(squashed), mu, sigma, jnp.log(sigma)) - jnp.sum(log_slope, axis=-1)

    log_prob = logprob

    def entropy(self, mu: ArrayLike | None = None, sigma: ArrayLike | None = None) -> Array:
        """Differential entropies [...] of the Gaussian, in nats."""
        return DiagonalGaussian().entropy(*self._gaussian("entropy", mu, sigma))

    def kl_to_standard_normal(self, mu: ArrayLike | None = None, sigma: ArrayLike | None = None) -> Array:
        """Kullback-Leibler divergences [...] of the Gaussian to one of mean 0 and standard deviation 1."""
        return DiagonalGaussian().kl_to_standard_normal(*self._gaussian("kl_to_standard_normal", mu, sigma))

    def kl(self, mu_0: ArrayLike, sigma_0: ArrayLike, mu_1: ArrayLike, sigma_1: ArrayLike) -> Array:
        """Kullback-Leibler divergences [...] between two of the Gaussians."""
        return DiagonalGaussian().kl(
            *self._gaussian("kl", mu_0, sigma_0, "_0"), *self._gaussian("kl", mu_1, sigma_1, "_1")
        )

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """The leading axes of the network outputs that the policy was created with."""
        mu, sigma = self._gaussian("batch_shape", None, None)
        return jnp.broadcast_shapes(mu.shape, sigma.shape)[:-1]

    def _gaussian(
        self, method: str, mu: ArrayLike | None, sigma: ArrayLike | None, which: str = ""
    ) -> tuple[Array, Array]:
        function, mu_name, sigma_name = f"squashed_gaussian.{method}", f"mu{which}", f"sigma{which}"
        given = {
            mu_name: either(function, mu_name, mu, self.mu),
            sigma_name: either(function, sigma_name, sigma, self.sigma),
        }
        mean, spread = as_arrays(function, **{name: (x, Float[Array, "*#E"]) for name, x in given.items()})
        require_events({mu_name: mean}, {sigma_name: spread}, function)
        lowest, highest = (jnp.asarray(bound, spread.dtype) for bound in (self.sigma_min, self.sigma_max))
        log_sigma = lowest + 0.5 * (highest - lowest) * (jnp.tanh(spread) + 1)
        return jnp.tanh(mean), jnp.exp(log_sigma)

    def _bounds(self, method: str, like: Array, action_spec: Any) -> tuple[Array, Array]:
        function = f"squashed_gaussian.{method}"
        chosen = self.action_spec if action_spec is None else action_spec
        spec = _Bounds() if chosen is None else _require_spec(chosen, function)
        bounds = {"action_spec.minimum": spec.minimum, "action_spec.maximum": spec.maximum}
        given = {name: (bound, Number[Array, "*#E", "in (-inf, inf)"]) for name, bound in bounds.items()}
        _, low, high = as_arrays(function, action=(like, Float[Array, "*#E"]), **given)
        # Where both bounds are equal, all actions are one, and there is no density.
        require_ascending(strictly=method == "logprob", function=function, **bounds)
        low, high = low.astype(like.dtype), high.astype(like.dtype)
        return low, 0.5 * (high - low)


def gaussian_diagonal(sigma: ArrayLike | None = None, mu: ArrayLike | None = None) -> DiagonalGaussian:
    """Gaussian policies with diagonal covariance: a ~ N(μ, diag(σ²)).

    Args:
      sigma: standard deviations that broadcast against the means; may be omitted here and passed to each method, where
        the sign of arrays does not count.
      mu: means, floats [..., D]; may be omitted here and passed to each method.

    Returns:
      A distribution with methods `sample(key, mu, sigma)`, `prob(sample, mu, sigma)`, `logprob(sample, mu, sigma)`,
      `entropy(mu, sigma)`, `kl_to_standard_normal(mu, sigma)` and `kl(mu_0, sigma_0, mu_1, sigma_1)`, for means
      [..., D]; the last axis is the event axis.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> round(float(rlx.gaussian_diagonal(1.0).logprob(jnp.zeros(1), jnp.zeros(1))), 4)
      -0.9189
    """
    if sigma is not None:
        as_arrays("gaussian_diagonal", sigma=(sigma, Real[Array, "*S", "in [0, inf)"]))
    return DiagonalGaussian(sigma, mu)


def squashed_gaussian(
    sigma_min: ArrayLike = -4,
    sigma_max: ArrayLike = 0.0,
    mu: ArrayLike | None = None,
    sigma: ArrayLike | None = None,
    action_spec: Any = None,
) -> SquashedGaussian:
    """Gaussian policies squashed by tanh into the bounds of an action space.

    u ~ N(tanh(mu), s²) with log s = sigma_min + ½ (sigma_max - sigma_min)(tanh(sigma) + 1), and the action is
    minimum + ½ (maximum - minimum)(tanh(u) + 1).

    Args:
      sigma_min: lowest log standard deviation.
      sigma_max: highest log standard deviation, at least `sigma_min`.
      mu: network outputs, floats [..., D]; may be omitted here and passed to each method.
      sigma: network outputs, floats [..., D]; may be omitted here and passed to each method.
      action_spec: the bounds; may be omitted here and passed to each method. Without one, they are -1 and 1.

    Returns:
      A distribution with methods `sample(key, mu, sigma, action_spec)`, `prob(sample, mu, sigma, action_spec)`,
      `logprob(sample, mu, sigma, action_spec)` and, for the Gaussian before tanh, `entropy(mu, sigma)`,
      `kl_to_standard_normal(mu, sigma)` and `kl(mu_0, sigma_0, mu_1, sigma_1)`, for network outputs [..., D].
      `action_spec` has the attributes `minimum` and `maximum`.

    Example:
      >>> import types
      >>> import jax, jax.numpy as jnp
      >>> import rlx
      >>> spec = types.SimpleNamespace(minimum=-2.0, maximum=2.0)
      >>> action = rlx.squashed_gaussian().sample(jax.random.key(0), jnp.zeros(1), jnp.zeros(1), spec)
      >>> bool(abs(action[0]) <= 2.0)
      True
    """
    name = "squashed_gaussian"
    as_arrays(
        name,
        sigma_min=(sigma_min, Real[Array, "*L", "in (-inf, inf)"]),
        sigma_max=(sigma_max, Real[Array, "*H", "in (-inf, inf)"]),
    )
    require_ascending(strictly=False, function=name, sigma_min=sigma_min, sigma_max=sigma_max)
    if action_spec is not None:
        _require_spec(action_spec, name)
    bounds = None if action_spec is None else _Bounds(action_spec.minimum, action_spec.maximum)
    return SquashedGaussian(sigma_min, sigma_max, mu, sigma, bounds)


def _require_spec(action_spec: Any, function: str) -> Any:
    expected = "something with the attributes `minimum` and `maximum`, as dm_env's bounded arrays have"
    require_parts("action_spec", action_spec, _Bounds._fields, expected, function)
    return action_spec


def _normal_logprob(sample: Array, mu: Array, sigma: Array, log_sigma: Array) -> Array:
    scaled = (sample - mu) / sigma
    log_sigma = jnp.broadcast_to(log_sigma, scaled.shape)
    return jnp.sum(-half_square(scaled) - log_sigma - _HALF_LOG_TAU, axis=-1)
