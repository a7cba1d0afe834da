"""Every operator against its NumPy oracle, and against what all operators promise."""

import dataclasses
import functools
import inspect
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from operator_checks import SEEDS, assert_close, cast, draw, drawn_in_double_precision, gradients, oracle_gradient
from operator_registry import CASES, MPO, MULTI_STEP, NEW_POLICIES, NEW_PREFERENCES

import rlx

pytestmark = pytest.mark.unoptimised

every_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
ONES = jnp.ones(3)
PENALTY = rlx.LagrangePenalty(alpha=1.0, epsilon=0.1)
stopping_case = pytest.mark.parametrize("case", [c for c in CASES if c.stopped], ids=lambda case: case.name)


@every_case
def test_equals_its_oracle(case):
    arguments = draw(case, 0)
    # Compiled, since primitives one by one are compiled one by one; as they are, docstrings run them all.
    results = jax.jit(case.run)(cast(arguments, jnp.float32))
    assert all(x.dtype == jnp.float32 for x in jax.tree.leaves(results))
    # 2e-5: some roundings of float32 (6e-8) at values up to about ten, some after a cancellation; and the guard of the
    # two-hot encodings, 1e-5 over the width of a bin.
    assert_close(results, case.oracle(arguments), rtol=2e-5, atol=2e-5)


@every_case
def test_jitted_and_mapped_in_double_precision_equals_its_oracle_one_by_one(case):
    results, _, _ = drawn_in_double_precision(case)
    assert all(x.dtype == np.float64 for x in jax.tree.leaves(results))
    guard = 1e-4 if case.name == "transform_to_2hot" else 1e-11  # as above
    for i, seed in enumerate(SEEDS):
        one = jax.tree.map(lambda x: x[i], results)  # noqa: B023
        assert_close(one, case.oracle(draw(case, seed)), rtol=guard, atol=guard)


@every_case
def test_gradients(case):
    """They are the oracle's for what is learnt, zero for what is a constant, and the flag decides."""
    arguments = draw(case, 1)
    _, of_all_seeds, _ = drawn_in_double_precision(case)
    assert all(np.all(np.isfinite(gradient)) for gradient in of_all_seeds.values())
    assert all(np.any(of_all_seeds[name]) for name in case.learns)
    _, gradients, flowing = jax.tree.map(lambda x: x[1], drawn_in_double_precision(case))
    guard = 1e-4 if case.name == "transform_to_2hot" else 1e-6  # as above; the error of central differences
    same = functools.partial(np.testing.assert_allclose, rtol=guard, atol=guard)
    for name in case.learns:
        if not case.inner_constants:
            same(gradients[name], oracle_gradient(case, arguments, name), err_msg=name)
    for name in case.stopped:
        assert not np.any(gradients[name]), name
        if not case.inner_constants:
            same(flowing[name], oracle_gradient(case, arguments, name), err_msg=name)
    assert not case.stopped or any(np.any(flowing[name]) for name in case.stopped)


@pytest.mark.parametrize("case", [case for case in MPO if case.inner_constants], ids=lambda case: case.name)
def test_gradients_of_mpo_where_nothing_is_a_constant(case):
    """By default each side of a dual problem is a constant to the other, so that no sum of them has these slopes."""
    arguments, names = draw(case, 1), case.learns + case.stopped
    with jax.enable_x64(True):
        given = {name: jnp.asarray(x) for name, x in arguments.items()}
        flowing = jax.jit(lambda given: gradients(case, given, names, use_stop_gradient=False))(given)
    for name in names:
        expected = oracle_gradient(case, arguments, name)
        np.testing.assert_allclose(flowing[name], expected, rtol=1e-6, atol=1e-6, err_msg=name)


