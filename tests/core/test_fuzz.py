"""What no program should ask for or hand in: the right answer, or an error of hkx's that says what is wrong."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from fuzzing import cases, outcome
from hypothesis import given
from hypothesis import strategies as st

import hkx

X = np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)
ODD = [None, 3, -1, 2.5, "text", b"bytes", [], {}, object(), float("nan"), np.ones(3), [1, [2]], {"a": 1}, 1 + 1j, True]
NAMES = ["w", "", "a/b", "ü", "1", "~", " ", "w" * 300, None, 3, ("w",), b"w"]
SHAPES = [
    *([], [3], (2, 3), [0], [1, 1], np.array([2, 3]), [np.int64(3)], [jnp.int32(2)]),
    *(3, -1, [-1], [2.5], ["3"], "23", None, [None], [[3]], {3}, {}, object(), [True], 2.0, [2**70]),
]
DTYPES = [
    *(np.float32, "float32", jnp.bfloat16, np.int32, bool, float, int, np.dtype("float16"), "complex64"),
    *(None, "flaot32", 3, object(), str, object, "U3", [], np.ones(2), "datetime64[s]"),
]
INITS = [
    *(jnp.zeros, jnp.ones, hkx.initializers.RandomNormal(), hkx.initializers.Constant(2)),
    *(None, 3, "zeros", lambda: 0, lambda shape: 0, lambda s, d: None, lambda s, d: 0.0, lambda s, d: np.zeros(7)),
    *(lambda s, d: "text", lambda s, d: [0.0], lambda s, d: {"a": 1}, lambda s, d: object()),
    *(
        np.zeros,
        lambda s, d: jnp.zeros(s, "int8"),
        hkx.initializers.Orthogonal(),
        hkx.initializers.Constant(["a"]),
    ),
]


def parameter_problem(seed):
    """Asks for one parameter; what is wrong with what comes of it, or None."""
    rng = np.random.default_rng(seed)
    good = rng.random() < 0.5  # of four odd things the first is told, and the others are never looked at
    odd = rng.integers(4)
    name, shape, dtype, init = (
        pool[0 if good and i != odd else rng.integers(len(pool))]
        for i, pool in enumerate([NAMES, SHAPES, DTYPES, INITS])
    )
    said = f"{seed}: get_parameter({name!r:.20}, {shape!r}, {dtype!r}, {init!r})"
    pair = hkx.transform(lambda: hkx.get_parameter(name, shape, dtype, init))
    params, error = outcome(lambda: pair.init(jax.random.key(0)))
    if error is None:
        value = params["~"][name]
        if value.shape != tuple(shape):
            return f"{said} has shape {value.shape}"
        return None if np.array_equal(pair.apply(params, None), value) else f"{said}: apply gives another"
    if isinstance(error, hkx.errors.HkxError) or f"{f'~/{name}'!r}" in str(error):
        return None
    # Of a function that cannot make this, its own error is told.
    own = outcome(lambda: hkx.transform(lambda: init(shape, dtype)).apply({}, jax.random.key(0)))[1]
    return None if own is not None and type(own) is type(error) else f"{said}: {error!r:.200}"


class Model(hkx.Module):
    def __call__(self, x):
        count = hkx.get_state("count", [], jnp.int32, init=jnp.zeros)
        hkx.set_state("count", count + 1)
        return hkx.nets.MLP([4, 2])(x) * hkx.get_parameter("scale", [], init=jnp.ones) * count


PAIR = hkx.transform_with_state(lambda x: Model()(x))
PARAMS, STATE = PAIR.init(0, X)
BEFORE = PAIR.apply(PARAMS, {"model": {"count": jnp.int32(2)}}, None, X)[0]


def damaged(tree, rng):
    """A two-level tree with a piece that is gone, odd, renamed, of another shape or kind; and what was done to it."""
    tree = {module: dict(entries) for module, entries in tree.items()}
    module = list(tree)[rng.integers(len(tree))]
    name = list(tree[module])[rng.integers(len(tree[module]))]
    what = rng.choice(
        ["no leaf", "no module", "renamed", "odd leaf", "odd module", "odd tree", "shape", "numpy", "more"]
    )
    odd = ODD[rng.integers(len(ODD))]
    if what == "no leaf":
        del tree[module][name]
    elif what == "no module":
        del tree[module]
    elif what == "renamed":
        tree[f"{module}_"] = tree.pop(module)
    elif what == "odd leaf":
        tree[module][name] = odd
    elif what == "odd module":
        tree[module] = odd
    elif what == "odd tree":
        return odd, f"{odd!r}"
    elif what == "shape":
        tree[module][name] = np.resize(tree[module][name], [*np.shape(tree[module][name]), 2])
    elif what == "numpy":
        tree[module][name] = np.asarray(tree[module][name])
    else:
        tree["more"] = {"than": odd}
    return tree, f"{what} {module}/{name} {odd!r}"


def apply_problem(seed):
    """Damages parameters or state; what is wrong with what `apply` does with them, or None."""
    rng = np.random.default_rng(seed)
    state = {"model": {"count": jnp.int32(2)}}
    if rng.random() < 0.7:
        params, what = damaged(PARAMS, rng)
        made, error = outcome(lambda: PAIR.apply(params, state, None, X)[0])
    else:
        state, what = damaged(state, rng)
        made, error = outcome(lambda: PAIR.apply(PARAMS, state, None, X)[0])
    said = f"{seed}: {what}"
    if error is not None:
        in_the_model = "model/count" in what and "odd module" not in what  # a state may be any tree: 1 is added to it
        return None if in_the_model or isinstance(error, hkx.errors.HkxError) else f"{said}: {error!r:.250}"
    same = "numpy" in what or "more" in what
    return f"{said}: other numbers" if same and not np.array_equal(made, BEFORE) else None


@pytest.mark.slow
@cases(500)
@given(st.integers(0, 2**32 - 1))
def test_get_parameter_gives_what_was_asked_for_or_says_what_is_wrong(seed):
    assert parameter_problem(seed) is None


@pytest.mark.slow
@cases(500)
@given(st.integers(0, 2**32 - 1))
def test_apply_says_what_is_wrong_with_a_damaged_tree(seed):
    assert apply_problem(seed) is None


@pytest.mark.parametrize("shape", ["23", None, 2.5, {3}, [2.5], [-1], ["3"], [None], [True], [2**70]])
def test_what_is_no_shape(shape):
    with pytest.raises(hkx.errors.InvalidShapeError, match=r"The shape of '~/w' is .* should be a sequence of whole"):
        hkx.transform(lambda: hkx.get_parameter("w", shape, init=jnp.ones)).init(None)


@pytest.mark.parametrize("dtype", ["flaot32", 3, object, "U3", np.ones(2), jnp.float32(2), [], {}])
def test_what_is_no_dtype(dtype):
    with pytest.raises(hkx.errors.InvalidDTypeError, match=r"The dtype of '~/w' is .* `jnp.float32`"):
        hkx.transform(lambda: hkx.get_parameter("w", [2], dtype, init=jnp.ones)).init(None)


@pytest.mark.parametrize("what", ["params", "state"])
def test_what_is_no_mapping_of_names(what):
    params, state = PARAMS, {"model": {"count": jnp.int32(2)}}
    params, state = ({**params, "model": 3}, state) if what == "params" else (params, {"model": 3})
    with pytest.raises(hkx.errors.InvalidParamsError, match=rf"^{what}\['model'\] argument .* a mapping is needed"):
        PAIR.apply(params, state, None, X)
