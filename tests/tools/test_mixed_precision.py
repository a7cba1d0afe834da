"""Where policies act. The expected dtypes were read off dm-haiku 0.0.17 with jmp's policies."""

import importlib
import sys
import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hkx
from hkx import mixed_precision as mp
from hkx.mixed_precision import Policy

pytestmark = pytest.mark.unoptimised

F32, BF16, F16 = jnp.dtype("float32"), jnp.dtype("bfloat16"), jnp.dtype("float16")
POLICY = Policy(jnp.float32, jnp.bfloat16, jnp.float16)
KEY = jax.random.key(0)
X = jnp.ones([])


class Net(hkx.Module):
    """Returns the dtypes that it sees, and a result."""

    seen: dict = {}  # noqa: RUF012

    def __init__(self, start=None, name=None):
        super().__init__(name=name)
        self.start = start

    def __call__(self, x):
        w = hkx.get_parameter("w", [], x.dtype, init=jnp.ones)
        n = hkx.get_parameter("n", [], jnp.int32, init=jnp.ones)
        s = hkx.get_state("s", [], jnp.float32, init=jnp.zeros)
        hkx.set_state("s", s + x)
        Net.seen = {"x": x.dtype, "w": w.dtype, "n": n.dtype, "s": s.dtype, "policy": mp.current_policy()}
        return {"y": self.inner(x * w), "text": "kept", "none": None}

    def inner(self, x):
        Net.seen["inner"] = x.dtype
        return x


class Below(Net):
    pass


class Outer(hkx.Module):
    def __call__(self, x):
        y = hkx.Linear(1)(x[None])
        Outer.seen = {"linear": y.dtype, "before": mp.current_policy()}
        out = Net()(x)
        Outer.seen |= {"net": out["y"].dtype, "after": mp.current_policy()}
        return out["y"]


@pytest.fixture(autouse=True)
def without_policies():
    yield
    for target in (Net, Below, Outer, hkx.Linear, "net.*", "outer/.*"):
        mp.clear_policy(target)


def run(f, *args):
    model = hkx.transform_with_state(f)
    params, state = model.init(KEY, *args)
    out, state = model.apply(params, state, None, *args)
    return params, state, out


def test_a_policy_acts_at_the_borders_of_methods():
    mp.set_policy(Net, POLICY)
    params, state, out = run(lambda x: (Net(start=x)(x), Net().start), X)
    expected = {"x": BF16, "w": BF16, "n": jnp.dtype("int32"), "s": BF16, "inner": BF16}
    assert Net.seen == {**expected, "policy": POLICY}
    assert (params["net"]["w"].dtype, params["net"]["n"].dtype, state["net"]["s"].dtype) == (F32, "int32", BF16)
    assert out[0]["y"].dtype == F16 and out[0]["text"] == "kept" and out[0]["none"] is None
    assert run(lambda x: Net(start=x).start, X)[2].dtype == BF16  # __init__ casts, too
    assert mp.current_policy() is None


def test_it_extends_to_what_is_called_inside_but_not_to_subclasses():
    mp.set_policy(Outer, POLICY)
    mp.set_policy(Net, Policy.parse("p=f32,c=f16,o=f32"))
    params, _, out = run(lambda x: Outer()(x), X)
    assert Outer.seen["linear"] == BF16 and Outer.seen["net"] == F32 and out.dtype == F16
    assert Outer.seen["before"] is Outer.seen["after"] is POLICY and Net.seen["w"] == F16
    assert params["outer/linear"]["w"].dtype == F32
    assert run(lambda x: Below()(x), X)[2]["y"].dtype == F32 and Net.seen["policy"] is None


