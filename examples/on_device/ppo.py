r"""PPO that runs entirely on the device: environments, acting, advantages and learning in one compiled program.

Schulman et al., "Proximal Policy Optimization Algorithms", 2017 (https://arxiv.org/abs/1707.06347). The policy may be
recurrent (`--memory lstm`), with a memory that is reset in each episode. A truncated episode bootstraps from the value
of its last observation; a terminated one does not.

    python examples/on_device/ppo.py                                                 # cart-pole, in seconds
    python examples/on_device/ppo.py --agents 64 --learning-rate 0.001,0.002,0.005,0.01
    python examples/on_device/ppo.py --env memory_chain --memory gru --steps 32768   # at chance without a memory
    python examples/on_device/ppo.py --env pendulum --steps 1500000 --rollout 128 --layers 2 \
        --discount 0.9 --learning-rate 0.001 --value-cost 0.02
"""

import dataclasses
import pathlib
import sys
from typing import Annotated, Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax
from dm_env import specs

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))  # examples/, where the environments are

from environments import Running, auto_reset
from on_device.training import (
    LITTLE_EFFORT,
    Each,
    Learner,
    RunSettings,
    Shares,
    bounds_of_actions,
    check_minibatches,
    episodes,
    find_environment,
    train,
)
from program import start
from settings import Between, Count

import hkx
import rlx

CORES = {"none": None, "lstm": hkx.LSTM, "gru": hkx.GRU}
NEARLY_ZERO = hkx.initializers.VarianceScaling(0.01)  # so that the initial policy is nearly uniform


@dataclasses.dataclass(frozen=True)
class Config(RunSettings):
    """The settings of a run. Every field is a flag of the command line."""

    env: str = "cartpole"  # environment: a file of examples/environments, or gymnax:NAME
    steps: Count = 131_072  # environment steps per agent, in all its environments
    environments: Count = 32  # parallel environments per agent
    rollout: Count = 32  # steps of each environment per update
    minibatches: Count = 4  # parts into which the environments are divided for learning
    epochs: Count = 4  # passes over the steps of each update
    hidden: Count = 64  # size of each hidden layer, and of the memory
    layers: Count = 1  # number of hidden layers
    memory: Literal["none", "lstm", "gru"] = "none"  # recurrent core of the policy
    learning_rate: Shares = (0.005,)  # initial learning rate of Adam, which decreases linearly to 0
    discount: Shares = (0.99,)  # discount factor per step
    lambda_: Shares = (0.95,)  # λ of the advantages: 0 bootstraps after one step, 1 only at the end
    clip: Annotated[Each, Between(0)] = (0.2,)
    """ε, the clipping parameter: the range [1 - ε, 1 + ε] of the probability ratio"""
    value_cost: Annotated[Each, Between(0)] = (0.5,)  # weight of the value loss
    entropy_cost: Annotated[Each, Between(0)] = (0.01,)  # weight of the entropy bonus
    max_gradient: Annotated[float, Between(0)] = 0.5  # maximum norm of the gradient; larger ones are scaled down
    output: str = "runs/on_device_ppo"  # folder for the metrics, the curve, the parameters and the checkpoint

    def __post_init__(self) -> None:
        super().__post_init__()
        check_minibatches(self)


class State(NamedTuple):
    """The state of a learner, which updates change, and the settings that vary between agents."""

    params: hkx.Params
    opt_state: optax.OptState
    running: Running  # [environments, ...]
    begins: jax.Array  # [environments], whether the current observation is the first of its episode
    memory: Any  # [environments, ...], of the earlier observations
    key: jax.Array
    updates: jax.Array  # []
    numbers: dict[str, jax.Array]  # settings that may differ between agents


class Transition(NamedTuple):
    """Transitions, [time, environments, ...]."""

    observation_tm1: Any
    begins_tm1: jax.Array
    a_tm1: jax.Array
    log_prob_tm1: jax.Array
    v_tm1: jax.Array
    r_t: jax.Array
    discount_t: jax.Array  # 0 where the episode terminated
    observation_t: Any  # the last observation of the episode, if it ended
    last_t: jax.Array
    memory_t: Any  # of the observations before `observation_t`


