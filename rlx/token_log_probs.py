"""Log-probabilities of tokens from hidden states, without the logits of all tokens at once."""

from typing import Any

import jax
import jax.numpy as jnp

from rlx.core.annotations import Float, Int, Real
from rlx.core.arguments import require
from rlx.core.operator import operator
from rlx.core.types import Array


@operator(widen=False)
def token_log_probs(
    hidden: Float[Array, "T D"],
    head: Float[Array, "V D"],
    tokens: Int[Array, "T", "in [0, V)"],
    *,
    chunk_size: int = 512,
    temperature: Real[Array | float, "", "in (0, inf)"] = 1.0,
    soft_cap: Real[Array | float, "", "in (0, inf)"] | None = None,
    with_entropy: bool = False,
) -> Any:
    """Log-probabilities of tokens, from the hidden vectors that a language model turns into logits.

    log π(y_t) = z_t[y_t] - log Σ_v exp z_t[v], with z_t = W h_t / temperature, or c tanh(W h_t / c) / temperature with
    a soft cap c. Logits are computed for `chunk_size` tokens at a time, and again for gradients, so that an array [T,
    V] never exists. For a batch, flatten it: `hidden.reshape(-1, D)`.

    Args:
      hidden: h, a vector for each token, computed at the position before it from earlier tokens only.
      head: W, a row for each token of the vocabulary; if it is tied, the embeddings.
      tokens: y.
      chunk_size: number of tokens at a time.
      temperature: temperature of the distribution that the tokens were drawn from.
      soft_cap: c; by default there is none.
      with_entropy: whether to return entropies, too.

    Returns:
      Log-probabilities [T], in float32 or wider; with `with_entropy` a pair of these and the entropies [T] in nats,
      -Σ_v π(v) log π(v).

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> hidden, head = jnp.array([[1.0], [0.0]]), jnp.array([[0.0], [jnp.log(3.0)]])
      >>> jnp.exp(rlx.token_log_probs(hidden, head, jnp.array([1, 0]))).tolist()
      [0.75, 0.5]
    """
    require(chunk_size >= 1, "chunk_size", chunk_size, "a positive number of tokens")
    length = hidden.shape[0]
    size = max(min(chunk_size, length), 1)
    chunks = -(-length // size)
    dtype = jnp.result_type(hidden, head)
    wide = jnp.float32 if jnp.finfo(dtype).bits < 32 else dtype
    temperature = jnp.asarray(temperature, wide)
    soft_cap = None if soft_cap is None else jnp.asarray(soft_cap, wide)

    @jax.checkpoint
    def of_chunk(head: Array, h: Array, y: Array) -> tuple[Array, Array]:
        z = jnp.einsum("td,vd->tv", h, head, preferred_element_type=wide)
        z = (z if soft_cap is None else soft_cap * jnp.tanh(z / soft_cap)) / temperature
        normaliser = jax.nn.logsumexp(z, axis=-1)
        log_probs = jnp.take_along_axis(z, y[:, None], axis=-1)[:, 0] - normaliser
        if not with_entropy:
            return log_probs, jnp.zeros_like(normaliser)
        log_pi = z - normaliser[:, None]
        return log_probs, -jnp.sum(jnp.where(log_pi == -jnp.inf, 0, jnp.exp(log_pi) * log_pi), axis=-1)

    def in_chunks(x: Array) -> Array:
        padding = [(0, chunks * size - length)] + [(0, 0)] * (x.ndim - 1)
        return jnp.pad(x, padding).reshape(chunks, size, *x.shape[1:])

    _, out = jax.lax.scan(lambda head, x: (head, of_chunk(head, *x)), head, (in_chunks(hidden), in_chunks(tokens)))
    log_probs, entropies = (x.reshape(-1)[:length] for x in out)
    return (log_probs, entropies) if with_entropy else log_probs
