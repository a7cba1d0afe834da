"""IQL, implicit Q-learning, on a data set of continuous actions, in one file.

Kostrikov et al., 2021 (https://arxiv.org/abs/2110.06169): values of states by an expectile of the values of actions in
the data, and a policy that imitates the better of them. The data is a file that `sac.py --save-data` wrote, or the name
of a data set of Minari (`pip install 'minari[hf,hdf5]'`, `minari download NAME`).

    pip install hkx optax tyro matplotlib 'gymnasium[mujoco]' && python iql.py --data hopper.npz
"""

import dataclasses
import importlib.util
import pathlib
import sys
import time
from collections import namedtuple

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
    data: str  # a file that sac.py wrote, or the name of a data set of Minari
    seed: int = 1  # seed of the agent and the evaluation
    updates: int = 1_000_000  # updates in all
    batch_size: int = 256  # transitions in an update
    hidden: int = 256  # units of both hidden layers
    learning_rate: float = 3e-4  # step size of Adam; that of the actor falls to 0 as half a cosine
    discount: float = 0.99  # γ
    tau: float = 0.005  # part by which the target critics move towards the critics in an update
    expectile: float = 0.7  # τ of the values of states
    temperature: float = 1 / 3  # temperature of the weights exp(advantage / temperature)
    max_weight: float = 100.0  # the largest of these weights
    log_every: int = 1_000  # updates in one compiled call
    evaluation_episodes: int = 10  # episodes of the mean action at the end
    track: bool = False  # log to Weights & Biases, offline unless logged in; without wandb to TensorBoard
    video: bool = False  # write a video of the final policy
    output: str = "runs/iql"  # folder for metrics.csv, curve.png and parameters.npz


Learned = namedtuple("Learned", "params target_params actor_opt opt_state")
Transition = namedtuple("Transition", "observation_tm1 a_tm1 observation_t r_t discount_t")  # [N, ...]


def load(config: Config) -> tuple[Transition, gymnasium.Env]:
    """All transitions, with actions scaled to [-1, 1], and the environment that they come from."""
    mode = {"render_mode": "rgb_array"} if config.video else {}
    if pathlib.Path(config.data).is_file():
        with np.load(config.data) as file:  # its actions are scaled, its discounts contain SAC's γ
            data = Transition(*(file[name] for name in Transition._fields))
            data = data._replace(r_t=data.r_t[:, 0], discount_t=config.discount * (data.discount_t[:, 0] > 0))
            return data, gymnasium.make(str(file["env"]), **mode)
    if not importlib.util.find_spec("minari"):
        sys.exit("--data: no such file, and no package minari: pip install 'hkx[examples]' 'minari[hf,hdf5]'")
    try:
        dataset = importlib.import_module("minari").load_dataset(config.data)
    except (FileNotFoundError, ValueError) as error:
        sys.exit(f"--data: {error}")
    if not all(hasattr(x, "low") and len(x.shape) == 1 for x in (dataset.observation_space, dataset.action_space)):
        sys.exit(f"--data: observations and actions must be vectors of numbers, and those of {config.data} are not")
    env = dataset.recover_environment(**mode)
    low, high, columns = env.action_space.low, env.action_space.high, []
    for episode in dataset.iterate_episodes():
        actions = np.clip(2 * (episode.actions - low) / (high - low) - 1, -1, 1)
        discounts = config.discount * (1.0 - episode.terminations)
        columns.append((episode.observations[:-1], actions, episode.observations[1:], episode.rewards, discounts))
    return Transition(*(np.concatenate(x) for x in zip(*columns, strict=True))), env


