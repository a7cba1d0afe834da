"""Sampling from the likely tokens of a language model only: top-k, top-p (nucleus), min-p, and a repetition penalty.

The distributions are softmaxes over those actions that pass the filters, and have the methods of `rlx.softmax`. Their
log-probabilities are those of the distribution that is sampled from, as importance ratios of policies require.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from rlx.core.annotations import Float, Mask, Real
from rlx.core.arguments import as_arrays, require_for_each, whole
from rlx.core.arrays import scale_down
from rlx.core.operator import operator
from rlx.core.sampling import either
from rlx.core.types import Array, ArrayLike, wide_dtype
from rlx.distributions import softmax

_TEMPERATURE = Real[Array, "*T", "in (0, inf]"]
_TOP_P = Real[Array, "*P", "in (0, 1]"]
_MIN_P = Real[Array, "*M", "in [0, 1]"]


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class TruncatedSoftmax:
    """A softmax over the actions that pass filters; see `rlx.top_k`, `rlx.top_p` and `rlx.min_p`."""

    temperature: Any
    k: int | None = dataclasses.field(default=None, metadata={"static": True})
    p: Any = None
    min_p: Any = None
    logits: Any = None

    def sample(
        self,
        key: Array | int | None = None,
        logits: ArrayLike | None = None,
        *,
        seed: Array | int | None = None,
        sample_shape: Sequence[int] | int = (),
    ) -> Array:
        """Actions, integers [*sample_shape, ...], for logits [..., A]; `seed` is an alias of `key`.

        With k, only k numbers are drawn for each row. The action is -1 where the logits are not a distribution.
        """
        likely, actions = self._candidates("sample", logits)
        choice = softmax().sample(key, likely, seed=seed, sample_shape=sample_shape)
        if actions is None:
            return choice
        actions = jnp.broadcast_to(actions, choice.shape + actions.shape[-1:])
        return jnp.where(choice < 0, -1, jnp.take_along_axis(actions, choice[..., None], axis=-1)[..., 0])

    def probs(self, logits: ArrayLike | None = None) -> Array:
        """Probabilities [..., A], 0 for actions that are left out."""
        return softmax().probs(self._truncated("probs", logits))

    def logprob(self, sample: ArrayLike, logits: ArrayLike | None = None) -> Array:
        """Log-probabilities [...] of the actions `sample`, integers [...]; -inf of those that are left out."""
        return softmax().logprob(sample, self._truncated("logprob", logits))

    log_prob = logprob

    def entropy(self, logits: ArrayLike | None = None) -> Array:
        """Entropies [...] in nats."""
        return softmax().entropy(self._candidates("entropy", logits)[0])

    def kl(self, p_logits: ArrayLike, q_logits: ArrayLike) -> Array:
        """Kullback-Leibler divergences [...] between two sets of logits, each filtered: inf if q leaves out more."""
        return softmax().kl(self._truncated("kl", p_logits), self._truncated("kl", q_logits))

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """The leading axes of the logits that the policy was created with."""
        return jnp.shape(either("truncated_softmax.batch_shape", "logits", None, self.logits))[:-1]

    def _candidates(self, method: str, logits: ArrayLike | None) -> tuple[Array, Array | None]:
        """Scaled logits [..., K], -inf where a filter leaves an action out, and which actions; None if they are all."""
        scaled = self._scaled(f"truncated_softmax.{method}", logits)
        actions = None
        if self.k is not None or self.p is not None:
            length = scaled.shape[-1]
            scaled, actions = jax.lax.top_k(scaled, length if self.k is None else min(self.k, length))
        wide = scaled.astype(wide_dtype(scaled.dtype))
        keep = jnp.ones(scaled.shape, bool)
        if self.p is not None:  # the mass of an action and of all less likely ones: the last kept one passes 1 - p
            tail = jax.lax.cumsum(jax.nn.softmax(wide), axis=scaled.ndim - 1, reverse=True)
            keep &= tail > 1 - jnp.asarray(self.p, wide.dtype)
        if self.min_p is not None:
            floor = jnp.log(jnp.asarray(self.min_p, wide.dtype))
            keep &= wide >= jnp.max(wide, axis=-1, keepdims=True) + floor
        return jnp.where(keep | jnp.isnan(scaled), scaled, -jnp.inf), actions

    def _truncated(self, method: str, logits: ArrayLike | None) -> Array:
        """Scaled logits [..., A], -inf for all actions that are left out."""
        likely, actions = self._candidates(method, logits)
        if actions is None:
            return likely
        everything = jnp.shape(either(f"truncated_softmax.{method}", "logits", logits, self.logits))
        nothing = jnp.full(everything, -jnp.inf, likely.dtype)
        return jnp.put_along_axis(nothing, actions, likely, axis=-1, inplace=False)

    def _scaled(self, function: str, logits: ArrayLike | None) -> Array:
        given = {
            "logits": (either(function, "logits", logits, self.logits), Real[Array, "*E A"]),
            "temperature": (self.temperature, _TEMPERATURE),
        }
        given |= {"p": (self.p, _TOP_P)} if self.p is not None else {}
        given |= {"min_p": (self.min_p, _MIN_P)} if self.min_p is not None else {}
        rows, *settings = as_arrays(function, **given)
        for name, x in zip(list(given)[1:], settings, strict=True):
            require_for_each(name, x, "logits", rows, function)
        return scale_down(rows, settings[0].astype(rows.dtype))


def top_k(k: int, temperature: ArrayLike = 1.0, logits: ArrayLike | None = None) -> TruncatedSoftmax:
    """The policy π(a) ∝ exp(logits_a / temperature) over the k actions with the largest logits.

    From "Hierarchical Neural Story Generation", Fan et al. 2018 (https://arxiv.org/abs/1805.04833).

    Args:
      k: number of actions to keep, at least 1; all, if there are fewer. Of tied ones, the first remain.
      temperature: positive number that divides the logits.
      logits: unnormalised log-probabilities; may be omitted here and passed to each method instead.

    Returns:
      A distribution with methods `sample(key, logits)`, `probs(logits)`, `logprob(sample, logits)`, `entropy(logits)`
      and `kl(p_logits, q_logits)`, for logits [..., A].

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> rlx.top_k(2).probs(jnp.array([0.0, 0.0, -1.0])).tolist()
      [0.5, 0.5, 0.0]
    """
    return _checked("top_k", TruncatedSoftmax(temperature, _whole_k("top_k", k), logits=logits))


def top_p(
    p: ArrayLike,
    temperature: ArrayLike = 1.0,
    logits: ArrayLike | None = None,
    *,
    k: int | None = None,
    min_p: ArrayLike | None = None,
) -> TruncatedSoftmax:
    """The policy π(a) ∝ exp(logits_a / temperature) over the nucleus: the fewest likely actions of total mass p.

    An action remains if those more likely than it have a mass below p. From "The Curious Case of Neural Text
    Degeneration", Holtzman et al. 2020 (https://arxiv.org/abs/1904.09751).

    Args:
      p: mass of the nucleus in (0, 1], a number or a traced scalar, or one for each row, [..., 1]; 1 keeps all.
      temperature: positive number that divides the logits.
      logits: unnormalised log-probabilities; may be omitted here and passed to each method instead.
      k: keep the k most likely actions first, as in `rlx.top_k`, and take p of their mass. Without it all actions are
        sorted, which for a vocabulary may cost more than the model.
      min_p: also leave out the actions that `rlx.min_p` does.

    Returns:
      A distribution with the methods of `rlx.top_k`.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> logits = jnp.array([0.0, 0.0, -1.0])
      >>> rlx.top_p(0.8).probs(logits).tolist()
      [0.5, 0.5, 0.0]
      >>> rlx.top_p(0.4, k=2).probs(logits).tolist()
      [1.0, 0.0, 0.0]
    """
    k = None if k is None else _whole_k("top_p", k)
    return _checked("top_p", TruncatedSoftmax(temperature, k, p, min_p, logits))


def min_p(p: ArrayLike, temperature: ArrayLike = 1.0, logits: ArrayLike | None = None) -> TruncatedSoftmax:
    """The policy π(a) ∝ exp(logits_a / temperature) over actions at least p times as likely as the likeliest.

    From "Turning Up the Heat: Min-p Sampling for Creative and Coherent LLM Outputs", Nguyen et al. 2024
    (https://arxiv.org/abs/2407.01082). Nothing is sorted.

    Args:
      p: number in [0, 1], or one for each row, [..., 1]; 0 keeps all, and 1 only the likeliest.
      temperature: positive number that divides the logits before they are compared.
      logits: unnormalised log-probabilities; may be omitted here and passed to each method instead.

    Returns:
      A distribution with the methods of `rlx.top_k`.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> rlx.min_p(0.5).probs(jnp.array([0.0, 0.0, -1.0])).tolist()
      [0.5, 0.5, 0.0]
    """
    return _checked("min_p", TruncatedSoftmax(temperature, min_p=p, logits=logits))


@operator()
def repetition_penalty(
    logits: Real[Array, "*#E A"], seen: Mask[Array, "*#E A"], penalty: Real[Array | float, "", "in (0, inf)"] = 1.2
) -> Float[Array, "*E A"]:
    """Logits that make actions seen before less likely: divided by the penalty if positive, else multiplied by it.

    logits_a / θ if seen_a and logits_a > 0, logits_a · θ if seen_a and logits_a ≤ 0, otherwise logits_a. From "CTRL: A
    Conditional Transformer Language Model for Controllable Generation", Keskar et al. 2019
    (https://arxiv.org/abs/1909.05858).

    Args:
      logits: unnormalised log-probabilities, as the model returns them: a constant added to all changes the result.
      seen: true for actions that the prompt or the answer contains.
      penalty: θ; 1 changes nothing.

    Returns:
      Logits for any distribution: `rlx.top_p(0.9, k=50).sample(key, rlx.repetition_penalty(logits, seen))`.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> rlx.repetition_penalty(jnp.array([3.0, -1.0, 2.0]), jnp.array([True, True, False]), 2.0).tolist()
      [1.5, -2.0, 2.0]
    """
    return jnp.where(seen, jnp.where(logits > 0, logits / penalty, logits * penalty), logits)


def _whole_k(function: str, k: Any) -> int:
    return whole("k", k, "a number of actions of at least 1", function, 1)


def _checked(function: str, policy: TruncatedSoftmax) -> TruncatedSoftmax:
    settings = {"temperature": (policy.temperature, _TEMPERATURE)}
    settings |= {} if policy.p is None else {"p": (policy.p, _TOP_P)}
    least = "p" if function == "min_p" else "min_p"
    settings |= {} if policy.min_p is None else {least: (policy.min_p, _MIN_P)}
    as_arrays(function, **settings)
    return policy
