"""Gumbel MuZero: plans with a learned model, and learns to act according to the plans.

Danihelka et al., "Policy Improvement by Planning with Gumbel", 2022 (https://openreview.net/forum?id=bERaNdoegnO),
after Schrittwieser et al., "Mastering Atari, Go, Chess and Shogi by Planning with a Learned Model", 2019
(https://arxiv.org/abs/1911.08265). The search is from mctx (`pip install mctx`). Values and rewards are two-hot over
bins. Here, the model also learns where an episode terminates, so that plans do not continue past the end, and returns
bootstrap from the values of the current network, not from those of the search when the sequence was played.
"""

import dataclasses
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from settings import BadSetting, Count, NotNegative, Settings, Share

import hkx
import rlx
from agents.agent import Agent, Choice, Step, blank, flat, number_of_actions, require_room

try:
    import mctx
except ImportError:  # the other agents do not need it
    mctx = None


@dataclasses.dataclass(frozen=True)
class Config(Settings):
    """The settings of the agent."""

    simulations: Count = 16
    """simulations per search"""
    model_steps: Count = 4
    """steps that the model is unrolled in training"""
    length: Count = 10
    """steps in a sequence, more than `model_steps`, whose value targets use the later steps"""
    capacity: Count = 50_000
    """capacity of the replay buffer, in steps"""
    warmup: Count = 128
    """sequences before the first update"""
    batch_size: Count = 128
    """sequences per batch"""
    unroll: Count = 4
    """steps of each environment between calls of `learn`"""
    updates: Count = 2
    """updates per call of `learn`"""
    hidden: Count = 64
    """size of each hidden layer, and of the model's latent state"""
    bins: Count = 31
    """bins of values and of rewards"""
    limit: NotNegative = 5.0
    """position of the outermost bins, for values transformed by rlx.SIGNED_HYPERBOLIC_PAIR"""
    learning_rate: NotNegative = 2e-3
    """learning rate of Adam"""
    discount: Share = 0.99
    """discount factor per step"""
    lambda_: Share = 0.9
    """λ of the returns: 0 bootstraps after one step, 1 only at the end"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.length <= self.model_steps:
            raise BadSetting(f"length must be more than model_steps, {self.model_steps}, not {self.length}")


class State(NamedTuple):
    """The state of the agent, which `learn` updates."""

    params: hkx.Params
    opt_state: optax.OptState
    replay: Any  # of sequences of Step, whose extras are the search's policies [actions]
    key: jax.Array


class Prediction(NamedTuple):
    """The model's prediction for a latent state."""

    policy: jax.Array  # logits [A]
    value: jax.Array  # logits [bins]


class Foreseen(NamedTuple):
    """The model's prediction of the outcome of an action."""

    thought: jax.Array  # [hidden]
    reward: jax.Array  # logits [bins]
    goes_on: jax.Array  # logit [] of the probability that the episode does not terminate


class Functions(NamedTuple):
    """The three parts of the model, for one environment."""

    represent: Any  # (params, observation) -> thought
    foresee: Any  # (params, thought, action) -> Foreseen
    predict: Any  # (params, thought) -> Prediction


