"""DQN on Atari 2600 games, in one file.

Mnih et al., 2015 (https://doi.org/10.1038/nature14236), with Adam instead of RMSProp. The replay takes 7.1 GB.

    pip install hkx optax tyro matplotlib ale-py opencv-python-headless gymnasium && python dqn_atari.py
"""

import dataclasses
import importlib.util
import pathlib
import sys
import time
from collections import deque

try:
    import cv2
    import gymnasium
    import jax
    import jax.numpy as jnp
    import numpy as np
    import optax
    import tyro
    from matplotlib.figure import Figure

    import hkx
    import rlx
except ModuleNotFoundError as error:
    sys.exit(f"{error}: pip install 'hkx[atari]'")


@dataclasses.dataclass(frozen=True)
class Config:
    env: str = "ALE/Pong-v5"  # a game of ale-py
    seed: int = 1  # seed of the game and the agent
    steps: int = 10_000_000  # actions in all, each repeated for four frames of the game
    capacity: int = 1_000_000  # pictures in the replay
    warmup: int = 50_000  # random actions before the first update
    period: int = 4  # actions between updates
    target_period: int = 10_000  # actions between copies of the parameters to the target network
    batch_size: int = 32  # transitions in an update
    learning_rate: float = 1e-4  # step size of Adam
    discount: float = 0.99  # γ
    exploration: float = 0.1  # part of the steps in which ε falls from 1 to its lowest value
    lowest_epsilon: float = 0.01  # probability of a random action afterwards
    noops: int = 30  # maximum number of actions that do nothing at the beginning of a game
    sticky: float = 0.0  # probability that a frame repeats the action of the frame before
    episodic_life: bool = True  # an episode ends with each life
    clip_rewards: bool = True  # clip rewards to their signs
    evaluation_episodes: int = 5  # games at the end, with ε of 0.01
    track: bool = False  # log to Weights & Biases, offline unless logged in; without wandb to TensorBoard
    video: bool = False  # write a video of the final policy
    output: str = "runs/dqn_atari"  # folder for metrics.csv, curve.png and parameters.npz


class Atari(gymnasium.Wrapper):
    """Grey pictures [84, 84]; a game begins with no-ops, a life with the button that some games wait for."""

    def __init__(self, env, config: Config):
        super().__init__(env)
        self.config, self.fires = config, "FIRE" in env.unwrapped.get_action_meanings()
        self.observation_space = gymnasium.spaces.Box(0, 255, (84, 84), np.uint8)
        self.over = True  # whether `reset` begins a game or the next life

    def reset(self, *, seed=None, options=None):
        if not self.over:
            frame, _, ends, cut, _ = self.env.step(0)
            self.over = ends or cut
        if self.over:
            frame, _ = self.env.reset(seed=seed)
            for _ in range(self.unwrapped.np_random.integers(1, self.config.noops + 1) if self.config.noops else 0):
                frame = self.unwrapped.step(0)[0]  # one frame
        for action in (1, 2) if self.fires else ():
            frame = self.env.step(action)[0]
        return self.picture(frame), {}

    def step(self, action):
        before = self.unwrapped.ale.lives()
        frame, reward, ends, cut, info = self.env.step(action)
        lost = self.config.episodic_life and 0 < self.unwrapped.ale.lives() < before
        self.over = ends or cut or not self.config.episodic_life
        return self.picture(frame), np.sign(reward) if self.config.clip_rewards else reward, ends or lost, cut, info

    def picture(self, frame):
        return cv2.resize(cv2.cvtColor(frame, cv2.COLOR_RGB2GRAY), (84, 84), interpolation=cv2.INTER_AREA)


def make_agent(config: Config, actions: int):
    def q_values(pictures):  # [..., 84, 84, 4] bytes to [..., A]
        x = pictures.astype(jnp.float32) / 255
        for channels, kernel, stride in ((32, 8, 4), (64, 4, 2), (64, 3, 1)):
            x = jax.nn.relu(hkx.Conv2D(channels, kernel, stride, padding="VALID")(x))
        return hkx.nets.MLP([512, actions])(x.reshape(*x.shape[:-3], -1))

    network = hkx.without_apply_rng(hkx.transform(q_values))
    optimizer = optax.flatten(optax.adam(config.learning_rate))
    act_greedily = jax.jit(lambda params, x: jnp.argmax(network.apply(params, jnp.moveaxis(x, 0, -1))))  # [4, 84, 84]

    def loss(params, target_params, pictures, a_tm1, r_t, discount_t):  # pictures [B, 5, 84, 84]
        pictures = jnp.moveaxis(pictures, 1, -1)
        q_tm1, q_t = network.apply(params, pictures[..., :4]), network.apply(target_params, pictures[..., 1:])
        return jnp.mean(rlx.huber_loss(rlx.batched(rlx.q_learning)(q_tm1, a_tm1, r_t, discount_t, q_t)))

    def learn(params, opt_state, target_params, *batch):
        directions, opt_state = optimizer.update(jax.grad(loss)(params, target_params, *batch), opt_state, params)
        return optax.apply_updates(params, directions), opt_state

    return network.init, optimizer.init, act_greedily, jax.jit(learn, donate_argnums=(0, 1))


def make_env(config: Config, **mode) -> gymnasium.Env:
    env = gymnasium.make(f"ale_py:{config.env}", frameskip=1, repeat_action_probability=config.sticky, **mode)
    env = gymnasium.wrappers.RecordEpisodeStatistics(env)  # of whole games, with all rewards
    env = gymnasium.wrappers.MaxAndSkipObservation(env, 4)  # the greater of the last two frames: some objects flicker
    return gymnasium.wrappers.FrameStackObservation(Atari(env, config), 4, padding_type="zero")


