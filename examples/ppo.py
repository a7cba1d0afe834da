"""PPO in one compiled program: environments, acting, advantages and learning, for many seeds and settings at once.

Schulman et al., 2017 (https://arxiv.org/abs/1707.06347). `--env MODULE:NAME` is any environment of gymnax's kind.

    pip install hkx gymnax optax tyro matplotlib && python ppo.py --seeds 4 --learning-rate 0.01 0.005  # eight agents
"""

import dataclasses
import json
import pathlib
import pkgutil
import sys
import time
from collections import namedtuple
from typing import Any, Literal

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
    steps: int = 131_072  # environment steps of each agent
    environments: int = 32  # parallel environments of each agent
    rollout: int = 32  # steps of each environment per update
    minibatches: int = 4  # parts of the steps, or with a memory of the sequences, in learning
    epochs: int = 4  # passes over the steps of each update
    hidden: int = 64  # units of each hidden layer, and of the memory
    layers: int = 1  # hidden layers of the policy and of the value, each, after the memory
    memory: Literal["none", "lstm", "gru"] = "none"  # recurrent core of the policy
    learning_rate: tuple[float, ...] = (0.005,)  # step size of Adam, falls linearly to 0; several values are all tried
    discount: tuple[float, ...] = (0.99,)  # γ
    lambda_: tuple[float, ...] = (0.95,)  # λ of the advantages
    clip: tuple[float, ...] = (0.2,)  # ε of the clipped probability ratios
    value_cost: tuple[float, ...] = (0.5,)  # weight of the value loss
    entropy_cost: tuple[float, ...] = (0.01,)  # weight of the entropy bonus
    output: str = "runs/ppo"  # folder for metrics.json, curve.png and parameters.npz


# Arrays [environments, ...] and [time, environments, ...]; `v_t` is of the last observation where an episode ended.
Playing = namedtuple("Playing", "observation first memory env_state episode_return")
Transition = namedtuple("Transition", "observation_tm1 first_tm1 a_tm1 log_prob_tm1 v_tm1 r_t discount_t last_t v_t")


def make_agent(config: Config, env: Any) -> tuple[Any, Any, Any]:
    actions, orthogonal = env.action_space(env.default_params), hkx.initializers.Orthogonal
    core, discrete = {"lstm": hkx.LSTM, "gru": hkx.GRU}.get(config.memory), hasattr(actions, "n")

    def actor_critic(observation, first, memory):  # [T, B, ...], [T, B], [B, ...]; all of it also without T
        x = (jnp.float32 if discrete else rlx.signed_logp1)(observation).reshape(*first.shape, -1)  # speeds of any size
        size, like = actions.n if discrete else actions.shape[0], {"w_init": orthogonal(2**0.5), "activate_final": True}
        if core:
            x, cell = (hkx.nets.MLP([config.hidden], **like)(x), first), hkx.ResetCore(core(config.hidden))
            x, memory = hkx.dynamic_unroll(cell, x, memory) if first.ndim == 2 else cell(x, memory)
        x, v = (hkx.nets.MLP([config.hidden] * config.layers, **like)(x) for _ in range(2))
        head = hkx.Linear(size, w_init=orthogonal(0.01), name="policy")(x)
        if not discrete:
            head = head, jnp.exp(hkx.get_parameter("log_scale", [size], init=jnp.zeros)) * jnp.ones_like(head)
        return head, hkx.Linear(1, name="value")(v)[..., 0], memory  # [T, B, A], [T, B], [B, ...]

    network = hkx.without_apply_rng(hkx.transform(actor_critic))
    initial_memory = hkx.transform(lambda count: core(config.hidden).initial_state(count) if core else ())
    optimizer = optax.flatten(optax.chain(optax.clip_by_global_norm(0.5), optax.scale_by_adam(eps=1e-5)))
    policy = (lambda head: rlx.softmax(logits=head)) if discrete else (lambda head: rlx.gaussian_diagonal(*head[::-1]))
    gae = rlx.time_major(rlx.truncated_generalized_advantage_estimation)

    def reset(keys):
        n, (observation, env_state) = len(keys), jax.vmap(env.reset)(keys)
        return Playing(observation, jnp.ones(n, bool), initial_memory.apply({}, None, n), env_state, jnp.zeros(n))

    def step(playing, action, memory, keys):
        action = action if discrete else actions.low + (jnp.clip(action, -1, 1) + 1) / 2 * (actions.high - actions.low)
        observation, env_state, r_t, ends, cut, info = jax.vmap(env.step)(keys, playing.env_state, action)
        returned, last_t = playing.episode_return + r_t, ends | cut
        new = Playing(observation, last_t, memory, env_state, jnp.where(last_t, 0, returned))
        return new, (r_t, 1.0 - ends, last_t, info["final_observation"], returned)

    def init(seed):
        keys = jax.random.split(jax.random.key(seed), 2 + config.environments)
        playing = reset(keys[2:])
        return (params := network.init(keys[1], *playing[:3])), optimizer.init(params), playing, keys[0]

    def update(settings, agent, left):  # `left` is the share of the training that is left
        params, _, before, key = agent
        keys = jax.random.split(key, config.rollout * (1 + config.environments) + 2)  # one split compiles fastest

        def act(playing, keys):
            head, v_tm1, memory = network.apply(params, *playing[:3])
            a_tm1 = policy(head).sample(keys[0])
            new, (r_t, discount_t, last_t, observation_t, returned) = step(playing, a_tm1, memory, keys[1:])
            v_t = network.apply(params, observation_t, jnp.zeros_like(last_t), memory)[1]
            seen = *playing[:2], a_tm1, policy(head).logprob(a_tm1), v_tm1
            return new, (Transition(*seen, r_t, settings["discount"] * discount_t, last_t, v_t), returned)

        def loss(params, memory, steps, adv_t):
            head, v_tm1, _ = network.apply(params, *steps[:2], memory)
            ratios = jnp.exp(policy(head).logprob(steps.a_tm1) - steps.log_prob_tm1)
            value_loss = jnp.mean(rlx.l2_loss(v_tm1, steps.v_tm1 + adv_t))
            adv_t = (adv_t - jnp.mean(adv_t)) / (jnp.std(adv_t) + 1e-8)
            others = settings["value_cost"] * value_loss - settings["entropy_cost"] * jnp.mean(policy(head).entropy())
            return rlx.clipped_surrogate_pg_loss(ratios.ravel(), adv_t.ravel(), settings["clip"]) + others

        def learn(learned, part):
            params, opt_state = learned
            batch = jax.tree.map(lambda x: x[part], before.memory), *jax.tree.map(lambda x: x[:, part], data)
            value, gradients = jax.value_and_grad(loss)(params, *batch)
            directions, opt_state = optimizer.update(gradients, opt_state)
            return (optax.tree.add_scale(params, -settings["learning_rate"] * left, directions), opt_state), value

        playing, (steps, returned) = jax.lax.scan(act, before, keys[2:].reshape(config.rollout, -1))
        values = jnp.concatenate([steps.v_tm1, steps.v_t[-1:]])
        cut = {"truncation_t": steps.last_t, "truncation_value_t": steps.v_t}
        adv_t = gae(steps.r_t, steps.discount_t, settings["lambda_"], values, **cut)
        data = jax.tree.map(lambda x: x if core else x.reshape(1, -1, *x.shape[2:]), (steps, adv_t))
        order = jnp.argsort(jax.random.bits(keys[1], [config.epochs, data[1].shape[1]]))  # of steps, or whole sequences
        learned, losses = jax.lax.scan(learn, agent[:2], order.reshape(config.epochs * config.minibatches, -1))
        return (*learned, playing, keys[0]), (returned, steps.last_t, losses)

    def train(settings, agent, left):
        agent, (returned, last_t, losses) = jax.lax.scan(lambda *x: update(settings, *x), agent, left)
        return agent, (jnp.sum(returned * last_t) / jnp.sum(last_t), jnp.mean(losses))

    def evaluate(params, seed):  # the mean return of 128 greedy episodes, each of at most 10,000 steps
        keys = jax.random.split(jax.random.key(seed + np.uint32(2**31)), 128)

        def play(carry):
            n, playing, over, total = carry
            head, _, memory = network.apply(params, *playing[:3])
            action = jnp.argmax(head, axis=-1) if discrete else head[0]
            new, (r_t, _, last_t, *_) = step(playing, action, memory, jax.vmap(jax.random.fold_in, (0, None))(keys, n))
            return n + 1, new, over | last_t, total + jnp.where(over, 0, r_t)

        start = 0, reset(keys), jnp.zeros(len(keys), bool), jnp.zeros(len(keys))
        return jnp.mean(jax.lax.while_loop(lambda carry: (carry[0] < 10_000) & ~jnp.all(carry[2]), play, start)[3])

    return init, train, evaluate


