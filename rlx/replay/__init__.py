"""Experience replay as pure functions, for `jax.jit`, `jax.vmap`, `jax.lax.scan` and donation.

    uniform        the last items, each as likely as the others
    prioritised    in proportion to priorities (Schaul et al. 2016)

Each makes a `Replay`, a tuple of functions on a state. Items are trees of arrays of any kind.

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
from rlx.replay.priorities import prioritised as prioritised
from rlx.replay.ring import uniform as uniform

__all__ = ["Replay", "Sample", "prioritised", "uniform"]
