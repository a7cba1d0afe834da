"""SAC on MuJoCo, or another environment with continuous actions, in one file.

Haarnoja et al., 2018 (https://arxiv.org/abs/1812.05905): two critics and a learnt temperature. The replay is in NumPy.

    pip install hkx optax tyro matplotlib 'gymnasium[mujoco]' && python sac.py --env Hopper-v5 --save-data hopper.npz
"""

import dataclasses
import importlib.util
import pathlib
import sys
import time
from collections import deque, namedtuple

try:
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
    sys.exit(f"{error}: pip install 'hkx[examples]'")


@dataclasses.dataclass(frozen=True)
class Config:
    env: str = "HalfCheetah-v5"  # a Gymnasium environment with continuous actions
    seed: int = 1  # seed of the environments and the agent
    steps: int = 1_000_000  # environment steps in all
    environments: int = 1  # parallel environments; one update for each step of each of them
    envpool: bool = False  # run them in EnvPool, which needs the package envpool
    capacity: int = 1_000_000  # transitions in the replay
    warmup: int = 5_000  # steps with random actions before the first update
    batch_size: int = 256  # transitions in an update
    hidden: int = 256  # units of both hidden layers
    learning_rate: float = 3e-4  # step size of Adam
    discount: float = 0.99  # γ
    tau: float = 0.005  # part by which the target critics move towards the critics in an update
    evaluation_episodes: int = 10  # episodes of the mean action at the end
    save_data: str | None = None  # file for the transitions in the replay at the end, which iql.py reads
    track: bool = False  # log to Weights & Biases, offline unless logged in; without wandb to TensorBoard
    video: bool = False  # write a video of the final policy
    output: str = "runs/sac"  # folder for metrics.csv, curve.png and parameters.npz


Learned = namedtuple("Learned", "params target_params opt_state")
Transition = namedtuple("Transition", "observation_tm1 a_tm1 observation_t r_t discount_t")  # [B, ...]


