"""What of rlx has no entry in the registry of operators, pairs, policies, statistics, trees: how to call each."""

import dataclasses
import types
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from operator_registry import A, D, N, T, action, normal, positive, probs, unit

import rlx

KEY = jax.random.PRNGKey(0)
INDICES = np.array([1, 0, 1], np.int32)
SPEC = types.SimpleNamespace(minimum=-2.0, maximum=2.0)  # of actions
MASK = np.array([True, False, True])


@dataclasses.dataclass(frozen=True, eq=False)
class Other:
    name: str
    make: Callable[..., dict[str, Any]]  # (rng) -> the arrays, floats in float64
    run: Callable[[dict[str, Any]], Any]  # of these arrays


def other(operator, call=None, **makers):
    """How an operator is called, on arrays that are drawn: each by a function of the generator, and its lengths."""
    call = call or operator

    def make(rng):
        return {name: np.asarray(draw(rng, *lengths)) for name, (draw, *lengths) in makers.items()}

    return Other(operator.__name__, make, lambda arguments: call(**arguments))


def statistics(operator, *more, last=()):
    """Of two outputs' statistics."""

    def call(shift, scale, x):
        state = rlx.PopArtState(shift, scale, jnp.square(scale) + jnp.square(shift))
        return operator(state, x, INDICES, *more)

    return other(operator, call, shift=(normal, 2), scale=(positive, 2), x=(normal, 3, *last))


def pair(make, *settings):
    """There, and there and back."""

    def call(x):
        tx = make(*settings)
        return tx.apply(x), tx.apply_inv(tx.apply(x))

    return other(make, call, x=(unit,))


def policy(make, *settings, **parameters):
    """A sample, how likely it is, and how uncertain; of a policy that was given nothing but its settings."""

    def call(**parameters):
        made = make(*settings)
        sample = jax.lax.stop_gradient(made.sample(KEY, **parameters))
        return sample, made.logprob(sample, **parameters), made.entropy(**parameters)

    return other(make, call, **parameters)


class Categorical:
    """What the operators that distil a policy ask of a distribution."""

    def __init__(self, logits):
        self.logits = logits

    def sample(self, *, seed, sample_shape):
        return jax.random.categorical(seed, self.logits, shape=sample_shape)

    def log_prob(self, sample):
        return jax.nn.log_softmax(self.logits)[sample]


def targets(make):
    def call(logits):
        return make(Categorical(logits), KEY, 3)

    return other(make, call, logits=(normal, A))


def tree_of(x, y):
    return {"a": x, "b": (y,)}


def distilled(logits, weights):
    target = rlx.PolicyTarget(actions=np.array([0, 2]), weights=weights)
    return rlx.sampled_policy_distillation_loss(Categorical(logits), target)


def popped(w, b, shift, scale):
    old, new = (rlx.PopArtState(x, scale * 2, x * x + 5 * scale * scale) for x in (shift, shift + 1))
    return rlx.pop({"w": w, "b": b}, old, new)


def learnt(w, b, x):
    initial, update = rlx.popart(2, 0.1, 1e-3, 1e3)
    return update({"w": w, "b": b}, initial(), x, INDICES)


def averaged(x):
    initial, update = rlx.create_ema(0.9)
    return update(x, initial(x))


def streamed(x, td_error):
    optimizer = rlx.obgd(0.5)
    return optimizer.update({"w": x}, optimizer.init({"w": x}), td_error=td_error)


def scaled(r_t, discount_t):
    return rlx.scale_rewards(rlx.initial_reward_scale([2]), r_t, discount_t)


RETURNS = {"r_t": (normal, T), "discount_t": (unit, T), "v_t": (normal, T)}
OF_ACTIONS = {"q_t": (normal, T, A), "a_t": (action, T), "r_t": (normal, T), "discount_t": (unit, T)}
TWO_TREES = {"x": (normal, 3), "y": (normal, 3)}

