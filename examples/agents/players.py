"""Players run an agent in its environments, stepped from Python or in one compiled program.

Both kinds have `state`, the agent's state; `advance(updates)`, which plays and learns for a number of updates;
`per_update`, the steps in all environments per update; `look`, the maximum number of steps between checks for Ctrl-C;
`evaluate(episodes, key)`, the returns of greedy episodes, separate from training; `saved()`, `like(steps)` and
`restore(saved)`, with which a run resumes as if it had never stopped; and `close()`.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from environments import Environment, auto_reset, on_host

from .agent import Agent, Choice, Step, reset_where

EVALUATION_LIMIT = 10_000  # steps; for an episode that never ends, the return up to here counts


class Played(NamedTuple):
    """The result of a call of `advance`."""

    steps: int
    returns: np.ndarray  # of the episodes that ended, in order
    metrics: dict[str, float]
    failure: Exception | None = None  # the reason why it cannot continue
    episodes: int | None = None  # how many of these were played now; None for all


class Situation(NamedTuple):
    """The inputs of `act` on the host, besides the state and the memory."""

    last: np.ndarray  # [E], whether an episode has ended
    observations: Any  # [E, ...]
    key: np.ndarray  # the raw data of a key


class Episodes:
    """Environments in Python, with their current observations and the returns so far."""

    def __init__(self, environments: on_host.Environments):
        self.environments = environments
        self.observations = environments.reset()
        self.last, self.running = np.ones(environments.count, bool), np.zeros(environments.count)

    def step(self, actions: Any, extras: Any = ()) -> tuple[Step, list[float]]:
        """Takes a step; returns it, and the returns of the episodes that end with it."""
        observations, outcome = self.observations, self.environments.step(actions)
        self.observations, self.last = outcome.observation, outcome.last
        self.running += outcome.reward
        returns = self.running[outcome.last].tolist()
        self.running[outcome.last] = 0
        came = outcome.reward, outcome.discount, outcome.last, outcome.next_observation
        return Step(observations, actions, *came, extras), returns


def stacked(steps: list[Step]) -> Step:
    """Stacks steps along a new time axis: [T, E, ...]."""
    return jax.tree.map(lambda *x: np.stack(x), *steps)


def at(t: int, tree: Any) -> Any:
    """Entry t of a tree with leaves [T, ...]."""
    return jax.tree.map(lambda x: x[t], tree)


def several(times: int, tree: Any) -> Any:
    """The shapes and dtypes of `times` such trees, stacked."""
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct((times, *x.shape), x.dtype), tree)


SMALL = 2**12  # bytes


def without_keys(tree: Any) -> tuple[Any, list[Any]]:
    """Replaces typed keys in a tree by their raw data; also returns each leaf's key implementation, or None."""
    leaves, structure = jax.tree.flatten(tree)
    keys = [jax.random.key_impl(x) if jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key) else None for x in leaves]
    numbers = [jax.random.key_data(x) if key else x for x, key in zip(leaves, keys, strict=True)]
    return jax.tree.unflatten(structure, numbers), keys


def with_keys(tree: Any, keys: list[Any]) -> Any:
    """The inverse of `without_keys`."""
    leaves, structure = jax.tree.flatten(tree)
    made = [jax.random.wrap_key_data(x, impl=key) if key else x for x, key in zip(leaves, keys, strict=True)]
    return jax.tree.unflatten(structure, made)


def packing(like: Any) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
    """Functions that pack the small arrays of a tree into one vector for each dtype, and unpack them.

    A compiled call takes a microsecond or two for each input and output array, and a state contains dozens. Typed keys
    are packed as raw data.
    """
    like, keys = without_keys(like)
    leaves, structure = jax.tree.flatten(like)
    alone = [x.size * x.dtype.itemsize > SMALL for x in leaves]
    kinds = [i if apart else str(x.dtype) for i, (x, apart) in enumerate(zip(leaves, alone, strict=True))]
    filled = [i for i, x in enumerate(leaves) if x.size]
    places = {kind: [i for i in filled if kinds[i] == kind] for kind in dict.fromkeys(kinds[i] for i in filled)}

    def pack(tree: Any) -> list[jax.Array]:
        tree, _ = without_keys(tree)
        parts = [x if apart else x.ravel() for x, apart in zip(jax.tree.leaves(tree), alone, strict=True)]
        return [parts[at[0]] if alone[at[0]] else jnp.concatenate([parts[i] for i in at]) for at in places.values()]

    def unpack(vectors: list[jax.Array]) -> Any:
        parts: dict[int, jax.Array] = {}
        for vector, at in zip(vectors, places.values(), strict=True):
            pieces = [vector] if alone[at[0]] else jnp.split(vector, np.cumsum([leaves[i].size for i in at])[:-1])
            parts |= {i: piece.reshape(leaves[i].shape) for i, piece in zip(at, pieces, strict=True)}
        parts |= {i: jnp.zeros(x.shape, x.dtype) for i, x in enumerate(leaves) if not x.size}
        return with_keys(jax.tree.unflatten(structure, [parts[i] for i in range(len(leaves))]), keys)

    return pack, unpack


