"""Random compositions of modules, initial values and transforms, as functions of the library that provides them."""

import jax
import jax.numpy as jnp
from hypothesis import strategies as st

WIDTH = 3  # one shape [2, WIDTH] all along, so that what one program compiles serves the others
INITIALIZERS = {
    "default": lambda hk: None,
    "truncated": lambda hk: hk.initializers.TruncatedNormal(0.3, 0.1),
    "normal": lambda hk: hk.initializers.RandomNormal(0.5),
    "uniform": lambda hk: hk.initializers.RandomUniform(-0.2, 0.7),
    "variance": lambda hk: hk.initializers.VarianceScaling(2.0, "fan_avg", "uniform"),
    "orthogonal": lambda hk: hk.initializers.Orthogonal(),
    "constant": lambda hk: hk.initializers.Constant(0.25),
    "numpy": lambda hk: lambda shape, dtype: jnp.ones(shape, dtype) / 2,
    "own": lambda hk: lambda shape, dtype: 0.1 + jax.random.uniform(hk.next_rng_key(), shape, dtype),
    "own, in two steps": lambda hk: lambda shape, dtype: hk.initializers.RandomNormal()(shape, dtype) ** 2,
}
LEAVES = (
    *("linear", "mlp", "conv", "gru", "layer_norm", "batch_norm"),
    *("parameter", "data", "noise", "dropout", "counter", "initial"),
)
WRAPPERS = (
    *("twice", "shared", "module", "scope", "creator", "reserve"),
    *("getter", "setter", "interceptor", "with_rng", "method", "nested"),
    *("remat", "vmap", "scan", "cond", "grad", "lift", "switch", "fori", "map", "layer_stack"),
)

wrapper = st.sampled_from(WRAPPERS)
leaf = st.tuples(st.sampled_from(LEAVES), st.sampled_from(sorted(INITIALIZERS)))
inside = st.recursive(
    leaf,
    lambda inner: st.one_of(st.tuples(wrapper, inner), st.tuples(st.just("sequence"), st.lists(inner, max_size=4))),
    max_leaves=4,
)
wrapped = st.tuples(wrapper, inside)
twice_wrapped = st.tuples(wrapper, wrapped)
in_a_row = st.tuples(st.just("sequence"), st.lists(st.one_of(wrapped, twice_wrapped), min_size=1, max_size=3))
program = st.one_of(wrapped, twice_wrapped, in_a_row)  # at least one transform each: `recursive` alone draws few


def apply_leaf(hk, kind, init, x):
    if kind == "linear":
        return hk.Linear(WIDTH, w_init=init)(x)
    if kind == "mlp":
        return hk.nets.MLP([WIDTH, WIDTH], w_init=init)(x)
    if kind == "layer_norm":
        return hk.LayerNorm(-1, True, True)(x)
    if kind == "batch_norm":
        return hk.BatchNorm(True, True, 0.9)(x, is_training=True)
    if kind == "gru":
        core = hk.GRU(WIDTH, w_i_init=init)
        return core(x, core.initial_state(x.shape[0]))[0]
    if kind == "conv":
        return hk.Conv1D(WIDTH, 2, w_init=init)(x[..., None, :])[..., 0, :]
    if kind == "parameter":
        return x * hk.get_parameter("scale", [WIDTH, WIDTH], init=init or jnp.ones)[0]
    if kind == "data":  # an initial value that is computed from what flows in
        return x - hk.get_parameter("mean", [WIDTH], init=lambda shape, dtype: x.mean(0))
    if kind == "noise":
        return x + jax.random.normal(hk.next_rng_key(), x.shape)
    if kind == "dropout":
        return hk.dropout(hk.next_rng_key(), 0.5, x)
    if kind == "initial":
        return x + hk.get_state("initial", [WIDTH], x.dtype, init=init or jnp.ones)[None]
    count = hk.get_state("count", [], jnp.int32, init=jnp.zeros)
    hk.set_state("count", count + 1)
    return x * count


