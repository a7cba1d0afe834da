"""Layers where they are used in unusual ways: other platforms, very long runs, inputs of any rank."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hkx

XS = np.random.RandomState(0).randn(6, 2, 3).astype(np.float32)


def recurrent(unroll):
    def f(xs):
        core = hkx.GRU(4)
        return unroll(core, xs, core.initial_state(2))

    return hkx.without_apply_rng(hkx.transform(f))


def lowered(f, *args, platforms):
    return jax.jit(f).trace(*args).lower(lowering_platforms=platforms).as_text()


def test_the_steps_of_static_unroll_are_a_loop_only_in_the_program_for_a_cpu():
    pair = recurrent(hkx.static_unroll)
    params = pair.init(0, XS)

    def gradient(params, xs):
        return jax.grad(lambda params: pair.apply(params, xs)[0].sum())(params)

    for f in (pair.apply, gradient):
        loops = {p: "stablehlo.while" in lowered(f, params, XS, platforms=(p,)) for p in ("cpu", "cuda", "tpu", "rocm")}
        assert loops == {"cpu": True, "cuda": False, "tpu": False, "rocm": False}
    dynamic = recurrent(hkx.dynamic_unroll)
    assert "stablehlo.while" in lowered(dynamic.apply, params, XS, platforms=("cuda",))


def test_one_exported_program_holds_both():
    pair = recurrent(hkx.static_unroll)
    params = pair.init(0, XS)
    exported = jax.export.export(jax.jit(pair.apply), platforms=("cpu", "cuda"))(params, XS)
    assert "stablehlo.while" in exported.mlir_module() and "stablehlo.case" in exported.mlir_module()
    outputs, state = exported.call(params, XS)
    expected, expected_state = pair.apply(params, XS)  # step by step, since nothing is compiled here
    np.testing.assert_allclose(outputs, expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(state, expected_state, rtol=1e-5, atol=1e-6)


def test_the_host_has_no_say(monkeypatch):
    def program():
        pair = recurrent(hkx.static_unroll)
        return lowered(pair.apply, pair.init(0, XS), XS, platforms=("cpu",))

    here = program()
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert program() == here


def greatest(dtype):
    return np.iinfo(dtype).max


AVERAGES = {
    "average": lambda x: hkx.ExponentialMovingAverage(0.5)(x),
    "without debias": lambda x: hkx.ExponentialMovingAverage(0.5, zero_debias=False)(x),
    "warmup": lambda x: hkx.ExponentialMovingAverage(0.5, zero_debias=False, warmup_length=3)(x),
    "not updated": lambda x: hkx.ExponentialMovingAverage(0.5)(x, update_stats=False),
}


def with_counter(state, counter, hidden):
    """The state with other counters, where hidden and average are `hidden`."""
    return {
        module: {
            name: counter if name == "counter" else np.full_like(value, hidden) if name in ("hidden", "average") else value
            for name, value in entries.items()
        }
        for module, entries in state.items()
    }


@pytest.mark.parametrize("average", AVERAGES.values(), ids=AVERAGES)
@pytest.mark.parametrize("dtype", [np.int8, np.int16, np.int32, np.uint8, np.uint32])
def test_the_counter_of_an_average_stays_at_its_greatest_value(average, dtype):
    pair = hkx.transform_with_state(average)
    _, state = pair.init(None, np.float32(3))
    for counter in (greatest(dtype) - 1, greatest(dtype)):
        near_the_end = with_counter(state, np.asarray(counter, dtype), np.float32(3))
        result, after = pair.apply({}, near_the_end, None, np.float32(3))
        np.testing.assert_allclose(result, 3, rtol=1e-6)  # an average of 3 and 3
        (entries,) = after.values()
        expected = counter if average is AVERAGES["not updated"] else greatest(dtype)
        assert (int(entries["counter"]), entries["counter"].dtype) == (expected, dtype)


def test_counters_count_up_to_there():
    pair = hkx.transform_with_state(lambda x: hkx.ExponentialMovingAverage(0.9, zero_debias=False, warmup_length=2)(x))
    _, state = pair.init(None, 1.0)
    counts = []
    for _ in range(4):
        _, state = pair.apply({}, state, None, 1.0)
        counts.append(int(state["exponential_moving_average"]["counter"]))
    assert counts == [-1, 0, 1, 2]


LONG_RUNS = {
    "batch norm": lambda x: hkx.BatchNorm(True, True, 0.9)(x, is_training=True),
    "vector quantizer": lambda x: hkx.nets.VectorQuantizerEMA(4, 2, 0.25, 0.9)(x, is_training=True)["quantize"],
}


@pytest.mark.parametrize("layer", LONG_RUNS.values(), ids=LONG_RUNS)
def test_layers_with_averages_run_on_after_any_number_of_steps(layer):
    x = np.random.RandomState(1).randn(6, 4).astype(np.float32)
    pair = hkx.transform_with_state(layer)
    params, state = pair.init(0, x)
    at_the_end, far = (
        pair.apply(params, with_counter(state, np.int32(counter), np.float32(1)), 0, x)
        for counter in (greatest(np.int32), 10**6)  # after a million steps nothing is left to correct
    )
    for module, entries in at_the_end[1].items():
        for name, value in entries.items():
            if name == "counter":
                assert value == greatest(np.int32)
            else:
                np.testing.assert_allclose(value, far[1][module][name], rtol=1e-6)
