"""tabulate, eval_summary and the count of operations. Expected numbers are worked out from the layers' equations."""

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hkx
from hkx.experimental import ArraySpec, ModuleDetails, eval_summary
from hkx.tools.table import Table

X = jnp.ones([4, 3])


class Block(hkx.Module):
    def __init__(self, size, name=None):
        super().__init__(name=name)
        self.linear = hkx.Linear(size)

    def __call__(self, x, *, flag=False, extra=None):
        return {"a": self.linear(x), "b": self.helper(x)}

    def helper(self, x):
        hkx.set_state("c", jnp.ones(2))
        hkx.get_parameter("own", [3], init=jnp.zeros)
        return x, None, 3

    def nothing(self):
        pass


def net(x):
    block = Block(5)
    block(x, flag=True, extra={"z": x})
    block.nothing()
    block.linear(x)
    return hkx.nets.MLP([3, 2], name="mlp")(x), hkx.dropout(hkx.next_rng_key(), 0.5, x)


def key_of(call):
    return call.module_details.module.module_name, call.module_details.method_name


def test_eval_summary_lists_every_call():
    calls = eval_summary(net)(X)
    assert [key_of(c) for c in calls] == [
        ("block", "__call__"),
        ("block/~/linear", "__call__"),
        ("block", "helper"),
        ("block", "nothing"),
        ("block/~/linear", "__call__"),
        ("mlp", "__call__"),
        ("mlp/~/linear_0", "__call__"),
        ("mlp/~/linear_1", "__call__"),
    ]
    first, second = calls[:2]
    x = ArraySpec((4, 3), jnp.dtype("float32"))
    assert first.args_spec == (x,) and first.kwargs_spec == {"flag": True, "extra": {"z": x}}
    assert repr(first.output_spec) == "{'a': f32[4,5], 'b': (f32[4,3], None, 3)}"
    assert {k: repr(v) for k, v in first.module_details.params.items()} == {
        "block/own": "f32[3]",
        "block/~/linear/b": "f32[5]",
        "block/~/linear/w": "f32[3,5]",
    }
    assert {k: repr(v) for k, v in first.module_details.state.items()} == {"block/c": "f32[2]"}
    assert second.call_stack == (second.module_details, first.module_details)
    assert isinstance(second.context, hkx.MethodContext) and second.context.method_name == "__call__"


@pytest.mark.parametrize(
    "f",
    [
        hkx.transform_with_state(net),
        hkx.without_apply_rng(hkx.transform_with_state(lambda x: hkx.Linear(2)(x))),
        hkx.transform(lambda x: hkx.Linear(2)(x), apply_rng=False),
        hkx.transform(lambda x: hkx.Linear(2)(x)),
        hkx.without_state(hkx.transform_with_state(lambda x: hkx.Linear(2)(x))),
        hkx.with_empty_state(hkx.transform(lambda x: hkx.Linear(2)(x))),
        hkx.without_apply_rng(hkx.transform(lambda x: hkx.Linear(2)(x))).apply,
    ],
)
def test_it_takes_what_transform_returns_and_shapes(f):
    assert len(eval_summary(f)(jax.ShapeDtypeStruct((4, 3), jnp.float32))) in (1, 8)


def test_the_model_is_not_run_and_python_values_stay():
    ran = []

    def f(x, training, scale):
        jax.debug.callback(lambda: ran.append(1))
        return hkx.Linear(2 if training else 3)(x) * scale

    assert repr(eval_summary(f)(X, False, 2.0)[0].output_spec) == "f32[4,3]"
    hkx.tabulate(f)(X, True, 2.0)
    jax.effects_barrier()
    assert not ran


def table(f, *args, columns=("module", "flops"), **kwargs):
    text = hkx.tabulate(f, columns=columns, tabulate_kwargs={"tablefmt": "tsv"}, **kwargs)(*args)
    return {row.split("\t")[0].split(" (")[0]: row.split("\t")[1:] for row in text.split("\n")[1:]}


