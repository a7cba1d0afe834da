"""When the steps of `static_unroll` are compiled as a loop, and that nothing is to be seen of it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

import hkx
from hkx.jaxprs.traces import recording

pytestmark = pytest.mark.unoptimised

XS = np.random.RandomState(0).randn(7, 2, 3).astype(np.float32)

CORES = {
    "vanilla": lambda: hkx.VanillaRNN(4),
    "lstm": lambda: hkx.LSTM(4),
    "gru": lambda: hkx.GRU(4),
    "identity": lambda: hkx.IdentityCore(),
    "deep": lambda: hkx.DeepRNN([hkx.LSTM(4), jax.nn.relu, hkx.Linear(3), jax.nn.tanh, hkx.GRU(2)]),
    "skipping": lambda: hkx.deep_rnn_with_skip_connections([hkx.LSTM(4), hkx.GRU(2)]),
}


class Own(hkx.LSTM):
    """Keeps what passes through, as people do who choose the unroll that runs their Python at each step."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.seen = []

    def __call__(self, inputs, prev_state):
        outputs, state = super().__call__(inputs, prev_state)
        self.seen.append(outputs)
        return outputs, state


def unrolled(core, by_hand=False):
    def f(xs):
        applied = core()
        state = applied.initial_state(xs.shape[1])
        if not by_hand:
            return hkx.static_unroll(applied, xs, state)
        outputs = []
        for x in xs:
            output, state = applied(x, state)
            outputs.append(output)
        return jnp.stack(outputs), state

    return hkx.without_apply_rng(hkx.transform(f))


def is_loop(f, *args, platform="cpu"):
    """Whether the program for a platform, which need not be there, has a loop."""
    return "stablehlo.while" in jax.jit(f).trace(*args).lower(lowering_platforms=(platform,)).as_text()


@pytest.mark.parametrize(
    "core",
    [pytest.param(core, marks=pytest.mark.slow if name != "vanilla" else (), id=name) for name, core in CORES.items()],
)
def test_own_cells_are_a_loop_with_the_values_and_gradients_of_the_steps(core):
    ours, by_hand = unrolled(core), unrolled(core, by_hand=True)
    params = ours.init(jax.random.key(0), XS)
    looped = [is_loop(ours.apply, params, XS, platform=platform) for platform in ("cpu", "cuda", "tpu")]
    assert looped == [core is not CORES["identity"], False, False]  # JAX runs nothing for steps that do nothing

    def loss(pair):
        return lambda params, xs: sum((x**2).sum() for x in jax.tree.leaves(pair.apply(params, xs)))

    jax.tree.map(np.testing.assert_array_equal, params, by_hand.init(jax.random.key(0), XS))
    for f, g in (
        (ours.apply, by_hand.apply),
        (jax.grad(loss(ours), argnums=(0, 1)), jax.grad(loss(by_hand), argnums=(0, 1))),
    ):
        jax.tree.map(
            lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), jax.jit(f)(params, XS), g(params, XS)
        )


def test_few_steps_are_steps():
    pair = unrolled(CORES["lstm"])
    params = pair.init(jax.random.key(0), XS)
    assert not is_loop(pair.apply, params, XS[:3])


def test_a_core_with_code_of_its_own_runs_it_at_every_step():
    def f(xs):
        core = Own(4)
        outputs, _ = hkx.static_unroll(core, xs, core.initial_state(2))
        return outputs, jnp.stack(core.seen)

    pair = hkx.without_apply_rng(hkx.transform(f))
    params = pair.init(jax.random.key(0), XS)
    outputs, seen = jax.jit(pair.apply)(params, XS)
    np.testing.assert_array_equal(outputs, seen)


def test_functions_of_users_in_a_deep_rnn_run_at_every_step():
    calls = []

    def noted(x):
        calls.append(1)
        return x

    pair = unrolled(lambda: hkx.DeepRNN([hkx.LSTM(4), noted]))
    params = pair.init(jax.random.key(0), XS)
    calls.clear()
    jax.jit(pair.apply)(params, XS)
    assert len(calls) == len(XS)


def test_interceptors_see_every_step():
    calls = []

    def interceptor(f, args, kwargs, context):
        if isinstance(context.module, hkx.LSTM) and context.method_name == "__call__":
            calls.append(context.method_name)
        return f(*args, **kwargs)

    pair = unrolled(CORES["lstm"])
    params = pair.init(jax.random.key(0), XS)
    with hkx.intercept_methods(interceptor):
        jax.jit(pair.apply)(params, XS)
    assert len(calls) == len(XS)


@pytest.mark.slow
@pytest.mark.parametrize("transform", [jax.vmap, lambda f: jax.jacrev(f), lambda f: f], ids=["vmap", "jacrev", "eager"])
def test_what_is_not_compiled_is_not_a_loop(transform):
    """A loop would be compiled at each call, since its body is a new function each time."""
    looped = []

    def f(xs):
        core = hkx.GRU(4)
        outputs, _ = hkx.static_unroll(core, xs, core.initial_state(2))
        looped.append(recording())
        return outputs

    pair = hkx.without_apply_rng(hkx.transform(f))
    params = pair.init(jax.random.key(0), XS)
    looped.clear()
    transform(lambda xs: pair.apply(params, xs))(XS[None] if transform is jax.vmap else XS)
    assert looped == [False]


def test_a_state_that_changes_its_dtype_is_unrolled():
    def f(xs):
        return hkx.static_unroll(hkx.VanillaRNN(4), xs, jnp.zeros([2, 4], jnp.float16))

    pair = hkx.without_apply_rng(hkx.transform(f))
    params = pair.init(jax.random.key(0), XS)
    outputs, state = jax.jit(pair.apply)(params, XS)
    assert outputs.dtype == state.dtype == jnp.float32


def test_keys_and_names_after_it_are_those_of_the_steps():
    def f(by_hand):
        def g(xs):
            core = hkx.LSTM(4)
            state = core.initial_state(2)
            if by_hand:
                for x in xs:
                    h, state = core(x, state)
            else:
                hs, state = hkx.static_unroll(core, xs, state)
                h = hs[-1]
            return hkx.Linear(2)(hkx.dropout(hkx.next_rng_key(), 0.5, h))

        return hkx.transform(g)

    params = f(True).init(jax.random.key(0), XS)
    jax.tree.map(np.testing.assert_array_equal, params, f(False).init(jax.random.key(0), XS))
    key = jax.random.key(1)
    expected = f(True).apply(params, key, XS)
    np.testing.assert_allclose(jax.jit(f(False).apply)(params, key, XS), expected, rtol=1e-6, atol=1e-6)


@pytest.mark.eight_devices
def test_inside_shard_map_a_state_that_does_not_vary_yet_is_unrolled():
    mesh = jax.make_mesh((2,), ("batch",), axis_types=(jax.sharding.AxisType.Auto,))
    pair = unrolled(CORES["lstm"])
    params = pair.init(jax.random.key(0), XS)
    xs = np.concatenate([XS, 2 * XS], axis=1)
    f = jax.shard_map(
        lambda params, xs: pair.apply(params, xs)[0],
        mesh=mesh,
        in_specs=(P(), P(None, "batch")),
        out_specs=P(None, "batch"),
    )
    np.testing.assert_allclose(jax.jit(f)(params, xs), pair.apply(params, xs)[0], rtol=1e-5, atol=1e-6)
