"""IMPALA on Ray: actors in processes of their own, on one machine or many, and one learner on all its devices.

Espeholt et al., 2018 (https://arxiv.org/abs/1802.01561), with V-trace and RMSProp. Ray replaces an actor that dies,
which costs no more than its unroll; a learner that dies goes on from its last checkpoint.

    pip install 'hkx[actors]' && python impala.py --actors 4  # or, on a running cluster, --address auto --actors 64
"""

import dataclasses
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
    import orbax.checkpoint as ocp
    import ray
    import tyro
    from jax.sharding import Mesh, NamedSharding, PartitionSpec
    from matplotlib.figure import Figure

    import hkx
    import rlx
except ModuleNotFoundError as error:
    sys.exit(f"{error}: pip install 'hkx[actors]'")


@dataclasses.dataclass(frozen=True)
class Config:
    env: str = "CartPole-v1"  # a Gymnasium environment with discrete actions
    seed: int = 0  # seed of the environments and the agent
    steps: int = 500_000  # environment steps in all
    actors: int = 2  # processes that act
    environments: int = 16  # parallel environments of each actor; the devices of the learner divide them
    unroll: int = 20  # steps of each environment per update
    hidden: int = 64  # units of both hidden layers
    learning_rate: float = 4e-3  # step size of RMSProp, falls linearly to 0
    discount: float = 0.99  # γ
    lambda_: float = 0.95  # λ of V-trace
    value_cost: float = 0.5  # weight of the value loss
    entropy_cost: float = 0.01  # weight of the entropy bonus
    checkpoint_every: int = 200  # updates between two checkpoints
    address: str = ""  # address of a running Ray cluster; auto finds one
    evaluation_episodes: int = 10  # greedy episodes at the end
    output: str = "runs/impala"  # folder for checkpoints, metrics.csv, curve.png and parameters.npz


Steps = namedtuple("Steps", "observation a_tm1 log_prob_tm1 r_t ends_t last_t valid_t")  # [T, E, ...], [T + 1, E, D]
Learned = namedtuple("Learned", "params opt_state updates")


def make_network(config: Config, actions: int):
    def actor_critic(observation):  # [..., D] to logits [..., A] and values [...]
        mlps = [hkx.nets.MLP([config.hidden] * 2, activation=jnp.tanh, activate_final=True) for _ in range(2)]
        logits = hkx.Linear(actions, w_init=hkx.initializers.Orthogonal(0.01), name="policy")(mlps[0](observation))
        return logits, hkx.Linear(1, name="value")(mlps[1](observation))[..., 0]

    return hkx.without_apply_rng(hkx.transform(actor_critic))


@ray.remote(num_cpus=0, max_restarts=-1)  # in a process of its own, which Ray starts again if it dies
class Actor:
    def __init__(self, config: Config, number: int):
        jax.config.update("jax_platforms", "cpu")
        self.config, self.envs = config, gymnasium.make_vec(config.env, config.environments)
        network = make_network(config, int(self.envs.single_action_space.n))

        @jax.jit
        def act(params, key, n, observation):
            logits, _ = network.apply(params, observation)
            a_tm1 = rlx.softmax().sample(jax.random.fold_in(key, n), logits)
            return a_tm1, rlx.softmax().logprob(a_tm1, logits)

        begun = time.time_ns() % 2**31  # an actor that is started again does not repeat itself
        self.act, self.key, self.n = act, jax.random.fold_in(jax.random.key(config.seed), number), begun
        self.observation = self.envs.reset(seed=config.seed + 1000 * number + begun % 1000)[0]
        self.last, self.returns = np.zeros(config.environments, bool), np.zeros(config.environments)

    def unroll(self, params) -> tuple[Steps, list[float]]:
        steps, finished, observations = [], [], [np.float32(self.observation)]
        for _ in range(self.config.unroll):
            self.n += 1
            a_tm1, log_prob = self.act(params, self.key, np.uint32(self.n), observations[-1])
            observation, reward, ends, cut, _ = self.envs.step(np.asarray(a_tm1))
            steps.append((a_tm1, log_prob, np.float32(reward), ends, ends | cut, ~self.last))
            observations.append(np.float32(observation))  # begins a new episode in the step after the last
            self.returns, self.last = self.returns * ~self.last + reward, ends | cut
            finished.extend(self.returns[self.last].tolist())
        self.observation = observations[-1]
        columns = (np.stack([np.asarray(x) for x in column]) for column in zip(*steps, strict=True))
        return Steps(np.stack(observations), *columns), finished