def test_by_instance_and_by_pattern():
    def f(x):
        one, two = Net(), Net()
        mp.set_policy(two, "half")
        assert mp.get_policy(two) == Policy.parse("half") and mp.get_policy(one) is None
        outs = one(x)["y"].dtype, two(x)["y"].dtype
        mp.clear_policy(two)
        return *outs, two(x)["y"].dtype

    assert run(f, X)[2] == (F32, F16, F32)

    def named(x):
        return Net(name="net_a")(x)["y"].dtype, Net(name="other")(x)["y"].dtype, Outer()(x).dtype, Net.seen["w"]

    mp.set_policy("net.*", "bfloat16")
    mp.set_policy("outer/.*", "params=float32,compute=float16")
    assert run(named, X)[2] == (BF16, F32, F16, F16)
    mp.set_policy(Net, POLICY)
    assert run(named, X)[2] == (BF16, F16, F16, F16)  # the pattern comes before the class
    assert mp.get_policy("net.*") == Policy.parse("bfloat16") and mp.get_policy("unknown") is None


def test_push_policy():
    mp.set_policy(Net, POLICY)
    half = Policy.parse("half")
    with mp.push_policy(Net, half):
        assert mp.get_policy(Net) is half
        with pytest.raises(KeyError), mp.push_policy(Below, half):
            assert mp.get_policy(Below) is half
            raise KeyError
        assert mp.get_policy(Below) is None
    assert mp.get_policy(Net) is POLICY

    class Self(hkx.Module):
        def __call__(self):
            with mp.push_policy(Below, half), mp.push_policy(Self, half):
                pass

    with pytest.raises(ValueError, match="same class is not supported"):
        hkx.transform(lambda: Self()()).apply({}, None)
    assert mp.get_policy(Below) is None


def test_a_policy_set_inside_a_block_of_hooks_outlives_it_and_comes_first():
    order = []

    def note(next_function, args, kwargs, context):
        order.append(args[0].dtype if args else None)
        return next_function(*args, **kwargs)

    def f(x):
        with hkx.intercept_methods(note):
            mp.set_policy(Net, POLICY)
            Net()(x)
        return Net()(x)["y"].dtype

    assert hkx.testing.transform_and_run(lambda: f(X))() == F16
    assert order[1] == BF16  # the interceptor of __call__ sees what the policy has cast


def test_the_order_among_getters_and_creators():
    seen = []

    def creator(next_creator, shape, dtype, init, context):
        seen.append(("creator", jnp.dtype(dtype)))
        return next_creator(shape, dtype, init)

    def getter(next_getter, value, context):
        seen.append(("getter", value.dtype))
        return next_getter(value)

    def f(x):
        with hkx.custom_creator(creator), hkx.custom_getter(getter):
            return hkx.Linear(1, with_bias=False)(x)

    x = np.ones([1, 1], np.float32)
    mp.set_policy(hkx.Linear, POLICY)  # entered inside the hooks: they come first
    hkx.transform(f).init(KEY, x)
    assert seen == [("creator", BF16), ("getter", F32)]
    mp.clear_policy(hkx.Linear)
    mp.set_policy(Wrap, POLICY)  # entered outside of them: it comes first
    seen.clear()
    hkx.transform(lambda x: Wrap(f)(x)).init(KEY, x)
    mp.clear_policy(Wrap)
    assert seen == [("creator", F32), ("getter", BF16)]


class Wrap(hkx.Module):
    def __init__(self, f):
        super().__init__()
        self.f = f

    def __call__(self, x):
        return self.f(x)


def test_any_object_with_three_methods_serves():
    class Doubling:
        def cast_to_compute(self, x):
            return x

        def cast_to_param(self, x):
            return x.astype(jnp.float16)

        def cast_to_output(self, x):
            return jax.tree.map(lambda v: v * 2, x)

    mp.set_policy(hkx.Linear, Doubling())
    params, _, out = run(lambda x: hkx.Linear(1, w_init=jnp.ones)(x), np.ones([1, 1], np.float32))
    assert params["linear"]["w"].dtype == F16 and out == 2


