"""Every module of the registry on other platforms, on eight devices, under JAX's settings, from every kind of input."""

from __future__ import annotations

import ast
import functools
import inspect
import pathlib
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import checkify
from layer_registry import CASES, LARGE, Case

import hkx

pytestmark = pytest.mark.unoptimised

KEY = jax.random.PRNGKey(1)
ALL = [*CASES, *LARGE]
slow_each = pytest.mark.parametrize(
    "case", [pytest.param(c, id=c.name, marks=pytest.mark.slow) for c in ALL], scope="module"
)
# Their gradients are no slopes of their values: they hold what they compute from statistics constant; and one of them
# is, as far as float32 goes, in which `jax.nn.dot_product_attention` computes.
HOLD_CONSTANT = ("spectral_norm", "sn_params_tree", "batch_renorm", "vector_quantizer", "vector_quantizer_ema")
IN_FLOAT32 = ("grouped_query_attention",)
# Bases of other classes, residual networks of the usual depths, parts of a decoder (tests/nets), and what helps to
# write layers (tests/nn).
NOT_ALONE = {
    *("Module", "RNNCore", "ResNet18", "ResNet34", "ResNet50", "ResNet101", "ResNet152", "ResNet200"),
    *("DecoderLayer", "answer_hidden", "decoder_sharding_rules", "generate", "in_tiles"),
    *("get_channel_index", "project_to_sphere", "is_padfn", "per_dimension"),
}


def exported() -> set[str]:
    """The public names of modules and initializers, and of functions beside them."""
    members = {
        name: getattr(face, name) for face in (hkx, hkx.nets, hkx.initializers, hkx.pad) for name in face.__all__
    }
    homes = ("hkx.nn.", "hkx.nets.", "hkx.initializers", "hkx.pad")
    return {
        name
        for name, value in members.items()
        if (inspect.isclass(value) and (issubclass(value, hkx.Module) or value.__module__ == "hkx.initializers"))
        or (inspect.isfunction(value) and value.__module__.startswith(homes))
    }


def named_in_registry() -> set[str]:
    tree = ast.parse((pathlib.Path(__file__).parent / "layer_registry.py").read_text(encoding="utf-8"))
    words = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)}  # of `getattr(lib, function)`
    return {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)} | words


@functools.cache
def model(case: Case) -> Any:
    return hkx.transform_with_state(lambda *args: case.call(hkx, *args))


@functools.cache
def initial(case: Case) -> Any:
    return model(case).init(KEY, *case.arrays())


def floats(tree: Any) -> list[Any]:
    return [x for x in jax.tree.leaves(tree) if jnp.issubdtype(x.dtype, jnp.floating)]


def value(case: Case, state: Any, params: Any, inputs: Any, args: Any) -> Any:
    """One number that depends on every float of the output, where these `inputs` are the floats of the arguments."""
    rest = iter(inputs)
    args = [next(rest) if jnp.issubdtype(x.dtype, jnp.floating) else x for x in args]
    out, _ = model(case).apply(params, state, KEY, *args)
    return sum((jnp.sum(jnp.sin(1.3 * x)) for x in floats(out)), jnp.zeros(()))


def value_and_gradients(case: Case) -> Any:
    def run(params: Any, state: Any, args: Any) -> Any:
        return jax.value_and_grad(functools.partial(value, case, state), (0, 1))(params, floats(args), args)

    return run


def test_everything_exported_is_in_the_registry() -> None:
    assert exported() - named_in_registry() == NOT_ALONE


@slow_each
def test_forward_and_gradient_lower_for_every_platform(case: Case) -> None:
    platforms = ("cpu", "cuda", "tpu")
    exported = jax.export.export(jax.jit(value_and_gradients(case)), platforms=platforms)
    assert exported(*initial(case), case.arrays()).platforms == platforms


