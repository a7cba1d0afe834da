"""DQN in one compiled program: environments, exploration, replay and learning, for many seeds and settings at once.

Mnih et al., 2015 (https://doi.org/10.1038/nature14236); flags add double Q-learning (https://arxiv.org/abs/1509.06461)
and prioritised replay (https://arxiv.org/abs/1511.05952). `--env MODULE:NAME` is any environment of gymnax's kind.

    pip install hkx gymnax optax tyro matplotlib && python dqn.py --seeds 8
    python dqn.py --prioritised --learning-rate 0.003 0.001    # two agents
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
    env: str = "CartPole-v1"  # an environment of gymnax, or MODULE:NAME
    seed: int = 0  # seed of the first agent; the others have the following seeds
    seeds: int = 1  # number of seeds
    steps: int = 300_000  # environment steps of each agent
    environments: int = 16  # parallel environments of each agent
    capacity: int = 100_000  # transitions that the replay holds
    warmup: int = 2_048  # transitions with random actions before the first update
    batch_size: int = 128  # transitions of a batch
    batches: int = 1  # batches for each step of the environments
    target_period: int = 50  # updates between copies of the network to the target network
    double: bool = True  # the network chooses the action, the target network evaluates it
    prioritised: bool = False  # sample transitions by their last TD error
    hidden: int = 64  # units of each hidden layer
    layers: int = 2  # hidden layers
    learning_rate: tuple[float, ...] = (0.003,)  # step size of Adam, falls linearly to 0; several values are all tried
    discount: tuple[float, ...] = (0.99,)  # γ
    epsilon: tuple[float, ...] = (0.05,)  # probability of a random action at the end; it falls linearly from 1
    exploration: tuple[float, ...] = (0.2,)  # share of the training over which that probability falls
    output: str = "runs/dqn"  # folder for metrics.json, curve.png and parameters.npz


Playing = namedtuple("Playing", "observation env_state episode_return")  # [environments, ...]
# `observation_t` is the last one of the episode where it ended; `discount_t` is 0 where it terminated.
Transition = namedtuple("Transition", "observation_tm1 a_tm1 r_t discount_t observation_t")


def make_agent(config: Config, env):
    actions = env.action_space(env.default_params).n
    replay = rlx.replay.uniform(config.capacity)
    if config.prioritised:
        replay = rlx.replay.prioritised(config.capacity, exponent=0.6, beta=0.4)

    def action_values(observation):  # [B, ...] to [B, actions]
        x = observation.astype(jnp.float32)
        if x.ndim == 4 and min(x.shape[1:3]) > 2:  # pictures
            way = "dot" if jax.default_backend() == "cpu" else "xla"  # XLA convolves slowly in loops on a CPU
            x = jax.nn.relu(hkx.Conv2D(16, 3, padding="VALID", implementation=way)(x))
        return hkx.nets.MLP([config.hidden] * config.layers + [actions])(x.reshape(len(x), -1))

    network = hkx.without_apply_rng(hkx.transform(action_values))
    optimizer = optax.flatten(optax.scale_by_adam())  # one vector compiles faster than many small arrays

    def step(playing, a_tm1, keys):
        observation, env_state, r_t, ends, cut, info = jax.vmap(env.step)(keys, playing.env_state, a_tm1)
        returned, last_t = playing.episode_return + r_t, ends | cut
        seen = Transition(playing.observation, a_tm1, jnp.float32(r_t), 1.0 - ends, info["final_observation"])
        return Playing(observation, env_state, jnp.where(last_t, 0, returned)), seen, last_t, returned

    def init(seed):
        keys = jax.random.split(jax.random.key(seed), 3 + config.environments)
        playing = Playing(*jax.vmap(env.reset)(keys[3:]), jnp.zeros(config.environments))
        params = network.init(keys[1], playing.observation)

        def warm_up(carry, keys):
            playing, held = carry
            a_tm1 = jax.random.randint(keys[0], [config.environments], 0, actions)
            playing, seen, *_ = step(playing, a_tm1, keys[1:])
            return (playing, replay.add_batch(held, seen)), None

        keys_of_steps = jax.random.split(keys[2], (-(-config.warmup // config.environments), 1 + config.environments))
        seen = step(playing, jnp.zeros(config.environments, jnp.int32), keys[3:])[1]
        empty = replay.init(jax.tree.map(lambda x: x[0], seen))
        (playing, held), _ = jax.lax.scan(warm_up, (playing, empty), keys_of_steps)
        return params, params, optimizer.init(params), held, playing, jnp.int32(0), keys[0]

    def update(settings, agent, left):  # `left` is the share of the training that is left
        params, target_params, opt_state, held, playing, updates, key = agent
        keys = jax.random.split(key, 2 + config.batches + config.environments)  # one split compiles fastest
        explored = (1 - left) / jnp.maximum(settings["exploration"], 1e-6)
        epsilon = jnp.maximum(settings["epsilon"], 1 - (1 - settings["epsilon"]) * explored)
        a_tm1 = rlx.epsilon_greedy(epsilon).sample(keys[1], network.apply(params, playing.observation))
        playing, seen, last_t, returned = step(playing, a_tm1, keys[2 + config.batches :])
        held = replay.add_batch(held, seen)

        def loss(params, sample):
            batch = sample.items
            q_tm1, q_t = network.apply(params, batch.observation_tm1), network.apply(target_params, batch.observation_t)
            selector = network.apply(jax.lax.stop_gradient(params), batch.observation_t) if config.double else q_t
            td_errors = rlx.batched(rlx.double_q_learning)(
                q_tm1, batch.a_tm1, batch.r_t, settings["discount"] * batch.discount_t, q_t, selector
            )
            return jnp.mean(sample.weights * rlx.l2_loss(td_errors)), td_errors

        def learn(learned, key):
            params, opt_state, held = learned
            sample = replay.sample(held, key, config.batch_size)
            (value, td_errors), gradients = jax.value_and_grad(loss, has_aux=True)(params, sample)
            if config.prioritised:
                held = replay.update_priorities(held, sample.indices, jnp.abs(td_errors))
            directions, opt_state = optimizer.update(gradients, opt_state)
            return (optax.tree.add_scale(params, -settings["learning_rate"] * left, directions), opt_state, held), value

        (params, opt_state, held), losses = jax.lax.scan(learn, (params, opt_state, held), keys[2 : 2 + config.batches])
        target_params = rlx.periodic_update(params, target_params, updates, config.target_period)
        metrics = jnp.sum(returned * last_t), jnp.sum(last_t), jnp.mean(losses)
        return (params, target_params, opt_state, held, playing, updates + 1, keys[0]), metrics

    def train(settings, agent, left):
        agent, (returned, episodes, losses) = jax.lax.scan(lambda *x: update(settings, *x), agent, left)
        return agent, (jnp.sum(returned) / jnp.sum(episodes), jnp.mean(losses))

    def evaluate(params, seed):  # the mean return of 128 greedy episodes, each of at most 10,000 steps
        keys = jax.random.split(jax.random.key(seed + np.uint32(2**31)), 128)

        def play(carry):
            n, playing, over, total = carry
            action = jnp.argmax(network.apply(params, playing.observation), axis=-1)
            playing, seen, last_t, _ = step(playing, action, jax.vmap(jax.random.fold_in, (0, None))(keys, n))
            return n + 1, playing, over | last_t, total + jnp.where(over, 0, seen.r_t)

        start = 0, Playing(*jax.vmap(env.reset)(keys), jnp.zeros(128)), jnp.zeros(128, bool), jnp.zeros(128)
        return jnp.mean(jax.lax.while_loop(lambda carry: (carry[0] < 10_000) & ~jnp.all(carry[2]), play, start)[3])

    return init, train, evaluate


def main(config: Config) -> None:
    if config.capacity < config.environments:
        sys.exit(f"--capacity must be at least --environments, {config.environments}, and is {config.capacity}")
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
    chunks = min(20, updates := -(-config.steps // config.environments))  # a line each
    left = np.asarray(jnp.linspace(1, 0, -(-updates // chunks) * chunks, endpoint=False)).reshape(chunks, -1)
    quick = {"xla_backend_optimization_level": 1} if config.steps * len(seeds) < 2_000_000 else None  # to compile
    begin, agents = time.process_time(), jax.jit(jax.vmap(init), compiler_options=quick)(seeds)
    train = jax.jit(jax.vmap(train, (0, 0, None))).lower(settings, agents, left[0]).compile(quick)
    compiled, curve = time.process_time(), []
    try:
        (room := output / "room").write_bytes(bytes(2**24))  # for what is saved, should the disk be full by then
        for n, part in enumerate(left, start=1):
            agents, (returns, losses) = jax.block_until_ready(train(settings, agents, part))
            returns = np.where(np.isnan(returns), curve[-1][1] if curve else np.nan, returns)  # no episode has ended
            curve.append((n * left.shape[1] * config.environments, returns.tolist(), losses.tolist()))
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
    axes.set(title=f"DQN on {config.env}, {len(final)} agents", xlabel="environment steps", ylabel="return")
    figure.savefig(output / "curve.png", dpi=120)
    for row, x in zip(grid[..., 0].reshape(len(grid), -1).T, final.reshape(-1, config.seeds), strict=True):
        of = " ".join(f"{name}={value:g}" for name, value in zip(swept, row, strict=False) if len(swept[name]) > 1)
        iqm, (low, up) = interquartile_mean(x), bootstrap_interval(interquartile_mean, x)
        print(f"final return: {x.mean():.2f} ± {x.std():.2f}, IQM {iqm:.2f} [{low:.2f}, {up:.2f}], {len(x)} seeds {of}")


if __name__ == "__main__":
    main(tyro.cli(Config, description=__doc__))
