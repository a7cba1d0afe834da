"""MuZero in one compiled program: acting by search in a learnt model, replay and learning.

Danihelka et al., 2022 (https://openreview.net/forum?id=bERaNdoegnO), Schrittwieser et al., 2019 (arxiv 1911.08265).

    pip install hkx gymnax mctx optax tyro matplotlib && python muzero.py --learning-rate 0.002 0.005  # two agents
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
    import mctx
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
    steps: int = 100_000  # environment steps of each agent
    environments: int = 32  # parallel environments of each agent
    rollout: int = 10  # steps of each environment per update, and of the sequences in the replay
    batches: int = 5  # batches of each update
    batch_size: int = 128  # sequences of a batch
    model_steps: int = 4  # steps that the model is unrolled in learning, fewer than --rollout
    capacity: int = 50_000  # steps that the replay holds
    simulations: int = 16  # simulations of each search
    hidden: int = 64  # units of each hidden layer, and of the model's latent state
    bins: int = 31  # bins of values and rewards, from -5 to 5 after rlx.SIGNED_HYPERBOLIC_PAIR
    learning_rate: tuple[float, ...] = (0.002,)  # step size of Adam, falls linearly to 0; several values are all tried
    discount: tuple[float, ...] = (0.99,)  # γ
    lambda_: tuple[float, ...] = (0.9,)  # λ of the returns
    output: str = "runs/muzero"  # folder for metrics.json, curve.png and parameters.npz


Playing = namedtuple("Playing", "observation env_state episode_return")  # [environments, ...]
Step = namedtuple("Step", "observation_tm1 a_tm1 plan_tm1 r_t discount_t last_t observation_t")


def make_agent(config: Config, env):
    actions = getattr(env.action_space(env.default_params), "n", 0) or sys.exit("--env: its actions are continuous")
    bins = rlx.muzero_pair(-5, 5, config.bins, rlx.SIGNED_HYPERBOLIC_PAIR)
    replay = rlx.replay.sequences(max(config.capacity // config.environments, 2 * config.rollout), config.rollout)

    def model():
        predict = hkx.nets.MLP([config.hidden, actions + config.bins], name="predict")

        def latent(x, name):
            return hkx.LayerNorm(-1, False, False)(hkx.nets.MLP([config.hidden] * 2, name=name)(x))

        def represent(observation):  # latent state [B, hidden], logits: policy [B, actions], value [B, bins]
            x = latent(observation.astype(jnp.float32).reshape(len(observation), -1), "represent")
            return x, *jnp.split(predict(x), [actions], axis=-1)

        def foresee(before, action):  # also logits: reward [B, bins], and that the episode goes on [B]
            x = latent(jnp.concatenate([before, jax.nn.one_hot(action, actions)], axis=-1), "foresee")
            outcome = hkx.nets.MLP([config.hidden, config.bins + 1], name="outcome")(x)
            return x, *jnp.split(predict(x), [actions], axis=-1), outcome[:, :-1], outcome[:, -1]

        return lambda x: foresee(represent(x)[0], jnp.zeros(len(x), jnp.int32)), (represent, foresee)

    represent, foresee = (network := hkx.without_apply_rng(hkx.multi_transform(model))).apply
    optimizer = optax.flatten(optax.chain(optax.clip_by_global_norm(5.0), optax.scale_by_adam()))
    cross_entropy, binary_cross_entropy = rlx.categorical_cross_entropy, optax.sigmoid_binary_cross_entropy
    mean = jax.jit(lambda logits: bins.apply_inv(jax.nn.softmax(logits)))  # the number that logits [..., bins] mean

    def step(settings, params, playing, keys, gumbel_scale=1.0):
        def imagine(params, key, action, before):
            x, prior, value, reward, goes_on = foresee(params, before, action)
            outcome = {"reward": mean(reward), "discount": settings["discount"] * jax.nn.sigmoid(goes_on)}
            return mctx.RecurrentFnOutput(prior_logits=prior, value=mean(value), **outcome), x

        x, prior, value = represent(params, playing.observation)
        root = mctx.RootFnOutput(prior_logits=prior, value=mean(value), embedding=x)
        plan = mctx.gumbel_muzero_policy(params, keys[0], root, imagine, config.simulations, gumbel_scale=gumbel_scale)
        observation, env_state, r_t, ends, cut, info = jax.vmap(env.step)(keys[1:], playing.env_state, plan.action)
        returned, last_t, final = playing.episode_return + r_t, ends | cut, info["final_observation"]
        seen = Step(playing.observation, plan.action, plan.action_weights, jnp.float32(r_t), 1.0 - ends, last_t, final)
        return Playing(observation, env_state, jnp.where(last_t, 0, returned)), (seen, returned)

    def init(settings, seed):
        keys = jax.random.split(jax.random.key(seed), 2 + config.environments)
        playing = Playing(*jax.vmap(env.reset)(keys[2:]), jnp.zeros(config.environments))
        params = network.init(keys[1], playing.observation)
        like = jax.eval_shape(step, settings, params, playing, keys[1:])[1][0]
        return params, optimizer.init(params), replay.init(optax.tree.zeros_like(like)), playing, keys[0]

    def update(settings, agent, left):  # `left` is the share of the training that is left
        params, opt_state, held, playing, key = agent
        keys = jax.random.split(key, config.rollout * (1 + config.environments) + 1 + config.batches)

        def loss(params, steps):  # of the model's predictions from the first of the steps [T, B, ...] on
            v_t = mean(jax.vmap(represent, (None, 0))(params, steps.observation_t)[2])
            discount_t, cut = settings["discount"] * steps.discount_t, {"truncation_t": steps.last_t}
            returns = rlx.time_major(rlx.lambda_returns)(steps.r_t, discount_t, v_t, settings["lambda_"], True, **cut)

            def unroll(carry, now):  # halves the gradient of x, as in MuZero
                (x, policy, value, same), (was, returned) = carry, now
                losses = cross_entropy(was.plan_tm1, policy) + cross_entropy(bins.apply(returned), value)
                x, policy, value, reward, goes_on = foresee(params, x, was.a_tm1)
                losses += cross_entropy(bins.apply(was.r_t), reward) + binary_cross_entropy(goes_on, was.discount_t)
                return ((x + jax.lax.stop_gradient(x)) / 2, policy, value, same & ~was.last_t), same * losses

            start = *represent(params, steps.observation_tm1[0]), jnp.ones(config.batch_size, bool)
            targets = jax.tree.map(lambda x: x[: config.model_steps + 1], (steps, returns))
            return jnp.mean(jax.lax.scan(unroll, start, targets)[1])

        def learn(learned, key):
            params, opt_state = learned
            batch = jax.tree.map(lambda x: x.swapaxes(0, 1), replay.sample(held, key, config.batch_size).items)
            value, gradients = jax.value_and_grad(loss)(params, batch)
            directions, opt_state = optimizer.update(gradients, opt_state)
            return (optax.tree.add_scale(params, -settings["learning_rate"] * left, directions), opt_state), value

        keys_of_steps = keys[1 + config.batches :].reshape(config.rollout, -1)
        playing, (steps, returned) = jax.lax.scan(lambda *x: step(settings, params, *x), playing, keys_of_steps)
        held = replay.add_batch(held, steps)
        (params, opt_state), losses = jax.lax.scan(learn, (params, opt_state), keys[1 : 1 + config.batches])
        return (params, opt_state, held, playing, keys[0]), (returned, steps.last_t, losses)

    def train(settings, agent, left):
        agent, (returned, last_t, losses) = jax.lax.scan(lambda *x: update(settings, *x), agent, left)
        return agent, (jnp.sum(returned * last_t) / jnp.sum(last_t), jnp.mean(losses))

    def evaluate(settings, params, seed):  # the mean return of 128 greedy episodes, each of at most 10,000 steps
        keys = jax.random.split(jax.random.key(seed + np.uint32(2**31)), 129)

        def play(carry):
            n, playing, over, total = carry
            playing, (seen, _) = step(settings, params, playing, jax.vmap(jax.random.fold_in, (0, None))(keys, n), 0.0)
            return n + 1, playing, over | seen.last_t, total + jnp.where(over, 0, seen.r_t)

        start = 0, Playing(*jax.vmap(env.reset)(keys[1:]), jnp.zeros(128)), jnp.zeros(128, bool), jnp.zeros(128)
        return jnp.mean(jax.lax.while_loop(lambda carry: (carry[0] < 10_000) & ~jnp.all(carry[2]), play, start)[3])

    return init, train, evaluate


def main(config: Config) -> None:
    try:
        env = pkgutil.resolve_name(config.env)() if ":" in config.env else gymnax.make(config.env)[0]
    except (ImportError, AttributeError, ValueError) as error:
        sys.exit(f"--env: {error} (MODULE:NAME, or one of {', '.join(gymnax.registered_envs)})")
    init, train, evaluate = make_agent(config, env)
    (output := pathlib.Path(config.output)).mkdir(parents=True, exist_ok=True)
    swept = {name: values for name, values in vars(config).items() if isinstance(values, tuple)}
    grid = np.array(np.meshgrid(*swept.values(), range(config.seed, config.seed + config.seeds), indexing="ij"))
    settings, seeds = {name: jnp.float32(grid[i].ravel()) for i, name in enumerate(swept)}, jnp.uint32(grid[-1].ravel())
    chunks = min(20, updates := -(-config.steps // (config.environments * config.rollout)))  # a line each
    left = np.asarray(jnp.linspace(1, 0, -(-updates // chunks) * chunks, endpoint=False)).reshape(chunks, -1)
    quick = {"xla_backend_optimization_level": 1} if config.steps * len(seeds) < 2_000_000 else None  # to compile
    begin, agents = time.process_time(), jax.jit(jax.vmap(init), compiler_options=quick)(settings, seeds)
    train = jax.jit(jax.vmap(train, (0, 0, None))).lower(settings, agents, left[0]).compile(quick)
    compiled, curve = time.process_time(), []
    try:
        (room := output / "room").write_bytes(bytes(2**24))  # for what is saved, should the disk be full by then
        for n, part in enumerate(left, start=1):
            agents, (returns, losses) = jax.block_until_ready(train(settings, agents, part))
            curve.append((n * left.shape[1] * config.environments * config.rollout, returns.tolist(), losses.tolist()))
            print(f"{curve[-1][0]:>11,} steps: return {np.mean(returns):.2f} ± {np.std(returns):.2f}")
    except (KeyboardInterrupt, OSError) as error:  # of a full disk
        room.unlink(missing_ok=True)
        print(f"interrupted: {error!r}") if curve else sys.exit(f"interrupted before the first steps: {error!r}")
    room.unlink(missing_ok=True)
    seconds = {"cpu_seconds_to_compile": compiled - begin, "cpu_seconds_to_run": time.process_time() - compiled}
    np.savez(output / "parameters.npz", **{f"{m}/{name}": x for m, name, x in hkx.data_structures.traverse(agents[0])})
    final = np.asarray(jax.jit(jax.vmap(evaluate), compiler_options=quick)(settings, agents[0], seeds))  # greedy
    columns = dict(zip(("environment_steps", "return", "loss"), zip(*curve, strict=True), strict=True))
    metrics = {"environment_steps": curve[-1][0], "agents": len(final), "final_return": final.tolist(), **seconds}
    (output / "metrics.json").write_text(json.dumps(metrics | {"settings": vars(config), "curve": columns}))
    axes = (figure := Figure(layout="constrained")).subplots()
    axes.plot(columns["environment_steps"], columns["return"])
    axes.set(title=f"MuZero on {config.env}, {len(final)} agents", xlabel="environment steps", ylabel="return")
    figure.savefig(output / "curve.png", dpi=120)
    for row, x in zip(grid[..., 0].reshape(len(grid), -1).T, final.reshape(-1, config.seeds), strict=True):
        of = " ".join(f"{name}={value:g}" for name, value in zip(swept, row, strict=False) if len(swept[name]) > 1)
        iqm, (low, up) = interquartile_mean(x), bootstrap_interval(interquartile_mean, x)
        print(f"final return: {x.mean():.2f} ± {x.std():.2f}, IQM {iqm:.2f} [{low:.2f}, {up:.2f}], {len(x)} seeds {of}")


if __name__ == "__main__":
    main(tyro.cli(Config, description=__doc__))