@pytest.mark.eight_devices
@slow_each
def test_lowers_for_eight_devices(case: Case) -> None:
    """By `jax.jit` with shardings, `jax.pmap`, `jax.shard_map` and explicit axes, the gradient too."""
    if case.no_vmap:
        pytest.skip("JAX does not map jax.lax.ragged_dot")
    params, state = initial(case)
    batch = [np.stack(inputs) for inputs in zip(*(case.arrays(seed=i) for i in range(8)), strict=True)]
    mesh = jax.make_mesh((8,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
    rows, whole = jax.NamedSharding(mesh, jax.P("data")), jax.NamedSharding(mesh, jax.P())
    axes, specs = (None, None, 0), (jax.P(), jax.P(), jax.P("data"))
    each = jax.vmap(value_and_gradients(case), axes)
    for run in (
        jax.jit(each, in_shardings=(whole, whole, rows)),
        jax.pmap(value_and_gradients(case), in_axes=axes),
        jax.jit(jax.shard_map(each, mesh=mesh, in_specs=specs, out_specs=jax.P("data"))),
    ):
        assert run.lower(params, state, batch).out_info[0].shape == (8,)
    with jax.set_mesh(jax.make_mesh((8,), ("data",), axis_types=(jax.sharding.AxisType.Explicit,))):
        typed = jax.eval_shape(each, *jax.device_put((params, state), jax.P()), jax.device_put(batch, jax.P("data")))
    assert typed[0].shape == (8,)
    if floats(jax.eval_shape(model(case).apply, params, state, KEY, *case.arrays())[0]):  # else the value is a constant
        assert typed[0].sharding.spec == jax.P("data")


@pytest.mark.parametrize("case", [pytest.param(c, id=c.name, marks=pytest.mark.slow) for c in LARGE], scope="module")
def test_a_mapped_call_is_a_loop_of_calls(case: Case) -> None:
    """Outputs, states and gradients, of what test_layer_properties.py does not map.

    In float64: rounding is large where a batch norm has two numbers left to normalise.
    """

    def everything(params: Any, state: Any, args: Any) -> Any:
        return model(case).apply(params, state, KEY, *args), value_and_gradients(case)(params, state, args)

    single = initial(case)
    with jax.enable_x64(True):
        made = jax.tree.map(lambda x: np.asarray(x, np.float64 if x.dtype == np.float32 else x.dtype), single)
        examples, once = [case.arrays(np.float64, seed=i) for i in range(3)], jax.jit(everything)
        loop = [once(*made, args) for args in examples]
        batch = [np.stack(inputs) for inputs in zip(*examples, strict=True)]
        mapped = jax.jit(jax.vmap(everything, (None, None, 0)))(*made, batch)
    assert any(np.any(np.asarray(x) != np.asarray(y)) for x, y in zip(*map(jax.tree.leaves, loop[:2]), strict=True))
    for i, expected in enumerate(loop):
        for x, y in zip(jax.tree.leaves(mapped), jax.tree.leaves(expected), strict=True):
            np.testing.assert_allclose(x[i], y, rtol=1e-8, atol=1e-10)


@slow_each
def test_strict_promotion_of_dtypes(case: Case) -> None:
    with jax.numpy_dtype_promotion("strict"):
        jax.eval_shape(model(case).init, KEY, *case.arrays())
        jax.eval_shape(value_and_gradients(case), *initial(case), case.arrays())


@slow_each
def test_no_operation_makes_a_nan(case: Case) -> None:
    """Also inside of loops, where `jax.debug_nans` sees their results alone."""
    args = list(map(jnp.asarray, case.arrays()))
    checked = checkify.checkify(value_and_gradients(case), errors=checkify.nan_checks)
    with jax.debug_nans(True):
        model(case).init(KEY, *args)
        jax.jit(checked)(*initial(case), args)[0].throw()


@pytest.mark.slow
@pytest.mark.parametrize("case", [pytest.param(c, id=c.name) for c in CASES[::10]])
def test_step_by_step_is_as_compiled(case: Case) -> None:
    """Of every tenth, because each operation is compiled by itself."""
    run, args = value_and_gradients(case), list(map(jnp.asarray, case.arrays()))
    with jax.debug_nans(True):
        eager = run(*initial(case), args)
    compiled = jax.jit(run)(*initial(case), args)
    jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=2e-5, atol=2e-5), compiled, eager)


