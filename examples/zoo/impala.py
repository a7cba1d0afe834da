"""IMPALA with separate actors and learner: threads play, and one learner on all devices learns from their unrolls.

    python examples/zoo/impala.py                                  # catch, two threads of eight environments each
    python examples/zoo/impala.py --env gymnasium:CartPole-v1 --learning-rate 1e-3 --popart 0.05 --steps 1000000
    python examples/zoo/impala.py --help                           # all flags, those of agents/impala.py among them

"Podracer architectures for scalable Reinforcement Learning", Hessel et al. 2021 (https://arxiv.org/abs/2104.06272),
calls this architecture Sebulba. Each actor has its own environments, acts with the newest parameters on the first
device, and puts unrolls of `unroll` steps into a queue; it waits while the queue is full. The learner divides the
environments of an unroll among the devices. V-trace corrects for the `lag` updates that the learner has made since the
actions were chosen.

Output files and resuming are as in run.py, but the order in which threads run is not deterministic, so no two runs are
the same. An actor that dies is restarted once. If it dies again, the run ends with its error and a checkpoint.
"""

import contextlib
import dataclasses
import pathlib
import queue
import sys
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import jax
import numpy as np
import run
from agents.agent import Agent, Choice, Step, reset_where
from agents.players import Episodes, Played, host_returns, stacked
from environments import on_host
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from program import BadFlag
from settings import Between, Count
from tqdm import tqdm

LIVES = 2  # how often an actor may be started


@dataclasses.dataclass(frozen=True)
class Config(run.Config):
    """The settings of a run. Every field is a flag, and so is every field of the agent's settings."""

    agent: Literal["impala"] = "impala"
    """the agent, which corrects for the lag of the actors"""
    env: str = "catch"
    """bsuite:ID, gymnasium:ID, ale:GAME, or a file of examples/zoo/environments"""
    threads: Count = 2
    """number of actors"""
    environments: Count = 8
    """environments of each actor; they are divided among the devices"""
    queue: Count = 2
    """largest number of unrolls that wait for the learner"""
    devices: Annotated[int, Between(0)] = 0
    """devices used for learning; 0 uses all"""

    of_no_weight: ClassVar = run.Config.of_no_weight | {"threads", "queue", "devices"}

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.environments % len(self.learners()):
            number = f"a multiple of the {len(self.learners())} devices that learn"
            raise BadFlag(f"argument --environments: must be {number}, not {self.environments}")

    def learners(self) -> Sequence[jax.Device]:
        return jax.local_devices()[: self.devices or None]


class Unroll(NamedTuple):
    """What an actor sends to the learner."""

    steps: Step  # [T, E, ...]
    returns: list[float]  # of the episodes that ended
    version: int  # number of updates that its parameters had


def compiled_learner(agent: Agent, devices: Sequence[jax.Device]) -> tuple[Callable[..., Any], NamedSharding]:
    """`agent.learn` with the environments divided among devices, and the sharding of its state, which is replicated."""
    mesh = Mesh(np.array(devices), ("data",))
    whole, divided = PartitionSpec(), PartitionSpec(None, "data")
    learn = partial(agent.learn, axis_name="data")
    sharded = jax.shard_map(learn, mesh=mesh, in_specs=(whole, divided), out_specs=whole)
    return jax.jit(sharded), NamedSharding(mesh, whole)