def make_learner(config: Config, observation_size: int, actions: int, updates: int):
    network, policy = make_network(config, actions), rlx.softmax()
    falling = optax.linear_schedule(config.learning_rate, 0, updates)
    optimizer = optax.flatten(optax.chain(optax.clip_by_global_norm(0.5), optax.rmsprop(falling, decay=0.99, eps=1e-5)))

    def init():
        params = network.init(jax.random.key(config.seed), jnp.zeros(observation_size))
        return Learned(params, optimizer.init(params), jnp.int32(0))

    def loss(params, steps):
        logits, values = network.apply(params, steps.observation)
        logits, log_prob = logits[:-1], policy.logprob(steps.a_tm1, logits[:-1])
        rho_tm1 = jnp.exp(jax.lax.stop_gradient(log_prob) - steps.log_prob_tm1)
        discount_t, weights = config.discount * (1.0 - steps.ends_t), jnp.float32(steps.valid_t)
        inputs, cut = (values[:-1], values[1:], steps.r_t, discount_t, rho_tm1, config.lambda_), steps.last_t
        traced = rlx.time_major(rlx.vtrace_td_error_and_advantage)(*inputs, truncation_t=cut)
        adv_t = jax.lax.stop_gradient(traced.pg_advantage)
        others = config.value_cost * rlx.l2_loss(traced.errors) - config.entropy_cost * policy.entropy(logits)
        return jnp.mean(weights * (others - log_prob * adv_t))

    def learn(learned, steps):
        gradients = jax.grad(loss)(learned.params, steps)
        directions, opt_state = optimizer.update(gradients, learned.opt_state, learned.params)
        return Learned(optax.apply_updates(learned.params, directions), opt_state, learned.updates + 1)

    greedy = jax.jit(lambda params, observation: jnp.argmax(network.apply(params, observation)[0], axis=-1))
    return jax.jit(init), jax.jit(learn), greedy


def evaluate(config: Config, greedy, params) -> list[float]:
    env, returns = gymnasium.make(config.env), []
    for episode in range(config.evaluation_episodes):
        observation, over = env.reset(seed=config.seed + 10_000 + episode)[0], False
        returns.append(0.0)
        while not over:
            observation, reward, ends, cut, _ = env.step(int(greedy(params, np.float32(observation))))
            returns[-1], over = returns[-1] + float(reward), ends or cut
    return returns


def main(config: Config) -> None:
    mesh = Mesh(np.array(jax.devices()), ("data",))
    if config.environments % mesh.size:
        sys.exit(f"--environments must be a multiple of {mesh.size}, the devices, and is {config.environments}")
    try:
        env = gymnasium.make(config.env)
    except gymnasium.error.Error as error:
        sys.exit(f"--env: {error}")
    if not hasattr(env.action_space, "n") or len(env.observation_space.shape or ()) != 1:
        sys.exit(f"--env: observations must be vectors and actions discrete, and those of {config.env} are not")
    ray.init(config.address or None, log_to_driver=False, logging_level="error")
    per_update, columns = config.unroll * config.environments, "steps,return,steps_per_second,lost_actors"
    total, rows, lost, finished = max(1, config.steps // per_update), [], 0, deque(maxlen=100)
    init, learn, greedy = make_learner(config, *env.observation_space.shape, int(env.action_space.n), total)
    learned, whole = init(), NamedSharding(mesh, PartitionSpec())
    split = NamedSharding(mesh, PartitionSpec(None, "data"))  # the environments of an unroll, among the devices
    (output := pathlib.Path(config.output)).mkdir(parents=True, exist_ok=True)
    with ocp.CheckpointManager((output / "checkpoints").absolute()) as manager:
        if (done := manager.latest_step()) is not None:
            learned = manager.restore(done, args=ocp.args.StandardRestore(learned))
            rows = np.loadtxt(output / "metrics.csv", delimiter=",", skiprows=1, ndmin=2).tolist()
            rows = [row for row in rows if row[0] <= done * per_update]
            print(f"going on after {done * per_update:,} steps")
        learned, first, begin = jax.device_put(learned, whole), done or 0, time.perf_counter()
        params = ray.put(jax.device_get(learned.params))
        running = {(a := Actor.remote(config, i)).unroll.remote(params): a for i in range(config.actors)}
        try:
            for n in range(first + 1, total + 1):
                while True:
                    (ready,), _ = ray.wait(list(running))
                    actor = running.pop(ready)
                    try:
                        steps, returns = ray.get(ready)
                        break
                    except ray.exceptions.RayActorError:  # Ray starts it again
                        lost, running[actor.unroll.remote(params)] = lost + 1, actor
                learned = learn(learned, jax.device_put(steps, split))
                params = ray.put(jax.device_get(learned.params))
                running[actor.unroll.remote(params)] = actor
                finished.extend(returns)
                if n % config.checkpoint_every == 0 or n == total:
                    manager.save(n, args=ocp.args.StandardSave(learned))
                    speed = (n - first) * per_update / (time.perf_counter() - begin)
                    rows.append((n * per_update, np.mean(finished) if finished else np.nan, round(speed), lost))
                    np.savetxt(output / "metrics.csv", rows, "%.9g", ",", header=columns, comments="")
                    print(f"{rows[-1][0]:>9,} steps: return {rows[-1][1]:.1f}, {speed:,.0f}/s, {lost} actors lost")
        except KeyboardInterrupt:
            print("interrupted; the same command goes on from the last checkpoint")
    ray.shutdown()
    saved = hkx.data_structures.traverse(learned.params)
    np.savez(output / "parameters.npz", **{f"{module}/{name}": x for module, name, x in saved})
    axes = (figure := Figure(layout="constrained")).subplots()
    axes.plot([row[0] for row in rows], [row[1] for row in rows])
    axes.set(title=f"IMPALA on {config.env}", xlabel="environment steps", ylabel="mean return of 100 episodes")
    figure.savefig(output / "curve.png", dpi=120)
    final = evaluate(config, greedy, learned.params)
    print(f"final return: {np.mean(final):.2f} over {len(final)} episodes")


if __name__ == "__main__":
    main(tyro.cli(Config, description=__doc__))
