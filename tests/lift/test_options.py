"""Every option of every lifted transform does what JAX's does: outside of a transform, in `init` and in `apply`."""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from lift_table import TABLE

import hkx

pytestmark = pytest.mark.unoptimised

X = jnp.arange(6.0).reshape(2, 3) / 7
MESH = jax.make_mesh((jax.device_count(),), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
ROWS, SPEC = jnp.arange(16.0).reshape(8, 2), jax.P("data")


def without_keys(vmap: Any) -> Any:
    return lambda fun, *args, split_rng=False, **options: vmap(fun, *args, **options)


OF_JAX = "grad value_and_grad jvp vjp linearize eval_shape jit custom_jvp custom_vjp"
OF_LAX = "scan fori_loop while_loop map cond switch associative_scan"
JAX = types.SimpleNamespace(
    **{n: getattr(jax, n) for n in OF_JAX.split()},
    **{n: getattr(jax.lax, n) for n in OF_LAX.split()},
    remat=jax.checkpoint,
    vmap=without_keys(jax.vmap),
    shard_map=jax.shard_map,
)


def ruled_jvp(lib: Any, fun: Any, rule: Any, **options: Any) -> Any:
    made = lib.custom_jvp(fun, **options)
    made.defjvp(rule)
    return made


def ruled_vjp(lib: Any, fun: Any, fwd: Any, bwd: Any, **options: Any) -> Any:
    made = lib.custom_vjp(fun, **options)
    made.defvjp(fwd, bwd)
    return made


def slope(lib: Any, fun: Any, *args: Any) -> Any:
    return fun(*args), lib.grad(lambda x, *rest: jnp.sum(fun(x, *rest)))(*args)


def power(w: Any) -> Any:
    return lambda x, n: w() * x**n


def joined(w: Any) -> Any:
    return lambda x, y: w() * x * x * y


# Each of a library and of a function that gives 3, as a parameter or as it is.
PROGRAMS: dict[str, Callable[[Any, Callable[[], Any]], Any]] = {
    "grad argnums=1": lambda lib, w: lib.grad(joined(w), argnums=1)(2.0, 5.0),
    "grad argnums=(1, 0)": lambda lib, w: lib.grad(joined(w), (1, 0))(2.0, 5.0),
    "grad by name": lambda lib, w: lib.grad(lambda x, *, k: w() * x * x * k)(2.0, k=3.0),
    "grad has_aux": lambda lib, w: lib.grad(lambda x: (w() * x * x, {"n": x + 1}), has_aux=True)(2.0),
    "grad holomorphic": lambda lib, w: lib.grad(lambda z: w() * z * z, holomorphic=True)(1 + 2j),
    "grad allow_int": lambda lib, w: lib.grad(lambda n: w() * n.sum(), allow_int=True)(jnp.arange(3)),
    "value_and_grad has_aux": lambda lib, w: lib.value_and_grad(lambda x: (w() * x * x, [x]), has_aux=True)(2.0),
    "jvp has_aux": lambda lib, w: lib.jvp(lambda x: (w() * x * x, x + 1), (2.0,), (1.0,), has_aux=True),
    "vjp has_aux": lambda lib, w: (lambda out, pull, aux: (out, pull(2.0), aux))(
        *lib.vjp(lambda x: (w() * x * x, x + 1), 2.0, has_aux=True)
    ),
    "linearize has_aux": lambda lib, w: (lambda out, push, aux: (out, push(1.0), aux))(
        *lib.linearize(lambda x: (w() * x * x, x + 1), 2.0, has_aux=True)
    ),
    "eval_shape": lambda lib, w: lib.eval_shape(lambda x, *, k: {"a": x @ k}, X, k=X.T)["a"].shape,
    "remat static_argnums=1": lambda lib, w: slope(
        lib, lib.remat(lambda x, n: w() * x ** (3 if n else 2), static_argnums=1), X, True
    ),
    "remat static_argnums=(-1,)": lambda lib, w: slope(
        lib, lib.remat(lambda x, n: w() * x * len(n), static_argnums=(-1,)), X, "abc"
    ),
    "jit static_argnums=1": lambda lib, w: lib.jit(lambda x, n: w() * x * len(n), static_argnums=1)(X, "ab"),
    "jit static_argnums, by name": lambda lib, w: lib.jit(lambda x, n: w() * x * len(n), static_argnums=1)(X, n="ab"),
    "jit static_argnames": lambda lib, w: lib.jit(lambda x, n: w() * x * len(n), static_argnames="n")(X, n="ab"),
    "jit donate_argnums": lambda lib, w: lib.jit(lambda x, y: w() * x + y, donate_argnums=1)(X, X + 0),
    "vmap in_axes=1": lambda lib, w: lib.vmap(lambda x: w() * x[0], in_axes=1, split_rng=False)(X),
    "vmap in_axes=(0, None)": lambda lib, w: lib.vmap(lambda x, y: w() * x @ y, (0, None), split_rng=False)(X, X.T),
    "vmap in_axes of trees": lambda lib, w: lib.vmap(
        lambda t, y: w() * t["a"] @ t["b"] * y, ({"a": 0, "b": None}, 0), split_rng=True
    )({"a": X, "b": X.T}, jnp.ones(2)),
    "vmap by name": lambda lib, w: lib.vmap(lambda x, *, k: w() * x.sum() * k.sum(), split_rng=True)(X, k=2 * X),
    "vmap out_axes=(1, None)": lambda lib, w: lib.vmap(lambda x: (w() * x, w()), out_axes=(1, None), split_rng=False)(
        X
    ),
    "vmap axis_name": lambda lib, w: lib.vmap(lambda x: w() * jax.lax.psum(x, "i"), axis_name="i", split_rng=False)(X),
    "vmap axis_size": lambda lib, w: lib.vmap(lambda x: w() * x, in_axes=None, axis_size=4, split_rng=True)(X),
    "scan reverse": lambda lib, w: lib.scan(lambda c, x: (c * w() + x, c), X[0], X, reverse=True),
    "scan length": lambda lib, w: lib.scan(lambda c, _: (c * w(), c), X, None, length=3),
    "scan of none": lambda lib, w: lib.scan(lambda c, x: (c * w() + x, c), X[0], X[:0]),
    "scan unroll=2": lambda lib, w: lib.scan(lambda c, x: (c * w() + x, c), 1.0, jnp.arange(5.0), unroll=2),
    "fori_loop of none": lambda lib, w: lib.fori_loop(4, 1, lambda i, x: x * w() + i, X),
    "fori_loop unroll": lambda lib, w: lib.fori_loop(0, 4, lambda i, x: x * w() + i, X, unroll=2),
    "while_loop of none": lambda lib, w: lib.while_loop(lambda x: x.sum() > 9 * w(), lambda x: x * w() + 1, X),
    "cond": lambda lib, w: [
        lib.cond(p, lambda x, y: w() * x + y, lambda x, y: x - y, X, 2.0) for p in (True, False, 2)
    ],
    "switch": lambda lib, w: [
        lib.switch(i, [lambda x, y: w() * x + y, lambda x, y: x - y, lambda x, y: y - x], X, 2.0)
        for i in (0, 1, 2, -3, 9, jnp.int32(1))  # those out of range are the first and the last
    ],
    "associative_scan reverse": lambda lib, w: lib.associative_scan(lambda a, b: a + b * (w() / 3), X, reverse=True),
    "associative_scan axis=1": lambda lib, w: lib.associative_scan(lambda a, b: a + b * (w() / 3), X, axis=1),
    "custom_jvp nondiff_argnums": lambda lib, w: slope(
        lib,
        ruled_jvp(lib, power(w), lambda n, p, t: (w() * p[0] ** n, n * 5 * t[0]), nondiff_argnums=(1,)),
        X,
        2,
    ),
    "custom_vjp nondiff_argnums": lambda lib, w: slope(
        lib,
        ruled_vjp(
            lib, power(w), lambda x, n: (w() * x**n, x), lambda n, x, g: (n * g * (x + 5),), nondiff_argnums=(1,)
        ),
        X,
        2,
    ),
    "shard_map": lambda lib, w: lib.shard_map(
        lambda x, y: w() * x.sum(1) + jax.lax.psum(x.sum(), "data") + y,
        mesh=MESH,
        in_specs=(SPEC, jax.P()),
        out_specs=SPEC,
    )(ROWS, 2.0),
}


def parameter() -> jax.Array:
    return hkx.get_parameter("w", [], init=hkx.initializers.Constant(3.0))


def three() -> Any:
    return jnp.float32(3)


def alike(found: Any, expected: Any) -> None:
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    for x, y in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        x, y = np.asarray(x), np.asarray(y)
        assert x.dtype == y.dtype and x.shape == y.shape
        if x.dtype == jax.dtypes.float0:
            continue
        np.testing.assert_allclose(x, y, rtol=1e-6)


def within(program: Callable[..., Any]) -> Any:
    """What a program gives in `init`, which runs as it is written, and in `apply`."""
    kept: list[Any] = []

    def f() -> Any:
        out = program(hkx, parameter)
        kept.append(out)
        return out

    model = hkx.transform(f, init="eager")
    params = model.init(0)
    return kept[0], model.apply(params, None), params


@pytest.mark.parametrize("name", PROGRAMS)
def test_an_option_is_that_of_jax(name: str) -> None:
    program = PROGRAMS[name]
    expected = program(JAX, three)
    alike(program(hkx, three), expected)
    in_init, in_apply, params = within(program)
    if not name.startswith("custom"):  # in `init` such a function is called as it is, without its rule
        alike(in_init, expected)
    alike(in_apply, expected)
    assert (params == {"~": {"w": 3.0}}) != (name == "eval_shape")


def equations(jaxpr: Any) -> Iterator[Any]:
    for equation in jaxpr.eqns:
        yield equation
        for value in equation.params.values():
            for inner in value if isinstance(value, (tuple, list)) else [value]:
                inner = getattr(inner, "jaxpr", inner)
                if hasattr(inner, "eqns"):
                    yield from equations(inner)


def said(fun: Callable[..., Any], primitive: str, *names: str) -> list[tuple[Any, ...]]:
    """What the program of a function says at each place where it has one of JAX's primitives."""
    found = equations(jax.make_jaxpr(fun)(X).jaxpr)
    return [tuple(e.params.get(n) for n in names) for e in found if e.primitive.name.startswith(primitive)]


def block(x: jax.Array) -> jax.Array:
    return x * 2 + 1


def policy(primitive: Any, *_: Any, **__: Any) -> bool:
    return primitive.name == "sin"


INLINE: Any = getattr(jax, "Inline").JAX_EARLY if hasattr(jax, "Inline") else True  # noqa: B009  # of newer JAX
# What is seen in the program alone: the primitive, its parameters, and the program of a library.
MARKS: dict[str, tuple[str, str, Callable[[Any, Any], Any]]] = {
    "remat": ("checkpoint remat", "prevent_cse policy", lambda lib, x: lib.remat(block)(x)),
    "remat prevent_cse": ("checkpoint remat", "prevent_cse", lambda lib, x: lib.remat(block, prevent_cse=False)(x)),
    "remat policy": ("checkpoint remat", "policy", lambda lib, x: lib.remat(block, policy=policy)(x)),
    "jit": ("pjit jit", "inline keep_unused", lambda lib, x: lib.jit(block)(x)),
    "jit inline": ("pjit jit", "inline", lambda lib, x: lib.jit(block, inline=INLINE)(x)),
    "jit keep_unused": ("pjit jit", "keep_unused", lambda lib, x: lib.jit(block, keep_unused=True)(x)),
    "jit as a decorator": ("pjit jit", "inline keep_unused", lambda lib, x: hkx.jit(keep_unused=True)(block)(x)),
    "scan": ("scan", "reverse unroll length", lambda lib, x: lib.scan(lambda c, x: (c + x, c), x[0], x)),
    "scan unroll": ("scan", "unroll", lambda lib, x: lib.scan(lambda c, _: (c, None), x, None, 6, unroll=3)),
    "scan reverse": ("scan", "reverse length", lambda lib, x: lib.scan(lambda c, x: (c, c), x[0], x, reverse=True)),
    "fori_loop": ("scan while", "reverse unroll length", lambda lib, x: lib.fori_loop(0, 4, lambda i, x: x + i, x)),
    "fori_loop unroll": ("scan", "unroll length", lambda lib, x: lib.fori_loop(0, 4, lambda i, x: x + i, x, unroll=2)),
    "shard_map": (
        "shard_map",
        "check_vma manual_axes",
        lambda lib, x: lib.shard_map(block, mesh=MESH, in_specs=(jax.P(),), out_specs=jax.P(), check_vma=False)(x),
    ),
}


@pytest.mark.parametrize("name", MARKS)
def test_an_option_is_in_the_program(name: str) -> None:
    primitives, names, run = MARKS[name]
    raw, outside, lifted = (
        [said(fun, p, *names.split()) for p in primitives.split()]
        for fun in (
            lambda x: run(JAX, x),
            lambda x: run(hkx, x),
            lambda x: hkx.transform(lambda x: run(hkx, x)).apply({}, None, x),
        )
    )
    assert raw == outside == lifted
    assert any(raw) == (name != "jit inline")  # there is no program of its own


def test_what_is_donated_is() -> None:
    def f(x: Any, y: Any) -> Any:
        return hkx.jit(lambda x, y: (x + 1, y + 1), donate_argnums=1)(x, y)

    for fun in (f, lambda x, y: hkx.transform(f).apply({}, None, x, y)):
        found = [
            e.params["donated_invars"]
            for e in equations(jax.make_jaxpr(fun)(X, X).jaxpr)
            if "donated_invars" in e.params
        ]
        assert found == [(False, True)]


def test_a_mapped_axis_that_is_a_mesh_axis_is_one_of_what_is_sharded_inside() -> None:
    def f(x: Any) -> Any:
        def sharded(x: Any) -> Any:
            return jax.lax.with_sharding_constraint(x, jax.NamedSharding(MESH, jax.P()))

        return hkx.vmap(sharded, spmd_axis_name="data", split_rng=False)(x)

    for fun in (f, lambda x: hkx.transform(f).apply({}, None, x)):
        ((sharding,),) = (
            tuple(e.params["sharding"] for e in equations(jax.make_jaxpr(fun)(ROWS).jaxpr) if "sharding" in e.params),
        )
        assert sharding.spec[0] == "data"


KINDS = {"rbg": lambda n: jax.random.key(n, impl="rbg"), "raw": jax.random.PRNGKey}


def body(x: jax.Array) -> jax.Array:
    """Uses a parameter, a state and a key."""
    w = hkx.get_parameter("w", [2], init=hkx.initializers.RandomNormal())
    n = hkx.get_state("n", [], init=jnp.zeros)
    hkx.set_state("n", n + 1)
    drawn = jax.random.key_data(hkx.next_rng_key())[..., :2].astype(np.float32) * np.float32(2**-32)
    return jnp.tanh(x * w) + 0.1 * drawn + 0.01 * n


@pytest.mark.parametrize("name", TABLE)
@pytest.mark.slow
@pytest.mark.parametrize("kind", [*KINDS, "disable_jit"])
def test_other_keys_and_no_compilation(name: str, kind: str) -> None:
    """What the table has, with keys of other kinds, and where JAX calls bodies as the values at hand ask for."""
    make = KINDS.get(kind, jax.random.key)

    def program(f: Any) -> Any:
        def run(x: jax.Array) -> Any:
            return f(x), jax.random.key_data(hkx.next_rng_key())

        return hkx.transform_with_state(run, init="eager")

    lifted, plain = program(TABLE[name].lifted(body)), program(TABLE[name].plain(body))
    x = jnp.array([0.3, -0.7])
    with jax.disable_jit(kind == "disable_jit"):
        made = lifted.init(make(1), x)
        found = lifted.apply(*made, make(2), x)
        expected = plain.init(make(1), x)
        alike_up_to_rounding(made, expected)
        alike_up_to_rounding(found, plain.apply(*expected, make(2), x))


def alike_up_to_rounding(found: Any, expected: Any) -> None:
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-6)