def make(config: Config, observation_spec: Any, action_spec: Any) -> Agent:
    if mctx is None:
        raise ValueError("this agent searches with mctx, which is not installed: pip install mctx")
    num_actions, observation = number_of_actions(action_spec), blank(observation_spec)
    bins = rlx.muzero_pair(-config.limit, config.limit, config.bins, rlx.SIGNED_HYPERBOLIC_PAIR)

    def replay_of(environments: int) -> rlx.replay.Replay:
        each = max(config.capacity // environments, 2 * config.length, config.unroll)
        require_room(config.warmup, environments * (each - config.length + 1))
        return rlx.replay.sequences(each, config.length)

    def model() -> tuple[Any, Functions]:
        def thought(x: jax.Array, name: str) -> jax.Array:
            x = hkx.nets.MLP([config.hidden] * 2, name=name)(x)
            return hkx.LayerNorm(-1, create_scale=False, create_offset=False)(x)

        def represent(observation: Any) -> jax.Array:
            return thought(flat(observation), "represent")

        def foresee(before: jax.Array, action: jax.Array) -> Foreseen:
            after = thought(jnp.concatenate([before, jax.nn.one_hot(action, num_actions)]), "foresee")
            outcome = hkx.nets.MLP([config.hidden, config.bins + 1], name="outcome")(after)
            return Foreseen(after, outcome[:-1], outcome[-1])

        def predict(of: jax.Array) -> Prediction:
            policy = hkx.nets.MLP([config.hidden, num_actions], name="policy")(of)
            return Prediction(policy, hkx.nets.MLP([config.hidden, config.bins], name="value")(of))

        def all_parts(observation: Any) -> tuple[Foreseen, Prediction]:
            foreseen = foresee(represent(observation), jnp.int32(0))
            return foreseen, predict(foreseen.thought)

        return all_parts, Functions(represent, foresee, predict)

    network = hkx.without_apply_rng(hkx.multi_transform(model))
    represent, foresee, predict = (
        jax.vmap(network.apply.represent, in_axes=(None, 0)),
        jax.vmap(network.apply.foresee, in_axes=(None, 0, 0)),
        jax.vmap(network.apply.predict, in_axes=(None, 0)),
    )
    optimizer = optax.chain(optax.clip_by_global_norm(5.0), optax.flatten(optax.adam(config.learning_rate)))

    def mean(logits: jax.Array) -> jax.Array:
        """The number that logits [..., bins] represent."""
        return bins.apply_inv(jax.nn.softmax(logits))

    def init(key: jax.Array, environments: int) -> State:
        params_key, key = jax.random.split(key)
        params = network.init(params_key, observation)
        seen = jax.tree.map(lambda x: jnp.zeros((environments, *x.shape), x.dtype), observation)
        zeros, plan = jnp.zeros(environments), jnp.zeros((environments, num_actions))
        nothing = Step(seen, zeros.astype(int), zeros, zeros, zeros.astype(bool), seen, plan)
        return State(params, optimizer.init(params), replay_of(environments).init(nothing), key)

    def act(state: State, memory: Any, observations: Any, key: jax.Array, greedy: bool = False) -> Choice:
        def imagine(params: Any, key: jax.Array, action: jax.Array, thought: jax.Array) -> tuple[Any, jax.Array]:
            foreseen = foresee(params, thought, action)
            prediction = predict(params, foreseen.thought)
            discount = config.discount * jax.nn.sigmoid(foreseen.goes_on)
            outcome = mctx.RecurrentFnOutput(
                reward=mean(foreseen.reward),
                discount=discount,
                prior_logits=prediction.policy,
                value=mean(prediction.value),
            )
            return outcome, foreseen.thought

        thoughts = represent(state.params, observations)
        prediction = predict(state.params, thoughts)
        root = mctx.RootFnOutput(prior_logits=prediction.policy, value=mean(prediction.value), embedding=thoughts)
        plan = mctx.gumbel_muzero_policy(
            state.params,
            key,
            root,
            imagine,
            config.simulations,
            max_num_considered_actions=num_actions,
            gumbel_scale=0.0 if greedy else 1.0,
        )
        return Choice(plan.action, memory, extras=plan.action_weights)

    @partial(jax.vmap, in_axes=(None, 0))
    def loss_of_sequence(params: hkx.Params, steps: Step) -> jax.Array:
        """The loss of the model's predictions from the first step on, compared with the actual steps [length, ...]."""
        after = mean(predict(params, represent(params, steps.next_observation)).value)
        discount_t = config.discount * steps.discount
        returns = rlx.lambda_returns(steps.reward, discount_t, after, config.lambda_, True, truncation_t=steps.last)

        def step(carry: Any, now: Any) -> tuple[Any, jax.Array]:
            thought, same_episode = carry
            was, value = now
            prediction, foreseen = (
                network.apply.predict(params, thought),
                network.apply.foresee(params, thought, was.action),
            )
            loss = rlx.categorical_cross_entropy(was.extras, prediction.policy)
            loss += rlx.categorical_cross_entropy(bins.apply(value), prediction.value)
            loss += rlx.categorical_cross_entropy(bins.apply(was.reward), foreseen.reward)
            loss += optax.sigmoid_binary_cross_entropy(foreseen.goes_on, was.discount)
            half = (foreseen.thought + jax.lax.stop_gradient(foreseen.thought)) / 2  # as in MuZero, halves its gradient
            return (half, same_episode & ~was.last), jnp.where(same_episode, loss, 0)

        start = network.apply.represent(params, jax.tree.map(lambda x: x[0], steps.observation)), jnp.bool_(True)
        targets = jax.tree.map(lambda x: x[: config.model_steps + 1], (steps, returns))
        return jnp.mean(jax.lax.scan(step, start, targets)[1])

    def learn(state: State, steps: Step) -> tuple[State, dict[str, jax.Array]]:
        replay = replay_of(steps.reward.shape[1])
        held = replay.add_batch(state.replay, steps)

        def update(carry: Any, key: jax.Array) -> tuple[Any, jax.Array]:
            params, opt_state = carry
            batch = replay.sample(held, key, config.batch_size).items
            value, gradient = jax.value_and_grad(lambda params: jnp.mean(loss_of_sequence(params, batch)))(params)
            changes, opt_state = optimizer.update(gradient, opt_state)
            return (optax.apply_updates(params, changes), opt_state), value

        key, *keys = jax.random.split(state.key, 1 + config.updates)
        learned = state.params, state.opt_state
        ready, nothing = replay.can_sample(held, config.warmup), jnp.zeros(config.updates)
        learned, losses = jax.lax.cond(
            ready,
            lambda learned: jax.lax.scan(update, learned, jnp.stack(keys)),
            lambda learned: (learned, nothing),
            learned,
        )
        return State(*learned, held, key), {"loss": jnp.mean(losses)}

    return Agent(init, act, learn, unroll=config.unroll)