@slow_each
def test_every_kind_of_key_and_shapes_for_arrays(case: Case) -> None:
    made = [model(case).init(key, *case.arrays())[0] for key in (jax.random.PRNGKey(3), jax.random.key(3), 3)]
    specs = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in case.arrays()]
    if case.name not in ("spectral_norm", "sn_params_tree"):  # whose initial state comes from the values themselves
        made.append(model(case).init(3, *specs)[0])
    for other in made[1:]:
        jax.tree.map(np.testing.assert_array_equal, other, made[0])


@slow_each
def test_numpy_and_traced_arrays_together(case: Case) -> None:
    (params, state), args, apply = jax.tree.map(np.asarray, initial(case)), case.arrays(), model(case).apply
    expected = jax.eval_shape(lambda p, s, k, a: apply(p, s, k, *a), params, state, KEY, args)
    assert jax.eval_shape(lambda a: apply(params, state, KEY, *a), args) == expected
    assert jax.eval_shape(lambda p: apply(p, state, KEY, *args), params) == expected
    assert jax.eval_shape(lambda s, k: apply(params, s, k, *args), state, KEY) == expected


@slow_each
def test_the_gradient_is_the_slope(case: Case) -> None:
    """Against central differences in float64, along one direction of all parameters and inputs at once."""
    if case.name in HOLD_CONSTANT + IN_FLOAT32:
        pytest.skip("holds a part constant, or computes in float32")
    rng, single = np.random.default_rng(0), initial(case)
    with jax.enable_x64(True):
        args = case.arrays(np.float64)
        # Away from zeros, where a bias of zero after a layer that is off has a kink.
        point = jax.tree.map(lambda x: np.asarray(x, np.float64) + 0.1 * rng.uniform(size=x.shape), single[0])
        point = point, floats(args)
        direction = jax.tree.map(lambda x: 0.1 * rng.standard_normal(x.shape), point)

        def along(t: Any) -> Any:
            return value(case, single[1], *jax.tree.map(lambda x, d: x + t * d, point, direction), args)

        low, high, slope = jax.jit(lambda t: (along(-t), along(t), jax.grad(along)(0.0)))(1e-5)
    np.testing.assert_allclose(slope, (np.asarray(high) - np.asarray(low)) / 2e-5, rtol=1e-5, atol=1e-6)


# What is said where there is nothing: of statistics of a batch, and of the outputs of no step.
NOTHING = {
    "batch_norm": "mean",
    "batch_renorm": "mean",
    "resnet": "mean",
    "mobilenet": "mean",
    "static_unroll": "steps",
}
MEAN_LOSS = ("vector_quantizer", "vector_quantizer_ema")  # which is NaN, as Haiku's


@pytest.mark.parametrize("size", [0, 1])
@slow_each
def test_no_example_and_one(case: Case, size: int) -> None:
    args = [x[:size] for x in case.arrays()]
    if case.name == "dynamic_unroll_lengths":  # of the sequences of a batch, which is not their first axis
        args[0] = case.arrays()[0][:, :size]

    def run() -> Any:
        made = model(case).init(KEY, *args)
        return made, model(case).apply(*made, KEY, *args)

    refused = next((words for name, words in NOTHING.items() if case.name.startswith(name)), None)
    if size == 0 and refused:
        with pytest.raises(ValueError, match=f"has no(thing to take)? {refused}"):
            run()
        return
    results = run()
    assert (size == 0 and case.name in MEAN_LOSS) or all(np.isfinite(x).all() for x in floats(results))


@pytest.mark.slow
def test_eight_threads_get_what_one_gets() -> None:
    def run(case: Case) -> Any:
        return hkx.transform_with_state(lambda *args: case.call(hkx, *args)).init(KEY, *case.arrays())

    with ThreadPoolExecutor(8) as pool:
        for made, case in zip(pool.map(run, CASES), CASES, strict=True):
            jax.tree.map(np.testing.assert_array_equal, made, initial(case))
