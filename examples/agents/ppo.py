"""PPO: proximal policy optimisation with the clipped surrogate objective, for discrete or bounded continuous actions.

Schulman et al., "Proximal Policy Optimization Algorithms", 2017 (https://arxiv.org/abs/1707.06347), with advantages by
"High-Dimensional Continuous Control Using Generalized Advantage Estimation", Schulman et al. 2015
(https://arxiv.org/abs/1506.02438). The network is feed-forward; examples/ppo.py may have a memory.
"""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from dm_env import specs
from settings import Count, NotNegative, Settings, Share, Sizes

import hkx
import rlx
from agents.agent import Agent, Choice, Step, blank, features, unit_actions


@dataclasses.dataclass(frozen=True)
class Config(Settings):
    """The settings of the agent."""

    unroll: Count = 64
    """steps of each environment per update"""
    epochs: Count = 4
    """passes over these steps"""
    minibatches: Count = 4
    """minibatches per epoch; a divisor of the number of steps of all environments"""
    hidden: Sizes = (64, 64)
    """sizes of the hidden layers"""
    learning_rate: NotNegative = 1e-3
    """learning rate of Adam"""
    discount: Share = 0.99
    """discount factor per step"""
    lambda_: Share = 0.95
    """λ of the advantages: 0 bootstraps after one step, 1 only at the end"""
    clip: NotNegative = 0.2
    """clipping parameter ε: the range [1 - ε, 1 + ε] of the probability ratio"""
    entropy: NotNegative = 0.01
    """weight of the entropy bonus"""
    value: NotNegative = 0.5
    """weight of the value loss"""
    gradient_norm: NotNegative = 0.5
    """maximum norm of the gradient; larger ones are scaled down"""


class State(NamedTuple):
    """The state of the agent, which `learn` updates."""

    params: hkx.Params
    opt_state: optax.OptState
    key: jax.Array


class Sample(NamedTuple):
    """Samples for a gradient, with leaves [B, ...]."""

    observation: Any
    drawn: jax.Array  # what the policy drew
    log_prob: jax.Array  # at that time
    advantage: jax.Array
    returned: jax.Array


def make(config: Config, observation_spec: Any, action_spec: Any) -> Agent:
    discrete = isinstance(action_spec, specs.DiscreteArray)
    actions = None if discrete else unit_actions(action_spec)
    size = action_spec.num_values if discrete else actions.size

    @hkx.without_apply_rng
    @hkx.transform
    def network(observation: Any) -> tuple[Any, jax.Array]:
        """The logits of the policy, or its standard deviations and means; and the value."""
        seen = features(observation)
        head = hkx.nets.MLP([*config.hidden, size], activation=jnp.tanh, name="policy")(seen)
        if not discrete:
            head = jnp.exp(hkx.get_parameter("log_sigma", [size], init=jnp.zeros)), head
        return head, hkx.nets.MLP([*config.hidden, 1], activation=jnp.tanh, name="value")(seen)[0]

    outputs = jax.vmap(network.apply, in_axes=(None, 0))  # for observations [B, ...]
    optimizer = optax.chain(optax.clip_by_global_norm(config.gradient_norm), optax.adam(config.learning_rate))

    def policy(head: Any) -> Any:
        return rlx.softmax(logits=head) if discrete else rlx.gaussian_diagonal(*head)

    def init(key: jax.Array, environments: int) -> State:
        if config.unroll * environments % config.minibatches:
            raise ValueError(
                f"minibatches: {config.unroll * environments} steps have no {config.minibatches} equal parts"
            )
        params_key, key = jax.random.split(key)
        params = network.init(params_key, blank(observation_spec))
        return State(params, optimizer.init(params), key)

    def act(state: State, memory: Any, observations: Any, key: jax.Array, greedy: bool = False) -> Choice:
        head, value = outputs(state.params, observations)
        likeliest = jnp.argmax(head, axis=-1) if discrete else head[1]
        drawn = likeliest if greedy else policy(head).sample(key)
        action = drawn if discrete else actions.to_spec(drawn)
        return Choice(action, memory, extras=(drawn, policy(head).logprob(drawn), value))

    def samples(params: hkx.Params, steps: Step) -> Sample:
        """Steps [T, E, ...], with their advantages."""
        drawn, log_prob, value = steps.extras
        _, after = jax.vmap(outputs, in_axes=(None, 0))(params, steps.next_observation)

        discount_t, values = config.discount * steps.discount, jnp.concatenate([value, after[-1:]])
        estimate = rlx.time_major(rlx.truncated_generalized_advantage_estimation)
        cuts = {"truncation_t": steps.last, "truncation_value_t": after}
        advantages = estimate(steps.reward, discount_t, config.lambda_, values, **cuts)
        every = Sample(steps.observation, drawn, log_prob, advantages, advantages + value)
        return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), every)

    def loss(params: hkx.Params, batch: Sample) -> tuple[jax.Array, dict[str, jax.Array]]:
        head, value = outputs(params, batch.observation)
        ratios = jnp.exp(policy(head).logprob(batch.drawn) - batch.log_prob)
        advantages = (batch.advantage - jnp.mean(batch.advantage)) / (jnp.std(batch.advantage) + 1e-8)
        policy_loss = rlx.clipped_surrogate_pg_loss(ratios, advantages, config.clip)
        entropy = jnp.mean(policy(head).entropy())
        value_loss = jnp.mean(rlx.l2_loss(value - batch.returned))
        total = policy_loss - config.entropy * entropy + config.value * value_loss
        return total, {"policy_loss": policy_loss, "value_loss": value_loss, "entropy": entropy}

    def learn(state: State, steps: Step) -> tuple[State, dict[str, jax.Array]]:
        every = samples(state.params, steps)
        keys = jax.random.split(state.key, 1 + config.epochs)

        def minibatch(learned: Any, batch: Sample) -> tuple[Any, dict[str, jax.Array]]:
            params, opt_state = learned
            gradient, metrics = jax.grad(loss, has_aux=True)(params, batch)
            changes, opt_state = optimizer.update(gradient, opt_state)
            return (optax.apply_updates(params, changes), opt_state), metrics

        def epoch(learned: Any, key: jax.Array) -> tuple[Any, dict[str, jax.Array]]:
            order = jax.random.permutation(key, every.log_prob.shape[0]).reshape(config.minibatches, -1)
            return jax.lax.scan(minibatch, learned, jax.tree.map(lambda x: x[order], every))

        (params, opt_state), metrics = jax.lax.scan(epoch, (state.params, state.opt_state), keys[1:])
        return State(params, opt_state, keys[0]), jax.tree.map(jnp.mean, metrics)

    return Agent(init, act, learn, unroll=config.unroll)
