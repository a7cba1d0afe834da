"""PPO on Atari 2600 games, in one file; the games run in ale-py's own vector environment, or in EnvPool.

Schulman et al., 2017 (https://arxiv.org/abs/1707.06347). An observation is the last four pictures, 84 × 84 bytes each;
a reward is clipped to its sign, and in training an episode ends with each life.

    pip install hkx optax tyro matplotlib ale-py gymnasium
    python ppo_atari.py --env ALE/Breakout-v5
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
    sys.exit(f"{error}: pip install 'hkx[atari]'")


@dataclasses.dataclass(frozen=True)
class Config:
    env: str = "ALE/Pong-v5"  # a game of ale-py
    seed: int = 1  # seed of the games and the agent
    steps: int = 10_000_000  # actions in all, each repeated for four frames of the game
    environments: int = 8  # parallel games
    envpool: bool = False  # run them in EnvPool, which needs the package envpool
    rollout: int = 128  # steps of each game per update
    epochs: int = 4  # passes over the steps of each update
    minibatches: int = 4  # parts of each pass
    learning_rate: float = 2.5e-4  # step size of Adam, falls linearly to 0
    discount: float = 0.99  # γ
    lambda_: float = 0.95  # λ of the advantages
    clip: float = 0.1  # ε of the clipped probability ratios and value changes
    value_cost: float = 0.5  # weight of the value loss
    entropy_cost: float = 0.01  # weight of the entropy bonus
    noops: int = 30  # maximum number of actions that do nothing at the beginning of a game
    sticky: float = 0.0  # probability that a frame repeats the action of the frame before
    episodic_life: bool = True  # an episode ends with each life
    clip_rewards: bool = True  # clip rewards to their signs
    evaluation_episodes: int = 8  # games at the end, with actions of the policy and all rewards
    track: bool = False  # log to Weights & Biases, offline unless logged in; without wandb to TensorBoard
    video: bool = False  # write video.gif of the first of these games
    output: str = "runs/ppo_atari"  # folder for metrics.csv, curve.png and parameters.npz


Steps = namedtuple("Steps", "pictures_tm1 a_tm1 log_prob_tm1 v_tm1 r_t discount_t last_t valid_t")  # [T, E, ...]


def make_agent(config: Config, actions: int, updates: int):
    def linear(size, scale):
        return hkx.Linear(size, w_init=hkx.initializers.Orthogonal(scale))

    def actor_critic(pictures):  # [B, 4, 84, 84] bytes to the logits [B, A] and the values [B]
        x = jnp.moveaxis(pictures, 1, -1).astype(jnp.float32) / 255
        way = "dot" if jax.default_backend() == "cpu" else "xla"  # XLA convolves slowly in loops on a CPU
        for channels, kernel, stride in ((32, 8, 4), (64, 4, 2), (64, 3, 1)):
            init = hkx.initializers.Orthogonal(2**0.5)
            x = jax.nn.relu(hkx.Conv2D(channels, kernel, stride, padding="VALID", w_init=init, implementation=way)(x))
        x = jax.nn.relu(linear(512, 2**0.5)(x.reshape(len(x), -1)))
        return linear(actions, 0.01)(x), linear(1, 1.0)(x)[:, 0]

    network = hkx.without_apply_rng(hkx.transform(actor_critic))
    falling = optax.linear_schedule(config.learning_rate, 0, updates * config.epochs * config.minibatches)
    optimizer = optax.flatten(optax.chain(optax.clip_by_global_norm(0.5), optax.adam(falling, eps=1e-5)))
    policy = rlx.softmax()

    @jax.jit
    def init(key, pictures):
        params = network.init(key, pictures)
        return params, optimizer.init(params)

    @jax.jit
    def act(params, key, n, pictures):  # of step n, [E, 4, 84, 84]
        logits, value = network.apply(params, pictures)
        action = policy.sample(jax.random.fold_in(key, n), logits)
        return action, policy.logprob(action, logits), value

    def loss(params, steps, adv_t, target_tm1):
        logits, v_tm1 = network.apply(params, steps.pictures_tm1)
        ratios = jnp.exp(policy.logprob(steps.a_tm1, logits) - steps.log_prob_tm1)
        adv_t = rlx.normalized_advantages(adv_t, mask=steps.valid_t)
        policy_loss = rlx.clipped_surrogate_pg_loss(ratios, adv_t, config.clip)
        value_loss = rlx.clipped_value_loss(v_tm1, steps.v_tm1, target_tm1, config.clip, mask_t=steps.valid_t)
        entropy = jnp.mean(policy.entropy(logits), where=steps.valid_t)
        return policy_loss + config.value_cost * value_loss - config.entropy_cost * entropy

    @jax.jit
    def learn(params, opt_state, key, steps, last_pictures):
        values = jnp.concatenate([steps.v_tm1, network.apply(params, last_pictures)[1][None]])
        gae = rlx.time_major(rlx.truncated_generalized_advantage_estimation)
        adv_t = gae(steps.r_t, steps.discount_t, config.lambda_, values, truncation_t=steps.last_t)
        batch = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), (steps, adv_t, adv_t + steps.v_tm1))

        def update(carry, part):
            params, opt_state = carry
            gradients = jax.grad(loss)(params, *jax.tree.map(lambda x: x[part], batch))
            directions, opt_state = optimizer.update(gradients, opt_state, params)
            return (optax.apply_updates(params, directions), opt_state), None

        order = jax.vmap(lambda key: jax.random.permutation(key, adv_t.size))(jax.random.split(key, config.epochs))
        return jax.lax.scan(update, (params, opt_state), order.reshape(config.epochs * config.minibatches, -1))[0]

    return init, act, learn


def make_envs(config: Config, number: int, episodic_life: bool):  # begin a new episode in the step after the last
    settings = {"noop_max": config.noops, "repeat_action_probability": config.sticky, "episodic_life": episodic_life}
    if config.envpool:
        make = importlib.import_module("envpool").make_gymnasium
        return make(config.env.removeprefix("ALE/"), num_envs=number, seed=config.seed, **settings)
    return gymnasium.make_vec(f"ale_py:{config.env}", number, "vector_entry_point", reward_clipping=False, **settings)


def evaluate(config: Config, act, params, key) -> np.ndarray:
    """The scores of one game in each of several environments at once."""
    envs = make_envs(dataclasses.replace(config, envpool=False), config.evaluation_episodes, episodic_life=False)
    pictures, scores, over = envs.reset(seed=config.seed + 10_000)[0], 0.0, np.zeros(envs.num_envs, bool)
    shown, n = [], 0
    while not over.all():
        following, reward, ends, cut, _ = envs.step(np.asarray(act(params, key, np.int32(n), pictures)[0]))
        shown += [pictures[0, -1]] if not over[0] and config.video else []
        pictures, n, scores, over = following, n + 1, scores + np.where(over, 0, reward), over | ends | cut
    if config.video:
        from PIL import Image

        first, *others = map(Image.fromarray, shown)
        first.save(pathlib.Path(config.output) / "video.gif", save_all=True, append_images=others, duration=67)
    return scores


def main(config: Config) -> None:
    wandb = importlib.import_module("wandb") if config.track and importlib.util.find_spec("wandb") else None
    for package in ["tensorboardX"] * (config.track and not wandb) + ["envpool"] * config.envpool:
        importlib.util.find_spec(package) or sys.exit(f"a flag needs a package that is missing: pip install {package}")
    (output := pathlib.Path(config.output)).mkdir(parents=True, exist_ok=True)
    try:
        envs = make_envs(config, config.environments, config.episodic_life)
    except (gymnasium.error.Error, ImportError, TypeError, AssertionError) as error:
        sys.exit(f"--env: {error} (it must be a game of Atari, which needs the extra: pip install 'hkx[atari]')")
    if wandb:
        wandb.init(project="ppo_atari", config=vars(config), mode="online" if wandb.login(prompt=False) else "offline")
    elif config.track:
        board = importlib.import_module("tensorboardX").SummaryWriter(config.output, max_queue=999)  # for a full disk
    number, updates = config.environments, max(1, config.steps // (config.environments * config.rollout))
    init, act, learn = make_agent(config, envs.single_action_space.n, updates)
    act_key, learn_key, init_key = jax.random.split(jax.random.key(config.seed), 3)
    pictures, last, begin = envs.reset(seed=config.seed)[0], np.zeros(number, bool), time.process_time()
    params, opt_state = init(init_key, pictures)
    rows, finished, scores = [], deque(maxlen=20), np.zeros(number)
    try:
        (room := output / "room").write_bytes(bytes(2**24))  # for what is saved, should the disk be full by then
        for n in range(updates):
            steps = []
            for t in range(config.rollout):
                acted = act(params, act_key, np.int32(n * config.rollout + t), pictures)
                following, reward, ends, cut, info = envs.step(np.asarray(acted[0]))
                discount = np.float32(config.discount * (1.0 - ends))
                learned = np.sign(reward) if config.clip_rewards else reward
                steps.append((pictures, *acted, np.float32(learned), discount, ends | cut, ~last))
                pictures, last, scores = following, ends | cut, scores + reward
                over = cut | (ends & (info["lives"] == 0)) if config.episodic_life else last
                finished.extend(scores[over])
                scores = np.where(over, 0.0, scores)
            steps = Steps(*(np.stack([np.asarray(x) for x in column]) for column in zip(*steps, strict=True)))
            params, opt_state = learn(params, opt_state, jax.random.fold_in(learn_key, n), steps, pictures)
            taken, mean = (n + 1) * number * config.rollout, np.mean(finished) if finished else np.nan
            rows.append((taken, mean, time.process_time() - begin))
            print(f"{taken:>10,} steps: score {mean:.1f}, {rows[-1][2] / taken * 1e3:.2f} CPU ms a step", flush=True)
            if config.track and finished:
                wandb.log({"score": mean}, step=taken) if wandb else board.add_scalar("score", mean, taken)
    except (KeyboardInterrupt, OSError) as error:  # of a full disk
        room.unlink(missing_ok=True)
        print(f"interrupted: {error!r}") if rows else sys.exit(f"interrupted before the first steps: {error!r}")
    room.unlink(missing_ok=True)
    np.savetxt(output / "metrics.csv", rows, "%.9g", ",", header="steps,score_of_20_games,cpu_seconds", comments="")
    np.savez(output / "parameters.npz", **{f"{module}/{k}": x for module in params for k, x in params[module].items()})
    axes = (figure := Figure(layout="constrained")).subplots()
    axes.plot([row[0] for row in rows], [row[1] for row in rows])
    axes.set(title=f"PPO on {config.env}", xlabel="actions", ylabel="mean score of 20 games")
    figure.savefig(output / "curve.png", dpi=120)
    final = evaluate(config, act, params, act_key)
    print(f"final return: {np.mean(final):.2f} over {len(final)} episodes")


if __name__ == "__main__":
    jax.config.update("jax_cpu_enable_async_dispatch", False)  # each step waits for its action
    main(tyro.cli(Config, description=__doc__))
