"""Q-learning on Catch, from the first random move to a player that never misses.

A ball falls down a screen of 10 x 5 pixels, one row a step, and the paddle on the bottom row has to be under it when it
lands: +1 for a catch, -1 for a miss. A small network learns, one step of experience at a time, what each move is worth.

    pip install '.[examples]' && python examples/catch_q_learning.py --seed 3
    python examples/catch_q_learning.py --episodes 0 --parameters runs/catch_q_learning/parameters.npz   # only evaluate
"""

import csv
import dataclasses
import pathlib
import signal
import sys
import threading
from collections.abc import Iterator
from typing import Any, NamedTuple

try:
    import dm_env
    import jax
    import jax.numpy as jnp
    import numpy as np
    import optax
    import tyro
    from bsuite.environments.catch import Catch
    from tqdm import tqdm

    import hkx
    import rlx
except ModuleNotFoundError as error:
    sys.exit(f"{error}: pip install 'hkx[examples]'")


@dataclasses.dataclass(frozen=True)
class Config:
    seed: int = 0  # seed of the environment, the network and the exploration
    episodes: int = 500  # episodes to train for; 0 only evaluates
    evaluate_every: int = 50  # training episodes between two evaluations
    evaluation_episodes: int = 100  # greedy episodes in one evaluation
    hidden: int = 100  # units in the hidden layer
    batch_size: int = 8  # steps to learn from at once: the last one, and others drawn from memory
    memory: int = 10_000  # steps to remember
    learning_rate: float = 5e-3  # step size of Adam at the start; it falls in a straight line to 0
    discount: float = 0.99  # factor by which a reward counts less for each step of delay
    epsilon_start: float = 1.0  # probability of a random move at the start
    epsilon_end: float = 0.02  # probability of a random move at the end
    exploration: float = 0.9  # share of the training over which that probability falls
    parameters: str = ""  # file of saved parameters to start from, instead of new ones
    output: str = "runs/catch_q_learning"  # folder for the curve, the animation, the metrics and the parameters
    progress: bool = True  # show a progress bar


class Transition(NamedTuple):
    """One step of experience: what was seen, what was done, and what came of it. A batch has a leading axis."""

    screen_tm1: Any  # [rows, columns]
    action_tm1: Any  # []
    reward_t: Any  # []
    discount_t: Any  # [], 0 where the episode ended
    screen_t: Any  # [rows, columns]


class Memory:
    """The latest steps, from which a batch is drawn: the last one, and others at random."""

    def __init__(self, size: int, first: Transition):
        self.size, self.length = size, 0
        self.columns = Transition(*(np.zeros((size, *np.shape(value)), np.asarray(value).dtype) for value in first))
        self.add(first)

    def add(self, last: Transition) -> None:
        for column, value in zip(self.columns, last, strict=True):
            column[self.length % self.size] = value
        self.length += 1

    def batch(self, size: int, random: np.random.Generator) -> Transition:
        rows = random.integers(min(self.length, self.size), size=size)
        rows[0] = (self.length - 1) % self.size
        return Transition(*(column[rows] for column in self.columns))


class Learner(NamedTuple):
    """The state that learning changes. It stays on the device, where every step overwrites it."""

    params: hkx.Params
    opt_state: optax.OptState
    steps: jax.Array  # []


