"""to_dot, jaxpr_info, and the small functions of hkx.experimental."""

import re
import shutil
import subprocess

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hkx
from hkx.experimental import jaxpr_info as ji

KEY = jax.random.key(0)
X = jnp.asarray(np.random.RandomState(0).standard_normal((4, 3)), jnp.float32)
MLP = hkx.transform(lambda x: hkx.nets.MLP([5, 2])(x))
PARAMS = MLP.init(KEY, X)


def test_dot_has_nested_boxes_shapes_and_edges():
    dot = hkx.to_dot(MLP.apply)(PARAMS, None, X)
    assert dot == hkx.experimental.abstract_to_dot(MLP.apply)(PARAMS, None, jax.ShapeDtypeStruct(X.shape, X.dtype))
    boxes = re.findall(r"subgraph (\w+) .*?\n\s+label=<<b>(.*?)</b><br/>(.*?)>;", dot)
    assert [(name, shapes) for _, name, shapes in boxes] == [
        ("mlp (MLP)", "f32[4,3] → f32[4,2]"),
        ("mlp/~/linear_0 (Linear)", "f32[4,3] → f32[4,5]"),
        ("mlp/~/linear_1 (Linear)", "f32[4,5] → f32[4,2]"),
    ]
    assert boxes[1][0].startswith(boxes[0][0] + "_") and boxes[2][0].startswith(boxes[0][0] + "_")
    names = dict(re.findall(r"(n\d+) \[label=<(.*?)>, color", dot))
    edges = {(names[a], names[b]) for a, b in re.findall(r"(n\d+) -> (n\d+);", dot)}
    assert ("<b>args[2]</b><br/>f32[4,3]", "<b>dot_general</b><br/>f32[4,5]") in edges
    assert ("<b>w</b><br/>f32[5,2]", "<b>dot_general</b><br/>f32[4,2]") in edges
    assert ("<b>relu</b><br/>f32[4,5]", "<b>dot_general</b><br/>f32[4,2]") in edges
    assert "<b>output</b><br/>add<br/>f32[4,2]" in names.values()
    assert dot.count("{") == dot.count("}")


def test_dot_of_other_programs():
    dot = hkx.to_dot(lambda x, y: ({"<sum>": x + y["b"], "same": x}, 3))(1.0, {"b": jnp.ones(2), "unused": jnp.ones(3)})
    assert "&lt;sum&gt;" in dot and "also returned" in dot and "unused" not in dot and "args[1]: b" in dot
    assert "output" in hkx.to_dot(lambda: jnp.ones(()))()

    def f(x):
        layer = hkx.Linear(3)
        return hkx.scan(lambda c, _: (jnp.tanh(layer(c)), None), x, None, length=7)[0]

    model = hkx.transform(f)
    dot = hkx.to_dot(model.apply)(model.init(KEY, X), None, X)
    assert "scan × 7" in dot and "linear (Linear)" in dot and "tanh" in dot


def test_dot_of_branches_and_of_a_while_loop():
    def f(p, x):
        x = hkx.cond(p, lambda x: hkx.nets.MLP([5, 3])(x), lambda x: hkx.Linear(3)(jnp.sin(x)), x)
        return hkx.while_loop(lambda y: y.sum() < 9, lambda y: hkx.Linear(3, name="body")(y), x)

    model = hkx.transform(f)
    dot = hkx.to_dot(model.apply)(model.init(KEY, True, X), None, jnp.array(True), X)
    boxes = re.findall(r"subgraph (\w+) .*?\n\s+label=<<b>(.*?)</b>", dot)
    inside = {name: [b for b, n in boxes if n == name] for name in ("cond", "branch 0", "branch 1", "while")}
    assert all(len(found) == 1 for found in inside.values())
    within = {name: next(outer for outer, (b,) in reversed(inside.items()) if key.startswith(b)) for key, name in boxes}
    assert within["mlp/~/linear_1 (Linear)"] == within["mlp (MLP)"] == "branch 1"
    assert within["linear (Linear)"] == "branch 0" and within["body (Linear)"] == "while"
    names = dict(re.findall(r"(n\d+) \[label=<(.*?)>, color", dot))
    edges = [(names[a], names[b]) for a, b in re.findall(r"(n\d+) -> (n\d+);", dot)]
    joined = [a for a, b in edges if b == "<b>cond</b><br/>f32[4,3]"]
    assert sorted(joined) == 2 * ["<b>add</b><br/>f32[4,3]"] + ["<b>convert_element_type</b><br/>s32[]"]
    assert sum(name.startswith("<b>sin") for name in names.values()) == 1


def test_dot_calls_a_new_state_what_its_module_calls_it():
    model = hkx.transform_with_state(lambda x: hkx.BatchNorm(True, True, 0.9)(x, True))
    dot = hkx.to_dot(model.apply)(*model.init(KEY, X), None, X)
    assert "<b>output: counter</b>" in dot and "<b>hidden</b>" in dot and "mean_ema'" not in dot


@pytest.mark.skipif(shutil.which("dot") is None, reason="needs graphviz")
def test_graphviz_reads_it():
    svg = subprocess.run(
        ["dot", "-Tsvg"], input=hkx.to_dot(MLP.apply)(PARAMS, None, X), capture_output=True, text=True, check=True
    )
    assert svg.stdout.count('class="cluster"') == 3 and not svg.stderr


