"""How cost grows with a model: CPU ms per item at n, 2n and 4n, for init, the trace of apply, and of its gradient.

An item is a layer, a level of nesting, a block and so on. What grows with the model alone costs the same per item.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from typing import Any

REFERENCE = "haiku"
REPEATS = 3


def _models(lib: Any) -> dict[str, tuple[int, Callable[[int], Callable[..., Any]]]]:
    """By name: the smallest n, and a function of n that gives a forward function."""
    import jax
    import jax.numpy as jnp

    def block(x: Any) -> Any:
        return x + lib.Linear(8)(jax.nn.relu(lib.Linear(8)(x)))

    def in_a_row(layer: Callable[[int, Any], Any]) -> Callable[[int], Callable[..., Any]]:
        def model(n: int) -> Callable[..., Any]:
            def forward(x: Any) -> Any:
                for i in range(n):
                    x = layer(i, x)
                return x

            return forward

        return model

    def made_outside() -> Callable[[Any], Any]:  # of a loop, as Haiku asks for
        first, second = lib.Linear(8), lib.Linear(8)
        return lambda x: x + second(jax.nn.relu(first(x)))

    def nested(wrap: Callable[[Callable[..., Any]], Callable[..., Any]]) -> Callable[[int], Callable[..., Any]]:
        def model(n: int) -> Callable[..., Any]:
            def forward(x: Any) -> Any:
                f = made_outside() if wrap is scanned else block
                for _ in range(n):
                    f = wrap(f)
                return f(x)

            return forward

        return model

    def scanned(f: Callable[..., Any]) -> Callable[..., Any]:
        return lambda x: lib.scan(lambda c, _: (f(c), None), x, None, length=3)[0]

    class Nest(lib.Module):
        def __init__(self, depth: int):
            super().__init__()
            self.depth = depth

        def __call__(self, x: Any) -> Any:
            x = lib.Linear(8)(x)
            return Nest(self.depth - 1)(x) if self.depth > 1 else x

    def branch(passed_by: bool) -> Callable[[int, Any], Any]:
        def layer(_: int, x: Any) -> Any:
            f = made_outside()
            if passed_by and lib.running_init():
                return f(x)
            return lib.cond(x.sum() > 0, f, lambda x: x, x)

        return layer

    def lifted(i: int, x: Any) -> Any:
        inner = lib.transform(block)
        params = lib.lift(inner.init, name=f"inner_{i}")(lib.next_rng_key() if lib.running_init() else None, x)
        return inner.apply(params, None, x)

    def state(i: int, x: Any) -> Any:
        n = lib.get_state(f"n{i}", [], init=jnp.zeros)
        lib.set_state(f"n{i}", n + 1)
        return x + n

    def members(n: int) -> Callable[..., Any]:
        def forward(x: Any) -> Any:
            if lib.__name__ == "haiku":  # which has no vmap with members: by hand, around a lifted transform
                inner = lib.transform(block)
                keys = jax.random.split(lib.next_rng_key(), n) if lib.running_init() else None
                params = lib.lift(lambda keys: jax.vmap(lambda k: inner.init(k, x))(keys))(keys)
                return jax.vmap(lambda p: inner.apply(p, None, x))(params).sum(0)
            return lib.vmap(block, in_axes=None, axis_size=n, param_axes=0, split_rng=False)(x).sum(0)

        return forward

    stack = lib.layer_stack if hasattr(lib, "layer_stack") else lib.experimental.layer_stack
    return {
        "layers in a row": (40, in_a_row(lambda _, x: lib.Linear(8)(x))),
        "nested modules": (20, lambda n: lambda x: Nest(n)(x)),
        "states": (40, in_a_row(state)),
        "scans in a row": (10, in_a_row(lambda _, x: scanned(made_outside())(x))),
        "nested scans": (2, nested(scanned)),
        # Haiku creates nothing in a branch: its users pass by them in init.
        "conds": (10, in_a_row(branch(passed_by=lib.__name__ == "haiku"))),
        "conds that init passes by": (10, in_a_row(branch(passed_by=True))),
        "remat blocks": (20, in_a_row(lambda _, x: lib.remat(block)(x))),
        "nested layer stacks": (2, nested(lambda f: stack(2)(f))),
        "layers of a stack": (20, lambda n: lambda x: stack(n)(block)(x)),
        "members of a vmap": (20, members),
        "lifted transforms": (10, in_a_row(lifted)),
    }


def _best(measure: Callable[[], Any]) -> float:
    taken = []
    for _ in range(REPEATS):
        gc.collect()
        start = time.process_time()
        measure()
        taken.append(time.process_time() - start)
    return min(taken) * 1e3


def _times(model: Any) -> dict[str, float]:
    import jax
    import jax.numpy as jnp

    key, x = jax.random.PRNGKey(0), jnp.ones([2, 8])
    params, state = model.init(key, x)  # compiles what it needs: that is not counted

    def apply(params: Any) -> Any:
        return model.apply(params, state, key, x)[0].sum()

    return {
        "init": _best(lambda: model.init(key, x)),
        "apply": _best(lambda: jax.make_jaxpr(lambda p: apply(p))(params)),
        "gradient": _best(lambda: jax.make_jaxpr(jax.grad(lambda p: apply(p)))(params)),
    }


def _growth(side: str) -> Callable[[], dict[str, float]]:
    def measure() -> dict[str, float]:
        import importlib

        lib = importlib.import_module(side)
        figures = {}
        for name, (smallest, model) in _models(lib).items():
            for n in (smallest, 2 * smallest, 4 * smallest):
                times = _times(lib.transform_with_state(model(n)))
                figures.update({f"{name}, {what}, {n}: ms each": t / n for what, t in times.items()})
        return figures

    return measure


SIDES = {side: _growth(side) for side in ("hkx", "haiku")}
