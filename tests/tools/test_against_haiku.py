"""The tools against dm-haiku's, on the same models."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

hk = pytest.importorskip("haiku", reason="compares with dm-haiku")


import hkx  # noqa: E402

pytestmark = pytest.mark.peer
X = jnp.ones([4, 3])
KEY = jax.random.PRNGKey(0)


def net(lib):
    def f(x, deep=True):
        y = lib.BatchNorm(True, True, 0.9)(x, is_training=True)
        return lib.Sequential([lib.nets.MLP([5, 2], name="foo"), lib.Linear(3)])(y)

    return f


def counted(lib):
    """A function with state whose operations do not depend on how a layer is written."""

    class Counted(lib.Module):
        def __call__(self, x):
            n = lib.get_state("n", [], jnp.float32, init=jnp.zeros)
            lib.set_state("n", n + 1)
            x = jax.lax.scan(lambda c, _: (jnp.sin(c) * 2, None), x, None, length=3)[0]
            return x + n

    return lambda x: lib.Linear(3)(lib.nets.MLP([5, 2], name="foo")(Counted()(x)))


def cells(text):
    return [[c.strip() for c in line.strip("|").split("|")] for line in text.split("\n") if line.startswith("|")]


@pytest.mark.parametrize("transformed", [False, True])
def test_tabulate_has_the_same_cells(transformed):
    texts = []
    for lib in (hk, hkx):
        f = lib.transform_with_state(net(lib)) if transformed else net(lib)
        texts.append(cells(lib.experimental.tabulate(f)(X)))
    # A module passed to another is shown with its address.
    theirs, ours = ([row for row in text if "Sequential(layers" not in row[1]] for text in texts)
    assert ours == theirs


@pytest.mark.parametrize("form", ["grid", "simple", "plain"])
def test_tabulate_has_the_same_columns(form):
    ours, theirs = (
        lib.experimental.tabulate(lambda x, lib=lib: lib.nets.MLP([5, 2])(x), tabulate_kwargs={"tablefmt": form})(X)
        for lib in (hkx, hk)
    )
    assert ours == theirs


def test_eval_summary_has_the_same_calls():
    found = []
    for lib in (hk, hkx):
        calls = lib.experimental.eval_summary(net(lib))(X)
        found.append(
            [
                (
                    c.module_details.module.module_name,
                    c.module_details.method_name,
                    repr((c.args_spec, c.kwargs_spec, c.output_spec)),
                    repr((dict(c.module_details.params), dict(c.module_details.state))),
                    [d.module.module_name for d in c.call_stack],
                )
                for c in calls
            ]
        )
    assert found[0] == found[1]


def test_model_info_has_the_same_text_and_numbers():
    texts, trees = [], []
    for lib in (hk, hkx):
        model = lib.transform_with_state(counted(lib))
        params, state = model.init(KEY, X)
        info = lib.experimental.jaxpr_info.make_model_info(model.apply, name="m", compute_flops=lambda eqn, e: 12345)
        tree = info(params, state, None, X)
        trees.append(tree)
        texts.append(lib.experimental.jaxpr_info.format_module(tree).replace("int32", "s32"))
    assert texts[0] == texts[1]

    def facts(module):
        inner = [facts(e.submodule) for e in module.expressions if e.submodule is not None]
        return module.name, module.flops, module.param_info, module.state_info, module.total_state_size, inner

    assert facts(trees[0]) == facts(trees[1])


def test_optimize_rng_use_gives_the_same_keys():
    def draw(lib):
        return lambda: (lib.next_rng_key(), [lib.next_rng_key() for _ in range(3)])

    theirs, ours = (lib.transform(lib.experimental.optimize_rng_use(draw(lib))).apply({}, KEY) for lib in (hk, hkx))
    jax.tree.map(np.testing.assert_array_equal, theirs, ours)


def test_mixed_precision_with_jmp():
    jmp = pytest.importorskip("jmp", reason="compares with jmp")
    policy = jmp.get_policy("p=f32,c=bf16,o=f16")
    found = []
    for lib, linear in ((hk, hk.Linear), (hkx, hkx.Linear)):
        with lib.mixed_precision.push_policy(linear, policy):
            model = lib.transform_with_state(net(lib))
            params, state = model.init(KEY, X)
            out, state = model.apply(params, state, None, X)
        found.append((params, state, out))
    jax.tree.map(np.testing.assert_array_equal, *found)
    assert jax.tree.map(lambda x: x.dtype, found[0]) == jax.tree.map(lambda x: x.dtype, found[1])
    assert found[1][2].dtype == jnp.float16