def test_model_info():
    def f(x):
        with hkx.name_scope("scope"):
            y = jax.lax.scan(lambda c, _: (jnp.sin(c) * 2, None), x, None, length=3)[0]
        hkx.set_state("unused", jnp.cos(x))
        jnp.tan(x)  # nothing depends on it
        return hkx.nets.MLP([5, 2])(y)

    model = hkx.transform_with_state(f)
    params, state = model.init(KEY, X)
    info = ji.make_model_info(model.apply, name="model", compute_flops=ji.count_flops)(params, state, None, X)
    assert ji.format_module(info).split("\n") == [
        "model 332 flops",
        "  scope 72 flops",
        "    scan length=3 unroll=1 24 flops",
        "      sin 12 flops in f32[4,3], out f32[4,3]",
        "      mul 12 flops in f32[4,3], f32[], out f32[4,3]",
        "  cos 12 flops in f32[4,3], out f32[4,3]",
        "  mlp 248 flops 32 params",
        "    linear_0 140 flops 20 params",
        "      dot_general 120 flops in f32[4,3], f32[3,5], out f32[4,5]",
        "      broadcast_in_dim in f32[5], out f32[4,5]",
        "      add 20 flops in f32[4,5], f32[4,5], out f32[4,5]",
        "    custom_jvp 20 flops",
        "      relu 20 flops",
        "        max 20 flops in f32[4,5], f32[], out f32[4,5]",
        "    linear_1 88 flops 12 params",
        "      dot_general 80 flops in f32[4,5], f32[5,2], out f32[4,2]",
        "      broadcast_in_dim in f32[2], out f32[4,2]",
        "      add 8 flops in f32[4,2], f32[4,2], out f32[4,2]",
        "",
    ]


def test_model_info_of_a_while_loop_and_of_branches_of_which_one_runs():
    def f(x):
        x = jax.lax.while_loop(lambda x: x[0] < 10, lambda x: 2 * x, x)
        return jax.lax.cond(x[0] > 3, jnp.sin, lambda x: x * x + x, x)

    model = hkx.transform(f)
    info = ji.make_model_info(model.apply, name="model", compute_flops=ji.count_flops)({}, None, jnp.ones(5))
    loop, branches = (e for e in info.expressions if e.submodule is not None)
    assert [e.primitive for e in loop.submodule.expressions] == ["mul"] and loop.submodule.flops == 5
    assert [e.submodule.flops for e in branches.submodule.expressions] == [10, 5]
    assert branches.submodule.flops == 10  # the most that one may take


def test_parameters_of_a_stack_are_counted_as_they_are_stored():
    def stack(x):
        return hkx.vmap(lambda x: hkx.Linear(2)(x), in_axes=None, axis_size=5, param_axes=0, split_rng=True)(x)

    model = hkx.transform(stack)
    params = model.init(KEY, X)
    info = ji.make_model_info(model.apply)(params, None, X)
    linear = info.expressions[0].submodule
    assert linear.total_param_size == hkx.data_structures.tree_size(params) == 5 * (3 * 2 + 2)
    assert linear.param_info == {"./b": "f32[5,2]", "./w": "f32[5,3,2]"}


def test_html_of_a_model():
    info = ji.make_model_info(MLP.apply)(PARAMS, None, X)
    page = ji.as_html_page(info, min_flop=0)
    assert page.startswith("<!DOCTYPE html>") and ji.css() in page and ji.js() in page
    assert page.count("<details open") == 1 and page.index("<details open") == page.index("<details")
    for tag in ("details", "summary", "ol", "li", "table", "b"):
        assert len(re.findall(f"<{tag}[ >]", page)) == page.count(f"</{tag}>") > 0
    assert "<td>./linear_0/w</td><td>f32[3,5]</td>" in page and "dot_general" in page
    counted = ji.make_model_info(MLP.apply, compute_flops=ji.count_flops)(PARAMS, None, X)
    assert "dot_general" not in ji.as_html(counted, min_flop=1000) and "dot_general" in ji.as_html(counted, min_flop=80)


def test_model_info_without_modules_and_with_an_axis():
    info = ji.make_model_info(MLP.apply, include_module_info=False)(PARAMS, None, X)
    assert "params" not in ji.format_module(info)
    info = ji.make_model_info(lambda x: x + jax.lax.axis_index("i"), axis_env=[("i", 3)])(X)
    assert "add" in ji.format_module(info)


def test_settings_return_what_was_before():
    e = hkx.experimental
    assert e.rng_reserve_size(4) == 1 and e.rng_reserve_size(1) == 4
    assert e.module_auto_repr(False) is True and e.module_auto_repr(True) is False
    assert e.check_jax_usage(True) is False and e.check_jax_usage(False) is True
    assert e.ParamContext is e.GetterContext


def test_optimize_rng_use_reserves_all_keys_at_once():
    def f():
        return [hkx.next_rng_key() for _ in range(3)]

    def reserved():
        hkx.reserve_rng_keys(3)
        return f()

    def around(g):
        return hkx.next_rng_key(), g(), hkx.next_rng_key()

    optimized = hkx.experimental.optimize_rng_use(f)
    for g, h in ((optimized, reserved), (lambda: around(optimized), lambda: around(reserved))):
        assert jax.tree.all(jax.tree.map(lambda a, b: a == b, *(hkx.transform(q).apply({}, KEY) for q in (g, h))))
    assert hkx.transform(hkx.experimental.optimize_rng_use(lambda: 3)).apply({}, None) == 3
    with_params = hkx.experimental.optimize_rng_use(lambda x: hkx.nets.MLP([3, 2])(x))
    params = hkx.transform(with_params).init(KEY, X)
    assert len(params) == 2 and not np.array_equal(params["mlp/~/linear_0"]["w"], PARAMS["mlp/~/linear_0"]["w"])
