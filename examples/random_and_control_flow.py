"""Random numbers and control flow, in JAX and inside a transformed function.

JAX has no hidden generator: a key is a value, and two draws from one key are the same number. In a function given to
`hkx.transform`, `hkx.next_rng_key()` splits the key that `apply` was given, so that every call gives a new one.

Under jit arrays have shapes and no values, and Python's `if` cannot ask them. `hkx.cond`, `switch`, `while_loop`,
`fori_loop` and `scan` put branches and loops into the compiled program. The program tries to differentiate each in the
parameters, in forward mode (`jax.jacfwd`) and in reverse mode (`jax.jacrev`), compiled, and compares with Python's.

    pip install hkx tyro && python random_and_control_flow.py

prints

    keys
      JAX, three draws from one key      0.948  0.948  0.948
      JAX, a split before each draw      0.007  0.104  0.083
      hkx, next_rng_key() for each draw  0.007  0.104  0.083
      hkx, the same without a key        MissingRNGError

                            if                          hkx.cond
      called                -2.044                      -2.044
      under grad            -1.968  -1.243  -1.151      -1.968  -1.243  -1.151
      under jit             TracerBoolConversionError   -2.044
      layers made by init   a                           a, b
      under jit, if says: Attempted boolean conversion of traced array with shape bool[].

      hkx                 for                 value   forward   reverse
      cond                if and else         yes     yes       yes
      switch              functions[i]        yes     yes       yes
      while_loop          while               yes     yes       no: ValueError
      fori_loop, 3 times  for i in range(3)   yes     yes       yes
      fori_loop, n times  for i in range(n)   yes     yes       no: ValueError
      scan                for, and append     yes     yes       yes
"""

import dataclasses
import sys
from collections.abc import Callable
from typing import Any

try:
    import jax
    import jax.numpy as jnp
    import tyro

    import hkx
except ModuleNotFoundError as error:
    sys.exit(f"{error}: pip install 'hkx[examples]'")


@dataclasses.dataclass(frozen=True)
class Config:
    seed: int = 0  # seed of the keys and of the initial parameters


def attempt(f: Callable[..., Any], *args: Any) -> Any:
    try:
        return f(*args)
    except Exception as error:
        return error


def written(result: Any) -> str:
    if isinstance(result, Exception):
        return type(result).__name__
    return "  ".join(f"{number:.3f}" for number in jnp.ravel(jnp.asarray(result)))


def draws_with_splits(key: jax.Array) -> list[jax.Array]:
    draws = []
    for _ in range(3):
        key, subkey = jax.random.split(key)
        draws.append(jax.random.uniform(subkey))
    return draws


draws_of_hkx = hkx.transform(lambda: [jax.random.uniform(hkx.next_rng_key()) for _ in range(3)])


def compare_keys(key: jax.Array) -> dict[str, str]:
    return {
        "JAX, three draws from one key": written([jax.random.uniform(key) for _ in range(3)]),
        "JAX, a split before each draw": written(draws_with_splits(key)),
        "hkx, next_rng_key() for each draw": written(draws_of_hkx.apply({}, key)),
        "hkx, the same without a key": written(attempt(draws_of_hkx.apply, {}, None)),
    }


# Each way to branch or loop, and the Python statements it stands for: functions of h, [3], and of two layers, a and b.


def by_while(h, a):
    while jnp.linalg.norm(h) > 0.1:
        h = jnp.tanh(a(h)) / 4
    return h


def by_for(h, a, times):
    for i in range(times):
        h = jnp.tanh(a(h)) + i
    return h


def by_for_and_append(h, a):
    carry, outputs = h, []
    for h_i in h:
        carry = jnp.tanh(a(carry)) + h_i
        outputs.append(carry[0])
    return jnp.stack(outputs)


