"""Experience replay as pure functions, for `jax.jit`, `jax.vmap`, `jax.lax.scan` and donation.

    uniform        the most recent items, drawn uniformly
    prioritised    the most recent items, drawn in proportion to priorities (Schaul et al. 2016)
    reservoir      a uniform sample of all items so far (Vitter 1985)
    n_step         builds n-step transitions and adds them to one of these
    sequences      overlapping sequences of steps (Kapturowski et al. 2019), drawn uniformly or by priority

Each returns a `Replay`, a tuple of functions on a state, which documents the functions and when the state is updated
in place. Items are arbitrary trees of arrays.

Example:
  >>> import jax, jax.numpy as jnp
  >>> import rlx
  >>> replay = rlx.replay.prioritised(capacity=1000, exponent=0.6, beta=0.4)
  >>> state = replay.init({"q_tm1": jnp.zeros(2), "r_t": 0.0})
  >>> add_batch = jax.jit(replay.add_batch, donate_argnums=0)  # in place
  >>> state = add_batch(state, {"q_tm1": jnp.ones([8, 2]), "r_t": jnp.arange(8.0)})
  >>> sample = replay.sample(state, jax.random.key(0), n=32)
  >>> td_error = sample.items["r_t"] - sample.items["q_tm1"][:, 0]
  >>> loss = jnp.mean(sample.weights * rlx.l2_loss(td_error))
  >>> state = replay.update_priorities(state, sample.indices, jnp.abs(td_error))
"""

from rlx.replay.contract import Replay as Replay
from rlx.replay.contract import Sample as Sample
from rlx.replay.n_step import Transition as Transition
from rlx.replay.n_step import n_step as n_step
from rlx.replay.prioritised import prioritised as prioritised
from rlx.replay.reservoir import reservoir as reservoir
from rlx.replay.sequences import sequences as sequences
from rlx.replay.uniform import uniform as uniform

__all__ = ["Replay", "Sample", "Transition", "n_step", "prioritised", "reservoir", "sequences", "uniform"]
