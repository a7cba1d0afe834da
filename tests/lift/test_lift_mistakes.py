"""What a lifted function, its state, and the functions of loops and branches must not do is a named error."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hkx
from hkx import errors

pytestmark = pytest.mark.unoptimised

KEY = jax.random.key(0)
X = jnp.ones([3, 2])


def lifted(f: Callable[..., Any], lift: Any = hkx.transparent_lift, **options: Any) -> Callable[..., Any]:
    """`f`, transformed by itself and lifted where it is called."""
    inner = hkx.transform(f)

    def call(*args: Any) -> Any:
        params = lift(inner.init, **options)(hkx.next_rng_key() if hkx.running_init() else None, *args)
        return inner.apply(params, None, *args)

    return call


def test_transparent_lift_of_a_function_that_closes_over_a_module() -> None:
    def outer(x: Any) -> Any:
        mine = hkx.Linear(2, name="mine")
        return lifted(lambda x: hkx.Linear(2)(mine(x)))(x)

    with pytest.raises(errors.ClosedOverModuleError, match=r"close over a module, 'outer/mine'.*transparent_lift"):
        hkx.transform(lambda x: hkx.to_module(outer)()(x)).init(KEY, X)


@pytest.mark.parametrize("lift", [hkx.lift, hkx.transparent_lift])
@pytest.mark.parametrize(
    "loop",
    [
        lambda f, x: hkx.scan(lambda c, v: (f(c), None), x[0], x)[0],
        lambda f, x: hkx.map(f, x),
        lambda f, x: hkx.fori_loop(0, 3, lambda i, v: f(v), x[0]),
    ],
    ids=["scan", "map", "fori_loop"],
)
def test_lift_in_a_loop_reuses_only_where_it_may(lift: Any, loop: Any) -> None:
    def scale(x: Any) -> Any:
        return 2 * x * hkx.get_parameter("w", x.shape, init=jnp.ones)

    def model(allow_reuse: bool) -> Any:
        return hkx.transform(lambda x: loop(lifted(scale, lift, allow_reuse=allow_reuse), x))

    with pytest.raises(errors.LiftReuseError, match=r"Key '.*~' already exists"):
        model(False).init(KEY, X)
    params = model(True).init(KEY, X)
    assert jax.tree.leaves(jax.tree.map(jnp.shape, params, is_leaf=lambda x: hasattr(x, "shape"))) == [2]
    out = model(True).apply(params, None, X)
    np.testing.assert_array_equal(out[..., 0], 2 if out.ndim == 2 else 8)


@pytest.mark.parametrize("use", [lambda u: u.update({}), lambda u: u.ignore_update()])
def test_an_updater_belongs_to_one_call(use: Any) -> None:
    def f() -> None:
        _, updater = hkx.lift_with_state(hkx.transform_with_state(lambda: None).init)
        hkx.transform_with_state(lambda: use(updater)).init(None)

    with pytest.raises(errors.StateUpdaterError, match="must be used within the same call to init/apply"):
        hkx.transform_with_state(f).init(None)


def test_an_updater_may_be_used_inside_another_function_and_not_be_left() -> None:
    inner = hkx.transform_with_state(lambda: hkx.set_state("n", jnp.ones([])))

    def f(x: Any, use: bool) -> Any:
        def body(x: Any) -> Any:
            init, updater = hkx.lift_with_state(inner.init)
            params, state = init(None)
            state = inner.apply(params, state, None)[1]
            if use:
                hkx.remat(lambda: updater.update(state))()
            return x

        return hkx.remat(body)(x)

    model = hkx.transform_with_state(f)
    _, state = model.init(None, X, True)
    model.apply({}, state, None, X, True)
    for run in (lambda: model.init(None, X, False), lambda: model.apply({}, state, None, X, False)):
        with pytest.raises(errors.StateUpdaterError, match="must be used"):
            run()


def test_a_condition_changes_nothing() -> None:
    def condition(x: Any) -> Any:
        n = hkx.get_state("n", [], init=jnp.zeros)
        hkx.set_state("n", n + 1)
        return n < x

    model = hkx.transform_with_state(lambda x: hkx.while_loop(condition, lambda x: x + 1, x))
    for run in (lambda: model.init(KEY, 0.0), lambda: model.apply({}, {"~": {"n": jnp.zeros([])}}, KEY, 0.0)):
        with pytest.raises(
            errors.ConditionEffectError, match=r"does not support .*set_state.*next_rng_key.* in `cond_fun`"
        ):
            run()


@pytest.mark.parametrize(
    "program",
    [
        lambda see: hkx.cond(True, see, lambda x: x + 0, 1),
        lambda see: hkx.switch(1, [lambda x: x + 0, see], np.float32(1)),
        lambda see: hkx.fori_loop(0, 2, lambda i, x: see(i) + see(x), np.int32(1)),
        lambda see: hkx.scan(lambda c, x: (see(c), see(x)), 1, np.arange(3)),
        lambda see: hkx.while_loop(lambda x: see(x) < 3, lambda x: see(x) + 1, 0),
    ],
    ids=["cond", "switch", "fori_loop", "scan", "while_loop"],
)
def test_functions_of_loops_and_branches_see_arrays(program: Any) -> None:
    seen = []

    def see(x: Any) -> Any:
        seen.append(isinstance(x, jax.Array))
        return x

    hkx.testing.transform_and_run(lambda: program(see))()
    assert seen
    assert all(seen)


def test_the_layers_of_a_transparent_stack_have_names_of_their_own() -> None:
    class Same(hkx.LayerStackTransparencyMapping):
        def stacked_to_flat(self, stacked_module_name: str, scan_idx: int) -> str:
            return stacked_module_name

        def flat_to_stacked(self, unstacked_module_name: str) -> Any:
            return unstacked_module_name, 0

    stack = hkx.layer_stack(2, transparent=True, transparency_map=Same())
    with pytest.raises(errors.LayerFunctionError, match="gives 'linear' the name 'linear'"):
        hkx.transform(lambda x: stack(lambda x: hkx.Linear(2)(x))(x)).init(KEY, X)


def test_a_module_is_called_in_fwd_and_not_in_bwd() -> None:
    def model(with_pullback: bool) -> Any:
        def f(x: Any) -> Any:
            linear = hkx.Linear(3, w_init=jnp.ones)
            twice = hkx.custom_vjp(lambda x: linear(x))
            if with_pullback:
                twice.defvjp(lambda x: jax.vjp(linear, x), lambda pull, g: (2 * pull(g)[0],))
            else:
                twice.defvjp(lambda x: (linear(x), x), lambda x, g: (linear(x),))
            return twice(x).sum()

        return hkx.transform(f)

    x = jnp.ones(2)
    params = model(True).init(KEY, x)
    np.testing.assert_array_equal(jax.grad(model(True).apply, 2)(params, None, x), [6, 6])  # 2 · 3 · 1
    np.testing.assert_array_equal(jax.grad(model(True).apply)(params, None, x)["linear"]["w"], np.ones([2, 3]))
    with pytest.raises(errors.NotInTransformError) as caught:
        jax.grad(model(False).apply, 2)(params, None, x)
    assert any("`bwd`" in note and "residuals" in note for note in caught.value.__notes__)


def test_modules_of_two_vmaps_that_do_not_fit_each_other_are_told_to_be_one() -> None:
    def f(x: Any) -> Any:
        for size in (3, 5):
            x = hkx.vmap(lambda row, size=size: hkx.Linear(size)(row), split_rng=False)(x)
        return x

    with pytest.raises(errors.ShapeMismatchError, match="of the same name create the same module"):
        hkx.transform(f).init(KEY, jnp.ones([2, 4]))


RESULTS = {
    "lift_a_number": (lambda x: hkx.lift(lambda: 3)(), errors.NotAStructureError, r"`init_fn\(…\)` of `hkx.lift` is 3"),
    "lift_flat": (lambda x: hkx.lift(lambda: {"a": x})(), errors.NotAStructureError, r"\['a'\]` of `hkx.lift` is"),
    "lift_no_pair": (
        lambda x: hkx.lift_with_state(lambda: {"a": {"w": x}})[0](),
        errors.BodyResultError,
        r"hkx.lift_with_state.*pair `\(params, state\)`",
    ),
    "lift_no_state": (
        lambda x: hkx.lift_with_state(lambda: ({"a": {"w": x}}, None))[0](),
        errors.NotAStructureError,
        "hkx.lift_with_state.*NoneType",
    ),
    "grad_no_pair": (lambda x: hkx.grad(jnp.sum, has_aux=True)(x), errors.BodyResultError, r"pair `\(value, aux\)`"),
    "grad_two_rows": (lambda x: hkx.grad(lambda x: x[0, :2], has_aux=True)(x), errors.BodyResultError, "`hkx.grad`"),
    "jvp_two_rows": (lambda x: hkx.jvp(lambda x: x[:2], (x,), (x,), has_aux=True), errors.BodyResultError, "hkx.jvp"),
    "vjp_dict": (lambda x: hkx.vjp(lambda x: {"a": x, "b": x}, x, has_aux=True), errors.BodyResultError, "hkx.vjp"),
    "linearize_triple": (
        lambda x: hkx.linearize(lambda x: (x, x, x), x, has_aux=True),
        errors.BodyResultError,
        "hkx.linearize",
    ),
    "jit_text": (
        lambda x: hkx.jit(lambda x, *, mode: x)(x, mode={"a": "sum"}),
        errors.ArgumentNotAnArrayError,
        "Argument 'mode'.*under `hkx.jit` is 'sum' of type str.*static_argnums",
    ),
    "scan_text": (lambda x: hkx.scan(lambda c, v: (c, "s"), x, x), errors.BodyResultError, "hkx.scan.*'s' of type str"),
    "map_object": (lambda x: hkx.map(lambda v: (v, {1, 2}), x), errors.BodyResultError, "hkx.map.*type set"),
    "vmap_none": (lambda x: hkx.vmap(None, split_rng=False)(x), errors.NotAFunctionError, "hkx.vmap.*`fun`"),
}


@pytest.mark.parametrize("name", RESULTS)
def test_what_a_function_returns_or_is_given_is_named(name: str) -> None:
    program, error, words = RESULTS[name]
    model = hkx.transform_with_state(program)
    with pytest.raises(error, match=f"(?s){words}"):
        model.init(KEY, X)
    if not name.startswith("lift"):  # in `apply`, no `init` is called
        with pytest.raises(error, match=f"(?s){words}"):
            model.apply({}, {}, KEY, X)


@pytest.mark.parametrize("lifted", [hkx.remat, hkx.jit])
def test_errors_of_jax_name_the_function_of_the_user(lifted: Any) -> None:
    def negated_if(x: Any, flag: Any) -> Any:
        return -x if flag else x

    with pytest.raises(jax.errors.TracerBoolConversionError, match=r"(?s)negated_if at .*argument flag"):
        hkx.transform(lambda x: lifted(negated_if)(x, True)).apply({}, None, X)


def stack_of(num_layers, mapping=None, name=None):
    def f(x):
        def layer(x):
            return hkx.BatchNorm(False, False, 0.9, name="norm")(hkx.Linear(2, name="linear")(x), is_training=True)

        return hkx.layer_stack(num_layers, transparent=mapping is not None, transparency_map=mapping, name=name)(layer)(
            x
        )

    return hkx.transform_with_state(f)


class Numbered(hkx.LayerStackTransparencyMapping):
    def stacked_to_flat(self, stacked_module_name, scan_idx):
        return f"{stacked_module_name}_at_{scan_idx}"

    def flat_to_stacked(self, unstacked_module_name):
        module, _, index = unstacked_module_name.partition("_at_")
        return (module, int(index) % 10) if index else None


@pytest.mark.parametrize("before, after", [(1, 3), (3, 1)])
def test_a_stack_of_another_depth_is_named(before, after):
    x = jnp.ones([4, 2])
    params, state = stack_of(before, name="deep").init(0, x)
    model = stack_of(after, name="deep")
    own_params, own_state = model.init(0, x)
    with pytest.raises(
        errors.MappedSizeError, match=rf"parameter 'deep/linear/[bw]' has shape \({before}, .*size {after}"
    ):
        model.apply(params, own_state, None, x)
    with pytest.raises(errors.MappedSizeError, match=rf"state 'deep/norm/~/.*' has shape \({before},.*size {after}"):
        model.apply(own_params, state, None, x)


def test_a_layer_that_a_transparent_stack_lacks_is_named():
    x, mapping = jnp.ones([4, 2]), Numbered()
    model = stack_of(3, mapping)
    params, state = model.init(0, x)
    w = params["linear_at_0"]["w"]

    def fails(error, text, params, state=state):
        with pytest.raises(error, match=text):
            model.apply(params, state, None, x)

    renamed = {name.replace("_at_2", "_at_3"): entries for name, entries in params.items()}  # 0, 1, 3 for 0, 1, 2
    fails(errors.MissingParameterError, r"no parameter 'linear_at_2/[bw]' \(shape \(2.*\n.*'linear_at_3/[bw]'", renamed)
    renamed = {name.replace("_at_2", "_at_3"): entries for name, entries in state.items()}
    fails(
        errors.MissingStateError,
        r"No value for state 'norm_at_2/~/|No value for state 'norm/~/.*_at_2/",
        params,
        renamed,
    )
    fails(errors.MissingParameterError, "'linear_at_1/b'", {**params, "linear_at_1": {"w": w}})
    fails(errors.ShapeMismatchError, "'linear_at_2/w' with .*shape", {**params, "linear_at_2": {"w": w[:1], "b": w[0]}})
    fails(
        errors.MappedSizeError, "linear/[bw]' has shape .4, .*size 3", {**params, "linear_at_3": params["linear_at_2"]}
    )
    fails(errors.LayerFunctionError, "'linear_at_12' for layer 2", {**params, "linear_at_12": {"w": w + 1, "b": w[0]}})


def block(x: Any, train: Any) -> Any:
    h = hkx.Linear(3)(x)
    return 2 * h if train else h


FLAGS = {
    "remat": (lambda x: hkx.remat(block)(x, True), "`hkx.remat(block, static_argnums=(1,))`"),
    "remat, by name": (lambda x: hkx.remat(block)(x, train=True), "Close over a flag"),
    "remat of a number": (lambda x: hkx.remat(block)(x, 3), "`hkx.remat(block, static_argnums=(1,))`"),
    "remat in grad": (
        lambda x: hkx.grad(lambda x: hkx.remat(block)(x, np.True_).sum())(x),
        "`hkx.remat(block, static_argnums=(1,))`",
    ),
    "remat of an array": (
        lambda x: hkx.remat(block)(x, jnp.array(True)),
        "a Python value, a static argument: `hkx.remat(block, static_argnums=(1,))`",
    ),
    "remat of NumPy's array": (
        lambda x: hkx.remat(block)(x, np.array(True)),
        "`hkx.remat(block, static_argnums=(1,))`",
    ),
    "remat of a dict": (
        lambda x: hkx.remat(lambda x, flags: block(x, flags["train"]))(x, {"train": True}),
        "static_argnums=(1,))`",
    ),
    "jit of an array": (lambda x: hkx.jit(block)(x, jnp.array(True)), "`hkx.jit(block, static_argnums=(1,))`"),
    "jit": (lambda x: hkx.jit(block)(x, True), "`hkx.jit(block, static_argnums=(1,))`"),
    "jit, by name": (lambda x: hkx.jit(block)(x, train=True), "`hkx.jit(block, static_argnames=('train',))`"),
    "layer_stack": (lambda x: hkx.layer_stack(2)(block)(x, True), "`hkx.layer_stack`, close over it"),
    "vmap": (
        lambda x: hkx.vmap(block, split_rng=False)(x, jnp.array([True, False])),
        "`hkx.vmap`, close over it",
    ),
    "scan": (
        lambda x: hkx.scan(lambda c, t: (block(c, t), None), x, jnp.array([True, False]))[0],
        "`hkx.scan`, close over it",
    ),
    "fori_loop": (lambda x: hkx.fori_loop(0, 2, lambda i, c: block(c, i > 0), x), "`hkx.fori_loop`, close over it"),
    "cond": (lambda x: hkx.cond(x.sum() > 0, block, lambda x, _: x, x, True), "`hkx.cond`, close over it"),
    "remat in scan": (
        lambda x: hkx.scan(lambda c, _: (hkx.remat(block)(c, True), None), x, None, length=2)[0],
        "`hkx.remat(block, static_argnums=(1,))`",
    ),
    "scan around remat": (
        lambda x: hkx.scan(lambda c, t: (hkx.remat(block)(c, t), None), x, jnp.array([True, False]))[0],
        "`hkx.scan`, close over it",
    ),
}


def notes_of(error: Any) -> str:
    return "\n".join(getattr(error.value, "__notes__", []))


@pytest.mark.parametrize("name", FLAGS)
def test_a_python_flag_is_refused_by_init_too_and_its_note_names_what_traced_it(name: str) -> None:
    f, cure = FLAGS[name]
    model, x = hkx.transform(f), jnp.ones([2, 3])
    params = hkx.transform(lambda x: block(x, True)).init(0, x)
    if name == "layer_stack":
        params = {"__layer_stack_no_per_layer/linear": jax.tree.map(lambda w: jnp.stack([w, w]), params["linear"])}
    for run in (lambda: model.init(0, x), lambda: model.apply(params, None, x)):
        with pytest.raises(jax.errors.TracerBoolConversionError) as error:
            run()
        assert cure in notes_of(error) and "jax.jit" not in notes_of(error)


def test_a_flag_that_jit_traces_is_that_of_jit() -> None:
    x = jnp.ones([2, 3])
    for f in (hkx.remat(block), lambda x, train: hkx.grad(lambda x: block(x, train).sum())(x)):
        model = hkx.transform(f)
        params = hkx.transform(lambda x: block(x, True)).init(0, x)
        with pytest.raises(jax.errors.TracerBoolConversionError) as error:
            jax.jit(model.apply)(params, None, x, True)
        assert "jax.jit(model.apply, static_argnames=" in notes_of(error) and "`hkx.remat`" not in notes_of(error)


def test_a_flag_in_a_loop_may_be_that_of_jit() -> None:
    """Nothing tells whether the loop or `jax.jit` traces what is closed over: the notes name both."""
    f = lambda x, train: hkx.scan(lambda c, _: (block(c, train), None), x, None, length=2)[0]  # noqa: E731
    params = hkx.transform(lambda x: block(x, True)).init(0, x := jnp.ones([2, 3]))
    with pytest.raises(jax.errors.TracerBoolConversionError) as error:
        jax.jit(hkx.transform(f).apply)(params, None, x, True)
    assert "`hkx.scan`, close over it" in notes_of(error) and "jax.jit(model.apply" in notes_of(error)


def test_flags_that_are_static_or_closed_over_work() -> None:
    x = jnp.ones([2, 3])
    for f in (
        lambda x: hkx.remat(block, static_argnums=(1,))(x, True),
        lambda x: hkx.remat(lambda x: block(x, True))(x),
        lambda x: hkx.jit(block, static_argnames=("train",))(x, train=True),
        lambda x: hkx.remat(lambda x, scale: block(x, True) * scale)(x, 0.5),
    ):
        model = hkx.transform(f)
        assert list(params := model.init(0, x)) == ["linear"] and model.apply(params, None, x).shape == (2, 3)
