"""PQN in one compiled program: Q-learning from many environments at once, without replay and without target network.

Gallici et al., "Simplifying Deep Temporal Difference Learning", 2024 (https://arxiv.org/abs/2407.04811): λ-returns and
layer normalisation. `--env MODULE:NAME` is any environment of gymnax's kind; pictures go through a convolution first.

    pip install hkx gymnax optax tyro matplotlib && python pqn.py --seeds 8
    python pqn.py --env Breakout-MinAtar --steps 10000000 --environments 128 --rollout 32 --minibatches 32 --epochs 2 \
        --hidden 128 --learning-rate 5e-4 --lambda_ 0.65 --epsilon 0.05 --exploration 0.1  # the paper's, with Adam
"""

import dataclasses
import json
import pathlib
import pkgutil
import sys
import time
from collections import namedtuple

try:
    import gymnax
    import jax
    import jax.numpy as jnp
    import numpy as np
    import optax
    import tyro
    from matplotlib.figure import Figure

    import hkx
    import rlx
    from rlx.evaluation import bootstrap_interval, interquartile_mean
except ModuleNotFoundError as error:
    sys.exit(f"{error}: pip install 'hkx[examples]'")


@dataclasses.dataclass(frozen=True)
class Config:
    env: str = "Catch-bsuite"  # an environment of gymnax, or MODULE:NAME
    seed: int = 0  # seed of the first agent; the others have the following seeds
    seeds: int = 1  # number of seeds
    steps: int = 86_400  # environment steps of each agent
    environments: int = 32  # parallel environments of each agent
    rollout: int = 9  # steps of each environment per update
    minibatches: int = 1  # parts into which the steps are divided for learning
    epochs: int = 1  # passes over the steps of each update
    hidden: int = 32  # units of each hidden layer
    layers: int = 1  # hidden layers
    learning_rate: tuple[float, ...] = (0.005,)  # step size of Adam, falls linearly to 0; several values are all tried
    discount: tuple[float, ...] = (0.99,)  # γ
    lambda_: tuple[float, ...] = (0.9,)  # λ of the returns
    epsilon: tuple[float, ...] = (0.02,)  # probability of a random action at the end; it falls linearly from 1
    exploration: tuple[float, ...] = (0.7,)  # share of the training over which that probability falls
    output: str = "runs/pqn"  # folder for metrics.json, curve.png and parameters.npz


# Arrays [environments, ...] and [time, environments, ...]; `v_t` is of the last observation where an episode ended.
Playing = namedtuple("Playing", "observation env_state episode_return")
Transition = namedtuple("Transition", "observation_tm1 a_tm1 r_t discount_t v_t last_t")