PAIRS = {
    ("cond", "if and else"): (lambda h, a, b: hkx.cond(h[0] > 0, a, b, h), lambda h, a, b: a(h) if h[0] > 0 else b(h)),
    ("switch", "functions[i]"): (
        lambda h, a, b: hkx.switch(jnp.argmax(h), [a, b, jnp.tanh], h),
        lambda h, a, b: [a, b, jnp.tanh][jnp.argmax(h)](h),
    ),
    ("while_loop", "while"): (
        lambda h, a, b: hkx.while_loop(lambda h: jnp.linalg.norm(h) > 0.1, lambda h: jnp.tanh(a(h)) / 4, h),
        lambda h, a, b: by_while(h, a),
    ),
    ("fori_loop, 3 times", "for i in range(3)"): (
        lambda h, a, b: hkx.fori_loop(0, 3, lambda i, h: jnp.tanh(a(h)) + i, h),
        lambda h, a, b: by_for(h, a, 3),
    ),
    ("fori_loop, n times", "for i in range(n)"): (  # n is known when the program runs, not when it is compiled
        lambda h, a, b: hkx.fori_loop(0, jnp.sum(h > 0), lambda i, h: jnp.tanh(a(h)) + i, h),
        lambda h, a, b: by_for(h, a, int(jnp.sum(h > 0))),
    ),
    ("scan", "for, and append"): (
        lambda h, a, b: hkx.scan(lambda carry, h_i: (new := jnp.tanh(a(carry)) + h_i, new[0]), h, h)[1],
        lambda h, a, b: by_for_and_append(h, a),
    ),
}


def network(flow: Callable[..., jax.Array]) -> hkx.Transformed:
    return hkx.without_apply_rng(hkx.transform(lambda x: flow(x, hkx.Linear(3, name="a"), hkx.Linear(3, name="b"))))


def compare_if(key: jax.Array, x: jax.Array) -> dict[str, tuple[str, str]]:
    columns = []
    cond, statements = PAIRS["cond", "if and else"]
    params = network(cond).init(key, x)
    for model in (network(statements), network(cond)):

        def total(x: jax.Array, model: hkx.Transformed = model) -> jax.Array:
            return model.apply(params, x).sum()

        ways = {"called": total, "under grad": jax.grad(total), "under jit": jax.jit(total)}
        rows = {name: written(attempt(way, x)) for name, way in ways.items()}
        columns.append(rows | {"layers made by init": ", ".join(model.init(key, x))})
    return {name: (columns[0][name], columns[1][name]) for name in columns[0]}


def agree(one: Any, other: Any) -> bool:
    return jax.tree.all(jax.tree.map(lambda a, b: jnp.allclose(a, b, rtol=1e-4, atol=1e-5), one, other))


def try_derivatives(key: jax.Array, x: jax.Array) -> dict[tuple[str, str], dict[str, str]]:
    table = {}
    for names, (flow, statements) in PAIRS.items():
        model, python = network(flow), network(statements)
        params = model.init(key, x)
        expected = jax.jacrev(python.apply)(params, x)
        tries = {
            "value": (model.apply, python.apply(params, x)),
            "forward": (jax.jacfwd(model.apply), expected),
            "reverse": (jax.jacrev(model.apply), expected),
        }
        table[names] = {}
        for column, (f, right) in tries.items():
            result = attempt(jax.jit(f), params, x)
            failed = isinstance(result, Exception)
            table[names][column] = f"no: {written(result)}" if failed else "yes" if agree(result, right) else "wrong"
    return table


def main(config: Config) -> dict[str, Any]:
    key = jax.random.key(config.seed)
    x = jnp.array([0.5, -1.0, 2.0])
    print("keys")
    keys = compare_keys(key)
    for row, text in keys.items():
        print(f"  {row:35}{text}")
    print(f"\n  {'':22}{'if':28}hkx.cond")
    branches = compare_if(key, x)
    for row, (python, compiled) in branches.items():
        print(f"  {row:22}{python:28}{compiled}")
    error = attempt(jax.jit(network(PAIRS["cond", "if and else"][1]).init), key, x)
    print(f"  under jit, if says: {str(error).splitlines()[0]}")
    print(f"\n  {'hkx':20}{'for':20}{'value':8}{'forward':10}reverse")
    table = try_derivatives(key, x)
    for (name, statements), row in table.items():
        print(f"  {name:20}{statements:20}{row['value']:8}{row['forward']:10}{row['reverse']}")
    return {"keys": keys, "if": branches, "table": table}


if __name__ == "__main__":
    main(tyro.cli(Config, description=__doc__))