class Agent:
    """The compiled functions: creating the learner, a step of learning and acting, and acting greedily."""

    def __init__(self, config: Config, screen_shape: tuple[int, ...], num_actions: int, total_steps: int):
        def value_network(screen: jax.Array) -> jax.Array:
            return hkx.nets.MLP([config.hidden, num_actions])(jnp.ravel(screen))

        network = hkx.without_apply_rng(hkx.transform(value_network))
        optimizer = optax.adam(optax.linear_schedule(config.learning_rate, 0.0, total_steps))
        exploring_steps = max(1, int(config.exploration * total_steps))
        epsilon = optax.linear_schedule(config.epsilon_start, config.epsilon_end, exploring_steps)

        def values(params: hkx.Params, screens: jax.Array) -> jax.Array:
            return jax.vmap(network.apply, in_axes=(None, 0))(params, screens)

        def loss(params: hkx.Params, batch: Transition) -> jax.Array:
            q_tm1, q_t = values(params, batch.screen_tm1), values(params, batch.screen_t)
            discount_t = config.discount * batch.discount_t
            td_errors = rlx.batched(rlx.q_learning)(q_tm1, batch.action_tm1, batch.reward_t, discount_t, q_t)
            return jnp.mean(rlx.l2_loss(td_errors))

        def learn_and_act(learner: Learner, batch: Transition, screen: jax.Array) -> tuple[Learner, jax.Array]:
            params, opt_state, steps = learner
            updates, opt_state = optimizer.update(jax.grad(loss)(params, batch), opt_state, params)
            params = optax.apply_updates(params, updates)
            key = jax.random.fold_in(jax.random.key(config.seed), steps)
            action = rlx.epsilon_greedy(epsilon(steps)).sample(key, network.apply(params, screen))
            return Learner(params, opt_state, steps + 1), action

        blank = np.zeros(screen_shape, np.float32)
        self.initial_params = lambda: network.init(jax.random.key(config.seed), blank)
        self.create = jax.jit(lambda params: Learner(params, optimizer.init(params), jnp.int32(0)))
        self.learn_and_act = jax.jit(learn_and_act, donate_argnums=0)
        self.act_greedily = jax.jit(lambda params, screens: jnp.argmax(values(params, screens), axis=-1))


def play(agent: Agent, params: hkx.Params, environments: list[Catch]) -> Iterator[list[dm_env.TimeStep]]:
    """One greedy episode in each environment, side by side: where they all are at the start, and after each move."""
    timesteps = [environment.reset() for environment in environments]
    yield timesteps
    while not all(timestep.last() for timestep in timesteps):
        actions = np.asarray(agent.act_greedily(params, np.stack([timestep.observation for timestep in timesteps])))
        played = zip(environments, timesteps, actions, strict=True)
        timesteps = [timestep if timestep.last() else game.step(int(action)) for game, timestep, action in played]
        yield timesteps


def evaluate(agent: Agent, params: hkx.Params, environments: list[Catch]) -> float:
    """The mean return of one greedy episode in each environment. Only the last step has a reward."""
    *_, ends = play(agent, params, environments)
    return sum(timestep.reward for timestep in ends) / len(ends)


def save_play(path: pathlib.Path, agent: Agent, params: hkx.Params, environments: list[Catch]) -> None:
    """Draws an animation of three rounds of greedy episodes: the first six of each."""
    from PIL import Image  # comes with matplotlib, and is imported here for the same reason

    background, board, ball, paddle, caught, missed = range(6)
    colors = 0x22272E, 0x0D1117, 0xF0883E, 0x58A6FF, 0x3FB950, 0xF85149
    frames, durations = [], []
    for _ in range(3):
        for timesteps in play(agent, params, environments):
            pictures = []
            for timestep in timesteps[:6]:
                picture = np.where(timestep.observation > 0, ball, board).astype(np.uint8)
                at_the_end = (caught if timestep.reward > 0 else missed) if timestep.last() else paddle
                picture[-1] = np.where(timestep.observation[-1] > 0, at_the_end, board)
                pictures.append(np.pad(np.kron(picture, np.ones([12, 12], np.uint8)), 6, constant_values=background))
            frame = Image.fromarray(np.concatenate(pictures, axis=1))
            frame.putpalette(b"".join(color.to_bytes(3, "big") for color in colors))
            frames.append(frame)
            durations.append(900 if timesteps[0].last() else 120)  # milliseconds
    frames[0].save(path, save_all=True, append_images=frames[1:], duration=durations, loop=0)


def save_learning_curve(path: pathlib.Path, returns: list[float], evaluations: dict[int, float]) -> None:
    from matplotlib.figure import Figure  # imported here because nothing before the end of training needs it

    window, episodes = 25, np.arange(1, len(returns) + 1)
    smooth = [np.mean(returns[max(0, n - window) : n]) for n in episodes]
    figure = Figure(figsize=(7.5, 4.5), layout="constrained")
    axes = figure.subplots()
    axes.plot(episodes, returns, "|", color="tab:gray", alpha=0.6, markersize=7, label="training episode")
    axes.plot(episodes, smooth, color="tab:blue", label=f"training, mean of the last {window} (with random moves)")
    axes.plot(evaluations.keys(), evaluations.values(), "o-", color="tab:orange", label="evaluation (greedy)")
    axes.set(title="Q-learning on Catch", xlabel="training episodes", ylabel="return", ylim=(-1.15, 1.15))
    axes.grid(alpha=0.3)
    figure.legend(loc="outside lower center", ncols=3, frameon=False, fontsize="small")
    figure.savefig(path, dpi=120)