OTHERS = [
    other(rlx.adaptive_kl_weight, lambda weight, kl: rlx.adaptive_kl_weight(weight, kl, 0.1),
          weight=(positive,), kl=(positive,)),
    other(rlx.add_dirichlet_noise, lambda x: rlx.add_dirichlet_noise(KEY, x, 0.3, 0.25), x=(probs, A)),
    other(rlx.add_gaussian_noise, lambda x: rlx.add_gaussian_noise(KEY, x, 0.2), x=(normal, D)),
    other(rlx.add_ornstein_uhlenbeck_noise, lambda x, y: rlx.add_ornstein_uhlenbeck_noise(KEY, x, y, 0.2, 0.1),
          **TWO_TREES),
    statistics(rlx.art, 0.1, 1e-3, 1e3),
    statistics(rlx.normalize),
    statistics(rlx.unnormalize),
    statistics(rlx.unnormalize_linear, last=(2,)),
    other(rlx.pop, popped, w=(normal, 4, 2), b=(normal, 2), shift=(normal, 2), scale=(positive, 2)),
    other(rlx.popart, learnt, w=(normal, 4, 2), b=(normal, 2), x=(normal, 3)),
    other(rlx.create_ema, averaged, x=(normal, 3)),
    other(rlx.categorical_sample, lambda x: rlx.categorical_sample(KEY, x), x=(probs, A)),
    other(rlx.clip_gradient, lambda x: rlx.clip_gradient(x, -0.1, 0.1), x=(normal, A)),
    policy(rlx.softmax, 0.7, logits=(normal, A)),
    policy(rlx.clipped_entropy_softmax, 0.7, 0.5, logits=(normal, A)),
    policy(rlx.top_k, 2, 0.7, logits=(normal, A)),
    policy(rlx.top_p, 0.8, 0.7, logits=(normal, A)),
    policy(rlx.min_p, 0.3, 0.7, logits=(normal, A)),
    policy(rlx.greedy, preferences=(normal, A)),
    policy(rlx.epsilon_greedy, 0.2, preferences=(normal, A)),
    policy(rlx.gaussian_diagonal, mu=(normal, D), sigma=(positive, D)),
    policy(rlx.squashed_gaussian, -4, 0.0, None, None, SPEC, mu=(normal, D), sigma=(normal, D)),
    pair(rlx.compose_tx, rlx.SIGNED_LOGP1_PAIR, rlx.SIGNED_HYPERBOLIC_PAIR),
    pair(rlx.hl_gauss_pair, -2.0, 2.0, 5),
    pair(rlx.muzero_pair, -2, 2, 5, rlx.SIGNED_HYPERBOLIC_PAIR),
    pair(rlx.symexp_twohot_pair, -2.0, 2.0, 5),
    pair(rlx.symlog_twohot_pair, -2.0, 2.0, 5),
    pair(rlx.twohot_pair, -2.0, 2.0, 5),
    pair(rlx.unbiased_transform_pair, -2.0, 2.0, 5, rlx.SIGNED_HYPERBOLIC_PAIR),
    other(rlx.transform_to_hl_gauss, lambda x: rlx.transform_to_hl_gauss(x, -2.0, 2.0, 5), x=(unit, 3)),
    other(rlx.transform_from_hl_gauss, lambda x: rlx.transform_from_hl_gauss(x, -2.0, 2.0, 5), x=(probs, 3, 5)),
    other(rlx.transform_values, lambda r_t, discount_t, v_t: rlx.transform_values(rlx.lambda_returns, 2)(
        rlx.SIGNED_HYPERBOLIC_PAIR, r_t, discount_t, v_t), **RETURNS),
    other(rlx.transformed_lambda_returns,
          lambda **x: rlx.transformed_lambda_returns(rlx.SIGNED_HYPERBOLIC_PAIR, **x, lambda_=0.9), **RETURNS),
    other(rlx.transformed_n_step_returns,
          lambda **x: rlx.transformed_n_step_returns(rlx.SIGNED_HYPERBOLIC_PAIR, **x, n=2), **RETURNS),
    other(rlx.transformed_general_off_policy_returns_from_action_values,
          lambda **x: rlx.transformed_general_off_policy_returns_from_action_values(rlx.SIGNED_HYPERBOLIC_PAIR, **x),
          **OF_ACTIONS, c_t=(unit, T), pi_t=(probs, T, A)),
    other(rlx.episodic_memory_intrinsic_rewards, lambda x: rlx.episodic_memory_intrinsic_rewards(x, 2, 1.0),
          x=(normal, N, D)),
    other(rlx.knn_query, lambda x, y: rlx.knn_query(x, y, 2), x=(normal, N, D), y=(normal, 2, D)),
    other(rlx.scale_rewards, scaled, r_t=(normal, 2), discount_t=(unit, 2)),
    other(rlx.initial_reward_scale, lambda x: rlx.scale_rewards(rlx.initial_reward_scale(), x, 0.9), x=(normal,)),
    other(rlx.obgd, streamed, x=(normal, 3), td_error=(normal,)),
    other(rlx.smoothed_target_action, lambda x: rlx.smoothed_target_action(KEY, x), x=(unit, D)),
    targets(rlx.constant_policy_targets),
    targets(rlx.zero_policy_targets),
    other(rlx.sampled_policy_distillation_loss, distilled, logits=(normal, A), weights=(positive, 2)),
    other(rlx.one_hot, lambda a: rlx.one_hot(a, A), a=(action, 3)),
    other(rlx.lhs_broadcast, source=(normal, 2), target=(normal, 2, 3)),
    other(rlx.replace_masked, lambda x, y: rlx.replace_masked(x, y, MASK), **TWO_TREES),
    other(rlx.conditional_update, lambda x, y: rlx.conditional_update(tree_of(x, y), tree_of(y, x), True), **TWO_TREES),
    other(rlx.periodic_update, lambda x, y: rlx.periodic_update(tree_of(x, y), tree_of(y, x), 4, 2), **TWO_TREES),
    other(rlx.tree_select, lambda x, y: rlx.tree_select(MASK, tree_of(x, y), tree_of(y, x)), **TWO_TREES),
    other(rlx.tree_replace_masked, lambda x, y: rlx.tree_replace_masked(tree_of(x, y), tree_of(y, x), MASK),
          **TWO_TREES),
    other(rlx.tree_map_zipped, lambda x, y: rlx.tree_map_zipped(jnp.add, [tree_of(x, y), tree_of(y, x)]), **TWO_TREES),
    other(rlx.tree_fn, lambda x, y: rlx.tree_fn(jnp.add)(tree_of(x, y), tree_of(y, x)), **TWO_TREES),
    other(rlx.tree_split_key, lambda x: rlx.tree_split_key(KEY, tree_of(x, x)), x=(normal, 3)),
    other(rlx.tree_split_leaves, lambda x, y: list(rlx.tree_split_leaves(tree_of(x, y))), **TWO_TREES),
    other(rlx.transpose_first_axis_to_last, lambda x: rlx.transpose_first_axis_to_last({"a": x}), x=(normal, 2, 3)),
    other(rlx.transpose_last_axis_to_first, lambda x: rlx.transpose_last_axis_to_first({"a": x}), x=(normal, 2, 3)),
    other(rlx.extract_subsequences, lambda x: rlx.extract_subsequences(x, np.array([[0, 1], [1, 0]]), 2),
          x=(normal, T, 2)),
    other(rlx.sample_start_indices, lambda: rlx.sample_start_indices(KEY, 2, 3, 4)),
    other(rlx.fix_step_type_on_interruptions, step_type=(lambda rng: np.array([0, 1, 1, 0, 1], np.int32),)),
]  # fmt: skip
