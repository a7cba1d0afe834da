"""Every module of the registry against dm-haiku: names, initial values, outputs, state, gradients and cost."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from layer_registry import CASES, Case

import hkx

haiku = pytest.importorskip("haiku", reason="dm-haiku is not installed")
pytestmark = pytest.mark.peer

KEY = jax.random.PRNGKey(3)
both = [case for case in CASES if not case.ours]
each = pytest.mark.parametrize("case", both, ids=[case.name for case in both])


def _number(tree: Any) -> Any:
    """One differentiable number that depends on every float of a tree."""
    floats = [x for x in jax.tree.leaves(tree) if jnp.issubdtype(x.dtype, jnp.floating)]
    return sum((jnp.sum(jnp.sin(1.3 * x.astype(jnp.float32))) for x in floats), jnp.zeros(()))


@functools.cache
def run(lib: Any, case: Case, dtype: Any) -> dict[str, Any]:
    """Everything to compare, from one library."""
    args, requests = case.arrays(dtype), []

    def recorded(make: Any, shape: Any, dtype: Any, init: Any, context: Any) -> Any:
        requests.append((context.full_name, tuple(shape), np.dtype(dtype), _described(init)))
        return make(shape, dtype, init)

    def call(*args: Any) -> Any:
        with lib.custom_creator(recorded, state=True):
            return case.call(lib, *args)

    model = lib.transform_with_state(call)
    params, state = model.init(KEY, *args) if dtype == np.float32 else _unlike_init(model.init, args, requests)
    requests = sorted(requests, key=str)

    def loss(params: Any, args: Any) -> Any:
        out, new = model.apply(params, state, KEY, *args)
        return _number(out), (out, new)

    floats = tuple(i for i, x in enumerate(args) if x.dtype == np.dtype(dtype))

    def of_floats(params: Any, values: Any) -> Any:
        merged = list(args)
        for i, value in zip(floats, values, strict=True):
            merged[i] = value
        return loss(params, merged)

    step = jax.jit(jax.value_and_grad(of_floats, argnums=(0, 1), has_aux=True))
    program = step.lower(params, [args[i] for i in floats]).compile()
    (_, (out, new)), gradients = program(params, [args[i] for i in floats])
    flops = (program.cost_analysis() or {}).get("flops", 0.0)
    results = {"params": params, "state": state, "out": out, "new": new, "gradients": gradients, "flops": flops}
    return results | {"requests": requests}


def _described(init: Any) -> tuple[str, list[tuple[str, float]]]:
    """The name of an initializer, and its numbers."""
    numbers = {name: value for name, value in getattr(init, "__dict__", {}).items() if isinstance(value, int | float)}
    return getattr(init, "__name__", type(init).__name__), sorted(numbers.items())


def _unlike_init(init: Any, args: Any, requests: list[Any]) -> Any:
    """Values of the names, shapes and dtypes of `init`, which takes a second or more to compile for each of them.

    What it makes in every dtype follows from what is asked of which initializer, which is compared, and from what those
    make in every dtype, which is compared in tests/core.
    """
    specs, random = jax.eval_shape(init, KEY, *args), np.random.default_rng(0)
    constant = {name: {"zeros": 0, "ones": 1}.get(how) for name, _, _, (how, _) in requests}

    def value(path: Any, spec: Any) -> Any:
        filled = constant.get(f"{path[-2].key}/{path[-1].key}")
        values = random.uniform(0.1, 0.5, spec.shape) if filled is None else np.full(spec.shape, filled)
        return jnp.asarray(values, spec.dtype)

    return jax.tree.map_with_path(value, specs)


def _pairs(ours: Any, theirs: Any) -> list[tuple[Any, Any]]:
    ours, theirs = jax.tree.leaves(ours), jax.tree.leaves(theirs)
    assert [(x.shape, x.dtype) for x in ours] == [(x.shape, x.dtype) for x in theirs]
    return [(np.asarray(a, np.float64), np.asarray(b, np.float64)) for a, b in zip(ours, theirs, strict=True)]


def _names(tree: Any) -> list[tuple[str, str]]:
    return sorted((bundle, name) for bundle, entries in tree.items() for name in entries)


def _compare(case: Case, dtype: Any, tolerance: float) -> None:
    ours, theirs = run(hkx, case, dtype), run(haiku, case, dtype)
    assert ours["requests"] == theirs["requests"]
    for what in ("params", "state", "new"):
        assert _names(ours[what]) == _names(theirs[what])
    for a, b in _pairs(ours["params"], theirs["params"]):
        np.testing.assert_array_equal(a, b)
    for what in ("state", "out", "new", "gradients"):
        for a, b in _pairs(ours[what], theirs[what]):
            scale = max(1.0, np.max(np.abs(b), initial=0.0))
            np.testing.assert_allclose(a, b, rtol=0, atol=tolerance * scale, err_msg=what)


@each
def test_single_precision(case: Case) -> None:
    _compare(case, np.float32, 1e-5)


# What Haiku itself cannot do in this dtype: it mixes it with float32.
_FAILS_IN_HAIKU = ("conv2d_mask", "conv1d_transpose_unbatched", "ema_warmup")


@pytest.mark.parametrize("case", [c for c in both if c.name not in _FAILS_IN_HAIKU], ids=lambda case: case.name)
@pytest.mark.unoptimised
def test_bfloat16(case: Case) -> None:
    # Eight bits of mantissa, and statistics that are rounded to them on the way.
    _compare(case, jnp.bfloat16, 3e-2 * case.loose)


@each
def test_cost(case: Case) -> None:
    """The compiled forward and backward pass does no more than Haiku's.

    One clip of the variance, of the size of the statistics, is allowed: Haiku has none, and returns NaN without it. And
    so is a second time the few operations of these small transposed convolutions, whose gradient takes the output apart
    by the stride (0.4 % more at 64 channels, and eleven times as fast there).
    """
    ours, theirs = run(hkx, case, np.float32)["flops"], run(haiku, case, np.float32)["flops"]
    statistics = sum(np.size(x) for x in jax.tree.leaves(run(hkx, case, np.float32)["new"]))
    clips = 4 * max(statistics, 2 * 4 * 30) if case.loose > 1 else 0
    assert ours <= theirs * (2 if "transpose" in case.name else 1.001) + clips


_STEPS = {"first_input_shape", "group_shape", "dn"}  # Haiku keeps these steps of a computation as attributes


def _modules(lib: Any, case: Case) -> dict[str, Any]:
    """The modules of a case by their names, once they have been called."""
    modules = []

    def seen(call: Any, args: Any, kwargs: Any, context: Any) -> Any:
        modules.append(context.module)
        return call(*args, **kwargs)

    def call(*args: Any) -> Any:
        with lib.intercept_methods(seen):
            return case.call(lib, *args)

    with hkx.config.context(init="eager"):
        jax.eval_shape(lib.transform_with_state(call).init, KEY, *case.arrays(np.float32))
    return {module.module_name: module for module in modules}


@each
def test_public_attributes(case: Case) -> None:
    ours = _modules(hkx, case)
    for name, module in _modules(haiku, case).items():
        public = {attribute for attribute in vars(module) if not attribute.startswith("_")} - _STEPS
        assert [attribute for attribute in public if not hasattr(ours[name], attribute)] == []