def make_learner(config: Config) -> Learner:
    episode = find_environment(config)
    environment = auto_reset(episode)
    discrete = isinstance(episode.action_spec(), specs.DiscreteArray)
    spec = episode.action_spec() if discrete else bounds_of_actions(config, episode)
    steps_per_update = config.environments * config.rollout
    total = max(1, round(config.steps / steps_per_update))

    def core() -> hkx.RNNCore:
        return hkx.ResetCore(CORES[config.memory](config.hidden))

    def actor_critic(observation: jax.Array, begins: jax.Array, memory: Any) -> tuple[Any, jax.Array, Any]:
        """For observations [T, B, ...]: the parameters of the policy, the values [T, B], and the memory afterwards."""
        x = jnp.float32(observation).reshape(*begins.shape, -1)
        x = hkx.nets.MLP([config.hidden] * config.layers, activation=jnp.tanh, activate_final=True)(x)
        if config.memory != "none":
            x, memory = hkx.dynamic_unroll(core(), (x, begins), memory)
        value = hkx.Linear(1, name="value")(x)[..., 0]
        head = hkx.Linear(spec.num_values if discrete else spec.shape[0], w_init=NEARLY_ZERO, name="policy")(x)
        if not discrete:
            log_sigma = hkx.get_parameter("log_sigma", [spec.shape[0]], init=jnp.zeros)
            head = jnp.broadcast_to(jnp.exp(log_sigma), head.shape), head
        return head, value, memory

    network = hkx.without_apply_rng(hkx.transform(actor_critic))
    optimizer = optax.chain(optax.clip_by_global_norm(config.max_gradient), optax.scale_by_adam())
    optimizer = optax.flatten(optimizer)  # one vector compiles faster than many small arrays

    def memory_of(count: int) -> Any:
        begin = hkx.without_apply_rng(hkx.transform(lambda: core().initial_state(count)))
        return () if config.memory == "none" else begin.apply({})

    def policy(head: Any) -> Any:
        return rlx.softmax(logits=head) if discrete else rlx.gaussian_diagonal(*head)

    @jax.vmap
    def as_actions(a: jax.Array) -> jax.Array:
        """Converts the policy's actions to those of the environments; for a Gaussian, -1 and 1 map to the bounds."""
        return a if discrete else spec.minimum + (spec.maximum - spec.minimum) / 2 * (jnp.clip(a, -1, 1) + 1)

    def one_step(params: hkx.Params, observation: Any, begins: jax.Array, memory: Any) -> tuple[Any, jax.Array, Any]:
        head, value, memory = network.apply(params, observation[None], begins[None], memory)
        return jax.tree.map(lambda x: x[0], head), value[0], memory

    def init(key: jax.Array, numbers: dict[str, jax.Array]) -> State:
        keys = jax.random.split(key, 2 + config.environments)
        running, _ = jax.vmap(environment.reset)(keys[2:])
        begins, memory = jnp.ones(config.environments, bool), memory_of(config.environments)
        params = network.init(keys[0], running.observation[None], begins[None], memory)
        return State(params, optimizer.init(params), running, begins, memory, keys[1], jnp.int32(0), numbers)

    def update(state: State, _: None) -> tuple[State, dict[str, jax.Array]]:
        params, opt_state, running, begins, memory, key, updates, numbers = state
        # A single split for all keys: separate ones would take longer to compile than the network.
        keys = jax.random.split(key, config.rollout * (1 + config.environments) + 2)
        key, shuffle_key, keys = keys[0], keys[1], keys[2:].reshape(config.rollout, 1 + config.environments)

        def step(carry: Any, keys: jax.Array) -> tuple[Any, tuple[Transition, jax.Array]]:
            running, begins, memory = carry
            head, v_tm1, memory_t = one_step(params, running.observation, begins, memory)
            a_tm1 = policy(head).sample(keys[0])
            new, timestep = jax.vmap(environment.step)(keys[1:], running, as_actions(a_tm1))
            before = running.observation, begins, a_tm1, policy(head).logprob(a_tm1), v_tm1
            discount_t = numbers["discount"] * timestep.discount
            after = timestep.reward, discount_t, timestep.observation, timestep.last(), memory_t
            returned = running.episode_return + timestep.reward
            return (new, timestep.last(), memory_t), (Transition(*before, *after), returned)

        (running, begins, memory_t), (steps, returned) = jax.lax.scan(step, (running, begins, memory), keys)
        # Values of the observations after each step, which at the end of an episode is not the next one to act on.
        goes_on = jnp.zeros_like(begins)
        v_t = jax.vmap(lambda seen, memory: one_step(params, seen, goes_on, memory)[1])(
            steps.observation_t, steps.memory_t
        )
        values = jnp.concatenate([steps.v_tm1, v_t[-1:]])
        estimate = rlx.time_major(rlx.truncated_generalized_advantage_estimation)
        cuts = {"truncation_t": steps.last_t, "truncation_value_t": v_t}
        advantages = estimate(steps.r_t, steps.discount_t, numbers["lambda_"], values, **cuts)

        def loss(params: hkx.Params, memory: Any, steps: Transition, adv_t: jax.Array) -> jax.Array:
            head, v_tm1, _ = network.apply(params, steps.observation_tm1, steps.begins_tm1, memory)
            ratios = jnp.exp(policy(head).logprob(steps.a_tm1) - steps.log_prob_tm1)
            value_loss = jnp.mean(rlx.l2_loss(v_tm1, steps.v_tm1 + adv_t))
            adv_t = (adv_t - jnp.mean(adv_t)) / (jnp.std(adv_t) + 1e-8)
            policy_loss = rlx.clipped_surrogate_pg_loss(ratios.ravel(), adv_t.ravel(), numbers["clip"])
            entropy = jnp.mean(policy(head).entropy())
            return policy_loss + numbers["value_cost"] * value_loss - numbers["entropy_cost"] * entropy

        def learn(learned: Any, chosen: jax.Array) -> tuple[Any, jax.Array]:
            params, opt_state = learned
            part = jax.tree.map(lambda x: x[chosen], memory), *jax.tree.map(lambda x: x[:, chosen], (steps, advantages))
            value, gradient = jax.value_and_grad(loss)(params, *part)
            directions, opt_state = optimizer.update(gradient, opt_state)
            step_size = numbers["learning_rate"] * jnp.maximum(0, 1 - updates / total)
            return (jax.tree.map(lambda p, d: p - step_size * d, params, directions), opt_state), value

        parts = minibatches(config, shuffle_key)
        (params, opt_state), losses = jax.lax.scan(learn, (params, opt_state), parts)
        metrics = {"loss": jnp.mean(losses), **episodes(returned, steps.last_t)}
        return State(params, opt_state, running, begins, memory_t, key, updates + 1, numbers), metrics

    def act(params: hkx.Params, observations: jax.Array, memory: Any) -> tuple[jax.Array, Any]:
        head, _, memory = one_step(params, observations, jnp.zeros(len(observations), bool), memory)
        return jnp.argmax(head, axis=-1) if discrete else as_actions(head[1]), memory

    options = LITTLE_EFFORT if config.steps * config.agents <= 2_000_000 else None
    return Learner(init, update, act, memory_of, total, steps_per_update, options)


def minibatches(config: Config, key: jax.Array) -> jax.Array:
    """The environments of each minibatch, each of them once per epoch: [epochs * minibatches, part].

    Environments are shuffled, and not steps. So the shuffle is fast, the memory sees the steps in order, and a
    minibatch consists of independent episodes.
    """
    order = jnp.argsort(jax.random.bits(key, [config.epochs, config.environments]))
    return order.reshape(config.epochs * config.minibatches, -1)


def main(config: Config) -> dict[str, Any]:
    return train(config, make_learner)


if __name__ == "__main__":
    start(Config, main, __doc__)