class ActorsAndLearner:
    """A player like those of `agents/players.py`. The learner runs in the thread that calls `advance`."""

    look = 1_000

    def __init__(self, config: Config, agent: Agent, environments: Callable[[int], Any], apart: on_host.Environments):
        """`environments` creates an actor's environments from a seed."""
        state = jax.jit(agent.init, static_argnums=1)(jax.random.key(config.seed), config.environments)
        self.first = agent.memory(config.environments)

        def act(state: Any, memory: Any, last: jax.Array, observations: Any, key: jax.Array, t: jax.Array) -> Choice:
            return agent.act(state, reset_where(last, memory, self.first), observations, jax.random.fold_in(key, t))

        self.config, self.agent, self.environments, self.apart = config, agent, environments, apart
        self.per_update = agent.unroll * config.environments
        self.act, self.act_greedily = jax.jit(act), jax.jit(partial(agent.act, greedy=True))
        self.learn, self.whole = compiled_learner(agent, config.learners())
        self.restore({"state": state, "updates": 0})
        self.unrolls: queue.Queue[Unroll | Exception] = queue.Queue(config.queue)
        self.threads: list[threading.Thread] = []
        self.deaths, self.ended = 0, threading.Event()

    def advance(self, updates: int) -> Played:
        """Makes the given number of updates, from unrolls in the order in which they arrive."""
        if not self.threads:
            self.threads = [threading.Thread(target=self.live, args=[i]) for i in range(self.config.threads)]
            for thread in self.threads:
                thread.start()
        began, waited, returns, lags, metrics, failure = time.perf_counter(), 0.0, [], [], {}, None
        for _ in range(updates):
            idle = time.perf_counter()
            unroll = self.unrolls.get()
            waited += time.perf_counter() - idle
            if isinstance(unroll, Exception):
                failure = unroll
                break
            lags.append(self.updates - unroll.version)
            returns += unroll.returns
            state, metrics = self.learn(self.learner_state, unroll.steps)
            self.publish(state, self.updates + 1)
        numbers = {name: float(value) for name, value in metrics.items()}
        numbers |= {"lag": float(np.mean(lags or 0)), "waited": waited / (time.perf_counter() - began)}
        numbers |= {"threads": self.config.threads, "deaths": self.deaths}
        return Played(len(lags) * self.per_update, np.array(returns), numbers, failure)

    def publish(self, state: Any, updates: int) -> None:
        self.learner_state, self.updates = state, updates
        self.published = updates, jax.tree.map(lambda x: x.addressable_data(0), state)  # one object: read atomically

    def live(self, actor: int) -> None:
        """The main function of an actor's thread."""
        for life in range(LIVES):
            try:
                return self.play(np.random.default_rng([self.config.seed, self.updates, actor, life]))
            except Exception as error:
                self.deaths += 1
                tqdm.write(f"actor {actor} has died: {error!r}", file=sys.stderr)
                last_words = error
        self.send(last_words)

    def play(self, random: np.random.Generator) -> None:
        key, seed = jax.random.key(random.integers(2**31)), int(random.integers(2**30))
        with contextlib.closing(self.environments(seed)) as environments:
            playing, memory, t = Episodes(environments), self.first, 0
            while not self.ended.is_set():
                version, state = self.published
                steps, returns = [], []
                for _ in range(self.agent.unroll):
                    choice = self.act(state, memory, playing.last, playing.observations, key, t)
                    memory, t = choice.memory, t + 1
                    step, ended = playing.step(*jax.device_get((choice.action, choice.extras)))
                    steps.append(step)
                    returns += ended
                self.send(Unroll(stacked(steps), returns, version))

    def send(self, unroll: Unroll | Exception) -> None:
        """Waits until there is room in the queue, or the run has ended."""
        while not self.ended.is_set():
            with contextlib.suppress(queue.Full):
                return self.unrolls.put(unroll, timeout=0.1)

    @property
    def state(self) -> Any:
        return self.published[1]

    def saved(self) -> Any:
        return {"state": self.state, "updates": np.array(self.updates)}

    def like(self, steps: int) -> Any:
        """The shapes of what `saved` returned."""
        del steps  # the shapes do not depend on it
        return self.saved()

    def restore(self, saved: Any) -> None:
        self.publish(jax.device_put(saved["state"], self.whole), int(saved["updates"]))

    def evaluate(self, episodes: int, key: jax.Array) -> list[float]:
        first = self.agent.memory(self.apart.count)
        return host_returns(self.act_greedily, self.state, first, Episodes(self.apart), episodes, key)

    def close(self) -> None:
        self.ended.set()
        for thread in self.threads:
            thread.join()
        self.apart.close()


def make_player(config: Config, agent_config: Any, output: pathlib.Path) -> tuple[ActorsAndLearner, None]:
    """The player, for `run.train`."""
    del output  # bsuite logs one environment only
    apart = on_host.make(config.env, config.seed + 10**6, min(config.environments, config.evaluation_episodes))
    agent = run.find_agent(config.agent)[1](agent_config, apart.observation_spec, apart.action_spec)
    environments = partial(on_host.make, config.env, count=config.environments)
    return ActorsAndLearner(config, agent, environments, apart), None


if __name__ == "__main__":
    sys.exit(run.main(Config, make_player=make_player))