def make_agent(config: Config, env):
    actions = env.action_space(env.default_params).n
    he = hkx.initializers.VarianceScaling(2.0)

    def action_values(observation):  # [B, ...] to [B, actions]
        def normalised(x):
            return jax.nn.relu(hkx.LayerNorm(-1, create_scale=True, create_offset=True)(x))

        x = observation.astype(jnp.float32)
        if x.ndim == 4 and min(x.shape[1:3]) > 2:  # pictures
            way = "dot" if jax.default_backend() == "cpu" else "xla"  # XLA convolves slowly in loops on a CPU
            x = normalised(hkx.Conv2D(16, 3, padding="VALID", w_init=he, implementation=way)(x))
        x = x.reshape(len(x), -1)
        for _ in range(config.layers):
            x = normalised(hkx.Linear(config.hidden, w_init=he)(x))
        return hkx.Linear(actions, name="values")(x)

    network = hkx.without_apply_rng(hkx.transform(action_values))
    optimizer = optax.chain(optax.clip_by_global_norm(10.0), optax.scale_by_adam())

    def reset(keys):
        return Playing(*jax.vmap(env.reset)(keys), jnp.zeros(len(keys)))

    def step(playing, action, keys):
        observation, env_state, r_t, ends, cut, info = jax.vmap(env.step)(keys, playing.env_state, action)
        returned, last_t = playing.episode_return + r_t, ends | cut
        new = Playing(observation, env_state, jnp.where(last_t, 0, returned))
        return new, (r_t, 1.0 - ends, last_t, info["final_observation"], returned)

    def init(seed):
        keys = jax.random.split(jax.random.key(seed), 2 + config.environments)
        playing = reset(keys[2:])
        return (params := network.init(keys[1], playing.observation)), optimizer.init(params), playing, keys[0]

    def update(settings, agent, left):  # `left` is the share of the training that is left
        params, opt_state, playing, key = agent
        keys = jax.random.split(key, config.rollout * (1 + config.environments) + 2)  # one split compiles fastest
        explored = (1 - left) / jnp.maximum(settings["exploration"], 1e-6)
        epsilon = jnp.maximum(settings["epsilon"], 1 - (1 - settings["epsilon"]) * explored)

        def act(playing, keys):
            q_tm1 = network.apply(params, playing.observation)
            a_tm1 = rlx.epsilon_greedy(epsilon).sample(keys[0], q_tm1)
            new, (r_t, discount_t, last_t, observation_t, returned) = step(playing, a_tm1, keys[1:])
            v_t = jnp.max(network.apply(params, observation_t), axis=-1)
            steps = Transition(playing.observation, a_tm1, r_t, settings["discount"] * discount_t, v_t, last_t)
            return new, (steps, returned)

        def loss(params, observation_tm1, a_tm1, target_tm1):
            qa_tm1 = rlx.batched_index(network.apply(params, observation_tm1), a_tm1)
            return jnp.mean(rlx.l2_loss(target_tm1 - qa_tm1))

        def learn(learned, part):
            params, opt_state = learned
            value, gradients = jax.value_and_grad(loss)(params, *jax.tree.map(lambda x: x[part], batch))
            directions, opt_state = optimizer.update(gradients, opt_state)
            return (optax.tree.add_scale(params, -settings["learning_rate"] * left, directions), opt_state), value

        playing, (steps, returned) = jax.lax.scan(act, playing, keys[2:].reshape(config.rollout, -1))
        returns = rlx.time_major(rlx.lambda_returns)(
            steps.r_t, steps.discount_t, steps.v_t, settings["lambda_"], truncation_t=steps.last_t
        )
        size = config.rollout * config.environments
        batch = jax.tree.map(lambda x: x.reshape(size, *x.shape[2:]), (*steps[:2], returns))
        order = jnp.argsort(jax.random.bits(keys[1], [config.epochs, size]))
        parts = order.reshape(config.epochs * config.minibatches, -1)
        (params, opt_state), losses = jax.lax.scan(learn, (params, opt_state), parts)
        metrics = jnp.sum(returned * steps.last_t), jnp.sum(steps.last_t), jnp.mean(losses)
        return (params, opt_state, playing, keys[0]), metrics

    def train(settings, agent, left):
        agent, (returned, episodes, losses) = jax.lax.scan(lambda *x: update(settings, *x), agent, left)
        return agent, (jnp.sum(returned) / jnp.sum(episodes), jnp.mean(losses))

    def evaluate(params, seed):  # the mean return of 128 greedy episodes, each of at most 10,000 steps
        keys = jax.random.split(jax.random.key(seed + np.uint32(2**31)), 128)

        def play(carry):
            n, playing, over, total = carry
            action = jnp.argmax(network.apply(params, playing.observation), axis=-1)
            step_keys = jax.vmap(jax.random.fold_in, (0, None))(keys, n)
            playing, (r_t, _, last_t, *_) = step(playing, action, step_keys)
            return n + 1, playing, over | last_t, total + jnp.where(over, 0, r_t)

        start = 0, reset(keys), jnp.zeros(len(keys), bool), jnp.zeros(len(keys))
        return jnp.mean(jax.lax.while_loop(lambda carry: (carry[0] < 10_000) & ~jnp.all(carry[2]), play, start)[3])

    return init, train, evaluate