def run(hk, step, x):
    kind, inner = step
    if kind in LEAVES:
        return apply_leaf(hk, kind, INITIALIZERS[inner](hk), x)
    if kind == "sequence":
        for one in inner:
            x = run(hk, one, x)
        return x
    if kind == "twice":
        return run(hk, inner, run(hk, inner, x))
    if kind == "shared":
        linear = hk.Linear(WIDTH)
        return linear(run(hk, inner, linear(x)))
    if kind == "module":
        return module_of(hk)(inner)(x)
    if kind == "scope":
        with hk.name_scope("scope"):
            return run(hk, inner, x)
    if kind == "with_rng":
        with hk.with_rng(hk.next_rng_key()):
            return run(hk, inner, x)
    if kind == "method":
        return module_of(hk)(inner).other(x)
    if kind == "nested":
        pair = hk.transform_with_state(lambda x: run(hk, inner, x))
        params, state = pair.init(hk.next_rng_key(), x)
        hk.get_state("kept", [], init=lambda *_: sum(leaf.sum() for leaf in jax.tree.leaves(params)) + jnp.zeros(()))
        return pair.apply(params, state, hk.next_rng_key(), x)[0]
    if kind in HOOKS:
        with HOOKS[kind](hk):
            return run(hk, inner, x)
    return run_transformed(hk, kind, inner, x)


HOOKS = {
    "creator": lambda hk: hk.experimental.custom_creator(
        lambda make, shape, dtype, init, _: make(shape, dtype, init) + 1
    ),
    "getter": lambda hk: hk.custom_getter(lambda get, value, _: get(value) * 2, state=True),
    "setter": lambda hk: hk.custom_setter(lambda put, value, _: put(value + 1)),
    "interceptor": lambda hk: hk.intercept_methods(
        lambda f, args, kwargs, context: jax.tree.map(
            lambda out: out * 2 if context.method_name == "__call__" else out, f(*args, **kwargs)
        )
    ),
}


def run_transformed(hk, kind, inner, x):
    """What needs the parameters at hand, in the original, takes them from a call before."""
    if kind == "remat":
        return hk.remat(lambda x: run(hk, inner, x))(x)
    if kind == "reserve":
        hk.reserve_rng_keys(3)
        return run(hk, inner, x)
    if kind == "lift":
        pair = hk.transform_with_state(lambda x: run(hk, inner, x))
        lifted, updater = hk.lift_with_state(pair.init, name="lifted")
        params, state = lifted(hk.next_rng_key(), x)
        y, state = pair.apply(params, state, jax.random.PRNGKey(1), x)
        updater.update(state)
        return y
    if kind == "layer_stack":  # the original's has no state
        return hk.layer_stack(2)(lambda x: run(hk, inner, x))(x) if without(STATEFUL, inner) else x
    core = module_of(hk)(inner)
    y = core(x)
    if kind == "vmap":
        return y + hk.vmap(core, in_axes=0, split_rng=True)(x[:, None])[:, 0] if without(STATEFUL, inner) else y
    if kind == "scan":
        return hk.scan(lambda x, _: (core(x), None), y, None, length=2)[0]
    if kind == "cond":
        return hk.cond(x.sum() > 0, core, lambda x: x, y)
    if kind == "switch":
        return hk.switch(1, [lambda x: x, core, lambda x: -x], y)
    if kind == "fori":
        return hk.fori_loop(0, 2, lambda _, x: core(x), y)
    if kind == "map":
        return hk.map(core, y[None])[0]
    return y + hk.grad(lambda x: core(x).sum())(x)


COMPILED = ("scan", "fori", "map", "cond", "switch", "layer_stack", "vmap", "remat")
STATEFUL = ("batch_norm", "counter", "initial", "nested")


def without(kinds, step):
    """Whether a step has none of these in it."""
    kind, inner = step
    if kind in kinds:
        return False
    return kind in LEAVES or (all(without(kinds, s) for s in inner) if kind == "sequence" else without(kinds, inner))


DIFFERENT = {
    "fori": "layer_stack",
    "cond": "layer_stack",
    "switch": "layer_stack",
    "interceptor": "lift",
    "method": "lift",
}


def is_different(step):
    """Whether one thing is in another where Haiku does what it does not do here: docs/from_haiku.md says what."""
    kind, inner = step
    if kind in DIFFERENT and not without([DIFFERENT[kind]], inner):
        return True
    return kind not in LEAVES and (any(map(is_different, inner)) if kind == "sequence" else is_different(inner))


CLASSES = "Block", "_Stack", "My_Net2D"  # names of parameters are made of them


def module_of(hk):
    class Block(hk.Module):
        def __init__(self, inner):
            super().__init__()
            self.inner = inner

        def __call__(self, x):
            return run(hk, self.inner, x)

        def other(self, x):
            return run(hk, self.inner, x)

    return lambda inner: type(CLASSES[len(str(inner)) % len(CLASSES)], (Block,), {})(inner)
