"""Players run an agent in its environments, stepped from Python or in one compiled program.

Both kinds have `state`, the agent's state; `advance(updates)`, which plays and learns for a number of updates;
`per_update`, the steps in all environments per update; `look`, the maximum number of steps between checks for Ctrl-C;
`evaluate(episodes, key)`, the returns of greedy episodes, separate from training; `saved()`, `like(steps)` and
`restore(saved)`, with which a run resumes; and `close()`.
"""

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

    A run that is resumed begins new episodes. With `exact`, checkpoints store all actions, and replaying them brings
    the environments to the same state.
    """

    look = 250

    def __init__(
        self,
        agent: Agent,
        environments: on_host.Environments,
        apart: on_host.Environments,
        seed: int,
        exact: bool = False,
    ):
        init_key, key = jax.random.split(jax.random.key(seed))
        first = agent.memory(environments.count)

        def act(state: Any, memory: Any, situation: Situation) -> Choice:
            memory = reset_where(situation.last, memory, first)
            return agent.act(state, memory, situation.observations, self.keys.key(situation.key))

        def learn_and_act(
            state: Any, memory: Any, steps: Step, situation: Situation
        ) -> tuple[Any, dict[str, jax.Array], Choice]:
            state, metrics = agent.learn(state, steps)
            return state, metrics, act(state, memory, situation)

        self.agent, self.playing, self.apart = agent, Episodes(environments), apart
        self.memory, self.metrics, self.t = first, {}, 0
        self.keys = KeysInOrder(key)
        self.per_update = agent.unroll * environments.count
        self.act_greedily = jax.jit(partial(agent.act, greedy=True))
        self.act, self.learn_and_act = jax.jit(act), jax.jit(learn_and_act, donate_argnums=0)
        self.state = jax.jit(agent.init, static_argnums=1)(init_key, environments.count)
        self.choice = jax.eval_shape(act, self.state, first, self.situation())
        self.actions = Actions(self.choice.action) if exact else None
        self.unlearned: list[Step] = []  # since the last update

    def advance(self, updates: int) -> Played:
        """Plays and learns for this number of updates."""
        returns: list[float] = []
        for _ in range(updates * self.agent.unroll):
            choice = self.choose()
            self.memory = choice.memory
            step, ended = self.step(jax.tree.map(np.asarray, choice.action), choice.extras)
            self.unlearned.append(step)
            returns += ended
        numbers = {name: float(value) for name, value in self.metrics.items()}
        return Played(updates * self.per_update, np.array(returns), numbers)

    def choose(self) -> Choice:
        if len(self.unlearned) < self.agent.unroll:
            return self.act(self.state, self.memory, self.situation())
        steps, self.unlearned = stacked(self.unlearned), []
        self.state, self.metrics, choice = self.learn_and_act(self.state, self.memory, steps, self.situation())
        return choice

    def situation(self) -> Situation:
        return Situation(self.playing.last, self.playing.observations, self.keys[self.t])

    def like_step(self) -> Step:
        """A step with the right shapes and dtypes."""
        observations, last = self.playing.observations, self.playing.last
        numbers = np.zeros(last.size, np.float32)
        return Step(observations, self.choice.action, numbers, numbers, last, observations, self.choice.extras)

    def step(self, actions: Any, extras: Any = ()) -> tuple[Step, list[float]]:
        if self.actions is not None:
            self.actions.append(actions)
        self.t += 1
        return self.playing.step(actions, extras)

    def saved(self) -> Any:
        tree = {"state": self.state, "memory": self.memory, "unlearned": stacked(self.unlearned), "t": np.array(self.t)}
        return tree if self.actions is None else tree | {"actions": self.actions.stacked()}

    def like(self, steps: int) -> Any:
        """The shapes and dtypes of the result of `saved` after this number of steps."""
        unlearned = several(self.agent.unroll, self.like_step())
        tree = {"state": self.state, "memory": self.memory, "unlearned": unlearned, "t": np.array(self.t)}
        if self.actions is None:
            return tree
        return tree | {"actions": several(steps // self.playing.environments.count, self.choice.action)}

    def restore(self, saved: Any) -> None:
        if self.actions is not None:
            for t in range(len(jax.tree.leaves(saved["actions"])[0])):
                self.step(at(t, saved["actions"]))
        self.state, self.memory, self.t = saved["state"], saved["memory"], int(saved["t"])
        self.unlearned = [at(t, saved["unlearned"]) for t in range(self.agent.unroll)]
        if self.actions is None:  # the episodes of then are cut short
            self.unlearned[-1] = self.unlearned[-1]._replace(last=self.playing.last)

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