def test_operations_of_each_module_and_in_total():
    linear = 2 * 4 * 3 * 5 + 4 * 5  # a product and a bias

    def f(x):
        layer, conv = hkx.Linear(5), hkx.Conv2D(6, 3, padding="VALID", feature_group_count=2, name="conv")
        conv(jnp.ones([2, 8, 9, 4]))

        def body(x, _):
            return layer(x) @ jnp.ones([5, 3]), None

        hkx.scan(body, x, None, length=7)
        return jax.lax.cond(x.sum() > 0, lambda x: jnp.sin(x), lambda x: jnp.exp(jnp.sin(x)), x)

    rows = table(f, X)
    conv = 2 * (2 * 6 * 7 * 6) * (3 * 3 * 2) + 2 * 6 * 7 * 6
    assert rows["linear"] == [f"{7 * linear:,}"] and rows["conv"] == [f"{conv:,}"]
    total = 7 * (linear + 2 * 4 * 5 * 3) + conv + 12 + 2 * 12  # and a sum, and the longer branch
    assert rows["Total"] == [f"{total:,}"]


def test_operations_of_the_modules_in_branches():
    class Choice(hkx.Module):
        def __call__(self, x):
            return hkx.cond(x.sum() > 0, hkx.Linear(3, name="a"), lambda x: hkx.Linear(3, name="b")(jnp.sin(x)), x)

    rows = table(lambda x: Choice()(x), X)
    linear = 2 * 4 * 3 * 3 + 4 * 3
    assert rows["choice/a"] == rows["choice/b"] == [str(linear)]
    assert rows["choice"] == rows["Total"] == [str(12 + 12 + linear)]  # the predicate, and the longer branch


@pytest.mark.eight_devices
def test_operations_on_all_devices_count():
    mesh = jax.make_mesh((4, 2), ("a", "b"), axis_types=(jax.sharding.AxisType.Auto,) * 2)
    on_a, x, linear = jax.sharding.PartitionSpec("a"), jnp.ones([8, 4]), 2 * 8 * 4 * 3 + 8 * 3
    for axes, copies in (({"a"}, 1), ({"a", "b"}, 2)):  # the devices along b compute the same
        f = lambda x, axes=axes: hkx.shard_map(  # noqa: E731
            lambda x: hkx.Linear(3)(x), mesh=mesh, in_specs=on_a, out_specs=on_a, axis_names=axes
        )(x)
        rows = table(f, x)
        assert rows["linear"] == rows["Total"] == [str(copies * linear)]


def test_operations_of_products_of_groups():
    x, w, sizes = jnp.ones([8, 4]), jnp.ones([2, 4, 5]), jnp.array([3, 5])
    f = lambda x, w: jax.lax.ragged_dot(x, w, sizes)  # noqa: E731
    count = hkx.experimental.jaxpr_info.count_flops
    counted = hkx.experimental.jaxpr_info.make_model_info
    assert counted(f, compute_flops=count)(x, w).flops == 3 * 2 * 4 * 5 + 5 * 2 * 4 * 5
    for argument in (0, 1):
        gradient = lambda x, w, argument=argument: jax.vjp(f, x, w)[1](jnp.ones([8, 5]))[argument]  # noqa: E731
        assert counted(gradient, compute_flops=count)(x, w).flops == 8 * 2 * 4 * 5


def test_operations_of_a_root_count():
    """JAX 0.12 has a class for this operation, of `jax.experimental.hijax`, in place of a program inside of it."""
    x, w = jnp.ones([3, 4]), jnp.ones([4, 5])

    def root(x):
        out = jnp.zeros([3, 5])
        return jax.lax.custom_root(lambda y: y - x @ w, out, lambda f, _: out - f(out), lambda g, y: y)

    count = hkx.experimental.jaxpr_info.count_flops
    found = hkx.experimental.jaxpr_info.make_model_info(root, compute_flops=count)(x)
    assert found.flops == 2 * 3 * 4 * 5 + 3 * 5 + 3 * 5


