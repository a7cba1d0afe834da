"""Raw JAX transforms inside a transformed function: what is right keeps working, what is wrong is stopped by name."""

import gc

import jax
import jax.core
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.core import find_top_trace

import hkx
from hkx.errors import KeyInInnerTraceError, ParameterInInnerTraceError, StateInInnerTraceError
from hkx.jaxprs import traces

pytestmark = pytest.mark.unoptimised

X = np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)


def scanned(body):
    return lambda x: jax.lax.scan(lambda c, row: (c, body(row)), 0.0, x)[1]


WRAPPERS = {
    "jit": lambda f: jax.jit(f),
    "scan": scanned,
    "cond": lambda f: lambda x: jax.lax.cond(True, f, lambda x: f(x), x),
    "while": lambda f: (
        lambda x: jax.lax.while_loop(lambda c: c[0] < 1, lambda c: (c[0] + 1, c[1] + f(x).sum()), (0, 0.0))
    ),
    "remat": lambda f: jax.checkpoint(f),
    "jit in vmap": lambda f: jax.vmap(jax.jit(f)),
    "vmap in jit": lambda f: jax.jit(jax.vmap(f)),
}
OUTSIDE = {
    "plain": lambda f: f,
    "jit": jax.jit,
    "vmap": lambda f: jax.vmap(f, in_axes=None, axis_size=2),
    "jit of vmap": lambda f: jax.jit(jax.vmap(f, in_axes=None, axis_size=2)),
}


def drawing(x):
    return x + jax.random.uniform(hkx.next_rng_key())


def counting(x):
    hkx.set_state("n", hkx.get_state("n", [], init=jnp.zeros) + x.sum())
    return x


@pytest.mark.parametrize("outside", OUTSIDE)
@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_parameter_made_in_a_recording_trace(wrapper, outside):
    model = hkx.transform(lambda x: WRAPPERS[wrapper](lambda row: hkx.Linear(2)(row))(x))
    with pytest.raises(ParameterInInnerTraceError, match=r"(?s)linear/w.*hkx\.scan"):
        OUTSIDE[outside](lambda: model.init(jax.random.key(0), X))()


@pytest.mark.parametrize("wrapper", [w for w in WRAPPERS if w != "vmap in jit"])
@pytest.mark.parametrize("outside", OUTSIDE)
def test_key_drawn_in_a_recording_trace(wrapper, outside):
    model = hkx.transform(lambda x: WRAPPERS[wrapper](drawing)(x))
    with pytest.raises(KeyInInnerTraceError, match=r"same key"):
        OUTSIDE[outside](lambda: model.apply({}, jax.random.key(0), X))()


@pytest.mark.parametrize("wrapper", WRAPPERS)
@pytest.mark.parametrize("outside", OUTSIDE)
def test_state_set_in_a_recording_trace(wrapper, outside):
    model = hkx.transform_with_state(lambda x: WRAPPERS[wrapper](counting)(x))
    with pytest.raises(StateInInnerTraceError, match=r"~/n"):
        OUTSIDE[outside](lambda: model.apply({}, {"~": {"n": jnp.zeros([])}}, None, X))()


@pytest.mark.parametrize("outside", OUTSIDE)
@pytest.mark.parametrize("inner", ["vmap", "grad"])
def test_state_that_depends_on_what_is_mapped(inner, outside):
    wrap = {"vmap": jax.vmap, "grad": lambda f: jax.grad(lambda x: f(x).sum())}[inner]
    model = hkx.transform_with_state(lambda x: wrap(counting)(x))
    with pytest.raises(StateInInnerTraceError):
        OUTSIDE[outside](lambda: model.apply({}, {"~": {"n": jnp.zeros([])}}, None, X))()