def main(config: Config) -> None:
    if (number := config.environments * (config.rollout if config.memory == "none" else 1)) % config.minibatches:
        sys.exit(f"--minibatches must divide {number} steps, or sequences for --memory, and is {config.minibatches}")
    try:
        env = pkgutil.resolve_name(config.env)() if ":" in config.env else gymnax.make(config.env)[0]
    except (ImportError, AttributeError, ValueError) as error:
        sys.exit(f"--env: {error} (MODULE:NAME, or one of {', '.join(gymnax.registered_envs)})")
    (output := pathlib.Path(config.output)).mkdir(parents=True, exist_ok=True)
    init, train, evaluate = make_agent(config, env)
    swept = {name: values for name, values in vars(config).items() if isinstance(values, tuple)}
    grid = np.array(np.meshgrid(*swept.values(), range(config.seed, config.seed + config.seeds), indexing="ij"))
    settings, seeds = {name: jnp.float32(grid[i].ravel()) for i, name in enumerate(swept)}, jnp.uint32(grid[-1].ravel())
    size = -(-(updates := -(-config.steps // (config.environments * config.rollout))) // 30)  # updates for each line
    left = np.asarray(jnp.linspace(1, 0, -(-updates // size) * size, endpoint=False)).reshape(-1, size)
    quick = {"xla_backend_optimization_level": 1} if config.steps * len(seeds) < 2_000_000 else None  # to compile
    begin, agents = time.process_time(), jax.jit(jax.vmap(init), compiler_options=quick)(seeds)
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
    axes.set(title=f"PPO on {config.env}, {len(final)} agents", xlabel="environment steps", ylabel="return")
    figure.savefig(output / "curve.png", dpi=120)
    for row, x in zip(grid[..., 0].reshape(len(grid), -1).T, final.reshape(-1, config.seeds), strict=True):
        of = " ".join(f"{name}={value:g}" for name, value in zip(swept, row, strict=False) if len(swept[name]) > 1)
        iqm, (low, up) = interquartile_mean(x), bootstrap_interval(interquartile_mean, x)
        print(f"final return: {x.mean():.2f} ± {x.std():.2f}, IQM {iqm:.2f} [{low:.2f}, {up:.2f}], {len(x)} seeds {of}")


if __name__ == "__main__":
    main(tyro.cli(Config, description=__doc__))