@stopping_case
def test_both_spellings_of_the_flag(case):
    arguments = cast(draw(case, 0), jnp.float32)
    with pytest.raises(rlx.OptionError, match="two spellings"):
        case.run(arguments, stop_target_gradients=True, use_stop_gradient=True)
    jax.eval_shape(functools.partial(case.run, use_stop_gradient=False), arguments)


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
@every_case
def test_half_precision_stays(case, dtype):
    results = jax.eval_shape(case.run, cast(draw(case, 2), dtype))
    expected = jnp.float32 if case.wide else dtype
    assert all(x.dtype == expected for x in jax.tree.leaves(results))


@every_case
def test_strict_promotion_of_dtypes(case):
    """A program may forbid JAX to mix kinds of numbers that are not cast: the setting `jax_numpy_dtype_promotion`."""
    with jax.numpy_dtype_promotion("strict"):
        for dtype in (jnp.float32, jnp.bfloat16, jnp.float16):
            jax.eval_shape(case.run, cast(draw(case, 2), dtype))


@pytest.mark.parametrize("case", MULTI_STEP + NEW_POLICIES + NEW_PREFERENCES, ids=lambda case: case.name)
def test_half_precision_is_as_exact_as_it_can_be(case):  # of those that sum over many numbers
    arguments = draw(case, 2)
    given = cast(arguments, jnp.bfloat16)
    rounded = {name: np.asarray(value, np.asarray(arguments[name]).dtype) for name, value in given.items()}
    # Some dozen roundings, each of half a unit in the last place (2⁻⁸), of intermediate values up to about six.
    assert_close(jax.jit(case.run)(given), case.oracle(rounded), rtol=0.05, atol=0.08)


@every_case
def test_a_wrong_rank_names_the_argument(case):
    arguments = cast(draw(case, 0), jnp.float32)
    for name, value in arguments.items():
        if name in case.free:
            continue
        with pytest.raises(rlx.RankError, match=f"{case.name}: argument `{name}` has rank {value.ndim + 4}"):
            more = jax.ShapeDtypeStruct((1, 1, 1, 1, *value.shape), value.dtype)
            jax.eval_shape(lambda x: case.run({**arguments, name: x}), more)  # noqa: B023


@every_case
def test_a_wrong_kind_of_number_names_the_argument(case):
    arguments = cast(draw(case, 0), jnp.float32)
    for name, value in arguments.items():
        if name in case.inside:
            continue
        is_index = jnp.issubdtype(value.dtype, jnp.integer)
        with pytest.raises(rlx.DTypeError, match=f"{case.name}: argument `{name}` is a list"):
            case.run({**arguments, name: [1.0]})
        for dtype in (jnp.float32, jnp.complex64) if is_index else (jnp.complex64,):
            if case.name == "batched_index" and not is_index:  # which indexes into numbers of any kind
                continue
            with pytest.raises(rlx.DTypeError, match=f"{case.name}: argument `{name}` has dtype {dtype.dtype}"):
                case.run({**arguments, name: jnp.asarray(np.asarray(value).astype(dtype))})


LENGTHS_OF_THEIR_OWN = {
    "quantile_q_learning": ("dist_q_t", "dist_q_t_selector"),
    "implicit_quantile_q_learning": ("dist_q_t", "dist_q_t_selector"),
    "sac_critic_loss": ("q_tm1", "q_t"),
    "redq_critic_loss": ("q_tm1", "q_t"),
    "fast_td3_critic_loss": ("q_logits_tm1", "q_logits_t"),
    "generalized_policy_improvement": ("psi_t",),
}


# True or false, whatever they are; and a name, which may be any.
CHOICES = ("stop_target_gradients", "use_stop_gradient", "keepdims", "scale_by_std", "axis_name")


@every_case
def test_a_wrong_setting_names_it(case):
    """Those of the signature that are not among the arrays: numbers, sizes, pairs, masks."""
    arguments = cast(draw(case, 0), jnp.float32)
    for name in inspect.signature(getattr(rlx, case.name)).parameters:
        if name in arguments or name in CHOICES or name in case.built:
            continue
        others = {key: value for key, value in case.settings.items() if key != name}
        run = dataclasses.replace(case, settings=others).run
        for wrong in ("abc", {"a": 1}, object()):
            with pytest.raises(rlx.ArgumentError, match=f"^{case.name}: argument `{name}` is "):
                run(arguments, **{name: wrong})