def test_operations_on_each_element_of_a_scatter_or_a_reduction():
    ids, x = jnp.array([[1, 0, 1]]), jnp.ones([4, 6])
    embed = hkx.without_apply_rng(hkx.transform(lambda ids: hkx.Embed(2, 5)(ids)))
    params = jax.eval_shape(embed.init, jax.random.key(0), ids)
    programs = {
        "gradient of embeddings": (jax.grad(lambda p: embed.apply(p, ids).sum()), params, 3 * 5),
        "segments": (lambda x: jax.ops.segment_sum(x, jnp.array([0, 1, 0, 1]), 2), x, 4 * 6),
        "products": (lambda x: x.at[:2].mul(3.0), x, 2 * 6),
        "reduction": (lambda x: jax.lax.reduce(x, 0.0, lambda a, b: a + b * b, (0,)), x, 2 * 4 * 6),
        "windows": (
            lambda x: jax.lax.reduce_window(x, 0.0, lambda a, b: a + b * b, (2, 3), (1, 1), "VALID"),
            x,
            3 * 4 * 5 * 2,
        ),
    }
    count = hkx.experimental.jaxpr_info.count_flops
    for name, (f, argument, expected) in programs.items():
        info = hkx.experimental.jaxpr_info.make_model_info(f, compute_flops=count)(argument)
        assert info.flops == expected, name


def test_the_count_agrees_with_xla():
    model = hkx.without_apply_rng(hkx.transform(lambda x: hkx.nets.MLP([64, 32])(x)))
    x = jnp.ones([16, 48])
    params = model.init(jax.random.key(0), x)
    cost = jax.jit(model.apply).lower(params, x).compile().cost_analysis()
    assert int(table(model, x)["Total"][0].replace(",", "")) == cost["flops"]


CONVOLUTIONS = {
    "padded": lambda x: hkx.Conv2D(4, 3)(x),
    "strided": lambda x: hkx.Conv2D(4, (5, 3), stride=(2, 3))(x),
    "dilated": lambda x: hkx.Conv2D(4, 3, rate=(4, 1))(x),
    "grouped": lambda x: hkx.Conv2D(6, 3, feature_group_count=3, padding=((5, 0), (-1, 2)))(x),
    "depthwise": lambda x: hkx.DepthwiseConv2D(2, 3)(x),
    "transposed": lambda x: hkx.Conv2DTranspose(4, 4, stride=(3, 2))(x),
    "pooled": lambda x: hkx.MaxPool(3, 2, "SAME")(x),
}


@pytest.mark.parametrize(
    ("name", "gradient"), [(name, g) for name in CONVOLUTIONS for g in (False, True) if (name, g) != ("pooled", True)]
)
def test_operations_of_convolutions_are_those_that_xla_counts(name, gradient):
    model = hkx.without_apply_rng(hkx.transform(CONVOLUTIONS[name]))
    x = jnp.ones([2, 9, 7, 3])
    params = model.init(jax.random.key(0), x)
    f = jax.grad(lambda x, p: model.apply(p, x).sum()) if gradient else lambda x, p: model.apply(p, x)
    with jax.default_device(jax.devices("cpu")[0]):  # for others, XLA counts only what is compiled
        cost = jax.jit(f).lower(x, params).cost_analysis()  # before it is optimised, which moves sums about
    count = hkx.experimental.jaxpr_info.count_flops
    counted = hkx.experimental.jaxpr_info.make_model_info(f, compute_flops=count)(x, params).flops
    assert counted == cost["flops"]