def make_agent(config: Config, data: Transition):
    sizes, action_size = [config.hidden, config.hidden], data.a_tm1.shape[-1]

    @hkx.without_apply_rng
    @hkx.transform
    def actor(observation):  # [..., D] to a Gaussian of actions [..., A]
        mean = jnp.tanh(hkx.nets.MLP([*sizes, action_size], name="actor")(observation))
        log_scale = jnp.clip(hkx.get_parameter("log_scale", [action_size], init=jnp.zeros), -5, 2)
        return rlx.gaussian_diagonal(jnp.exp(log_scale) * jnp.ones_like(mean), mean)

    @hkx.without_apply_rng
    @hkx.transform
    def critics(observation, action):  # to the values [..., 2]
        x = jnp.concatenate([observation, action], axis=-1)
        return jnp.concatenate([hkx.nets.MLP([*sizes, 1], name=f"critic_{i}")(x) for i in (1, 2)], axis=-1)

    @hkx.without_apply_rng
    @hkx.transform
    def value(observation):  # [..., D] to [...]
        return hkx.nets.MLP([*sizes, 1], name="value")(observation)[..., 0]

    optimizer = optax.flatten(optax.adam(config.learning_rate))
    falling = optax.flatten(optax.adam(optax.cosine_decay_schedule(config.learning_rate, config.updates)))

    @jax.jit
    def init(key):
        keys, observation, action = jax.random.split(key, 3), data.observation_tm1[0], data.a_tm1[0]
        policy = actor.init(keys[0], observation)
        params = {"critics": critics.init(keys[1], observation, action), "value": value.init(keys[2], observation)}
        opt_states = falling.init(policy), optimizer.init(params)
        return Learned({"actor": policy, **params}, jax.tree.map(jnp.copy, params["critics"]), *opt_states)

    def value_losses(params, target_params, batch):
        v_tm1, v_t = (value.apply(params["value"], x) for x in (batch.observation_tm1, batch.observation_t))
        target_q = jnp.min(critics.apply(target_params, batch.observation_tm1, batch.a_tm1), axis=-1)
        value_loss = rlx.batched(rlx.expectile_value_loss)(v_tm1, target_q, config.expectile)
        q_tm1 = critics.apply(params["critics"], batch.observation_tm1, batch.a_tm1)  # [B, 2]
        target = jax.lax.stop_gradient(batch.r_t + batch.discount_t * v_t)
        return jnp.mean(value_loss) + jnp.mean((q_tm1 - target[:, None]) ** 2), (target_q - v_tm1, value_loss)

    def actor_loss(params, adv_tm1, batch):
        log_probs = actor.apply(params, batch.observation_tm1).logprob(batch.a_tm1)
        return rlx.advantage_weighted_loss(log_probs, adv_tm1, config.temperature, config.max_weight)

    def update(learned, batch):
        policy, params = learned.params["actor"], {name: learned.params[name] for name in ("critics", "value")}
        gradients, (adv_tm1, losses) = jax.grad(value_losses, has_aux=True)(params, learned.target_params, batch)
        directions, opt_state = optimizer.update(gradients, learned.opt_state, params)
        params = optax.apply_updates(params, directions)
        directions, actor_opt = falling.update(jax.grad(actor_loss)(policy, adv_tm1, batch), learned.actor_opt, policy)
        params["actor"] = optax.apply_updates(policy, directions)
        target_params = optax.incremental_update(params["critics"], learned.target_params, config.tau)
        return Learned(params, target_params, actor_opt, opt_state), jnp.mean(losses)

    def learn(learned, key, data):  # several updates, each on a batch of its own
        def step(learned, key):
            drawn = jax.random.randint(key, [config.batch_size], 0, len(data.r_t))
            return update(learned, jax.tree.map(lambda x: x[drawn], data))

        learned, losses = jax.lax.scan(step, learned, jax.random.split(key, config.log_every))
        return learned, jnp.mean(losses)

    act_greedily = jax.jit(lambda params, observation: actor.apply(params, observation).mu)
    return init, act_greedily, jax.jit(learn, donate_argnums=0)


def evaluate(config: Config, env: gymnasium.Env, act_greedily, params) -> list[float]:
    env = gymnasium.wrappers.RecordVideo(env, config.output, lambda episode: episode == 0) if config.video else env
    low, high, returns = env.action_space.low, env.action_space.high, []
    for episode in range(config.evaluation_episodes):
        observation, over = env.reset(seed=config.seed + 10_000 + episode)[0], False
        returns.append(0.0)
        while not over:
            action = np.asarray(act_greedily(params, np.float32(observation)))
            observation, reward, ends, cut, _ = env.step(low + (high - low) * (action + 1) / 2)
            returns[-1], over = returns[-1] + float(reward), ends or cut
    env.close()
    return returns


def main(config: Config) -> None:
    wandb = importlib.import_module("wandb") if config.track and importlib.util.find_spec("wandb") else None
    for package in ["tensorboardX"] * (config.track and not wandb) + ["moviepy"] * config.video:
        importlib.util.find_spec(package) or sys.exit(f"a flag needs a package that is missing: pip install {package}")
    (output := pathlib.Path(config.output)).mkdir(parents=True, exist_ok=True)
    data, env = load(config)
    data = Transition(*(jnp.asarray(x, jnp.float32) for x in data))
    if wandb:
        wandb.init(project="iql", config=vars(config), mode="online" if wandb.login(prompt=False) else "offline")
    elif config.track:
        board = importlib.import_module("tensorboardX").SummaryWriter(config.output, max_queue=999)  # for a full disk
    init, act_greedily, learn = make_agent(config, data)
    key, init_key = jax.random.split(jax.random.key(config.seed))
    learned, begin, rows = init(init_key), time.process_time(), []
    try:
        (room := output / "room").write_bytes(bytes(2**24))  # for what is saved, should the disk be full by then
        for n in range(max(1, config.updates // config.log_every)):
            learned, loss = learn(learned, jax.random.fold_in(key, n), data)
            done, loss = (n + 1) * config.log_every, float(loss)
            rows.append((done, loss, time.process_time() - begin))
            print(f"{done:>9,} updates: value loss {loss:.4f}, {rows[-1][2] / done * 1e6:.0f} CPU µs each", flush=True)
            if config.track:
                wandb.log({"value_loss": loss}, step=done) if wandb else board.add_scalar("value_loss", loss, done)
    except (KeyboardInterrupt, OSError) as error:  # of a full disk
        room.unlink(missing_ok=True)
        print(f"interrupted: {error!r}") if rows else sys.exit(f"interrupted before the first steps: {error!r}")
    room.unlink(missing_ok=True)
    np.savetxt(output / "metrics.csv", rows, "%.9g", ",", header="updates,value_loss,cpu_seconds", comments="")
    saved = learned.params["actor"] | learned.params["critics"] | learned.params["value"]
    np.savez(output / "parameters.npz", **{f"{module}/{k}": x for module in saved for k, x in saved[module].items()})
    axes = (figure := Figure(layout="constrained")).subplots()
    axes.plot([row[0] for row in rows], [row[1] for row in rows])
    axes.set(title=f"IQL on {config.data}", xlabel="updates", ylabel="loss of the values of states")
    figure.savefig(output / "curve.png", dpi=120)
    final = evaluate(config, env, act_greedily, learned.params["actor"])
    print(f"final return: {np.mean(final):.2f} over {len(final)} episodes")


if __name__ == "__main__":
    main(tyro.cli(Config, description=__doc__))