def test_parse():
    for text, expected in {
        "params=float32,compute=bfloat16,output=float32": (F32, BF16, F32),
        "p=f32,c=f16,o=full": (F32, F16, F32),
        "compute=bf16": (F32, BF16, BF16),
        "params=half": (F16, F16, F16),
        "params=f32,output=f64": (F32, F32, jnp.dtype("float64")),
        "bfloat16": (BF16, BF16, BF16),
    }.items():
        policy = Policy.parse(text)
        assert (policy.param_dtype, policy.compute_dtype, policy.output_dtype) == expected
        assert Policy.parse(str(policy)) == policy
    assert Policy.parse("half").with_output_dtype(F32).output_dtype == F32
    for text in ("mixed", "", "x=f32", "params=i32", "p=f32, c=bf16"):
        with pytest.raises(ValueError, match="Unknown"):
            Policy.parse(text)


def test_only_floating_arrays_are_cast():
    tree = {"a": np.ones(1), "b": jnp.ones(1, int), "c": 1.0, "d": None, "k": jax.random.key(0), "z": jnp.ones(1, "c8")}
    cast = POLICY.cast_to_compute(tree)
    assert cast["a"].dtype == BF16 and cast["b"].dtype == tree["b"].dtype and type(cast["c"]) is float
    assert cast["d"] is None and cast["k"].dtype == tree["k"].dtype and cast["z"].dtype == jnp.complex64
    assert POLICY.cast_to_param(cast)["a"].dtype == F32 and POLICY.cast_to_output(cast)["a"].dtype == F16


def test_policies_belong_to_a_thread_and_to_the_name_of_a_class(tmp_path, monkeypatch):
    mp.set_policy(Net, POLICY)
    found = []
    thread = threading.Thread(target=lambda: found.append(mp.get_policy(Net)))
    thread.start()
    thread.join()
    assert found == [None]
    (tmp_path / "reloaded_module.py").write_text("import hkx\nclass R(hkx.Module): pass\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    module = importlib.import_module("reloaded_module")
    old = module.R
    mp.set_policy(old, POLICY)
    importlib.reload(module)
    assert module.R is not old and mp.get_policy(module.R) is POLICY
    mp.clear_policy(module.R)
    del sys.modules["reloaded_module"]


def test_errors():
    for bad in (int, 3, None):
        with pytest.raises(TypeError, match="module class"):
            mp.set_policy(bad, POLICY)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="cast_to_compute"):
        mp.set_policy(Net, object())


def test_a_policy_of_all_modules_is_that_of_all_names():
    def f(x):
        return hkx.nets.MLP([3, 1])(x)

    with (
        pytest.warns(UserWarning, match=r'set_policy\(".\*", policy\)') as warned,
        mp.push_policy(hkx.Module, "bfloat16"),
    ):
        params = hkx.transform(f).init(0, jnp.ones([1, 2]))
    assert {warning.filename for warning in warned} == {__file__}
    assert {w.dtype for w in jax.tree.leaves(params)} == {jnp.dtype("float32")}
    with mp.push_policy(".*", "bfloat16"):
        params = hkx.transform(f).init(0, jnp.ones([1, 2]))
    assert {w.dtype for w in jax.tree.leaves(params)} == {jnp.dtype("bfloat16")}


@pytest.mark.parametrize("of", ["class", "pattern", "module"])
def test_nothing_is_left_of_a_policy_that_is_cleared(of):
    """What looks at the calls costs time, and keeps `static_unroll` from compiling its steps as a loop."""
    from hkx.core.frame import local

    seen = []

    def f(x):
        module = hkx.Linear(1)
        target = {"class": hkx.Linear, "pattern": "linear", "module": module}[of]
        with mp.push_policy(target, "bfloat16"):
            seen.append(len(local.hooks["call"]))
            y = module(x)
        seen.append(len(local.hooks["call"]))
        return y

    hkx.transform(f).init(0, jnp.ones([1, 2]))
    assert seen == [1, 0]


@pytest.mark.parametrize("dtype", [None, "flaot32", jnp.int32, 3])
def test_a_dtype_of_a_policy_that_holds_no_fractions_is_refused(dtype):
    with pytest.raises(ValueError, match="`compute_dtype` of a policy must be a floating dtype, got"):
        Policy(jnp.float32, dtype, jnp.float32)