@pytest.mark.slow
def test_columns_filters_and_formats():
    rows = table(net, X, columns=("module", "owned_params", "input", "params_size", "params_bytes"), filters=())
    assert rows["block"][0] == "own: f32[3]" and rows["mlp/~/linear_1"][2:] == ["8", "32.00 B"]
    assert rows["mlp/~/linear_0"][:2] == ["w: f32[3,3] b: f32[3]", "f32[4,3]"]
    assert rows["Total"] == ["", "", "43", "172.00 B"]
    text = hkx.tabulate(net, filters=["has_output", "has_params"])(X)
    assert "nothing" not in text and "nothing" in hkx.tabulate(net, filters=())(X)
    assert len({len(line) for line in text.split("\n")}) == 1  # a grid is aligned
    html = text._repr_html_()
    assert "<table>" in html and "<td" in html and "Block(size=5)" in html
    for name in ("plain", "simple", "pipe", "github", "html"):
        out = hkx.tabulate(net, columns=["module"], tabulate_kwargs={"tablefmt": name})(X)
        assert "mlp/~/linear_1 (Linear)" in out
    with pytest.raises(ValueError, match="column"):
        hkx.tabulate(net, columns=["modules"])
    with pytest.raises(ValueError, match="filter"):
        hkx.tabulate(net, filters=["params"])
    assert "No calls" in hkx.tabulate(lambda x: x)(X)


class Tower(hkx.Module):
    """A module whose name is long, of helper methods that call each other."""

    def __call__(self, x):
        return self.body(hkx.Linear(4, w_init=hkx.initializers.RandomNormal(0.1), name="the_first_of_the_layers")(x))

    def body(self, x):
        return self.head(hkx.LayerNorm(-1, True, True)(x), x)

    def head(self, x, residual):
        return {"the_output_of_the_tower": x + residual, "another_output_that_has_a_long_name": hkx.Linear(3)(x)}


def test_a_text_fits_and_has_one_row_for_a_call_and_its_helper_methods():
    tower = lambda x: Tower(name="tower_" * 9)(x)  # noqa: E731
    inner = ("", "/the_first_of_the_layers", "/~body/layer_norm", "/~head/linear")
    modules = [f"{'tower_' * 9}{rest}" for rest in inner]
    table = hkx.tabulate(tower)(X)
    assert max(map(len, table.split("\n"))) <= 120
    assert [row[0].split(" (")[0] for row in table.rows[:-1]] == modules
    lines = [[part.strip() for part in line.split("|")] for line in table.split("\n") if line.startswith("|")]
    text = ["".join(parts).replace(" ", "") for parts in zip(*lines, strict=True)]
    for shown in (modules[-1], table.rows[0][table.headers.index("Output")]):  # broken, but whole
        assert any(shown.replace(" ", "") in column for column in text)
    for form in ("grid", "simple", "plain"):
        for width in (80, 100, 120):
            fitted = Table.of(table.headers, table.rows, table.numeric, {"tablefmt": form}, width, [1, 6])
            assert max(map(len, fitted.split("\n"))) <= width
    helpers = [row[0].partition("\n")[0] for row in hkx.tabulate(tower, filters=["has_output"], width=None)(X).rows]
    assert [name.rpartition(".")[2] for name in helpers if "Tower." in name] == ["body)", "head)"]


def test_a_small_table_shows_all_columns_if_they_fit():
    titles = ("Module", "Config", "Module params", "Input", "Output", "Param count", "Param bytes", "FLOPs")
    for width, shown in ((150, titles), (120, [title for title in titles if title != "Config"])):
        lines = hkx.tabulate(lambda x: hkx.Linear(3)(x), width=width)(X).split("\n")
        assert [cell.strip() for cell in lines[1].strip("|").split("|")] == list(shown)
        assert max(map(len, lines)) <= width


def test_a_caller_is_shown_that_the_name_does_not_show():
    def f(x):
        inner = hkx.Linear(3, name="inner")
        return hkx.to_module(lambda x: inner(x))("outer")(x)

    names = [row[0].split("\n") for row in hkx.tabulate(f)(X).rows[:-1]]
    assert names == [["outer (FunctionModule)"], ["inner (Linear)", " └ outer (FunctionModule)"]]


