"""Names that Haiku and RLax had in public once, and have removed: for programs of that time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from rlx import batched_index, categorical_kl_divergence, categorical_sample, greedy


def named_call(fun: Callable[..., Any], *, name: str | None = None) -> Callable[..., Any]:
    """`jax.named_call`, which keeps parameters and state as any function does."""
    return jax.named_call(fun, name=name)


def profiler_name_scopes(enabled: bool = True) -> bool:
    """Accepted, without effect: profiles always have the names of modules. Returns the setting until now."""
    del enabled
    return True


def incremental_update(new_tensors: Any, old_tensors: Any, tau: Any) -> Any:
    """`tau · new + (1 - tau) · old`, for each array of two trees."""
    return jax.tree.map(lambda new, old: tau * new + (1.0 - tau) * old, new_tensors, old_tensors)


def reconstruct_device_array(fun: Callable[..., Any], args: Any, arr_state: Any, aval_state: Any) -> jax.Array:
    """An array out of a pickle of JAX 0.3.8 to 0.4.0: the first three arguments are NumPy's."""
    del aval_state
    value = fun(*args)
    value.__setstate__(arr_state)
    return jnp.asarray(value)


class DiscreteDistribution(NamedTuple):
    """The functions of a policy, each of logits [..., A]."""

    sample: Callable[..., jax.Array]
    probs: Callable[..., jax.Array]
    logprob: Callable[..., jax.Array]
    entropy: Callable[..., jax.Array]
    kl: Callable[..., jax.Array]


def epsilon_softmax(epsilon: Any, temperature: Any) -> DiscreteDistribution:
    """`(1 - ε) · softmax(logits / temperature) + ε / A`; the best action instead of the softmax at temperature 0."""

    def probs(logits: jax.Array) -> jax.Array:
        softmax = jax.nn.softmax(logits / jnp.where(temperature > 0, temperature, 1))
        softmax = jnp.where(temperature > 0, softmax, greedy().probs(logits))
        return (1 - epsilon) * softmax + epsilon / logits.shape[-1]

    def entropy(logits: jax.Array) -> jax.Array:
        p = probs(logits)
        return -jnp.sum(p * jnp.log(jnp.where(p > 0, p, 1)), axis=-1)

    return DiscreteDistribution(
        sample=lambda key, logits: categorical_sample(key, probs(logits)),
        probs=probs,
        logprob=lambda sample, logits: batched_index(jnp.log(probs(logits)), sample),
        entropy=entropy,
        kl=lambda p_logits, q_logits: categorical_kl_divergence(p_logits, q_logits, temperature),
    )


safe_epsilon_softmax = epsilon_softmax
