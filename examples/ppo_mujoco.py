"""PPO on MuJoCo, with the details that published results need, in one file.

Schulman et al., 2017 (https://arxiv.org/abs/1707.06347), with normalised observations and rewards, orthogonal initial
weights, a learning rate that falls to 0, and Adam's larger ε (Engstrom et al., 2020, https://arxiv.org/abs/2005.12729).
The agent normalises, in the compiled step that acts; in evaluation the statistics stay as they are.

    pip install hkx optax tyro matplotlib 'gymnasium[mujoco]' && python ppo_mujoco.py --env Hopper-v5 --seed 1
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
    environments: int = 1  # parallel environments
    envpool: bool = False  # run them in EnvPool, which needs the package envpool
    rollout: int = 2048  # steps of all environments per update
    epochs: int = 10  # passes over the steps of each update
    minibatches: int = 32  # parts of each pass
    hidden: int = 64  # units of both hidden layers
    learning_rate: float = 3e-4  # step size of Adam, falls linearly to 0
    discount: float = 0.99  # γ
    lambda_: float = 0.95  # λ of the advantages
    clip: float = 0.2  # ε of the clipped probability ratios and value changes
    value_cost: float = 0.5  # weight of the value loss
    entropy_cost: float = 0.0  # weight of the entropy bonus
    evaluation_episodes: int = 10  # episodes of the mean action at the end
    track: bool = False  # log to Weights & Biases, offline unless logged in; without wandb to TensorBoard
    video: bool = False  # write video.mp4 of the final policy
    output: str = "runs/ppo_mujoco"  # folder for metrics.csv, curve.png and parameters.npz


Learned = namedtuple("Learned", "params opt_state observations reward_scale")  # `observations` are running statistics
Steps = namedtuple("Steps", "observation_tm1 a_tm1 log_prob_tm1 v_tm1 r_t ends_t last_t valid_t")  # [T, E, ...]


def make_agent(config: Config, observation_size: int, action_size: int, updates: int):
    def mlp(x, size, scale, name):
        x = hkx.nets.MLP([config.hidden] * 2, hkx.initializers.Orthogonal(2**0.5), None, True, jnp.tanh, True)(x)
        return hkx.Linear(size, w_init=hkx.initializers.Orthogonal(scale), name=name)(x)

    def actor_critic(observation):  # [..., D] to the policy's scale and mean [..., A], and the value [...]
        mean = mlp(observation, action_size, 0.01, "policy")
        scale = jnp.broadcast_to(jnp.exp(hkx.get_parameter("log_scale", [action_size], init=jnp.zeros)), mean.shape)
        return rlx.gaussian_diagonal(scale, mean), mlp(observation, 1, 1.0, "value")[..., 0]

    network = hkx.without_apply_rng(hkx.transform(actor_critic))
    falling = optax.linear_schedule(config.learning_rate, 0, updates * config.epochs * config.minibatches)
    optimizer = optax.flatten(optax.chain(optax.clip_by_global_norm(0.5), optax.adam(falling, eps=1e-5)))

    @jax.jit
    def init(key):
        params = network.init(key, observation := jnp.zeros(observation_size))
        statistics = rlx.running_statistics.init(observation), rlx.initial_reward_scale([config.environments])
        return Learned(params, optimizer.init(params), *statistics)

    def normalize(statistics, observation):
        return jnp.clip(rlx.running_statistics.normalize(statistics, observation), -10, 10)

    @jax.jit
    def act(params, statistics, key, n, observation):  # of step n, [E, D]; the statistics see it first
        statistics = rlx.running_statistics.update(statistics, observation)
        observation = normalize(statistics, observation)
        policy, value = network.apply(params, observation)
        action = policy.sample(jax.random.fold_in(key, n))
        return statistics, (observation, action, policy.logprob(action), value)

    def loss(params, steps, adv_t, target_tm1):
        policy, v_tm1 = network.apply(params, steps.observation_tm1)
        ratios = jnp.exp(policy.logprob(steps.a_tm1) - steps.log_prob_tm1)
        adv_t = rlx.normalized_advantages(adv_t, mask=steps.valid_t)
        policy_loss = rlx.clipped_surrogate_pg_loss(ratios, adv_t, config.clip)
        value_loss = rlx.clipped_value_loss(v_tm1, steps.v_tm1, target_tm1, config.clip, mask_t=steps.valid_t)
        return policy_loss + config.value_cost * value_loss - config.entropy_cost * jnp.mean(policy.entropy())

    @jax.jit
    def learn(learned, key, steps, last_observation):
        def scale(state, outcome):
            r_t, last_t, valid_t = outcome
            r_t, state = rlx.scale_rewards(state, r_t, config.discount * (1.0 - last_t), mask=valid_t)
            return state, r_t

        reward_scale, r_t = jax.lax.scan(scale, learned.reward_scale, (steps.r_t, steps.last_t, steps.valid_t))
        _, v_t = network.apply(learned.params, normalize(learned.observations, last_observation))
        values = jnp.concatenate([steps.v_tm1, v_t[None]])  # after the last step of an episode, of its last observation
        gae = rlx.time_major(rlx.truncated_generalized_advantage_estimation)
        adv_t = gae(r_t, config.discount * (1.0 - steps.ends_t), config.lambda_, values, truncation_t=steps.last_t)
        batch = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), (steps, adv_t, adv_t + steps.v_tm1))

        def update(carry, part):
            params, opt_state = carry
            gradients = jax.grad(loss)(params, *jax.tree.map(lambda x: x[part], batch))
            directions, opt_state = optimizer.update(gradients, opt_state, params)
            return (optax.apply_updates(params, directions), opt_state), None

        rows = jax.vmap(lambda key: jax.random.permutation(key, adv_t.size))(jax.random.split(key, config.epochs))
        (params, opt_state), _ = jax.lax.scan(update, learned[:2], rows.reshape(config.epochs * config.minibatches, -1))
        return learned._replace(params=params, opt_state=opt_state, reward_scale=reward_scale)

    greedy = jax.jit(lambda learned, x: network.apply(learned.params, normalize(learned.observations, x))[0].mu)
    return init, act, greedy, learn


def evaluate(config: Config, env: gymnasium.Env, act_greedily, learned: Learned) -> np.ndarray:
    returns = np.zeros(config.evaluation_episodes)
    for episode in range(config.evaluation_episodes):
        observation, over = env.reset(seed=config.seed + 10_000 + episode)[0], False
        while not over:
            action = np.asarray(act_greedily(learned, np.float32(observation)))
            observation, reward, ends, cut, _ = env.step(np.clip(action, env.action_space.low, env.action_space.high))
            returns[episode], over = returns[episode] + reward, ends or cut
    env.close()
    return returns


def main(config: Config) -> None:
    if config.rollout % (config.environments * config.minibatches):
        sys.exit(f"--rollout must be a multiple of --environments times --minibatches, and is {config.rollout}")
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
        wandb.init(project="ppo_mujoco", config=vars(config), mode="online" if wandb.login(prompt=False) else "offline")
    board = tensorboard and tensorboard.SummaryWriter(config.output, max_queue=999)  # for a full disk
    space, updates = envs.single_action_space, max(1, config.steps // config.rollout)
    init, act, act_greedily, learn = make_agent(config, *envs.single_observation_space.shape, *space.shape, updates)
    act_key, learn_key, init_key = jax.random.split(jax.random.key(config.seed), 3)
    learned, begin, rows, finished = init(init_key), time.process_time(), [], deque(maxlen=100)
    observation, last, returns = envs.reset(seed=config.seed)[0], np.zeros(config.environments, bool), 0.0
    try:
        (room := output / "room").write_bytes(bytes(2**24))  # for what is saved, should the disk be full by then
        for n in range(updates):
            statistics, steps = learned.observations, []
            for t in range(config.rollout // config.environments):
                at = np.int32(n * config.rollout + t)
                statistics, acted = act(learned.params, statistics, act_key, at, np.float32(observation))
                observation, reward, ends, cut, _ = envs.step(np.clip(np.asarray(acted[1]), space.low, space.high))
                steps.append((*acted, np.float32(reward), ends, ends | cut, ~last))
                returns, last = returns * ~last + reward, ends | cut
                finished.extend(returns[last])
            steps = Steps(*(np.stack([np.asarray(x) for x in column]) for column in zip(*steps, strict=True)))
            learned = learned._replace(observations=statistics)
            learned = learn(learned, jax.random.fold_in(learn_key, n), steps, np.float32(observation))
            taken, mean = (n + 1) * config.rollout, np.mean(finished) if finished else np.nan
            rows.append((taken, mean, time.process_time() - begin))
            if config.track and finished:
                wandb.log({"return": mean}, step=taken) if wandb else board.add_scalar("return", mean, taken)
            if (n + 1) % 10 == 0:
                print(f"{taken:>9,} steps: return {mean:.1f}, {rows[-1][2] / taken * 1e6:.0f} CPU µs/step", flush=True)
    except (KeyboardInterrupt, OSError) as error:  # of a full disk
        room.unlink(missing_ok=True)
        print(f"interrupted: {error!r}") if rows else sys.exit(f"interrupted before the first steps: {error!r}")
    room.unlink(missing_ok=True)
    columns = "steps,return_of_100_episodes,cpu_seconds"
    np.savetxt(output / "metrics.csv", rows, "%.9g", ",", header=columns, comments="")
    saved = {**learned.params, "observations": learned.observations._asdict()}
    np.savez(output / "parameters.npz", **{f"{module}/{k}": x for module in saved for k, x in saved[module].items()})
    axes = (figure := Figure(layout="constrained")).subplots()
    axes.plot([row[0] for row in rows], [row[1] for row in rows])
    axes.set(title=f"PPO on {config.env}", xlabel="environment steps", ylabel="mean return of 100 episodes")
    figure.savefig(output / "curve.png", dpi=120)
    final = evaluate(config, env, act_greedily, learned)
    print(f"final return: {np.mean(final):.2f} over {len(final)} episodes")


if __name__ == "__main__":
    jax.config.update("jax_cpu_enable_async_dispatch", False)  # each step waits for its action
    main(tyro.cli(Config, description=__doc__))
