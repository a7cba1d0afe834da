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