def posting(like: Any) -> tuple[Callable[[list[Any]], Any], Callable[[Any], Any]]:
    """Functions that pack the small NumPy arrays of T trees, all like this one, into an array of bytes, and unpack it.

    The second one runs in a compiled program, and returns one tree with leaves [T, ...].
    """
    leaves, structure = jax.tree.flatten(like)
    dtypes = [jax.dtypes.canonicalize_dtype(x.dtype) for x in leaves]
    sizes = [x.size * dtype.itemsize for x, dtype in zip(leaves, dtypes, strict=True)]
    large = [i for i, size in enumerate(sizes) if size > SMALL]
    small = [i for i, size in enumerate(sizes) if size <= SMALL]

    def post(trees: list[Any]) -> list[np.ndarray]:
        rows = [[np.asarray(x, dtype) for x, dtype in zip(jax.tree.leaves(t), dtypes, strict=True)] for t in trees]
        numbers = np.frombuffer(b"".join([row[i].tobytes() for row in rows for i in small]), np.uint8)
        return [numbers.reshape(len(trees), -1), *[np.stack([row[i] for row in rows]) for i in large]]

    @jax.vmap
    def read(posted: list[jax.Array]) -> Any:
        parts = dict(zip(large, posted[1:], strict=True))
        pieces = jnp.split(posted[0], np.cumsum([sizes[i] for i in small])[:-1])
        for i, piece in zip(small, pieces, strict=True):
            shape, dtype = leaves[i].shape, dtypes[i]
            numbers = piece.reshape(shape if dtype.itemsize == 1 else (*shape, dtype.itemsize))
            parts[i] = numbers.astype(bool) if dtype.kind == "b" else jax.lax.bitcast_convert_type(numbers, dtype)
        return jax.tree.unflatten(structure, [parts[i] for i in range(len(leaves))])

    return post, read