def test_a_format_that_nobody_knows_is_an_error():
    """The package `tabulate` would take another instead."""
    with pytest.raises(ValueError, match="gird"):
        hkx.tabulate(lambda x: hkx.Linear(1)(x), tabulate_kwargs={"tablefmt": "gird"})(X)


def test_filters_are_none_by_default_but_the_one_for_outputs():
    def f():
        hkx.to_module(lambda: None)("nothing")()
        hkx.to_module(lambda: 3)("number")()
        return hkx.Linear(2)(X)

    assert list(table(f)) == list(table(f, filters=None)) == ["number", "linear", "Total"]
    assert list(table(f, filters=())) == ["nothing", "number", "linear", "Total"]
    assert list(table(f, filters=["has_params"])) == ["linear", "Total"]


@pytest.mark.slow
def test_compiled_functions_and_the_parts_of_a_pair():
    model, key = hkx.transform_with_state(net), jax.random.PRNGKey(0)
    params, state = model.init(key, X)

    @jax.jit
    def step(params, x):
        return jax.grad(lambda p: model.apply(p, state, key, x)[0][0].sum())(params)

    rows, keys = table(net, X), [key_of(c) for c in eval_summary(net)(X)]
    for f in (model, model.init, model.apply, jax.jit(model.init), jax.jit(model.apply), jax.jit(jax.jit(model.apply))):
        assert table(f, X) == rows and [key_of(c) for c in eval_summary(f)(X)] == keys
    # the arguments of `apply` itself are no arguments of `net`
    assert [key_of(c) for c in eval_summary(model.apply)(params, state, key, X)] == keys
    assert [key_of(c) for c in eval_summary(step)(params, X)] == keys
    over_devices = jax.pmap(lambda p, x: model.apply(p, state, key, x))
    shapes = jax.tree.map(lambda a: jax.ShapeDtypeStruct((1, *a.shape), a.dtype), (params, X))
    assert list(table(over_devices, *shapes)) == list(rows)


def test_array_spec_and_module_details():
    assert [repr(ArraySpec((1, 2), jnp.dtype(d))) for d in ("bool", "int8", "uint32", "bfloat16", "complex64")] == [
        "bool[1,2]",
        "s8[1,2]",
        "u32[1,2]",
        "bf16[1,2]",
        "c64[1,2]",
    ]
    assert ArraySpec.from_array(jnp.ones([2, 3])) == ArraySpec((2, 3), np.dtype("float32"))
    assert ArraySpec((2, 3), np.float32).size == 6 and ArraySpec((), np.float32).size == 1
    assert repr(ArraySpec.from_array(jax.random.key(0))) == "key<fry>[]"

    def f():
        linear = hkx.Linear(2)
        linear(jnp.ones([1, 3]))
        return ModuleDetails.of(linear, "__call__")

    details = hkx.testing.transform_and_run(f)()
    assert repr(details.params) == "{'linear/b': f32[2], 'linear/w': f32[3,2]}"


def test_modules_in_loops_appear_once():
    def f(x):
        layer = hkx.Linear(3)
        return hkx.scan(lambda c, _: (layer(c), None), x, None, length=4)[0]

    calls = [key_of(c) for c in eval_summary(f)(X)]
    assert calls == [("linear", "__call__")]
    assert table(f, X)["linear"] == [f"{4 * (2 * 4 * 3 * 3 + 4 * 3):,}"]