def make_agent(config: Config, size: int, actions: int):
    @hkx.without_apply_rng
    @hkx.transform
    def actor(observation):  # [..., D] to the mean and log standard deviation [..., A] before tanh
        out = hkx.nets.MLP([config.hidden, config.hidden, 2 * actions], name="actor")(observation)
        mean, log_scale = jnp.split(out, 2, axis=-1)
        return mean, jnp.clip(log_scale, -20, 2)

    @hkx.without_apply_rng
    @hkx.transform
    def critics(observation, action):  # to the values [..., 2]
        x = jnp.concatenate([observation, action], axis=-1)
        sizes = [config.hidden, config.hidden, 1]
        return jnp.concatenate([hkx.nets.MLP(sizes, name=f"critic_{i}")(x) for i in (1, 2)], axis=-1)

    optimizer = optax.flatten(optax.adam(config.learning_rate))

    @jax.jit
    def init(key):
        actor_key, critic_key = jax.random.split(key)
        observation, action = jnp.zeros(size), jnp.zeros(actions)
        params = {"actor": actor.init(actor_key, observation), "critics": critics.init(critic_key, observation, action)}
        params["temperature"] = {"temperature": {"log": jnp.zeros([])}}
        return Learned(params, jax.tree.map(jnp.copy, params["critics"]), optimizer.init(params))

    def sample(params, key, observation):  # an action in (-1, 1), and its log-probability
        mean, log_scale = actor.apply(params, observation)
        u = mean + jnp.exp(log_scale) * (noise := jax.random.normal(key, mean.shape))
        log_normal = -0.5 * noise**2 - log_scale - 0.5 * np.log(2 * np.pi)
        log_slope = 2 * (np.log(2) - u - jax.nn.softplus(-2 * u))  # log (1 - tanh² u)
        return jnp.tanh(u), jnp.sum(log_normal - log_slope, axis=-1)

    @jax.jit
    def act(params, key, n, observation):  # of step n, [E, D]
        return sample(params, jax.random.fold_in(key, n), observation)[0]

    def loss(params, target_params, key, batch):
        temperature = jnp.exp(params["temperature"]["temperature"]["log"])
        tm1_key, t_key = jax.random.split(key)
        action_tm1, log_prob_tm1 = sample(params["actor"], tm1_key, batch.observation_tm1)
        a_t, log_prob_t = sample(jax.lax.stop_gradient(params["actor"]), t_key, batch.observation_t)
        q_t = critics.apply(target_params, batch.observation_t, a_t)
        q_tm1 = critics.apply(params["critics"], batch.observation_tm1, batch.a_tm1)
        critic_loss = rlx.batched(rlx.sac_critic_loss)(q_tm1, batch.r_t, batch.discount_t, q_t, log_prob_t, temperature)
        q = critics.apply(jax.lax.stop_gradient(params["critics"]), batch.observation_tm1, action_tm1)
        actor_loss = rlx.batched(rlx.sac_actor_loss)(q, log_prob_tm1, temperature)
        temperature_loss = rlx.batched(rlx.sac_temperature_loss)(temperature, log_prob_tm1, -float(actions))
        return jnp.mean(critic_loss + actor_loss + temperature_loss)

    def learn(learned, key, n, rows):  # [U, B, ...], one batch for each update
        def update(learned, inputs):
            key, row = inputs
            s_tm1, a_tm1, s_t, r_t, discount_t = jnp.split(row, np.cumsum([size, actions, size, 1]), axis=-1)
            batch = Transition(s_tm1, a_tm1, s_t, r_t[:, 0], discount_t[:, 0])
            gradients = jax.grad(loss)(learned.params, learned.target_params, key, batch)
            directions, opt_state = optimizer.update(gradients, learned.opt_state, learned.params)
            params = optax.apply_updates(learned.params, directions)
            target_params = optax.incremental_update(params["critics"], learned.target_params, config.tau)
            return Learned(params, target_params, opt_state), None

        keys = jax.random.split(jax.random.fold_in(key, n), config.environments)
        return jax.lax.scan(update, learned, (keys, rows))[0]

    act_greedily = jax.jit(lambda params, observation: jnp.tanh(actor.apply(params, observation)[0]))
    return init, act, act_greedily, jax.jit(learn, donate_argnums=0)


def evaluate(config: Config, env: gymnasium.Env, act_greedily, params, low, high) -> np.ndarray:
    returns = np.zeros(config.evaluation_episodes)
    for episode in range(config.evaluation_episodes):
        observation, over = env.reset(seed=config.seed + 10_000 + episode)[0], False
        while not over:
            action = np.asarray(act_greedily(params, np.float32(observation)))
            observation, reward, ends, cut, _ = env.step(low + (high - low) * (action + 1) / 2)
            returns[episode], over = returns[episode] + reward, ends or cut
    env.close()
    return returns