@pytest.mark.parametrize("outside", OUTSIDE)
def test_nested_grad_tells_its_own_tracers_from_the_outer_ones(outside):
    """State set inside an inner grad from what only the outer grad differentiates is right."""

    def f(w, x):
        def inner(y):
            hkx.set_state("w", w * 2)
            return (y * w).sum()

        return jax.grad(inner)(x).sum()

    model = hkx.transform_with_state(f)
    loss = jax.value_and_grad(lambda w: model.apply({}, {}, None, w, X), has_aux=True)
    (value, state), grad = OUTSIDE[outside](lambda: loss(jnp.float32(3)))()
    assert np.all(state["~"]["w"] == 6) and np.all(np.asarray(value) == 18) and np.all(np.asarray(grad) == 6)


@pytest.mark.parametrize("outside", ["jit"])
def test_vmap_and_grad_over_a_module_keep_working(outside):
    def f(x):
        layer = hkx.Linear(2)
        rows = jax.vmap(layer)(x)
        slope = jax.grad(lambda row: hkx.Linear(1)(row).sum())(x[0])
        return rows.sum() + slope.sum() + jax.vmap(lambda row: hkx.Linear(1, name="new")(row))(x).sum()

    model = hkx.transform(f)
    params = model.init(jax.random.key(0), X)
    assert jax.tree.map(jnp.shape, params) == {
        "linear": {"w": (3, 2), "b": (2,)},
        "linear_1": {"w": (3, 1), "b": (1,)},
        "new": {"w": (3, 1), "b": (1,)},
    }
    expected = (X @ params["linear"]["w"]).sum() + params["linear_1"]["w"].sum() + (X @ params["new"]["w"]).sum()
    out = OUTSIDE[outside](lambda: model.apply(params, None, X))()
    np.testing.assert_allclose(np.asarray(out).reshape(-1)[0], expected, rtol=1e-5)
    again = OUTSIDE[outside](lambda: model.init(jax.random.key(0), X))()
    jax.tree.map(lambda a, b: np.testing.assert_allclose(np.broadcast_to(a, b.shape), b, rtol=1e-6), params, again)


def test_parameters_that_exist_may_be_used_in_any_raw_transform():
    def f(x):
        layer = hkx.Linear(3)
        x = layer(x)
        for wrap in (jax.jit, jax.checkpoint, scanned, jax.vmap):
            x = wrap(layer)(x)
        return x

    model = hkx.transform(f)
    params = model.init(jax.random.key(0), X)
    w, expected = np.asarray(params["linear"]["w"]), X
    for _ in range(5):
        expected = expected @ w
    np.testing.assert_allclose(jax.jit(model.apply)(params, None, X), expected, rtol=1e-4, atol=1e-6)


def test_keys_drawn_under_raw_vmap_and_grad_are_shared_and_leave_no_tracer():
    def f(x):
        a = jax.vmap(drawing)(x) - x
        jax.grad(lambda x: drawing(x).sum())(x)
        return a, hkx.next_rng_key()

    a, key = jax.jit(hkx.transform(f).apply)({}, jax.random.key(0), X)
    np.testing.assert_allclose(a, a[0, 0] * np.ones_like(a), atol=1e-6)
    keys = hkx.PRNGSequence(jax.random.key(0))
    third = [next(keys) for _ in range(3)][2]
    assert (jax.random.key_data(key) == jax.random.key_data(third)).all()


def test_a_sequence_made_inside_belongs_inside():
    def f(x):
        def body(carry, key):
            with hkx.with_rng(key):
                return carry, jax.random.uniform(hkx.next_rng_key())

        return jax.lax.scan(body, 0, jax.random.split(hkx.next_rng_key(), 3))[1]

    out = hkx.transform(f).apply({}, jax.random.key(0), X)
    assert len(set(out.tolist())) == 3


def test_a_transform_inside_a_raw_scan():
    inner = hkx.transform_with_state(lambda x: (counting(drawing(x)), hkx.Linear(1)(x))[1])

    def f(x):
        def body(carry, row):
            params, state = inner.init(jax.random.key(1), row)
            out, state = inner.apply(params, state, jax.random.key(2), row)
            return carry + state["~"]["n"], out

        return jax.lax.scan(body, 0.0, x)

    total, out = hkx.transform(f).apply({}, None, X)
    assert out.shape == (2, 1) and np.isfinite(total)


