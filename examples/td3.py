"""TD3 on MuJoCo, or another environment with continuous actions, in one file.

Fujimoto et al., 2018 (https://arxiv.org/abs/1802.09477): two critics, a smoothed target, delayed updates.

    pip install hkx optax tyro matplotlib 'gymnasium[mujoco]' && python td3.py --env Hopper-v5 --seed 1
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
    tau: float = 0.005  # part by which the target networks move in an update of the actor
    delay: int = 2  # updates of the critics for one of the actor and the target networks
    exploration: float = 0.1  # standard deviation of the noise on the actions
    smoothing: float = 0.2  # standard deviation of the noise on the target's actions
    smoothing_clip: float = 0.5  # the largest noise on the target's actions
    evaluation_episodes: int = 10  # episodes without noise at the end
    track: bool = False  # log to Weights & Biases, offline unless logged in; without wandb to TensorBoard
    video: bool = False  # write a video of the final policy
    output: str = "runs/td3"  # folder for metrics.csv, curve.png and parameters.npz


Learned = namedtuple("Learned", "params target_params actor_opt critic_opt")
Transition = namedtuple("Transition", "observation_tm1 a_tm1 observation_t r_t discount_t")  # [B, ...]


def make_agent(config: Config, size: int, actions: int):
    @hkx.without_apply_rng
    @hkx.transform
    def actor(observation):  # [..., D] to an action [..., A] within [-1, 1]
        return jnp.tanh(hkx.nets.MLP([config.hidden, config.hidden, actions], name="actor")(observation))

    @hkx.without_apply_rng
    @hkx.transform
    def critics(observation, action, count=2):  # to the values [..., count]
        x = jnp.concatenate([observation, action], axis=-1)
        sizes = [config.hidden, config.hidden, 1]
        return jnp.concatenate([hkx.nets.MLP(sizes, name=f"critic_{i}")(x) for i in range(1, 1 + count)], axis=-1)

    optimizer = optax.flatten(optax.adam(config.learning_rate))

    @jax.jit
    def init(key):
        actor_key, critic_key = jax.random.split(key)
        observation, action = jnp.zeros(size), jnp.zeros(actions)
        params = {"actor": actor.init(actor_key, observation), "critics": critics.init(critic_key, observation, action)}
        return Learned(params, jax.tree.map(jnp.copy, params), *map(optimizer.init, params.values()))

    @jax.jit
    def act(params, key, n, observation):  # of step n, [E, D]
        action = actor.apply(params, observation)
        noise = config.exploration * jax.random.normal(jax.random.fold_in(key, n), action.shape)
        return jnp.clip(action + noise, -1, 1)

    def critic_loss(params, target_params, key, batch):
        keys, a_t = jax.random.split(key, config.batch_size), actor.apply(target_params["actor"], batch.observation_t)
        a_t = rlx.batched(rlx.smoothed_target_action)(keys, a_t, config.smoothing, config.smoothing_clip)
        q_t = critics.apply(target_params["critics"], batch.observation_t, a_t)
        q_tm1 = critics.apply(params, batch.observation_tm1, batch.a_tm1)
        td_errors = rlx.batched(rlx.clipped_double_q_learning)(q_tm1, batch.r_t, batch.discount_t, q_t)
        return jnp.mean(jnp.sum(rlx.l2_loss(td_errors), axis=-1))

    def actor_loss(params, critic_params, batch):
        action = actor.apply(params, batch.observation_tm1)
        return -jnp.mean(critics.apply(critic_params, batch.observation_tm1, action, count=1))

    def updated(gradients, opt_state, params):
        directions, opt_state = optimizer.update(gradients, opt_state, params)
        return optax.apply_updates(params, directions), opt_state

    def learn(learned, key, n, rows):  # [U, B, ...], one batch for each update
        def update(learned, inputs):
            at, row = inputs
            s_tm1, a_tm1, s_t, r_t, discount_t = jnp.split(row, np.cumsum([size, actions, size, 1]), axis=-1)
            batch = Transition(s_tm1, a_tm1, s_t, r_t[:, 0], discount_t[:, 0])
            params, target_params, actor_opt, critic_opt = learned
            gradients = jax.grad(critic_loss)(params["critics"], target_params, jax.random.fold_in(key, at), batch)
            critic_params, critic_opt = updated(gradients, critic_opt, params["critics"])

            def move(learned):
                gradients = jax.grad(actor_loss)(params["actor"], critic_params, batch)
                actor_params, actor_opt = updated(gradients, learned.actor_opt, params["actor"])
                new = {"actor": actor_params, "critics": critic_params}
                return Learned(new, optax.incremental_update(new, target_params, config.tau), actor_opt, critic_opt)

            learned = Learned({**params, "critics": critic_params}, target_params, actor_opt, critic_opt)
            return jax.lax.cond(at % config.delay == 0, move, lambda learned: learned, learned), None

        return jax.lax.scan(update, learned, (n * len(rows) + jnp.arange(len(rows)), rows))[0]

    return init, act, jax.jit(actor.apply), jax.jit(learn, donate_argnums=0)


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
        wandb.init(project="td3", config=vars(config), mode="online" if wandb.login(prompt=False) else "offline")
    board = tensorboard and tensorboard.SummaryWriter(config.output, max_queue=999)  # for a full disk
    (size,), space, number = envs.single_observation_space.shape, envs.single_action_space, config.environments
    low, high, (actions,), finished = space.low, space.high, space.shape, deque(maxlen=10)
    init, act, act_greedily, learn = make_agent(config, size, actions)
    act_key, learn_key, init_key = jax.random.split(jax.random.key(config.seed), 3)
    learned, generator, begin = init(init_key), np.random.default_rng(config.seed), time.process_time()
    replay, added, rows = np.zeros([config.capacity, 2 * size + actions + 2], np.float32), 0, []
    observation, last, returns = envs.reset(seed=config.seed)[0], np.zeros(number, bool), np.zeros(number)
    try:
        (room := output / "room").write_bytes(bytes(2**24))  # for what is saved, should the disk be full by then
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
    except (KeyboardInterrupt, OSError) as error:  # of a full disk
        room.unlink(missing_ok=True)
        print(f"interrupted: {error!r}") if rows else sys.exit(f"interrupted before the first steps: {error!r}")
    room.unlink(missing_ok=True)
    np.savetxt(output / "metrics.csv", rows, "%.9g", ",", header="steps,return_of_10_episodes,cpu_seconds", comments="")
    saved = learned.params["actor"] | learned.params["critics"]
    np.savez(output / "parameters.npz", **{f"{module}/{k}": x for module in saved for k, x in saved[module].items()})
    axes = (figure := Figure(layout="constrained")).subplots()
    axes.plot([row[0] for row in rows], [row[1] for row in rows])
    axes.set(title=f"TD3 on {config.env}", xlabel="environment steps", ylabel="mean return of 10 episodes")
    figure.savefig(output / "curve.png", dpi=120)
    final = evaluate(config, env, act_greedily, learned.params["actor"], low, high)
    print(f"final return: {np.mean(final):.2f} over {len(final)} episodes")


if __name__ == "__main__":
    jax.config.update("jax_cpu_enable_async_dispatch", False)  # each step waits for its action
    main(tyro.cli(Config, description=__doc__))
