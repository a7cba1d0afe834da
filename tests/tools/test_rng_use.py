"""`optimize_rng_use` reserves as many keys as in dm-haiku, so that the numbers are the same."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hkx
import hkx.experimental

haiku = pytest.importorskip("haiku", reason="compares with dm-haiku: pip install '.[peers]'")
pytestmark = pytest.mark.peer

X = jnp.ones([2, 3])


def with_rng(hk, net, x):
    with hk.with_rng(hk.next_rng_key()):
        hk.next_rng_key()
    hk.next_rng_key()


def go_back(hk, net, x):
    before = hk.maybe_get_rng_sequence_state()
    hk.next_rng_key()
    hk.replace_rng_sequence_state(before)
    hk.next_rng_key()


def lift(hk, net, x):
    inner = hk.transform(net)
    params = hk.lift(inner.init)(hk.next_rng_key() if hk.running_init() else None, x)
    inner.apply(params, hk.next_rng_key(), x)


PATTERNS = {
    "none": lambda hk, net, x: x,
    "keys at once": lambda hk, net, x: (hk.next_rng_keys(3), hk.next_rng_key()),
    "maybe": lambda hk, net, x: (hk.maybe_next_rng_key(), hk.next_rng_key()),
    "reserved": lambda hk, net, x: (hk.reserve_rng_keys(3), hk.next_rng_key(), hk.next_rng_keys(3)),
    "sequence": lambda hk, net, x: hk.PRNGSequence(hk.next_rng_key()).take(2),
    "with_rng": with_rng,
    "go back": go_back,
    "module": lambda hk, net, x: net(x),
    "dropout": lambda hk, net, x: hk.nets.MLP([4, 2])(x, 0.5, hk.next_rng_key()),
    "initializer": lambda hk, net, x: hk.get_parameter(
        "w", [2], init=lambda *_: hk.next_rng_keys(2).sum(0).astype(jnp.float32)
    ),
    "lift": lift,
    "stack": lambda hk, net, x: hk.layer_stack(3)(net)(x),
    "scan": lambda hk, net, x: hk.scan(lambda c, v: (c, hk.next_rng_key()), 0.0, x),
    "fori_loop": lambda hk, net, x: hk.fori_loop(0, 3, lambda i, v: hk.next_rng_key(), jnp.zeros(2, jnp.uint32)),
    "cond": lambda hk, net, x: hk.cond(
        x.sum() > 0, lambda x: hk.next_rng_keys(2) + hk.next_rng_key(), lambda x: hk.next_rng_keys(2), x
    ),
    "vmap": lambda hk, net, x: hk.vmap(lambda v: hk.next_rng_key(), split_rng=True)(x),
    "grad": lambda hk, net, x: hk.grad(lambda v: net(v).sum())(x),
    "remat": lambda hk, net, x: hk.remat(net)(x),
    "in itself": lambda hk, net, x: (hk.experimental.optimize_rng_use(net)(x), hk.next_rng_key()),
}


def reserved(hk, pattern, calls):
    """How many keys are in reserve when the function begins, each time that it runs, and where the sequence ends."""
    seen = []

    def net(x):
        w = hk.get_parameter("w", [3], init=hk.initializers.RandomNormal())
        return hk.Linear(3)(x * w) + jax.random.uniform(hk.next_rng_key())

    def f(x):
        seen.append(len(hk.maybe_get_rng_sequence_state()[1]))
        PATTERNS[pattern](hk, net, x)

    def model(x):
        hk.reserve_rng_keys(2)
        for _ in range(calls):
            hk.experimental.optimize_rng_use(f)(x)
        return hk.next_rng_key()

    pair = hk.transform(model)
    params = pair.init(jax.random.PRNGKey(0), X)
    return seen, pair.apply(params, jax.random.PRNGKey(1), X)


@pytest.mark.parametrize("pattern", PATTERNS)
def test_as_many_keys_as_haiku(pattern):
    with jax.numpy_rank_promotion("allow"):
        (ours, key), (theirs, expected) = (reserved(hk, pattern, 1) for hk in (hkx, haiku))
    assert ours == theirs
    np.testing.assert_array_equal(key, expected)


def test_called_twice():
    with jax.numpy_rank_promotion("allow"):
        (ours, key), (theirs, expected) = (reserved(hk, "module", 2) for hk in (hkx, haiku))
    assert ours == theirs  # the second call is counted as if its modules had the names of the first's
    np.testing.assert_array_equal(key, expected)