def main(config: Config) -> None:
    if config.environments * config.rollout % config.minibatches:
        sys.exit(f"--minibatches must divide {config.environments * config.rollout} steps, and is {config.minibatches}")
    try:
        env = pkgutil.resolve_name(config.env)() if ":" in config.env else gymnax.make(config.env)[0]
    except (ImportError, AttributeError, ValueError) as error:
        sys.exit(f"--env: {error} (MODULE:NAME, or one of {', '.join(gymnax.registered_envs)})")
    if not hasattr(env.action_space(env.default_params), "n"):
        sys.exit(f"--env: the actions of {config.env} are continuous; ppo.py learns those, too")
    (output := pathlib.Path(config.output)).mkdir(parents=True, exist_ok=True)
    init, train, evaluate = make_agent(config, env)
    swept = {name: values for name, values in vars(config).items() if isinstance(values, tuple)}
    grid = np.array(np.meshgrid(*swept.values(), range(config.seed, config.seed + config.seeds), indexing="ij"))
    settings, seeds = {name: jnp.float32(grid[i].ravel()) for i, name in enumerate(swept)}, jnp.uint32(grid[-1].ravel())
    updates = -(-config.steps // (config.environments * config.rollout))
    chunks = min(20, updates)  # a line each; rounded up to updates of equal number
    left = np.asarray(jnp.linspace(1, 0, -(-updates // chunks) * chunks, endpoint=False)).reshape(chunks, -1)
    quick = {"xla_backend_optimization_level": 1} if config.steps * len(seeds) < 2_000_000 else None  # to compile
    begin = time.process_time()
    agents = jax.jit(jax.vmap(init), compiler_options=quick)(seeds)
    train = jax.jit(jax.vmap(train, (0, 0, None))).lower(settings, agents, left[0]).compile(quick)
    compiled, curve = time.process_time(), []
    try:
        (room := output / "room").write_bytes(bytes(2**24))  # for what is saved, should the disk be full by then
        for n, part in enumerate(left, start=1):
            agents, (returns, losses) = jax.block_until_ready(train(settings, agents, part))
            returns = np.where(np.isnan(returns), curve[-1][1] if curve else np.nan, returns)  # no episode has ended
            curve.append((n * left.shape[1] * config.environments * config.rollout, returns.tolist(), losses.tolist()))
            print(f"{curve[-1][0]:>11,} steps: return {np.mean(returns):.2f} ± {np.std(returns):.2f}")
    except (KeyboardInterrupt, OSError) as error:  # of a full disk
        room.unlink(missing_ok=True)
        print(f"interrupted: {error!r}") if curve else sys.exit(f"interrupted before the first steps: {error!r}")
    room.unlink(missing_ok=True)
    seconds = {"cpu_seconds_to_compile": compiled - begin, "cpu_seconds_to_run": time.process_time() - compiled}
    np.savez(output / "parameters.npz", **{f"{m}/{name}": x for m, name, x in hkx.data_structures.traverse(agents[0])})
    final = np.asarray(jax.jit(jax.vmap(evaluate), compiler_options=quick)(agents[0], seeds))  # greedy
    columns = dict(zip(("environment_steps", "return", "loss"), zip(*curve, strict=True), strict=True))
    metrics = {"environment_steps": curve[-1][0], "agents": len(final), "final_return": final.tolist(), **seconds}
    (output / "metrics.json").write_text(json.dumps(metrics | {"settings": vars(config), "curve": columns}))
    axes = (figure := Figure(layout="constrained")).subplots()
    axes.plot(x := columns["environment_steps"], columns["return"], "C0:", x, np.mean(columns["return"], axis=1), "C0")
    axes.set(title=f"PQN on {config.env}, {len(final)} agents", xlabel="environment steps", ylabel="return")
    figure.savefig(output / "curve.png", dpi=120)
    for row, x in zip(grid[..., 0].reshape(len(grid), -1).T, final.reshape(-1, config.seeds), strict=True):
        of = " ".join(f"{name}={value:g}" for name, value in zip(swept, row, strict=False) if len(swept[name]) > 1)
        iqm, (low, up) = interquartile_mean(x), bootstrap_interval(interquartile_mean, x)
        print(f"final return: {x.mean():.2f} ± {x.std():.2f}, IQM {iqm:.2f} [{low:.2f}, {up:.2f}], {len(x)} seeds {of}")


if __name__ == "__main__":
    main(tyro.cli(Config, description=__doc__))
