"""Implicit Q-learning, from a fixed data set: values of the best actions in the data, and a policy that imitates them.

Kostrikov et al., "Offline Reinforcement Learning with Implicit Q-Learning", 2021 (https://arxiv.org/abs/2110.06169),
for discrete actions. It never evaluates actions that are not in the data. With `--temperature inf`, the policy imitates
all actions equally, which is behavioural cloning.
"""

import dataclasses
from typing import Annotated, Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from settings import Between, NotNegative, Settings, Share, Sizes

import hkx
import rlx
from agents.agent import Agent, Choice, Step, blank, flat, number_of_actions, transitions


@dataclasses.dataclass(frozen=True)
class Config(Settings):
    """The settings of the agent."""

    expectile: Share = 0.8
    """expectile of the action values that is a state's value: 0.5 is their mean, 1 their maximum"""
    temperature: Annotated[float, Between(1e-6)] = 1.0
    """of the weights exp(advantage / temperature): the lower, the more the policy imitates the best actions"""
    tau: Share = 0.005
    """fraction by which the target networks move towards the critics in an update"""
    hidden: Sizes = (64, 64)
    """sizes of the hidden layers"""
    learning_rate: NotNegative = 1e-3
    """learning rate of Adam"""
    discount: Share = 0.99
    """discount factor per step"""


class State(NamedTuple):
    """The state of the agent, which `learn` updates."""

    params: dict[str, Any]  # of policy, value and critics (with a leading axis of size 2)
    target_params: hkx.Params  # of the critics
    opt_state: optax.OptState


def make(config: Config, observation_spec: Any, action_spec: Any) -> Agent:
    num_actions, observation = number_of_actions(action_spec), blank(observation_spec)

    def network(outputs: int) -> tuple[Any, Any]:
        """`init`, and `apply` for observations [B, ...]."""
        made = hkx.without_apply_rng(hkx.transform(lambda seen: hkx.nets.MLP([*config.hidden, outputs])(flat(seen))))
        return made.init, jax.vmap(made.apply, in_axes=(None, 0))

    (init_values, values), (init_value, value) = network(num_actions), network(1)  # policy and critic are alike
    critics = jax.vmap(values, in_axes=(0, None))  # [2, B, actions]
    optimizer = optax.flatten(optax.adam(config.learning_rate))  # one vector is faster than many small arrays

    def init(key: jax.Array, environments: int) -> State:
        policy_key, value_key, *keys = jax.random.split(key, 4)
        twins = jax.vmap(init_values, in_axes=(0, None))(jnp.stack(keys), observation)
        params = {
            "policy": init_values(policy_key, observation),
            "value": init_value(value_key, observation),
            "critics": twins,
        }
        return State(params, twins, optimizer.init(params))

    def act(state: State, memory: Any, observations: Any, key: jax.Array, greedy: bool = False) -> Choice:
        logits = values(state.params["policy"], observations)
        return Choice(jnp.argmax(logits, axis=-1) if greedy else jax.random.categorical(key, logits), memory)

    def loss(params: Any, target_params: hkx.Params, batch: rlx.replay.Transition) -> tuple[jax.Array, Any]:
        chosen = batch.a_tm1[:, None]
        v_tm1, v_t = value(params["value"], batch.s_tm1)[:, 0], value(params["value"], batch.s_t)[:, 0]
        target_q_tm1 = jnp.min(critics(target_params, batch.s_tm1), axis=0)
        target_q_tm1 = jnp.take_along_axis(target_q_tm1, chosen, axis=-1)[:, 0]
        value_loss = rlx.batched(rlx.expectile_value_loss)(v_tm1, target_q_tm1, config.expectile)

        def td_errors(q_tm1: jax.Array) -> jax.Array:
            return rlx.batched(rlx.qv_learning)(q_tm1, batch.a_tm1, batch.r_t, batch.discount_t, v_t)

        critic_loss = rlx.l2_loss(jax.vmap(td_errors)(critics(params["critics"], batch.s_tm1)))
        log_policy = jax.nn.log_softmax(values(params["policy"], batch.s_tm1))
        log_probs = jnp.take_along_axis(log_policy, chosen, axis=-1)[:, 0]
        policy_loss = rlx.advantage_weighted_loss(log_probs, target_q_tm1 - v_tm1, config.temperature, 100.0)
        metrics = {"value": jnp.mean(v_tm1), "value_loss": jnp.mean(value_loss), "critic_loss": jnp.mean(critic_loss)}
        return metrics["value_loss"] + metrics["critic_loss"] + policy_loss, metrics

    def learn(state: State, steps: Step) -> tuple[State, dict[str, jax.Array]]:
        """Learns from a batch of B steps, [1, B, ...], which need not be consecutive."""
        batch = jax.tree.map(lambda x: x[0], transitions(steps, config.discount))
        gradient, metrics = jax.grad(loss, has_aux=True)(state.params, state.target_params, batch)
        changes, opt_state = optimizer.update(gradient, state.opt_state)
        params = optax.apply_updates(state.params, changes)
        target_params = optax.incremental_update(params["critics"], state.target_params, config.tau)
        return State(params, target_params, opt_state), metrics

    return Agent(init, act, learn)