@pytest.mark.parametrize("call, named", [
    (lambda: rlx.n_step_bootstrapped_returns(ONES, ONES, ONES, 2.0), "n_step_bootstrapped_returns: argument `n` is 2"),
    (lambda: jax.jit(lambda n: rlx.n_step_bootstrapped_returns(ONES, ONES, ONES, n))(2), "argument `n` is "),
    (lambda: rlx.transformed_n_step_returns(rlx.IDENTITY_PAIR, ONES, ONES, [1.0], 2), "argument `v_t` is a list"),
    (lambda: rlx.transformed_lambda_returns(ONES, ONES, ONES, ONES), "argument `tx_pair` is "),
    (lambda: rlx.one_hot(1, 2.5), "argument `num_classes` is 2.5, expected a number of classes, a Python"),
    (lambda: rlx.knn_query(ONES[None], ONES[None], 1.5), "knn_query: argument `num_neighbors` is 1.5"),
    (lambda: rlx.extract_subsequences(ONES[None], ONES[None].astype(int), "2"), "argument `subsequence_len` is '2'"),
    (lambda: rlx.twohot_pair(-1.0, "1", 3).apply(0.5), "argument `max_value` is a str"),
    (lambda: rlx.mpo_loss(ONES, ONES, 0.5, []), "mpo_loss: argument `temperature_constraint` is 0.5, expected a `r"),
    (lambda: rlx.vmpo_loss(ONES, ONES, PENALTY, [PENALTY]), "vmpo_loss: argument `kl_constraints` is [LagrangePenal"),
    (lambda: rlx.kl_constraint_loss(ONES, "1", jnp.exp), "kl_constraint_loss: argument `penalty` is '1'"),
    (lambda: jax.jit(lambda k: rlx.get_top_k_weights(k, ONES, ONES))(0.5), "argument `top_k_fraction` is JitTracer"),
    (lambda: rlx.unbiased_transform_pair(-1.0, 1.0, None, rlx.IDENTITY_PAIR), "argument `num_bins` is None"),
])  # fmt: skip
def test_settings_that_are_no_numbers(call, named):
    with pytest.raises(rlx.ArgumentError, match=re.escape(named)):
        call()


@every_case
def test_a_wrong_length_names_an_argument(case):
    arguments = cast(draw(case, 0), jnp.float32)
    lengths = [n for x in arguments.values() for n in x.shape]
    for name, value in arguments.items():
        # A length can only be wrong beside another argument that has it too.
        if name in case.free or not value.ndim or lengths.count(value.shape[0]) < 2:
            continue
        if name in LENGTHS_OF_THEIR_OWN.get(case.name, ()):
            continue
        with pytest.raises(rlx.ShapeError, match=f"{case.name}: argument `"):
            longer = jax.ShapeDtypeStruct((len(value) + 1, *value.shape[1:]), value.dtype)
            jax.eval_shape(lambda x: case.run({**arguments, name: x}), longer)  # noqa: B023


@every_case
def test_lowers_for_every_platform(case):
    arguments = cast(draw(case, 0), jnp.float32)
    exported = jax.export.export(jax.jit(case.run), platforms=("cpu", "cuda", "tpu"))(arguments)
    assert exported.platforms == ("cpu", "cuda", "tpu")


def test_every_operator_with_a_flag_is_here():
    """A new operator cannot be forgotten: whatever takes the flag is in the registry, or is tested on its own."""
    known = {case.name for case in CASES} | {"sampled_policy_distillation_loss"}  # of a policy: tests of numbers
    for name in dir(rlx):
        member = getattr(rlx, name)
        if inspect.isfunction(member) and not name.startswith("transformed_"):
            parameters = inspect.signature(member).parameters
            if "stop_target_gradients" in parameters or "use_stop_gradient" in parameters:
                assert name in known, name