def main(config: Config) -> None:
    (output := pathlib.Path(config.output)).mkdir(parents=True, exist_ok=True)
    try:
        make = importlib.import_module("envpool").make_gymnasium if config.envpool else gymnasium.make_vec
        settings = {"seed": config.seed} if config.envpool else {}
        envs = make(config.env, num_envs=config.environments, **settings)  # both begin anew in the step after the last
        env = gymnasium.make(config.env, render_mode="rgb_array" if config.video else None)  # for the evaluation
        env = gymnasium.wrappers.RecordVideo(env, config.output, lambda episode: episode == 0) if config.video else env
        wandb = importlib.import_module("wandb") if config.track and importlib.util.find_spec("wandb") else None
        tensorboard = importlib.import_module("tensorboardX") if config.track and not wandb else None
    except (gymnasium.error.Error, ImportError, AssertionError) as error:
        sys.exit(f"{error} (pip install 'hkx[examples]'; flags need envpool, wandb or tensorboardX, moviepy)")
    if not all(hasattr(x, "low") and len(x.shape) == 1 for x in (env.observation_space, env.action_space)):
        sys.exit(f"--env: observations and actions must be vectors of numbers, and those of {config.env} are not")
    if wandb:
        wandb.init(project="sac", config=vars(config), mode="online" if wandb.login(prompt=False) else "offline")
    board = tensorboard and tensorboard.SummaryWriter(config.output, max_queue=999)  # for a full disk
    (size,), space, number = envs.single_observation_space.shape, envs.single_action_space, config.environments
    low, high, (actions,), finished = space.low, space.high, space.shape, deque(maxlen=10)
    init, act, act_greedily, learn = make_agent(config, size, actions)
    act_key, learn_key, init_key = jax.random.split(jax.random.key(config.seed), 3)
    learned, generator, begin = init(init_key), np.random.default_rng(config.seed), time.process_time()
    replay, added, rows = np.zeros([config.capacity, 2 * size + actions + 2], np.float32), 0, []
    observation, last, returns = envs.reset(seed=config.seed)[0], np.zeros(number, bool), np.zeros(number)
    try:
        (room := output / "room").write_bytes(bytes(2**24 + bool(config.save_data) * replay[: config.steps].nbytes))
        for n in range(config.steps // number):
            action = generator.uniform(-1, 1, (number, actions)).astype(np.float32)
            if n * number >= config.warmup:
                action = np.asarray(act(learned.params["actor"], act_key, np.int32(n), np.float32(observation)))
            following, reward, ends, cut, _ = envs.step(low + (high - low) * (action + 1) / 2)
            columns = [observation, action, following, reward[:, None], config.discount * (1.0 - ends[:, None])]
            new = np.concatenate(columns, axis=1, dtype=np.float32, casting="same_kind")[~last]  # `last`: a reset only
            replay[(added + np.arange(len(new))) % config.capacity] = new
            added, observation, returns, last = added + len(new), following, returns * ~last + reward, ends | cut
            finished.extend(returns[last])
            if n * number >= config.warmup:
                drawn = generator.integers(min(added, config.capacity), size=(number, config.batch_size))
                learned = learn(learned, learn_key, np.int32(n), replay[drawn])
            if (n + 1) % max(1, config.steps // number // 200) == 0:  # a curve of 200 points
                taken, mean = (n + 1) * number, np.mean(finished) if finished else np.nan
                rows.append((taken, mean, time.process_time() - begin))
                print(f"{taken:>9,} steps: return {mean:.1f}, {rows[-1][2] / taken * 1e6:.0f} CPU µs/step", flush=True)
                if config.track and finished:
                    wandb.log({"return": mean}, step=taken) if wandb else board.add_scalar("return", mean, taken)
    except (KeyboardInterrupt, OSError) as error:  # of a full disk; what is saved fits into its room
        room.unlink(missing_ok=True)
        print(f"interrupted: {error!r}") if rows else sys.exit(f"interrupted before the first steps: {error!r}")
    room.unlink(missing_ok=True)
    np.savetxt(output / "metrics.csv", rows, "%.9g", ",", header="steps,return_of_10_episodes,cpu_seconds", comments="")
    saved = learned.params["actor"] | learned.params["critics"] | learned.params["temperature"]
    np.savez(output / "parameters.npz", **{f"{module}/{k}": x for module in saved for k, x in saved[module].items()})
    if config.save_data:
        parts = np.split(replay[: min(added, config.capacity)], np.cumsum([size, actions, size, 1]), axis=1)
        np.savez(config.save_data, **dict(zip(Transition._fields, parts, strict=True)), env=config.env)
    axes = (figure := Figure(layout="constrained")).subplots()
    axes.plot([row[0] for row in rows], [row[1] for row in rows])
    axes.set(title=f"SAC on {config.env}", xlabel="environment steps", ylabel="mean return of 10 episodes")
    figure.savefig(output / "curve.png", dpi=120)
    final = evaluate(config, env, act_greedily, learned.params["actor"], low, high)
    print(f"final return: {np.mean(final):.2f} over {len(final)} episodes")


if __name__ == "__main__":
    jax.config.update("jax_cpu_enable_async_dispatch", False)  # each step waits for its action
    main(tyro.cli(Config, description=__doc__))
