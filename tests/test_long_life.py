"""Thousands of trainings in one process: nothing of one stays, and threads beside each other have their own.

LIFE=10000 sets how many. JAX keeps what it compiled; what is counted here is what hkx and rlx could keep.
"""

import collections
import functools
import gc
import os
import sys
import threading
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hkx
import rlx

TIMES = int(os.environ.get("LIFE", "4"))
KEY = jax.random.PRNGKey(2)
X = np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)


def ours(module: object) -> bool:
    return isinstance(module, str) and (module.partition(".")[0] in ("hkx", "rlx") or module == __name__)


def kept() -> collections.Counter:
    """How many objects and functions there are that belong to hkx, rlx or this file, and what their modules hold."""
    found = collections.Counter()
    gc.collect()
    for thing in gc.get_objects():
        owner = thing if isinstance(thing, (type, types.FunctionType)) else type(thing)
        if ours(owner.__module__):
            found[f"objects: {owner.__module__}.{owner.__qualname__}"] += 1
    for name, module in list(sys.modules.items()):
        for attribute, value in vars(module).items() if ours(name) else ():
            if isinstance(value, types.ModuleType):
                continue  # one that is asked for a name that it lacks may import the texts of its error
            if hasattr(value, "cache_info"):
                found[f"cached by {name}.{attribute}"] = value.cache_info().currsize
            elif isinstance(value, collections.abc.Sized) and not isinstance(value, (str, np.ndarray, jax.Array)):
                found[f"held by {name}.{attribute}"] = len(value)
    return found


def train(i: int) -> None:
    class Own(hkx.Module):
        def __call__(self, x):
            count = hkx.get_state("count", [], init=jnp.zeros)
            hkx.set_state("count", count + 1)
            return hkx.Linear(3)(x + jax.random.uniform(hkx.next_rng_key(), x.shape))

    model = hkx.transform_with_state(lambda x: Own()(x).sum())
    params, state = model.init(KEY, X)

    @jax.jit
    def update(params, state, key):
        (_, state), slopes = jax.value_and_grad(model.apply, has_aux=True)(params, state, key, X)
        return jax.tree.map(lambda p, g: p - 0.1 * g, params, slopes), state

    for key in jax.random.split(KEY, 2):
        params, state = update(params, state, key)
    assert state["own"]["count"] == 2


def lift(i: int) -> None:
    class Own(hkx.Module):
        def __call__(self, x):
            return hkx.Linear(3)(x)

    def f(x):
        x = hkx.cond(x.sum() > i, lambda x: hkx.Linear(3)(x), lambda x: Own()(x), x)
        x, _ = hkx.scan(lambda carry, _: (Own()(carry), None), x, None, length=2)
        return hkx.layer_stack(2)(lambda x: hkx.remat(Own())(x))(x)

    model = hkx.transform(f)
    jax.eval_shape(model.apply, jax.eval_shape(model.init, KEY, X), KEY, X)


def fail(i: int) -> None:
    def hook(next_function, args, kwargs, context):
        return next_function(*args, **kwargs)

    def f(x):
        with hkx.intercept_methods(hook), hkx.experimental.name_scope(f"scope_{i}"):
            return hkx.Linear(i + 1)(x)

    with pytest.raises(hkx.errors.MissingParameterError):
        hkx.transform(f).apply({}, None, X)
    with pytest.raises(hkx.errors.NotInTransformError):
        f(X)


def divide(i: int) -> None:
    mesh = jax.make_mesh((1,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
    model = hkx.transform(lambda x: hkx.Linear(3)(x))
    rules = [(".*", jax.sharding.PartitionSpec())]
    parts = hkx.sharding.shardings(jax.eval_shape(model.init, KEY, X), mesh, rules)
    hkx.sharding.sharded_init(model.init, parts).lower(KEY, X)


def call_operators(i: int) -> None:
    pair = rlx.TxPair(functools.partial(lambda scale, x: x * scale, i + 1.0), lambda x: x / (i + 1.0))
    values, actions, numbers = np.ones([4, 3], np.float32), np.zeros(4, int), np.full(4, 0.5, np.float32)

    def errors(values):
        q = rlx.transformed_n_step_q_learning(values, actions, values, actions, numbers, numbers, 2, tx_pair=pair)
        return q.sum() + rlx.entropy_loss(values, numbers)

    jax.make_jaxpr(jax.grad(errors))(values)


@pytest.mark.parametrize("program", [train, lift, fail, divide, call_operators])
def test_nothing_of_a_program_stays(program):
    for i in range(2):
        program(i)
    before = kept()
    for i in range(2, 2 + TIMES):
        program(i)
    assert kept() - before == {}


def test_eight_threads_with_models_of_their_own_have_the_numbers_of_one():
    """`init` and `apply` begin and end at the same time; names and keys of one thread are never those of another."""
    together, found = threading.Barrier(8), {}

    def numbers(i):
        def f(x):
            for _ in range(i % 4 + 1):
                x = hkx.Linear(3, name="layer_of_" + "abcdefgh"[i])(x) + jax.random.uniform(hkx.next_rng_key(), x.shape)
            return x

        model = hkx.transform(f)
        params = model.init(jax.random.PRNGKey(i), X)
        return params, model.apply(params, jax.random.PRNGKey(i), X)

    def work(i):
        together.wait(60)
        found[i] = numbers(i)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    for i in range(8):
        jax.tree.map(np.testing.assert_array_equal, found[i], numbers(i))


@pytest.mark.slow
def test_a_compiled_apply_on_eight_threads_has_one_result():
    model = hkx.transform(lambda x: hkx.Linear(2)(jax.nn.relu(hkx.Linear(4)(x))))
    params, apply, wrong, ended = model.init(KEY, X), jax.jit(model.apply), [], []
    expected = np.asarray(apply(params, None, X))

    def work():
        for _ in range(100 * TIMES // 8):
            if not np.array_equal(apply(params, None, X), expected):
                wrong.append(1)
        ended.append(1)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(ended), wrong) == (8, [])