def host_returns(act: Any, state: Any, first: Any, playing: Episodes, episodes: int, key: jax.Array) -> list[float]:
    """The returns of episodes that are played from Python; `first` is the memory at the beginning of an episode."""
    count, memory = playing.environments.count, first
    returns: list[list[float]] = [[] for _ in range(count)]
    for t in range(EVALUATION_LIMIT):
        memory = reset_where(playing.last, memory, first)
        choice = act(state, memory, playing.observations, jax.random.fold_in(key, t))
        memory, (_, ended) = choice.memory, playing.step(jax.device_get(choice.action))
        for i, value in zip(np.flatnonzero(playing.last), ended, strict=True):
            returns[i].append(float(value))
        if min(map(len, returns)) * count >= episodes:
            break
    each = -(-episodes // count)  # equally many from each environment, so that short episodes are not overrepresented
    return [value for i in range(count) for value in (returns[i] or [float(playing.running[i])])[:each]]


class KeysInOrder:
    """The raw data of the keys `fold_in(key, t)`, computed in blocks, so that the step's program need not do it."""

    together = 2**10

    def __init__(self, key: jax.Array):
        def folded(begin: jax.Array) -> jax.Array:
            t = begin + jnp.arange(self.together)
            return jax.random.key_data(jax.vmap(jax.random.fold_in, in_axes=(None, 0))(key, t))

        self.make, self.impl = jax.jit(folded), jax.random.key_impl(key)
        self.begin, self.made = -1, np.zeros(0)

    def __getitem__(self, t: int) -> np.ndarray:
        if t - t % self.together != self.begin:
            self.begin = t - t % self.together
            self.made = np.asarray(self.make(self.begin))
        return self.made[t - self.begin]

    def key(self, numbers: jax.Array) -> jax.Array:
        return jax.random.wrap_key_data(numbers, impl=self.impl)


class Actions:
    """All actions so far, in arrays that double when they are full: an array for each step would take a kilobyte."""

    def __init__(self, like: Any):
        leaves, self.structure = jax.tree.flatten(like)
        self.count, self.arrays = 0, [np.zeros((2**10, *x.shape), x.dtype) for x in leaves]

    def append(self, actions: Any) -> None:
        if self.count == len(self.arrays[0]):
            self.arrays = [np.concatenate([x, np.zeros_like(x)]) for x in self.arrays]
        for array, action in zip(self.arrays, jax.tree.leaves(actions), strict=True):
            array[self.count] = action
        self.count += 1

    def stacked(self) -> Any:
        """The actions [T, E, ...]."""
        return jax.tree.unflatten(self.structure, [x[: self.count] for x in self.arrays])


class OnHost:
    """Steps environments in Python. Each step is one call of a compiled program, which learns if it is time, and acts.

    Checkpoints store the actions, by which the environments are replayed to the same state.
    """

    look = 250

    def __init__(self, agent: Agent, environments: on_host.Environments, apart: on_host.Environments, seed: int):
        init_key, key = jax.random.split(jax.random.key(seed))
        first = agent.memory(environments.count)

        state = jax.jit(agent.init, static_argnums=1)(init_key, environments.count)
        pack, unpack = packing(state)

        def act(state: Any, memory: Any, situation: Situation) -> Choice:
            memory = reset_where(situation.last, memory, first)
            return agent.act(state, memory, situation.observations, self.keys.key(situation.key))

        self.agent, self.playing, self.apart = agent, Episodes(environments), apart
        self.memory, self.metrics = first, {}
        self.keys = KeysInOrder(key)
        self.now = self.situation(0)
        self.choice = jax.eval_shape(act, state, first, self.now)
        self.actions = Actions(self.choice.action)
        self.post, read = posting(self.now)
        self.post_steps, read_steps = posting((self.like_step(), self.now))

        def act_packed(packed: Any, memory: Any, posted: Any) -> Choice:
            return act(unpack(packed), memory, at(0, read(posted)))

        def learn_and_act(packed: Any, memory: Any, posted: Any) -> tuple[Any, dict[str, jax.Array], Choice]:
            steps, situations = read_steps(posted)
            state, metrics = agent.learn(unpack(packed), steps)
            return pack(state), metrics, act(state, memory, at(-1, situations))

        self.per_update = agent.unroll * environments.count
        self.act_greedily = jax.jit(partial(agent.act, greedy=True))
        self.act, self.learn_and_act = jax.jit(act_packed), jax.jit(learn_and_act, donate_argnums=0)
        self.pack, self.unpack = jax.jit(pack), jax.jit(unpack)
        self.packed = self.pack(state)
        self.unlearned: list[tuple[Step, Situation]] = []  # steps since the last update, with what followed

    def advance(self, updates: int) -> Played:
        """Plays and learns for this number of updates."""
        returns: list[float] = []
        for _ in range(updates * self.agent.unroll):
            choice = self.choose()
            self.memory = choice.memory
            step, ended = self.step(jax.tree.map(np.asarray, choice.action), choice.extras)
            self.unlearned.append((step, self.now))
            returns += ended
        numbers = {name: float(value) for name, value in self.metrics.items()}
        return Played(updates * self.per_update, np.array(returns), numbers)

    @property
    def state(self) -> Any:
        return self.unpack(self.packed)

    def choose(self) -> Choice:
        if len(self.unlearned) < self.agent.unroll:
            return self.act(self.packed, self.memory, self.post([self.now]))
        posted, self.unlearned = self.post_steps(self.unlearned), []
        self.packed, self.metrics, choice = self.learn_and_act(self.packed, self.memory, posted)
        return choice

    def situation(self, t: int) -> Situation:
        return Situation(self.playing.last, self.playing.observations, self.keys[t])

    def like_step(self) -> Step:
        """A step with the right shapes and dtypes."""
        observations, last = self.playing.observations, self.playing.last
        numbers = np.zeros(last.size, np.float32)
        return Step(observations, self.choice.action, numbers, numbers, last, observations, self.choice.extras)

    def step(self, actions: Any, extras: Any = ()) -> tuple[Step, list[float]]:
        self.actions.append(actions)
        done = self.playing.step(actions, extras)
        self.now = self.situation(self.actions.count)
        return done

    def saved(self) -> Any:
        unlearned = stacked([step for step, _ in self.unlearned])
        return {"state": self.state, "memory": self.memory, "unlearned": unlearned, "actions": self.actions.stacked()}

    def like(self, steps: int) -> Any:
        """The shapes and dtypes of the result of `saved` after this number of steps."""
        actions = several(steps // self.playing.environments.count, self.choice.action)
        unlearned = several(self.agent.unroll, self.like_step())
        return {"state": self.state, "memory": self.memory, "unlearned": unlearned, "actions": actions}

    def restore(self, saved: Any) -> None:
        for t in range(len(jax.tree.leaves(saved["actions"])[0])):
            self.step(at(t, saved["actions"]))
        self.packed, self.memory = self.pack(saved["state"]), saved["memory"]
        self.unlearned = [(at(t, saved["unlearned"]), self.now) for t in range(self.agent.unroll)]

    def evaluate(self, episodes: int, key: jax.Array) -> list[float]:
        first = self.agent.memory(self.apart.count)
        return host_returns(self.act_greedily, self.state, first, Episodes(self.apart), episodes, key)

    def close(self) -> None:
        self.playing.environments.close()
        self.apart.close()


class OnDevice:
    """Agent and environments in one compiled program."""

    def __init__(self, agent: Agent, environment: Environment, count: int, seed: int):
        init_key, key = jax.random.split(jax.random.key(seed))
        running_on, first = auto_reset(environment), agent.memory(count)
        reset, step = jax.vmap(running_on.reset), jax.vmap(running_on.step)

        def begin(key: jax.Array) -> Any:
            keys = jax.random.split(key, 1 + count)
            running, _ = reset(keys[1:])
            return agent.init(keys[0], count), first, running, jnp.ones(count, bool), jnp.int32(0)

        def play(carry: Any, _: None) -> tuple[Any, tuple[Step, jax.Array]]:
            state, memory, running, last, t = carry
            keys = jax.random.split(jax.random.fold_in(key, t), 1 + count)
            choice = agent.act(state, reset_where(last, memory, first), running.observation, keys[0])
            after, timestep = step(keys[1:], running, choice.action)
            last = timestep.last()
            came = timestep.reward, timestep.discount, last, timestep.observation
            returned = jnp.where(last, running.episode_return + timestep.reward, jnp.nan)
            step_done = Step(running.observation, choice.action, *came, choice.extras)
            return (state, choice.memory, after, last, t + 1), (step_done, returned)

        def update(carry: Any, _: None) -> tuple[Any, tuple[jax.Array, dict[str, jax.Array]]]:
            (state, *rest), (steps, returned) = jax.lax.scan(play, carry, None, agent.unroll)
            state, metrics = agent.learn(state, steps)
            return (state, *rest), (returned, metrics)

        def advance(carry: Any, updates: int) -> Any:
            carry, (returned, metrics) = jax.lax.scan(update, carry, None, updates)
            return carry, returned, jax.tree.map(jnp.mean, metrics)

        self.per_update = agent.unroll * count
        self.look = min(2**20, 2**10 * self.per_update)
        self.greedy = jax.jit(partial(greedy_returns, agent, environment), static_argnums=1)
        self.compiled = jax.jit(advance, static_argnums=1, donate_argnums=0)
        self.carry = jax.jit(begin)(init_key)

    @property
    def state(self) -> Any:
        return self.carry[0]

    def advance(self, updates: int) -> Played:
        """Plays and learns for this number of updates."""
        self.carry, returned, metrics = self.compiled(self.carry, updates)
        returned = np.asarray(returned).ravel()
        numbers = {name: float(value) for name, value in metrics.items()}
        return Played(updates * self.per_update, returned[~np.isnan(returned)], numbers)

    def saved(self) -> Any:
        return self.carry

    def like(self, steps: int) -> Any:
        """The shapes and dtypes of the result of `saved`."""
        del steps  # always the same
        return self.carry

    def restore(self, saved: Any) -> None:
        self.carry = saved

    def evaluate(self, episodes: int, key: jax.Array) -> list[float]:
        return np.asarray(self.greedy(self.state, episodes, key)).tolist()

    def close(self) -> None:
        pass


def greedy_returns(agent: Agent, environment: Environment, state: Any, episodes: int, key: jax.Array) -> jax.Array:
    """The returns of greedy episodes that are played in parallel."""
    reset, step = jax.vmap(environment.reset), jax.vmap(environment.step)

    def play(carry: Any) -> Any:
        memory, inner, observations, ended, returns, t = carry
        keys = jax.random.split(jax.random.fold_in(key, t), 1 + episodes)
        choice = agent.act(state, memory, observations, keys[0], greedy=True)
        inner, timestep = step(keys[1:], inner, choice.action)
        returns += jnp.where(ended, 0, timestep.reward)
        return choice.memory, inner, timestep.observation, ended | timestep.last(), returns, t + 1

    inner, timestep = reset(jax.random.split(key, episodes))
    begin = agent.memory(episodes), inner, timestep.observation, jnp.zeros(episodes, bool), jnp.zeros(episodes), 0
    return jax.lax.while_loop(lambda carry: ~jnp.all(carry[3]) & (carry[5] < EVALUATION_LIMIT), play, begin)[4]