def test_a_layer_stack_is_shown_with_all_its_parameters():
    def block(x):
        scale = hkx.get_state("scale", [3], init=jnp.ones)
        return x + hkx.nets.MLP([4, 3], activation=jnp.tanh)(x) * scale[None]

    def f(x):
        inner = lambda x: hkx.layer_stack(2, name="inner")(block)(x)  # noqa: E731
        return hkx.layer_stack(5, name="blocks")(inner)(hkx.Linear(3)(x))

    rows = table(f, X, columns=("module", "config", "owned_params", "input", "params_size"))
    assert list(rows) == [
        "linear",
        "blocks",
        "blocks/inner",
        *[f"blocks/inner/mlp{below}" for below in ("", "/~/linear_0", "/~/linear_1")],
        "Total",
    ]
    of_block = 3 * 4 + 4 + 4 * 3 + 3
    assert rows["blocks"] == ["LayerStack(layer=<lambda> × 5, name='blocks')", "", "f32[4,3]", str(10 * of_block)]
    assert rows["blocks/inner"][3] == rows["blocks/inner/mlp"][3] == str(10 * of_block)
    assert rows["blocks/inner/mlp/~/linear_0"][1:] == ["w: f32[5,2,3,4] b: f32[5,2,4]", "f32[4,3]", str(10 * 16)]
    assert rows["Total"][3] == str(10 * of_block + 12)
    assert sum(int(rows[name][3]) for name in rows if "linear" in name) == 10 * of_block + 12
    stack = eval_summary(f)(X)[2].module_details
    assert stack.full_name == "blocks/inner" and repr(stack.state) == "{'blocks/inner/~/scale': f32[5,2,3]}"
    dot = hkx.to_dot(hkx.transform_with_state(f).apply)(
        *jax.eval_shape(hkx.transform_with_state(f).init, jax.random.key(0), X), None, X
    )
    assert "<b>blocks/inner/mlp/~/linear_0 (Linear)</b>" in dot and "args[0]" not in dot


def fill(shape, dtype, value):
    return jnp.full(shape, value, dtype)


def test_an_initializer_is_shown_by_what_it_is():
    def f(x):
        init = hkx.initializers.VarianceScaling(2.0, "fan_out", "uniform")
        return hkx.Linear(1, w_init=init, b_init=functools.partial(fill, value=2))(x)

    config = table(f, X, columns=("module", "config"))["linear"][0]
    assert config == (
        "Linear(output_size=1, w_init=VarianceScaling(scale=2.0, mode='fan_out', distribution='uniform'), "
        "b_init=partial(fill, value=2))"
    )


def test_a_result_that_checks_what_it_holds_is_not_made_anew():
    # As `jmp.DynamicLossScale` does: JAX itself makes such a class only from arrays and from `object()`.
    @jax.tree_util.register_pytree_node_class
    class Checked:
        def __init__(self, scale):
            assert type(scale) is object or jax.eval_shape(lambda: scale).dtype == jnp.float32
            self.scale = scale

        def tree_flatten(self):
            return (self.scale,), None

        @classmethod
        def tree_unflatten(cls, _, leaves):
            return cls(*leaves)

    model = hkx.transform(lambda x: hkx.Linear(2)(x))

    def step(params, scale, x):
        return model.apply(params, None, x), Checked(scale.scale * 2)

    arguments = model.init(jax.random.key(0), X), Checked(jnp.float32(3)), X
    (call,) = eval_summary(step)(*arguments)
    assert repr(call.output_spec) == "f32[4,2]" and "linear" in table(step, *arguments)
    assert "output[1]" in hkx.to_dot(step)(*arguments)


MISTAKEN = {
    "The column(s) must be a list of names, got 'module'": lambda: hkx.tabulate(net, columns="module"),
    "The filter(s) must be a list of names, got 3": lambda: hkx.tabulate(net, filters=3),
    "`columns` is empty: leave it out for all of": lambda: hkx.tabulate(net, columns=[]),
    "`hkx.experimental.jaxpr_info.make_model_info` was given 3": lambda: hkx.experimental.jaxpr_info.make_model_info(3),
}


@pytest.mark.parametrize("text", MISTAKEN)
def test_an_argument_that_is_something_else_is_named(text):
    with pytest.raises((ValueError, TypeError), match=re.escape(text)):
        MISTAKEN[text]()
