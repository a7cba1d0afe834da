"""Offline reinforcement learning: CQL learns from a fixed data set that another agent has collected.

    python examples/zoo/offline.py
    python examples/zoo/offline.py --conservative-weight 0   # plain Q-learning
    python examples/zoo/offline.py --agent MODULE:make       # an agent of yours

If the file `--data` does not exist, it is created: transitions sampled from the replay buffer of a DQN after its first
`--teacher-steps` steps. They are of mixed quality, and on average far worse than what can be learned from them. The
training return in metrics.csv and curve.png is that of the episodes in the data. Everything else, including evaluation,
output files and `--resume`, is as in run.py; a step is a transition that is learned from.
"""

import dataclasses
import functools
import pathlib
import sys
from typing import Annotated, Any

try:
    import jax
    import jax.numpy as jnp
    import numpy as np
    import run
    from agents import cql, dqn
    from agents.agent import Agent, Step
    from agents.players import OnDevice, Played, greedy_returns
    from environments import Environment
    from environments import make as make_environment
    from program import BadFlag, output_folder, whole_file
    from settings import Between, Count

    import rlx
except ModuleNotFoundError as error:
    sys.exit(f"{error}: pip install 'hkx[examples]'")

FILES = {"cql": cql}


@dataclasses.dataclass(frozen=True)
class Config(run.Config):
    """The settings of a run. Every field is a flag, and so is every field of the agent's settings."""

    agent: str = "cql"
    """cql, or MODULE:make of your own; the module has a Config, too"""
    env: str = "cartpole"
    """a file of examples/zoo/environments, or gymnax:NAME"""
    steps: Count = 1_280_000
    """transitions to learn from, counting repetitions"""
    batch_size: Count = 256
    """transitions per update"""
    data: str = ""
    """file with the data set; by default runs/offline/ENV.npz"""
    teacher_steps: Annotated[int, Between(dqn.Config.warmup)] = 50_000
    """steps of the agent that creates a missing data set; as many transitions are sampled from them"""


def make_data(path: pathlib.Path, environment: Environment, config: Config) -> None:
    """Trains a DQN, and writes the contents of its replay buffer and the returns of its episodes."""
    teacher_config = dqn.Config(  # written out, so that dqn's defaults do not change the data
        double=True,
        batch_size=32,
        period=1,
        target_period=4,
        learning_rate=1e-3,
        capacity=config.teacher_steps,
        epsilon=0.05,
        epsilon_updates=0,
    )
    teacher = dqn.make(teacher_config, environment.observation_spec(), environment.action_spec())
    player = OnDevice(teacher, environment, 16, config.seed)
    played = player.advance(-(-config.teacher_steps // player.per_update))
    replay = rlx.replay.n_step(rlx.replay.uniform(teacher_config.capacity), teacher_config.n_step)
    draw = jax.jit(replay.sample, static_argnums=2)
    drawn = draw(player.state.replay, jax.random.key(config.seed), config.teacher_steps).items
    arrays = {name: np.asarray(x) for name, x in drawn._asdict().items() if x is not None}
    arrays["discount_t"] = arrays["discount_t"] / teacher_config.discount  # 0 if the episode terminated, else 1
    with whole_file(path, "--data") as unfinished:
        np.savez(unfinished, returns=played.returns, env=config.env, **arrays)


def read_data(path: pathlib.Path, environment: Environment, config: Config) -> tuple[Step, np.ndarray]:
    """Steps [N, ...], and the returns of the episodes from which they come."""
    try:
        with open(path, "rb") as opened, np.load(opened) as file:
            data = dict(file)
        done = data["s_tm1"], data["a_tm1"], data["r_t"], data["discount_t"]
        steps, returns, env = Step(*done, data["discount_t"] == 0, data["s_t"], ()), data["returns"], str(data["env"])
    except Exception:  # NumPy raises errors of many kinds
        raise BadFlag(f"argument --data: {path} holds no data set of this program") from None
    if env != config.env:
        raise BadFlag(f"argument --data: {path} is of the environment {env}, not of {config.env}")
    shape, number = environment.observation_spec().shape, np.size(data["r_t"])
    of_each = {"s_tm1": shape, "a_tm1": (), "r_t": (), "discount_t": (), "s_t": shape}
    if not number or any(data[name].shape != (number, *one) for name, one in of_each.items()):
        raise BadFlag(f"argument --data: {path} holds no transitions with observations of shape {list(shape)}")
    return steps, returns


class FromData:
    """A player like those of agents/players.py that learns from a data set, and plays only in evaluations."""

    look = 2**20

    def __init__(self, agent: Agent, environment: Environment, data: Step, returns: np.ndarray, config: Config):
        init_key, self.key = jax.random.split(jax.random.key(config.seed))
        self.returns, self.per_update = returns, config.batch_size

        def update(carry: Any, _: None) -> tuple[Any, dict[str, jax.Array]]:
            state, key = carry
            key, chosen_key = jax.random.split(key)
            chosen = jax.random.randint(chosen_key, [1, config.batch_size], 0, len(data.reward))
            state, metrics = agent.learn(state, jax.tree.map(lambda x: jnp.asarray(x)[chosen], data))
            return (state, key), metrics

        def several(carry: Any, updates: int) -> tuple[Any, dict[str, jax.Array]]:
            carry, metrics = jax.lax.scan(update, carry, length=updates)
            return carry, jax.tree.map(jnp.mean, metrics)

        self.several = jax.jit(several, static_argnums=1)
        self.greedy = jax.jit(functools.partial(greedy_returns, agent, environment), static_argnums=1)
        self.state = jax.jit(agent.init, static_argnums=1)(init_key, 1)

    def advance(self, updates: int) -> Played:
        """Makes the given number of updates."""
        (self.state, self.key), metrics = self.several((self.state, self.key), updates)
        numbers = {name: float(value) for name, value in metrics.items()}
        return Played(updates * self.per_update, self.returns, numbers, episodes=0)

    def evaluate(self, episodes: int, key: jax.Array) -> list[float]:
        return np.asarray(self.greedy(self.state, episodes, key)).tolist()

    def saved(self) -> Any:
        return {"state": self.state, "key": jax.random.key_data(self.key)}

    def like(self, steps: int) -> Any:
        del steps  # the shapes do not depend on it
        return self.saved()

    def restore(self, saved: Any) -> None:
        self.state, self.key = saved["state"], jax.random.wrap_key_data(jnp.asarray(saved["key"]))

    def close(self) -> None:
        pass


def make_player(config: Config, agent_config: Any, output: pathlib.Path) -> tuple[FromData, None]:
    del output  # nothing is recorded except what run.py writes
    environment = make_environment(config.env)
    _, make = run.find_agent(config.agent, FILES)
    agent = make(agent_config, environment.observation_spec(), environment.action_spec())
    path = pathlib.Path(config.data or f"runs/offline/{config.env.replace(':', '-')}.npz")
    if not path.exists():
        output_folder(str(path.parent), "--data")
        make_data(path, environment, config)
        print(f"wrote {path}", file=sys.stderr)
    data, returns = read_data(path, environment, config)
    return FromData(agent, environment, data, returns, config), None


if __name__ == "__main__":
    sys.exit(run.main(Config, FILES, make_player))
