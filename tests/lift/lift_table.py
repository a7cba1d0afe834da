"""Each lifted function beside the plain Python program that it stands for.

An entry turns a function of an array [2], which may use parameters, state and keys, into another one: once by the
lifted function, once by a Python loop, branch or raw JAX derivative.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import hkx

F = Callable[[jax.Array], jax.Array]


class Entry(NamedTuple):
    lifted: Callable[[F], F]
    plain: Callable[[F], F]


def body(x: jax.Array) -> jax.Array:
    """Uses a parameter of its own, one of a module, a state and a key."""
    w = hkx.get_parameter("w", [2], init=hkx.initializers.RandomNormal())
    n = hkx.get_state("n", [], init=jnp.zeros)
    hkx.set_state("n", n + 1)
    # The key itself, as numbers between 0 and 1: what a distribution makes of it takes far longer to compile.
    drawn = jax.random.key_data(hkx.next_rng_key()).astype(np.float32) * np.float32(2**-32)
    y = hkx.Linear(2, name=hkx.force_name("shared"))(x)
    return jnp.tanh(x * w + y) + 0.1 * drawn + 0.01 * n


def _set_all(state: Any) -> None:
    for bundle, entries in state.items():
        for name, value in entries.items():
            with hkx.name_scope(hkx.force_name(bundle)) if bundle != "~" else _Nothing():
                hkx.set_state(name, value)


def _creating() -> bool:
    return "w" not in hkx.get_params().get("~", {})


class _Nothing:
    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...


def _same_start(f: F, xs: list[jax.Array], keys: Any = None) -> list[jax.Array]:
    """Calls f on each x from the same state and keys; goes on from where the first call ended."""
    if len(xs) == 1:
        with hkx.with_rng(keys[0]) if keys is not None else _Nothing():
            return [f(xs[0])]
    state, rng = hkx.get_current_state(), hkx.maybe_get_rng_sequence_state()
    end: Any = None
    out = []
    for i, x in enumerate(xs):
        if i:
            _set_all(state)
            hkx.replace_rng_sequence_state(rng)
        if keys is None:
            out.append(f(x))
        else:
            with hkx.with_rng(keys[i]):
                out.append(f(x))
        end = end or (hkx.get_current_state(), hkx.maybe_get_rng_sequence_state())
    _set_all(end[0])
    hkx.replace_rng_sequence_state(end[1])
    return out


def _scan(f: F, reverse: bool) -> F:
    def run(x: jax.Array) -> jax.Array:
        def step(c: jax.Array, v: jax.Array) -> Any:
            c = f(c * v)
            return c, c.sum()

        c, ys = hkx.scan(step, x, jnp.array([1.0, 0.5, 2.0]), reverse=reverse)
        return c + ys @ jnp.array([1.0, 2.0, 3.0])

    return run


def _scan_plain(f: F, reverse: bool) -> F:
    def run(x: jax.Array) -> jax.Array:
        out = jnp.zeros([])
        for i in (2, 1, 0) if reverse else (0, 1, 2):
            x = f(x * [1.0, 0.5, 2.0][i])
            out += (i + 1) * x.sum()
        return x + out

    return run


def _while(f: F) -> F:
    return lambda x: hkx.while_loop(lambda c: c[0] < 2, lambda c: (c[0] + 1, f(c[1])), (0, x))[1]


def _cond(taken: bool) -> Callable[[F], F]:
    def lifted(f: F) -> F:
        return lambda x: hkx.cond(jnp.array(taken), f, lambda x: x * 2, x)

    return lifted


def _cond_plain(taken: bool) -> Callable[[F], F]:
    def plain(f: F) -> F:
        return lambda x: f(x) if taken or _creating() else x * 2

    return plain


def _vmap_true(f: F) -> F:
    return lambda x: jnp.array([1.0, 2.0]) @ hkx.vmap(f, split_rng=True)(jnp.stack([x, -x]))


def _vmap_true_plain(f: F) -> F:
    def run(x: jax.Array) -> jax.Array:
        a, b = _same_start(f, [x, -x], hkx.next_rng_keys(2))
        return a + 2 * b

    return run


def _vmap_false_plain(f: F) -> F:
    def run(x: jax.Array) -> jax.Array:
        a, b = _same_start(f, [x, -x])
        return a + 2 * b

    return run


def _vmap_one(split_rng: bool) -> Entry:
    """A single mapped call. (Several keys at a time differ after a loop, which splits one off in advance.)"""

    def plain(f: F) -> F:
        return lambda x: _same_start(f, [x], hkx.next_rng_keys(1) if split_rng else None)[0]

    return Entry(lambda f: lambda x: hkx.vmap(f, split_rng=split_rng)(x[None])[0], plain)


def _sum(f: F) -> F:
    return lambda x: f(x).sum()


def _purified(f: F) -> F:
    def run(x: jax.Array) -> jax.Array:
        pure = hkx.purify(f)
        x, carry = jax.lax.fori_loop(0, 2, lambda _, c: pure(c[1], c[0]), (x, pure.start(x)))
        pure.finish(carry)
        return x

    return run


def _purified_plain(f: F) -> F:
    def run(x: jax.Array) -> jax.Array:
        if _creating():  # `start` visits the function once, before the loop
            state = hkx.get_initial_state()
            f(x)
            _set_all(
                {b: {n: state.get(b, {}).get(n, jnp.zeros([])) for n in e} for b, e in hkx.get_current_state().items()}
            )
        return f(f(x))

    return run


TABLE: dict[str, Entry] = {
    "jit": Entry(hkx.jit, lambda f: f),
    "remat": Entry(hkx.remat, lambda f: f),
    "scan": Entry(lambda f: _scan(f, False), lambda f: _scan_plain(f, False)),
    "scan_reverse": Entry(lambda f: _scan(f, True), lambda f: _scan_plain(f, True)),
    "map": Entry(
        lambda f: lambda x: jnp.array([1.0, 2.0]) @ hkx.map(f, jnp.stack([x, -x])), lambda f: lambda x: f(x) + 2 * f(-x)
    ),
    "fori_loop": Entry(
        lambda f: lambda x: hkx.fori_loop(0, 2, lambda i, x: f(x * (i + 1)), x), lambda f: lambda x: f(2 * f(x))
    ),
    "while_loop": Entry(_while, lambda f: lambda x: f(f(x))),
    "cond_true": Entry(_cond(True), _cond_plain(True)),
    "cond_false": Entry(_cond(False), _cond_plain(False)),
    "switch": Entry(lambda f: lambda x: hkx.switch(jnp.array(1), [lambda x: x, f, lambda x: -x], x), lambda f: f),
    "vmap_same_keys": Entry(
        lambda f: lambda x: jnp.array([1.0, 2.0]) @ hkx.vmap(f, split_rng=False)(jnp.stack([x, -x])), _vmap_false_plain
    ),
    "vmap_split_keys": Entry(_vmap_true, _vmap_true_plain),
    "grad": Entry(lambda f: hkx.grad(_sum(f)), lambda f: jax.grad(_sum(f))),
    "value_and_grad": Entry(
        lambda f: lambda x: (lambda v, g: v + g)(*hkx.value_and_grad(_sum(f))(x)),
        lambda f: lambda x: (lambda v, g: v + g)(*jax.value_and_grad(_sum(f))(x)),
    ),
    "jvp": Entry(lambda f: lambda x: hkx.jvp(f, (x,), (2 * x,))[1], lambda f: lambda x: jax.jvp(f, (x,), (2 * x,))[1]),
    "vjp": Entry(lambda f: lambda x: hkx.vjp(f, x)[1](3 * x)[0], lambda f: lambda x: jax.vjp(f, x)[1](3 * x)[0]),
    "linearize": Entry(lambda f: lambda x: hkx.linearize(f, x)[1](x), lambda f: lambda x: jax.linearize(f, x)[1](x)),
    "purify": Entry(_purified, _purified_plain),
}

# For nesting: raw JAX derivatives of the plain program do not allow it to set keys back.
NESTED = {
    **{name: entry for name, entry in TABLE.items() if "vmap" not in name},
    "vmap_same_keys": _vmap_one(split_rng=False),
    "vmap_split_keys": _vmap_one(split_rng=True),
}
REVERSE_MODE = ("grad", "value_and_grad", "vjp")