def evaluate(config: Config, act_greedily, params) -> list[float]:
    config = dataclasses.replace(config, episodic_life=False, clip_rewards=False)
    env, generator, returns = make_env(config, render_mode="rgb_array"), np.random.default_rng(config.seed), []
    env = gymnasium.wrappers.RecordVideo(env, config.output, lambda episode: episode == 0) if config.video else env
    for episode in range(config.evaluation_episodes):
        pictures, info = env.reset(seed=config.seed + 10_000 + episode)
        while "episode" not in info:
            greedy = generator.random() >= 0.01
            action = int(act_greedily(params, pictures) if greedy else generator.integers(env.action_space.n))
            pictures, _, _, _, info = env.step(action)
        returns.append(info["episode"]["r"])
    env.close()
    return returns


def draw(config: Config, replay, added, generator):
    """A batch; pictures [B, 5, 84, 84] before, at and after its actions, 0 where they are of an episode before."""
    at = generator.integers(max(0, added - config.capacity) + 3, added - 1, size=2 * config.batch_size)
    at = at[~replay["last"][at % config.capacity]][: config.batch_size]
    indices = (at[:, None] + np.arange(-3, 2)) % config.capacity
    over = np.logical_or.accumulate(replay["last"][indices[:, 2::-1]], axis=1)[:, ::-1]
    pictures, rows = replay["picture"][indices], replay[["action", "reward", "ends"]][indices[:, 3]]
    pictures[:, :3][over] = 0
    return pictures, rows["action"], rows["reward"], np.float32(config.discount * (1 - rows["ends"]))


def main(config: Config) -> None:
    wandb = importlib.import_module("wandb") if config.track and importlib.util.find_spec("wandb") else None
    for package in ["tensorboardX"] * (config.track and not wandb) + ["moviepy"] * config.video:
        importlib.util.find_spec(package) or sys.exit(f"a flag needs a package that is missing: pip install {package}")
    (output := pathlib.Path(config.output)).mkdir(parents=True, exist_ok=True)
    try:
        env = make_env(config)
    except (gymnasium.error.Error, ImportError, TypeError) as error:
        sys.exit(f"--env: {error} (it must be a game of Atari, which needs the extra: pip install 'hkx[atari]')")
    if wandb:
        wandb.init(project="dqn_atari", config=vars(config), mode="online" if wandb.login(prompt=False) else "offline")
    elif config.track:
        board = importlib.import_module("tensorboardX").SummaryWriter(config.output, max_queue=999)  # for a full disk
    init, init_optimizer, act_greedily, learn = make_agent(config, actions := int(env.action_space.n))
    params = jax.jit(init)(jax.random.key(config.seed), env.observation_space.sample().transpose(1, 2, 0))
    opt_state, target_params, generator = init_optimizer(params), None, np.random.default_rng(config.seed)
    row = [("picture", np.uint8, (84, 84)), ("action", "i4"), ("reward", "f4"), ("ends", bool), ("last", bool)]
    replay, added, rows, finished = np.zeros(config.capacity, row), 0, [], deque(maxlen=20)
    pictures, begin = env.reset(seed=config.seed)[0], time.process_time()
    try:
        (room := output / "room").write_bytes(bytes(2**24))  # for what is saved, should the disk be full by then
        for n in range(config.steps):
            epsilon = max(config.lowest_epsilon, 1 - n / (config.exploration * config.steps))
            greedy = n >= config.warmup and generator.random() >= epsilon
            action = int(act_greedily(params, pictures) if greedy else generator.integers(actions))
            following, reward, ends, cut, info = env.step(action)
            replay[added % config.capacity] = pictures[-1], action, reward, ends, False
            pictures, added = following, added + 1
            if ends or cut:
                replay[added % config.capacity] = pictures[-1], 0, 0.0, False, True  # no action follows
                pictures, added = env.reset()[0], added + 1
                finished.extend([info["episode"]["r"]] if "episode" in info else [])
            if n >= config.warmup and n % config.period == 0:
                params, opt_state = learn(params, opt_state, target_params, *draw(config, replay, added, generator))
            target_params = jax.tree.map(jnp.copy, params) if n % config.target_period == 0 else target_params
            if (n + 1) % 10_000 == 0 or n + 1 == config.steps:
                score, seconds = np.mean(finished) if finished else np.nan, time.process_time() - begin
                rows.append((n + 1, score, seconds))
                print(f"{n + 1:>10,} steps: score {score:.1f}, {seconds / (n + 1) * 1e3:.2f} CPU ms a step", flush=True)
                if config.track and finished:
                    wandb.log({"score": score}, step=n + 1) if wandb else board.add_scalar("score", score, n + 1)
    except (KeyboardInterrupt, OSError) as error:  # of a full disk
        room.unlink(missing_ok=True)
        print(f"interrupted: {error!r}") if rows else sys.exit(f"interrupted before the first steps: {error!r}")
    room.unlink(missing_ok=True)
    np.savetxt(output / "metrics.csv", rows, "%.9g", ",", header="steps,score_of_20_games,cpu_seconds", comments="")
    np.savez(output / "parameters.npz", **{f"{module}/{k}": x for module in params for k, x in params[module].items()})
    axes = (figure := Figure(layout="constrained")).subplots()
    axes.plot([row[0] for row in rows], [row[1] for row in rows])
    axes.set(title=f"DQN on {config.env}", xlabel="actions", ylabel="mean score of 20 games")
    figure.savefig(output / "curve.png", dpi=120)
    final = evaluate(config, act_greedily, params)
    print(f"final return: {np.mean(final):.2f} over {len(final)} episodes")


if __name__ == "__main__":
    jax.config.update("jax_cpu_enable_async_dispatch", False)  # each step waits for its action
    main(tyro.cli(Config, description=__doc__))
