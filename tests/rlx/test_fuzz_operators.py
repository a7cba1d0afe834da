"""Damaged arguments of every operator: an error that names the operator, or an answer of the right shape and value."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from fuzzing import cases, outcome
from hypothesis import given
from hypothesis import strategies as st
from operator_registry import CASES

import rlx

OTHERS = [None, "text", {}, [], {"a": 1}, object(), [[1.0], [1.0, 2.0]], b"bytes", float("nan"), 1 + 2j, True, 10**30]
DTYPES = ["bool", "int8", "uint8", "int32", "uint32", "float16", "bfloat16", "float32", "complex64"]


def damaged(x, rng):
    """One argument, of another shape, dtype or kind; and in words what was done to it."""
    x = np.asarray(x)
    axis = rng.integers(x.ndim) if x.ndim else 0
    what = rng.choice(["rank", "longer", "empty", "one", "flat", "first", "dtype", "kind", "as it is"])
    made = {
        "rank": lambda: x[None],
        "longer": lambda: np.concatenate([x, np.take(x, [0], axis)], axis) if x.ndim else x[None],
        "empty": lambda: np.take(x, [], axis) if x.ndim else np.zeros([0]),
        "one": lambda: np.take(x, [0], axis) if x.ndim else x[None],
        "flat": x.ravel,
        "first": lambda: x[0] if x.ndim else x,
        "dtype": lambda: jnp.asarray(x).astype(rng.choice(DTYPES)),
        "kind": lambda: OTHERS[rng.integers(len(OTHERS))],
        "as it is": lambda: x,
    }
    return made[what](), what


def shapes_of(results):
    return [np.shape(x) for x in jax.tree.leaves(results)]


def broken_rule(seed):
    """Damages one argument of one operator; what is wrong with what comes of it, or None."""
    rng = np.random.default_rng(seed)
    case = CASES[rng.integers(len(CASES))]
    good = case.make(rng)
    name = rng.choice(sorted(good))
    bad, what = damaged(good[name], rng)
    arguments = {**good, str(name): bad}
    with jax.numpy_rank_promotion("allow"):  # as it is where nobody has set it
        made, error = outcome(lambda: jax.eval_shape(lambda: case.run(arguments)))
    said = f"{case.name}({name}={what}: {bad!r:.60}): {error!r:.300}"
    if error is not None:
        # The structures of MPO check what they hold under their own names.
        named = case.name in str(error) or name in case.inside
        return None if isinstance(error, rlx.ArgumentError) and named else said
    if what in ("dtype", "kind") or name in case.free:  # these broadcast, and oracles are told what is right
        return None
    expected, refused = outcome(lambda: case.oracle(arguments))
    shapes = shapes_of(made), shapes_of(expected)
    return None if refused is not None or shapes[0] == shapes[1] else f"{said}: shapes {shapes}"


@pytest.mark.slow
@cases(500)
@given(st.integers(0, 2**32 - 1))
def test_an_operator_answers_or_says_what_is_wrong(seed):
    assert broken_rule(seed) is None


def test_a_number_that_no_dtype_holds_is_named():
    with pytest.raises(rlx.DTypeError, match=r"td_learning: argument `discount_t` is 10{30}, too large"):
        rlx.td_learning(1.0, 1.0, 10**30, 1.0)


PENALTY = rlx.LagrangePenalty(alpha=jnp.ones(4), epsilon=0.5)
ONE = rlx.LagrangePenalty(alpha=jnp.ones([]), epsilon=0.5)
MPO_SHAPES = {
    r"kl_constraint_loss: argument `penalty.alpha` has shape \[4\].* to \[3\]": lambda: rlx.kl_constraint_loss(
        jnp.ones(3), PENALTY, abs
    ),
    r"argument `kl_constraints\[1\]` has shape \[2\].* against \[3\]": lambda: (
        rlx.compute_parametric_kl_penalty_and_dual_loss([(jnp.ones(3), ONE), (jnp.ones(2), ONE)], abs)
    ),
    r"mpo_loss: argument `kl_constraints` gives losses of shape \[5\], expected \[3\]": lambda: rlx.mpo_loss(
        jnp.ones([2, 3]), jnp.ones([2, 3]), ONE, [(jnp.ones(5), ONE)]
    ),
    r"argument `temperature_constraint.alpha` has shape \[4\].* to \[2, 3\]": lambda: rlx.mpo_loss(
        jnp.ones([2, 3]), jnp.ones([2, 3]), PENALTY, []
    ),
    r"mpo_loss: argument `kl_loss_weight` has shape \[5\].* against \[3\]": lambda: rlx.mpo_loss(
        jnp.ones([2, 3]), jnp.ones([2, 3]), ONE, [(jnp.ones(3), ONE)], kl_loss_weight=jnp.ones(5)
    ),
    r"vmpo_loss: argument `temperature_loss_weight` has shape \[5\].* against \[3\]": lambda: rlx.vmpo_loss(
        jnp.ones(3), jnp.ones(3), ONE, [], temperature_loss_weight=jnp.ones(5)
    ),
    r"argument `kl_constraints` gives losses of shape \[3\], expected \[2, 3\]": lambda: rlx.vmpo_loss(
        jnp.ones([2, 3]), jnp.ones([2, 3]), ONE, [(jnp.ones(3), ONE)]
    ),
    r"argument `kl_constraints` gives losses of shape \[\], expected \[3\]": lambda: rlx.mpo_loss(
        jnp.ones([2, 3]), jnp.ones([2, 3]), ONE, [(jnp.ones([]), ONE)]
    ),
    r"argument `temperature_constraint.alpha` has shape \[1, 1\].* to \[3\]": lambda: rlx.mpo_loss(
        jnp.ones(3), jnp.ones(3), rlx.LagrangePenalty(jnp.ones([1, 1]), 0.1), []
    ),
    r"argument `temperature_constraint.epsilon` has shape \[1, 1\].* to \[3\]": lambda: rlx.vmpo_loss(
        jnp.ones(3), jnp.ones(3), rlx.LagrangePenalty(1.0, np.full([1, 1], 0.1)), []
    ),
    r"argument `penalty.epsilon` has shape \[2, 1\].* to \[3\]": lambda: rlx.kl_constraint_loss(
        jnp.ones(3), rlx.LagrangePenalty(1.0, np.full([2, 1], 0.1)), abs
    ),
    r"vmpo_loss: argument `kl_constraints` gives losses of shape \[5\], expected \[3\]": lambda: rlx.vmpo_loss(
        jnp.ones(3), jnp.ones(3), ONE, [(jnp.ones(5), ONE)]
    ),
    r"mpo_loss: argument `kl_constraints` gives losses of shape \[3, 1\], expected \[3\]": lambda: rlx.mpo_loss(
        jnp.ones([2, 3]), jnp.ones([2, 3]), ONE, [(jnp.ones([3, 1]), ONE)]
    ),
    r"vmpo_loss: argument `kl_constraints` gives losses of shape \[3, 1\], expected \[3\]": lambda: rlx.vmpo_loss(
        jnp.ones(3), jnp.ones(3), ONE, [(jnp.ones([3, 1]), ONE)]
    ),
}


@pytest.mark.parametrize("shape", [[3, 1], [1], []])
def test_an_expectile_loss_does_not_spread_its_targets(shape):
    """[3, 1] and [3] would give [3, 3]; RLax asserts equal shapes too."""
    with pytest.raises(rlx.ShapeError, match=r"expectile_loss: argument `targets` has shape \[3\]"):
        rlx.expectile_loss(jnp.ones(shape), jnp.ones(3), 0.5)
    spread = rlx.expectile_loss(jnp.zeros(2), jnp.array([2.0, -2.0]), jnp.array([[0.25], [0.5]]))
    np.testing.assert_array_equal(spread, [[1.0, 3.0], [2.0, 2.0]])


EVENTS = {
    r"gaussian_diagonal.logprob: argument `sigma` has shape \[3\].* length 1,": lambda wide, one: (
        rlx.gaussian_diagonal().logprob(wide, one, wide)
    ),
    r"gaussian_diagonal.sample: argument `sigma` has shape \[1, 3\].* length 1,": lambda wide, one: (
        rlx.gaussian_diagonal(wide).sample(0, wide[:, None])
    ),
    r"gaussian_diagonal.kl: argument `mu_1` has shape \[1\].* length 3,": lambda wide, one: rlx.gaussian_diagonal().kl(
        wide, wide, one, one
    ),
    r"squashed_gaussian.entropy: argument `sigma` has shape \[3\].* length 1,": lambda wide, one: (
        rlx.squashed_gaussian().entropy(one, wide)
    ),
    r"multivariate_normal_kl_divergence: argument `mu_1` has shape \[3, 1\].* length 3,": lambda wide, one: (
        rlx.multivariate_normal_kl_divergence(wide, wide, wide[:, None], wide)
    ),
}


@pytest.mark.parametrize("message", EVENTS)
def test_gaussians_do_not_spread_their_means(message):
    """A mean of one dimension, [B, 1] or [1], and three deviations made a Gaussian of three; RLax raises too."""
    with pytest.raises(rlx.ShapeError, match=message):
        EVENTS[message](jnp.ones(3), jnp.ones(1))


def test_mpo_without_samples_is_an_error():
    with pytest.raises(
        rlx.OptionError, match=r"mpo_loss: argument `sample_axis` is 1, .* at least one sample in \(2, 0\)"
    ):
        rlx.mpo_loss(jnp.ones([2, 0]), jnp.ones([2, 0]), ONE, [], sample_axis=1)
    assert rlx.mpo_loss(jnp.ones([2, 0]), jnp.ones([2, 0]), ONE, [])[0].shape == (0,)  # an empty batch is none


@pytest.mark.parametrize("text", MPO_SHAPES)
def test_shapes_inside_of_structures_are_named(text):
    with pytest.raises(rlx.ShapeError, match=text):
        MPO_SHAPES[text]()
