"""IMPALA: an actor-critic whose actors may lag behind its learner, feed-forward or recurrent.

Espeholt et al., "IMPALA: Scalable Distributed Deep-RL with Importance Weighted Actor-Learner Architectures", 2018
(https://arxiv.org/abs/1802.01561): V-trace corrects for changes of the policy since an action was chosen.
With `--popart`, values are normalised to the scale of the returns: "Multi-task Deep Reinforcement Learning with
PopArt", Hessel et al. 2018 (https://arxiv.org/abs/1809.04474).
"""

import dataclasses
from functools import partial
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax
from settings import Count, MemorySettings, NotNegative, Share, Sizes

import hkx
import rlx
from agents.agent import Agent, Choice, Step, blank, features, number_of_actions, reset_where


@dataclasses.dataclass(frozen=True)
class Config(MemorySettings):
    """The settings of the agent."""

    memory: Literal["none", "gru", "lstm"] = "none"
    """recurrent core that remembers earlier observations of the episode"""
    unroll: Count = 20
    """steps of each environment per update"""
    hidden: Sizes = (64, 64)
    """sizes of the hidden layers; the memory has the size of the last one"""
    learning_rate: NotNegative = 3e-3
    """learning rate of Adam"""
    discount: Share = 0.99
    """discount factor per step"""
    lambda_: Share = 0.95
    """λ of the targets: 0 bootstraps after one step, 1 only at the end"""
    entropy: NotNegative = 0.01
    """weight of the entropy bonus"""
    value: NotNegative = 0.5
    """weight of the value loss"""
    gradient_norm: NotNegative = 0.5
    """maximum norm of the gradient; larger ones are scaled down"""
    popart: Share = 0.0
    """step size of PopArt, by which the mean and scale of returns move per update; 0 turns normalisation off"""


class State(NamedTuple):
    """The state of the agent, which `learn` updates."""

    params: hkx.Params
    opt_state: optax.OptState
    scale: rlx.PopArtState  # mean and standard deviation of returns, by which the layer "value" is normalised


class Outputs(NamedTuple):
    """The outputs of the network for observations [E, ...]."""

    logits: jax.Array  # [E, A]
    value: jax.Array  # [E], normalised


def make(config: Config, observation_spec: Any, action_spec: Any) -> Agent:
    num_actions = number_of_actions(action_spec)

    def core() -> Any:
        kinds = {"none": hkx.IdentityCore, "gru": hkx.GRU, "lstm": hkx.LSTM}
        return kinds[config.memory](*([] if config.memory == "none" else [config.hidden[-1]]))

    @hkx.without_apply_rng
    @hkx.transform
    def network(observations: Any, memory: Any) -> tuple[Outputs, Any]:
        """One step of E environments."""
        hidden = hkx.nets.MLP(config.hidden, activate_final=True)(hkx.vmap(features, split_rng=False)(observations))
        hidden, memory = core()(hidden, memory)
        value = hkx.Linear(1, w_init=jnp.zeros, name="value")(hidden)
        return Outputs(hkx.Linear(num_actions, name="policy")(hidden), value[:, 0]), memory

    def memory(environments: int) -> Any:
        if config.memory == "none":
            return ()
        start = hkx.without_apply_rng(hkx.transform(lambda: core().initial_state(environments)))
        return start.apply(start.init(None))

    optimizer = optax.chain(optax.clip_by_global_norm(config.gradient_norm), optax.adam(config.learning_rate))
    policy = rlx.softmax()

    def init(key: jax.Array, environments: int) -> State:
        one = jax.tree.map(lambda x: x[None], blank(observation_spec))
        params = network.init(key, one, memory(1))
        return State(params, optimizer.init(params), rlx.PopArtState(jnp.zeros(1), jnp.ones(1), jnp.ones(1)))

    def act(state: State, memory: Any, observations: Any, key: jax.Array, greedy: bool = False) -> Choice:
        outputs, new = network.apply(state.params, observations, memory)
        action = jnp.argmax(outputs.logits, axis=-1) if greedy else policy.sample(key, outputs.logits)
        return Choice(action, new, extras=(policy.logprob(action, outputs.logits), memory))

    def over_time(params: hkx.Params, steps: Step) -> tuple[Outputs, jax.Array]:
        """The outputs [T, E], carrying the memory along, and the values of the observation after each step."""

        def step(memory: Any, now: Step) -> tuple[Any, tuple[Outputs, Any]]:
            outputs, memory = network.apply(params, now.observation, memory)
            first = jax.tree.map(jnp.zeros_like, memory)
            return reset_where(now.last, memory, first), (outputs, memory)

        _, memory = steps.extras
        _, (outputs, memories) = jax.lax.scan(step, jax.tree.map(lambda x: x[0], memory), steps)
        after, _ = jax.vmap(partial(network.apply, params))(steps.next_observation, memories)
        return outputs, after.value

    def loss(params: hkx.Params, scale: rlx.PopArtState, steps: Step) -> tuple[jax.Array, Any]:
        (logits, value), value_t = over_time(params, steps)
        v_tm1, v_t = (rlx.unnormalize(scale, x, 0) for x in (value, value_t))
        chosen_at, _ = steps.extras
        rho_tm1 = jax.lax.stop_gradient(jnp.exp(policy.logprob(steps.action, logits) - chosen_at))

        estimates = rlx.time_major(rlx.vtrace_td_error_and_advantage)(
            v_tm1,
            v_t,
            steps.reward,
            config.discount * steps.discount,
            rho_tm1,
            config.lambda_,
            truncation_t=steps.last,
        )
        advantages, errors = estimates.pg_advantage / scale.scale[0], estimates.errors / scale.scale[0]
        weights = jnp.ones_like(advantages)
        policy_loss = jnp.mean(rlx.batched(rlx.policy_gradient_loss)(logits, steps.action, advantages, weights))
        entropy_loss = jnp.mean(rlx.batched(rlx.entropy_loss)(logits, weights))
        value_loss = jnp.mean(rlx.l2_loss(errors))
        total = policy_loss + config.entropy * entropy_loss + config.value * value_loss
        metrics = {"policy_loss": policy_loss, "value_loss": value_loss, "entropy": -entropy_loss}
        metrics["importance_ratio"] = jnp.mean(rho_tm1)
        return total, (estimates.errors + v_tm1, metrics)

    def learn(state: State, steps: Step) -> tuple[State, dict[str, jax.Array]]:
        gradient, (targets, metrics) = jax.grad(loss, has_aux=True)(state.params, state.scale, steps)
        changes, opt_state = optimizer.update(gradient, state.opt_state)
        params = optax.apply_updates(state.params, changes)
        each = config.popart / targets.size
        _, rescaled = rlx.popart(1, each or None, scale_lb=1e-4, scale_ub=1e6)
        value, scale = rescaled(params["value"], state.scale, targets, jnp.zeros(targets.shape, int))
        return State(params | {"value": value}, opt_state, scale), metrics

    return Agent(init, act, learn, memory, config.unroll)
