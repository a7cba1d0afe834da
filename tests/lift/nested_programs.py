"""Random nestings of lifted transforms, as functions of the library that provides them."""

import dataclasses
import types
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

LEAVES = (
    *("linear", "parameter", "state", "key", "two_keys", "module", "dropout", "drawn_state"),
    *(
        "numbered",
        "later_number",
        "built",
        "own_names",
        "as_module",
        "data_class",
        "maybe_key",
        "iterated_keys",
        "long_name",
    ),
)
AROUND = (
    *(
        "twice",
        "scope",
        "forced",
        "module",
        "shared",
        "with_rng",
        "reserve",
        "optimized",
        "creator",
        "getter",
        "setter",
    ),
    *("transparent_method", "named_like", "state_creator", "scope_method", "scopes", "methods"),
    *("intercepted", "deferred", "remat", "grad", "value_and_grad", "vmap", "stack", "lift", "transparent", "several"),
)
LOOPS = ("scan", "scan_one", "scan_none", "map", "fori", "fori_none", "while", "vmap_split", "cond", "switch")
X = jnp.arange(6.0).reshape(2, 3) / 3


def drawn(key):
    """The key itself as a number between 0 and 1: what a distribution makes of it takes far longer to compile."""
    return key[0].astype(np.float32) * np.float32(2**-32)


def draw(rng, depth):
    """A random program: the name of a leaf, or a pair of a name and a program or a list of programs."""
    if depth == 0 or rng.random() < 0.1:
        return rng.choice(LEAVES)
    if rng.random() < 0.25:
        return "sequence", [draw(rng, depth - 1) for _ in range(rng.randint(2, 3))]
    return rng.choice(AROUND + LOOPS), draw(rng, depth - 1)


def kinds_of(program):
    if isinstance(program, str):
        return {program}
    kind, inner = program
    return {kind}.union(*map(kinds_of, inner)) if kind == "sequence" else {kind} | kinds_of(inner)


def function(hk, program):
    """The program as a function of an array [n, 3] to one like it."""
    if isinstance(program, str):
        return getattr(_leaves(hk), program)
    kind, inner = program
    if kind == "sequence":
        return lambda x: [x := f(x) for f in [function(hk, one) for one in inner]][-1]
    f = function(hk, inner)
    make = _around if kind in AROUND else _loops
    return lambda x: getattr(make(hk, f, x), kind)()


def _block(hk, f):
    class Block(hk.Module):
        def __call__(self, x):
            return f(x)

        def other(self, x):
            return f(x)

        @hk.transparent
        def unseen(self, x):
            return f(x)

        @hk.name_like("__call__")
        def like_call(self, x):
            return f(x)

        def through(self, x):
            return self(self.other(x)) + self.unseen(x)

    return Block()


def _leaves(hk):
    class Net(hk.Module):
        def __init__(self):
            super().__init__()
            self.inner = hk.Linear(3)

        def __call__(self, x):
            return self.inner(x) + self.helper(x) + hk.get_parameter("w", [3], init=hk.initializers.RandomNormal())

        def helper(self, x):
            return hk.Linear(3)(x)

    class Built(hk.Module):
        """All of it is made when the module is."""

        def __init__(self, name=None):
            super().__init__(name=name)
            self.w = hk.get_parameter("w", [3], init=hk.initializers.RandomNormal())
            self.inner = self.make()

        def make(self):
            return Net()

        def __call__(self, x):
            return self.inner(x) * self.w + hk.Linear(3, name="inner")(x)

    @dataclasses.dataclass
    class Field(hk.Module):
        inner: Any
        size: int = 3

        def __call__(self, x):
            return self.inner(x) + hk.Linear(self.size)(x)

    def numbers(x, *names):
        for name in names:
            x = hk.Linear(3, name=name)(x)
        return x

    def maybe_key(x):
        key = hk.maybe_next_rng_key()
        return x if key is None else x + drawn(key)

    def state(x):
        n = hk.get_state("n", [], init=jnp.zeros)
        hk.set_state("n", n + 1)
        return x + n

    def drawn_state(x):
        hk.set_state("r", hk.get_state("r", [3], init=hk.initializers.RandomNormal()) * 0.5)
        return x + hk.get_state("r") + drawn(hk.next_rng_key())

    return types.SimpleNamespace(
        linear=lambda x: hk.Linear(3)(x),
        parameter=lambda x: x * hk.get_parameter("w", [3], init=hk.initializers.RandomNormal()),
        key=lambda x: x + drawn(hk.next_rng_key()),
        two_keys=lambda x: x + drawn(hk.next_rng_keys(2)[1]),
        module=lambda x: Net()(x),
        dropout=lambda x: hk.dropout(hk.next_rng_key(), 0.3, x),
        numbered=lambda x: numbers(x, "linear_1", "linear", "linear"),
        later_number=lambda x: numbers(x, "linear_3", "linear", "linear_7"),
        built=lambda x: Built()(Built("built_2")(x)),
        own_names=lambda x: Net()(x) + Net().helper(x),
        as_module=lambda x: hk.to_module(lambda x: hk.Linear(3)(x) * Net()(x))("made")(x),
        data_class=lambda x: Field(hk.Linear(3))(x) + Field(inner=Net(), size=3)(x),
        maybe_key=maybe_key,
        iterated_keys=lambda x: x + drawn(next(hk.PRNGSequence(hk.next_rng_key()))),
        long_name=lambda x: hk.Linear(3, name=hk.force_name("far/away"))(x),
        state=state,
        drawn_state=drawn_state,
    )


