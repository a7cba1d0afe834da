"""Everything that rlx exports on other platforms, on eight devices, under JAX's settings, from every kind of number."""

import inspect
from concurrent.futures import ThreadPoolExecutor

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import checkify
from operator_checks import assert_close, cast, weighted_sum
from operator_registry import CASES
from other_operators import OTHERS

import rlx

pytestmark = pytest.mark.unoptimised

ITEMS = [*CASES, *OTHERS]
slow_each = pytest.mark.parametrize("item", [pytest.param(i, id=i.name, marks=pytest.mark.slow) for i in ITEMS])
# What is no operator: records, pairs of transforms, errors, and modules, which have tests of their own.
NO_OPERATORS = {name for name in rlx.__all__ if not inspect.isfunction(getattr(rlx, name))}
NO_OPERATORS |= {"batched", "time_major"}  # transforms of operators; see test_batching.py


@pytest.fixture(scope="module", autouse=True)
def programs_as_on_an_accelerator():
    """They hold the accelerators' algorithm too, which a CPU leaves out."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jax, "default_backend", lambda: "gpu")
        jax.clear_caches()
        yield
    jax.clear_caches()


def arguments_of(item, seed=0, dtype=jnp.float32):
    return cast(item.make(np.random.default_rng(seed)), dtype)


def floats(tree):
    return [x for x in jax.tree.leaves(tree) if jnp.issubdtype(jnp.result_type(x), jnp.floating)]


def learnable(arguments):
    return {name: x for name, x in arguments.items() if jnp.issubdtype(x.dtype, jnp.floating)}


def value_and_gradients(item):
    def run(arguments):
        def total(chosen):
            return weighted_sum(floats(item.run({**arguments, **chosen})))

        if not learnable(arguments):
            return item.run(arguments)
        return jax.value_and_grad(total)(learnable(arguments))

    return run


def test_everything_exported_is_an_item():
    assert {item.name for item in ITEMS} == set(rlx.__all__) - NO_OPERATORS


@slow_each
def test_forward_and_gradient_lower_for_every_platform(item):
    platforms = ("cpu", "cuda", "tpu")
    exported = jax.export.export(jax.jit(value_and_gradients(item)), platforms=platforms)(arguments_of(item))
    assert exported.platforms == platforms


@pytest.mark.eight_devices
@slow_each
def test_lowers_for_eight_devices(item):
    """One draw on each, by `jax.jit` with shardings, `jax.pmap`, `jax.shard_map`, explicit axes; the gradient too."""
    arguments = [arguments_of(item, seed) for seed in range(8)]
    if not arguments[0]:
        pytest.skip("takes no array")
    batch = jax.tree.map(lambda *x: np.stack(x), *arguments)
    mesh = jax.make_mesh((8,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
    rows = jax.NamedSharding(mesh, jax.P("data"))
    mapped = jax.vmap(value_and_gradients(item))
    for run in (
        jax.jit(mapped, in_shardings=rows),
        jax.pmap(value_and_gradients(item)),
        jax.jit(jax.shard_map(mapped, mesh=mesh, in_specs=jax.P("data"), out_specs=jax.P("data"))),
    ):
        assert all(x.shape[0] == 8 for x in jax.tree.leaves(run.lower(batch).out_info))
    with jax.set_mesh(jax.make_mesh((8,), ("data",), axis_types=(jax.sharding.AxisType.Explicit,))):
        typed = jax.tree.leaves(jax.eval_shape(mapped, jax.device_put(batch, jax.P("data"))))
        assert all(x.shape[0] == 8 for x in typed)
        if floats(jax.eval_shape(item.run, arguments[0])):  # otherwise the value is a constant
            assert all(x.sharding.spec[0] == "data" for x in typed)


@pytest.mark.eight_devices
@pytest.mark.slow
def test_what_is_looked_up_on_explicit_axes_has_the_same_numbers():
    """Where a table is whole, and the indices are divided."""
    rng = np.random.default_rng(0)
    state = rlx.PopArtState(jnp.arange(5.0), 1 + jnp.arange(5.0), jnp.full(5, 20.0))
    points, index = rng.normal(size=[16, 3]).astype(np.float32), rng.integers(0, 5, 16)
    sequences = [rng.random([16, 300], np.float32) for _ in range(5)]
    for operator, *arguments in (
        (lambda x, i: rlx.art(state, x, i, 0.1, 1e-4, 1e6), points[:, 0], index),
        (lambda x, i: rlx.normalize(state, x, i), points[:, 0], index),
        (rlx.symexp_twohot_pair(-5.0, 5.0, 11).apply, points[:, 0]),
        (lambda x: rlx.knn_query(jnp.arange(15.0).reshape(5, 3), x, 2), points),
        (jax.vmap(jax.value_and_grad(lambda *x: jnp.sum(rlx.vtrace(*x)))), *sequences),
    ):
        expected = operator(*arguments)
        with jax.set_mesh(jax.make_mesh((8,), ("data",), axis_types=(jax.sharding.AxisType.Explicit,))):
            divided = jax.device_put(arguments, jax.P("data"))
            assert_close(jax.jit(operator)(*divided), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.eight_devices
@pytest.mark.slow
@pytest.mark.parametrize("item", [pytest.param(case, id=case.name) for case in CASES if case.multi])
def test_truncated_sequences_on_eight_devices(item):
    """Where an episode is cut short, a recurrence begins anew in the middle of its loop."""
    arguments = [arguments_of(item, seed) for seed in range(8)]
    batch = jax.tree.map(lambda *x: np.stack(x), *arguments)
    masks = np.random.default_rng(0).random(batch["r_t"].shape) < 0.4

    def gradient(arguments, mask):
        return jax.grad(lambda x: weighted_sum(floats(item.run(arguments | x, truncation_t=mask))))(
            learnable(arguments)
        )

    mesh = jax.make_mesh((8,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
    shared = jax.shard_map(jax.vmap(gradient), mesh=mesh, in_specs=jax.P("data"), out_specs=jax.P("data"))
    assert_close(jax.jit(shared)(batch, masks), jax.jit(jax.vmap(gradient))(batch, masks), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("item", [pytest.param(i, id=i.name, marks=pytest.mark.slow) for i in OTHERS])
def test_a_mapped_call_is_a_loop_of_calls(item):
    """Values and gradients, of what test_operators.py does not map."""
    arguments = [arguments_of(item, seed) for seed in range(3)]
    if not arguments[0]:
        pytest.skip("takes no array")

    def everything(arguments):
        return item.run(arguments), value_and_gradients(item)(arguments)

    mapped = jax.jit(jax.vmap(everything))(jax.tree.map(lambda *x: np.stack(x), *arguments))
    once = jax.jit(everything)
    for i, one in enumerate(arguments):
        for x, y in zip(jax.tree.leaves(mapped), jax.tree.leaves(once(one)), strict=True):
            np.testing.assert_allclose(x[i], y, rtol=1e-5, atol=1e-6)


@slow_each
def test_no_operation_makes_a_nan_and_no_tracer_is_left(item):
    """Also inside of loops, where `jax.debug_nans` sees their results alone."""
    arguments, run = arguments_of(item), value_and_gradients(item)
    with jax.checking_leaks():
        jax.eval_shape(run, arguments)
    # The gradient of a distance to an empty place of the memory, infinitely far, is NaN before it is left out.
    if item.name != "episodic_memory_intrinsic_rewards":
        checked = checkify.checkify(run, errors=checkify.nan_checks)
        with jax.debug_nans(True):
            jax.jit(checked)(arguments)[0].throw()


@pytest.mark.slow
@pytest.mark.parametrize("item", [pytest.param(i, id=i.name) for i in ITEMS[::10]])
def test_step_by_step_is_as_compiled(item):
    """Of every tenth, because each operation is compiled by itself."""
    with jax.debug_nans(item.name != "episodic_memory_intrinsic_rewards"):
        eager = value_and_gradients(item)(arguments_of(item))
    assert_close(jax.jit(value_and_gradients(item))(arguments_of(item)), eager, rtol=2e-5, atol=2e-5)


@slow_each
def test_numpy_python_and_traced_numbers_together(item):
    arguments = arguments_of(item)
    expected = jax.eval_shape(item.run, arguments)
    plain = {name: x.item() if x.ndim == 0 else np.asarray(x) for name, x in arguments.items()}
    given = [plain, *({**plain, name: arguments[name]} for name in plain)]
    for one in given:
        traced = {name: x for name, x in one.items() if isinstance(x, jax.Array)}
        found = jax.eval_shape(lambda t: item.run({**one, **t}), traced)  # noqa: B023
        assert jax.tree.map(lambda x: (x.shape, x.dtype), found) == jax.tree.map(lambda x: (x.shape, x.dtype), expected)


@slow_each
def test_strict_promotion_of_dtypes_in_gradients(item):
    half = () if item.name in IN_FLOAT32 else (jnp.bfloat16, jnp.float16)  # results of two dtypes cannot be added up
    with jax.numpy_dtype_promotion("strict"):
        for dtype in (jnp.float32, *half):
            jax.eval_shape(value_and_gradients(item), arguments_of(item, dtype=dtype))


# Their statistics are in float32 whatever they are of, codes in the dtype that is asked for, and weights of samples are
# of no distribution's.
IN_FLOAT32 = {
    *("popart", "create_ema", "scale_rewards", "initial_reward_scale", "one_hot"),
    *("constant_policy_targets", "zero_policy_targets", "episodic_memory_intrinsic_rewards"),
}


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
@pytest.mark.parametrize(
    "item", [pytest.param(i, id=i.name, marks=pytest.mark.slow) for i in OTHERS if i.name not in IN_FLOAT32]
)
def test_half_precision_of_what_is_not_in_the_registry(item, dtype):
    assert {x.dtype for x in floats(jax.eval_shape(item.run, arguments_of(item, dtype=dtype)))} <= {jnp.dtype(dtype)}


@pytest.mark.slow
def test_eight_threads_get_what_one_gets():
    def run(item):
        return jax.tree.map(np.asarray, item.run(arguments_of(item)))

    some = ITEMS[5::10]  # each operation is compiled by itself
    with ThreadPoolExecutor(8) as pool:
        for found, item in zip(pool.map(run, some), some, strict=True):
            jax.tree.map(np.testing.assert_array_equal, found, run(item))