def load_parameters(path: str, like: hkx.Params) -> hkx.Params:
    try:
        with np.load(path) as file:
            params = hkx.data_structures.map(lambda module, name, _: file[f"{module}/{name}"], like)
    except Exception as error:  # NumPy raises errors of many kinds
        sys.exit(f"--parameters: cannot read {path}: {error}")
    if jax.tree.map(np.shape, params) != jax.tree.map(np.shape, like):
        sys.exit(f"--parameters: {path} has other shapes; was it saved with another --hidden?")
    return params


def main(config: Config) -> dict[str, Any]:
    """Trains, evaluates and saves. Returns the returns of training, the evaluations, and the final return."""
    output = pathlib.Path(config.output)
    if config.episodes > 0:
        output.mkdir(parents=True, exist_ok=True)
    environment = Catch(seed=config.seed)
    test_environments = [Catch(seed=config.seed + 1 + i) for i in range(config.evaluation_episodes)]
    screen_shape, num_actions = environment.observation_spec().shape, environment.action_spec().num_values
    agent = Agent(config, screen_shape, num_actions, total_steps=config.episodes * (screen_shape[0] - 1))
    params = agent.initial_params()
    if config.parameters:
        params = load_parameters(config.parameters, like=params)
    learner, random = agent.create(params), np.random.default_rng(config.seed)
    # Memory begins with a single step: from a blank screen, with reward 0, to the end of an episode.
    blank, zero = np.zeros(screen_shape, np.float32), np.float32(0)
    memory = Memory(config.memory, Transition(blank, np.int32(0), zero, zero, blank))
    returns, evaluations = [], {}
    bar = tqdm(total=config.episodes, unit=" episodes", disable=not config.progress or config.episodes == 0)
    interrupted = threading.Event()  # by Ctrl-C, between two episodes
    usual = signal.signal(signal.SIGINT, lambda *_: interrupted.set())
    while len(returns) < config.episodes and not interrupted.is_set():
        timestep, episode_return = environment.reset(), 0.0
        while not timestep.last():
            screen, batch = timestep.observation, memory.batch(config.batch_size, random)
            learner, action = agent.learn_and_act(learner, batch, screen)
            timestep = environment.step(int(action))
            memory.add(Transition(screen, action, timestep.reward, timestep.discount, timestep.observation))
            episode_return += timestep.reward
        returns.append(episode_return)
        if len(returns) % config.evaluate_every == 0:
            evaluations[len(returns)] = evaluate(agent, learner.params, test_environments)
            tqdm.write(f"episode {len(returns)}: greedy return {evaluations[len(returns)]:.2f}")
        bar.set_postfix_str(f"return {np.mean(returns[-50:]):.2f}", refresh=False)
        bar.update()
    signal.signal(signal.SIGINT, usual)
    bar.close()
    if len(returns) not in evaluations:
        evaluations[len(returns)] = evaluate(agent, learner.params, test_environments)
    if interrupted.is_set():
        print(f"interrupted after {len(returns)} of {config.episodes} episodes")
    if returns:
        arrays = hkx.data_structures.traverse(learner.params)
        np.savez(output / "parameters.npz", **{f"{module}/{name}": x for module, name, x in arrays})
        rows = [(n, returned, evaluations.get(n)) for n, returned in enumerate(returns, start=1)]
        with open(output / "metrics.csv", "w", newline="") as file:
            names = "episode", "training_return", "evaluation_return"
            csv.writer(file, lineterminator="\n").writerows([names, *rows])
        save_learning_curve(output / "learning_curve.png", returns, evaluations)
        save_play(output / "play.gif", agent, learner.params, test_environments)
        print(f"saved parameters.npz, metrics.csv, learning_curve.png and play.gif in {config.output}")
    final = evaluations[len(returns)]
    print(f"final return: {final:.2f} over {config.evaluation_episodes} episodes")
    return {"final_return": final, "returns": returns, "evaluations": evaluations, "interrupted": interrupted.is_set()}


if __name__ == "__main__":
    jax.config.update("jax_cpu_enable_async_dispatch", False)  # each step waits for its action: skip the hand-over
    sys.exit(130 if main(tyro.cli(Config, description=__doc__))["interrupted"] else 0)