def _around(hk, f, x):
    def within(context):
        with context:
            return f(x)

    def double(next_function, args, kwargs, context):
        out = next_function(*args, **kwargs)
        return out * 2 if context.method_name == "__call__" else out

    def lifted(init, apply, **named):
        lift = hk.lift_with_state if named else hk.transparent_lift_with_state
        make, updater = lift(init, **named)
        params, state = make(hk.next_rng_key() if hk.running_init() else None, x)
        y, state = apply(params, state, hk.next_rng_key(), x)
        updater.update(state)
        return y

    def several():
        def make():
            block = _block(hk, f)
            return (lambda x: block(x)), (lambda x: block(x), lambda x: block.other(x))

        pair = hk.multi_transform_with_state(make)
        return lifted(pair.init, pair.apply[0], name="several")

    def value_and_grad():
        (value, aux), gradient = hk.value_and_grad(lambda x: (f(x).sum(), f(x)), has_aux=True)(x)
        return value + aux + gradient

    return types.SimpleNamespace(
        twice=lambda: f(f(x)),
        scope=lambda: within(hk.name_scope("scope")),
        forced=lambda: within(hk.name_scope(hk.force_name("a/forced/name"))),
        module=lambda: _block(hk, f)(x),
        shared=lambda: (lambda block: block(block.other(x)))(_block(hk, f)),
        with_rng=lambda: within(hk.with_rng(jax.random.fold_in(hk.next_rng_key(), 3))),
        reserve=lambda: (hk.reserve_rng_keys(2), f(x))[1],
        optimized=lambda: hk.experimental.optimize_rng_use(f)(x),
        transparent_method=lambda: _block(hk, f).unseen(x),
        named_like=lambda: _block(hk, f).like_call(x),
        methods=lambda: _block(hk, f).through(x),
        scope_method=lambda: within(hk.name_scope("block", method_name="other")),
        scopes=lambda: within(hk.name_scope("outer/inner")),
        state_creator=lambda: within(
            hk.custom_creator(lambda n, s, d, i, c: n(s, d, jnp.ones), params=False, state=True)
        ),
        creator=lambda: within(hk.custom_creator(lambda n, s, d, i, c: n(s, d, i) * 2, state=True)),
        getter=lambda: within(hk.custom_getter(lambda n, v, c: n(v) * len(c.full_name), state=True)),
        setter=lambda: within(hk.custom_setter(lambda n, v, c: n(v * 2))),
        intercepted=lambda: within(hk.intercept_methods(double)),
        deferred=lambda: hk.Deferred(lambda: _block(hk, f))(x),
        remat=lambda: hk.remat(f)(x),
        grad=lambda: hk.grad(lambda x: f(x).sum())(x),
        value_and_grad=value_and_grad,
        vmap=lambda: hk.vmap(lambda v: f(v[None])[0], split_rng=False)(x),
        stack=lambda: hk.layer_stack(2)(f)(x),
        lift=lambda: lifted(*hk.transform_with_state(f), name="lifted"),
        transparent=lambda: lifted(*hk.transform_with_state(f)),
        several=several,
    )


def _loops(hk, f, x):
    """Haiku has parameters in loops and branches that are made before."""
    core = _block(hk, f)
    y = core(x)

    def scanned(xs, **options):
        last, outs = hk.scan(lambda c, v: (core(c) * v, core(c).sum()), y, xs, **options)
        return last + outs.sum()

    return types.SimpleNamespace(
        scan=lambda: scanned(jnp.arange(1.0, 4.0), reverse=True),
        scan_one=lambda: scanned(jnp.ones([1])),
        scan_none=lambda: scanned(jnp.ones([0])),
        map=lambda: hk.map(lambda v: core(y * v), jnp.arange(2.0)).sum(0),
        fori=lambda: hk.fori_loop(0, 3, lambda i, c: core(c) * i, y),
        fori_none=lambda: hk.fori_loop(0, 0, lambda i, c: core(c) * i, y),
        vmap_split=lambda: hk.vmap(lambda v: core(v[None])[0], split_rng=not hk.running_init())(y),
        cond=lambda: hk.cond(x.sum() > 0, lambda x: x * 2, lambda x: core(core(x)), y),
        switch=lambda: hk.switch(jnp.int32(1), [lambda x: x, core, lambda x: core(x) * 2], y),
        **{
            "while": lambda: (
                core(y)
                if hk.running_init()
                else hk.while_loop(lambda c: c[0] < 2, lambda c: (c[0] + 1, core(c[1])), (0, y))[1]
            )
        },
    )
