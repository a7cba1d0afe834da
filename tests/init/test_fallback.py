"""Functions that fail on abstract values: which of them `init` runs on real ones, once."""

import gc
import operator
import struct

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from bits import same_bits

import hkx
from hkx.init.create import run_initialising

pytestmark = pytest.mark.unoptimised


def test_values_that_the_code_needs_while_it_runs():
    runs = []

    def f(x):
        runs.append(1)
        w = hkx.get_parameter("w", [], init=hkx.initializers.RandomNormal())
        if w > 0:  # a decision on a value
            hkx.get_parameter("positive", [], init=jnp.ones)
        return np.asarray(x * w)

    x = jnp.ones([3])
    for seed in range(6):
        assert hkx.transform(f).init(seed, x).keys() == run_initialising(f, jax.random.PRNGKey(seed), (x,))[0].keys()
        same_bits(hkx.transform(f).init(seed, x), run_initialising(f, jax.random.PRNGKey(seed), (x,))[0])


def test_nothing_of_the_run_on_abstract_values_stays():
    """JAX never frees a trace that contains an array, as `table[None]` is, and ends with an error."""
    table = jnp.arange(3.0)

    def f(x):
        y = jax.nn.relu(hkx.Linear(3)(x) + table[None])
        return y if y.sum() > 0 else -y

    before = [id(x) for x in gc.get_objects() if isinstance(x, jax.core.Tracer)]
    hkx.transform(f).init(0, jnp.ones([2, 3]))
    gc.collect()
    assert [x for x in gc.get_objects() if isinstance(x, jax.core.Tracer) and id(x) not in before] == []


@pytest.mark.parametrize("wrapped", [False, True])
def test_error_that_hides_the_need_for_a_value(wrapped):
    def f(x):
        w = hkx.get_parameter("w", [2], init=hkx.initializers.RandomNormal())
        try:
            return float(w.sum())
        except Exception as error:
            if wrapped:
                raise RuntimeError("hidden") from error
            raise

    assert hkx.transform(f).init(0, 1.0)["~"]["w"].shape == (2,)


USES = {
    "a number in a text": lambda x, n: x * len(f"{x.mean():.1f}"),
    "an iteration": lambda x, n: x * len([float(v) for v in np.nditer(x)]),
    "an attribute that traced arrays do not have": lambda x, n: x if x.unsafe_buffer_pointer() else -x,
    "a range": lambda x, n: x * len(range(n)),
    "a format": lambda x, n: x * len(operator.mod("%d", n)),
    "bytes": lambda x, n: x * len(bytes(n)),
}
if jax.default_backend() == "cpu":  # elsewhere there is no view of an array's memory
    USES["memory"] = lambda x, n: x * len(memoryview(x))


@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_what_python_and_numpy_refuse_is_run_with_values(use):
    calls = []

    def f(x):
        calls.append(1)
        return hkx.Linear(2)(use(x, (3 * x[0, 0]).astype(int)))

    x = jnp.ones([2, 3])
    params = hkx.transform(f).init(0, x)
    assert calls == [1, 1]
    jax.tree.map(np.testing.assert_array_equal, params, hkx.transform(f, init="eager").init(0, x))
    with pytest.raises((TypeError, hkx.errors.AbstractInitError)):
        hkx.transform(f).init(0, jax.ShapeDtypeStruct(x.shape, x.dtype))


SIZES = {  # JAX refuses these by a TypeError, as it does mistakes
    "a shape": lambda x, n: x.reshape(n, -1),
    "the size of an identity": lambda x, n: x @ jnp.eye(n),
    "the shape of a random array": lambda x, n: x + jax.random.randint(jax.random.key(0), (1, n), 0, 9),
    "the size of a slice": lambda x, n: jax.lax.dynamic_slice(x, [0, 0], [1, n]),
    "how often to repeat": lambda x, n: jnp.tile(x, n),
    "struct.pack": lambda x, n: [struct.pack("f", x[0, 0]), x][1],
}


@pytest.mark.parametrize("use", SIZES.values(), ids=SIZES)
def test_a_size_that_is_computed_from_an_argument_needs_the_eager_way(use):
    def f(x):
        return hkx.Linear(2)(use(x, (3 * x[0, 0]).astype(int)))

    x = jnp.ones([2, 3])
    with pytest.raises(Exception) as error:
        hkx.transform(f).init(0, x)
    assert 'init="eager"' in "".join(error.value.__notes__)
    assert "linear" in hkx.transform(f, init="eager").init(0, x)


def fails(y):
    raise ValueError("of the user's own")


MISTAKES = {
    "an exception": fails,
    "an exception in a comprehension": lambda y: [0 for _ in range(1) if y.shape == (7,) or fails(y)],
    "JAX's": lambda y: jnp.dot(y, jnp.ones([7, 7])),
    "an operator of JAX's": lambda y: y @ jnp.ones([7, 7]),
    "a key that is missing": lambda y: {}["a"],
    "hkx's": lambda y: hkx.Linear(-1)(y),
}


@pytest.mark.parametrize("mistake", MISTAKES.values(), ids=MISTAKES)
def test_an_error_of_an_abstract_run_is_not_provoked_twice(mistake):
    calls = []

    def f(x):
        calls.append(1)
        mistake(hkx.Linear(2)(x))

    with pytest.raises((ValueError, TypeError, KeyError)):
        hkx.transform(f).init(0, jnp.ones([2, 3]))
    assert calls == [1]


def test_an_error_of_the_users_own_has_a_note():
    with pytest.raises(ValueError, match="own") as error:
        hkx.transform(lambda x: fails(hkx.Linear(2)(x))).init(0, jnp.ones([2, 3]))
    assert 'init="eager"' in "".join(error.value.__notes__)
    with pytest.raises(TypeError):
        hkx.transform(lambda x: jnp.dot(x, x)).init(None, jax.ShapeDtypeStruct([2, 3], jnp.float32))


@pytest.mark.slow
def test_bodies_and_branches_may_need_values_where_jax_runs_them_step_by_step():
    def f(x):
        y, _ = hkx.scan(lambda c, _: (hkx.Linear(int(c.sum()))(c), None), x, None, length=1)
        return hkx.cond(x[0, 0] > 0, lambda y: y * int(x.sum()), lambda y: y, y)

    x = np.ones([1, 2], np.float32)
    with jax.disable_jit():
        params = hkx.transform(f).init(0, x)
        assert params["linear"]["w"].shape == (2, 2)
        mapped = jax.vmap(lambda x: hkx.cond(x > 0, lambda x: 2 * x, lambda x: -x, x))
        assert hkx.transform(mapped).apply({}, None, np.array([1.0, -3.0])).tolist() == [2, 3]