def test_raw_ensure_compile_time_eval_and_eval_shape():
    def f(x):
        with jax.ensure_compile_time_eval():
            table = jnp.arange(3.0)
        shape = jax.eval_shape(lambda x: x @ x.T, x)
        return hkx.Linear(shape.shape[0])(x) + table[0]

    model = hkx.transform(f)
    assert model.apply(model.init(0, X), None, X).shape == (2, 2)


@pytest.mark.parametrize("wrap", [jax.jit, jax.vmap, lambda f: jax.grad(lambda x: f(x).sum()), jax.checkpoint])
@pytest.mark.parametrize(
    "use",
    [
        hkx.next_rng_key,
        lambda: hkx.get_parameter("w", [], init=jnp.ones),
        lambda: hkx.set_state("n", 1),
        lambda: hkx.with_rng(1),
    ],
)
def test_strict_checks_stop_everything(use, wrap):
    def f(x):
        use()
        return wrap(lambda x: (use(), x)[1])(x)

    with hkx.config.context(check_jax_usage=True), pytest.raises(hkx.errors.StrictUsageError, match="check_jax_usage"):
        hkx.transform_with_state(f).init(0, X[0])


class TestWhatIsHeldToBeTrueOfJax:
    """Each fails where a new JAX does something else, and says what: hkx/jaxprs/traces.py leans on it."""

    def test_a_tracer_refers_to_its_trace(self):
        seen = []
        jax.make_jaxpr(lambda x: seen.append(find_top_trace(()) in gc.get_referents(x)))(1.0)
        assert seen == [True]

    @pytest.mark.parametrize("inside", [jax.vmap, jax.grad, lambda f: lambda x: jax.jvp(f, (x,), (x,))])
    def test_traces_that_pass_on_know_the_one_around_them(self, inside):
        seen = []

        def f(x):
            around = find_top_trace(())
            inside(lambda y: seen.append(traces._around(find_top_trace(())) is around) or y.sum())(x)
            return x

        jax.make_jaxpr(f)(jnp.ones(2)) if inside is jax.vmap else jax.make_jaxpr(f)(1.0)
        assert seen and all(seen)

    def test_traces_that_pass_on_are_told_from_those_that_record(self):
        def passing(transform, x):
            seen = []
            transform(lambda y: seen.append(isinstance(find_top_trace(()), traces._passing()[0])) or y.sum())(x)
            return seen[0]

        assert passing(jax.vmap, jnp.ones(2)) and passing(jax.grad, 1.0)
        assert not passing(jax.jit, 1.0) and not passing(jax.checkpoint, 1.0)

    def test_functions_with_a_derivative_of_their_own_say_so(self):
        seen = []
        jax.make_jaxpr(lambda: seen.append(traces._purpose(find_top_trace(()))))()
        assert traces._custom_purposes() and seen[0] not in traces._custom_purposes()

    def test_an_array_that_a_trace_has_made_says_its_variable(self):
        seen = []

        def f(x):
            seen.append(jnp.sin(x))
            return jnp.cos(seen[0])

        program = jax.make_jaxpr(f)(1.0)
        words = "`variable_of` finds nothing: `init` cannot give arrays in lists and dicts their values (init/held.py)"
        assert [traces.variable_of(x) for x in seen] == program.eqns[0].outvars, words

    def test_a_number_that_a_trace_has_written_down_is_a_literal(self):
        seen = []
        jax.make_jaxpr(lambda: seen.append(traces.without_trace(jnp.ones(()) * 1)) or 1.0)()
        jax.make_jaxpr(lambda: seen.append(traces.without_trace(jnp.asarray(2.0))) or 1.0)()
        assert not isinstance(seen[1], jax.core.Tracer)

    def test_a_new_thread_runs_operations_one_by_one(self):
        traces._running_and_recording.cache_clear()
        jax.make_jaxpr(lambda x: (traces.recording(), x)[1])(1.0)  # learnt in the middle of a trace as well
        assert not traces.recording()
        seen = []
        jax.make_jaxpr(lambda: seen.append(traces.recording()) or 1.0)()
        assert seen == [True]
