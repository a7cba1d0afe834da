"""Every named error of hkx: code that raises it, and what to write. Run as a program, it writes docs/errors.md.

The page shows the messages as they come out; tests/test_error_catalogue.py holds the code and the page to them.
"""

import pathlib
import textwrap

PAGE = pathlib.Path(__file__).parents[1] / "docs" / "errors.md"
BASES = {"HkxError", "JaxUsageError"}  # what the others are subclasses of

BEGINNING = """\
import hkx
import jax
import jax.numpy as jnp
import numpy as np

key, x = jax.random.key(0), jnp.ones([4, 8])
"""

# By theme and name: the code that raises it, and the right code.
CATALOGUE = {
    "Modules and names": {
        "NotInTransformError": (
            "hkx.Linear(3)(x)",
            "model = hkx.transform(lambda x: hkx.Linear(3)(x))\ny = model.apply(model.init(key, x), None, x)",
        ),
        "MissingSuperInitError": (
            """
            class Layer(hkx.Module):
                def __init__(self):
                    self.linear = hkx.Linear(3)


            hkx.transform(lambda: Layer()).init(key)
            """,
            """
            class Layer(hkx.Module):
                def __init__(self, name=None):
                    super().__init__(name=name)
                    self.linear = hkx.Linear(3)


            hkx.transform(lambda: Layer() and None).init(key)
            """,
        ),
        "InvalidNameError": (
            'hkx.transform(lambda x: hkx.Linear(3, name="to 3")(x)).init(key, x)',
            'hkx.transform(lambda x: hkx.Linear(3, name="to_3")(x)).init(key, x)',
        ),
        "NotANameError": (
            "hkx.transform(lambda x: hkx.Linear(3, name=3)(x)).init(key, x)",
            'hkx.transform(lambda x: hkx.Linear(3, name="three")(x)).init(key, x)',
        ),
        "DuplicateNameError": (
            """
            def f(x):
                return hkx.Linear(3, name="out_1")(x) + hkx.Linear(3, name="out_1")(x)


            hkx.transform(f).init(key, x)
            """,
            """
            def f(x):
                return hkx.Linear(3, name="out")(x) + hkx.Linear(3, name="out")(x)  # out and out_1


            hkx.transform(f).init(key, x)
            """,
        ),
        "UsedScopeError": (
            """
            def f(x):
                scope = hkx.name_scope("encoder")
                with scope:
                    x = hkx.Linear(3)(x)
                with scope:
                    return hkx.Linear(3)(x)


            hkx.transform(f).init(key, x)
            """,
            """
            def f(x):
                with hkx.name_scope("encoder"):
                    x = hkx.Linear(3)(x)
                    return hkx.Linear(3)(x)


            hkx.transform(f).init(key, x)
            """,
        ),
        "NameExpectedError": (
            "hkx.transform(lambda x: hkx.to_module(jnp.tanh)(x)).init(key, x)",
            'hkx.transform(lambda x: hkx.to_module(jnp.tanh)("tanh")(x)).init(key, x)',
        ),
        "NoSuchAttributeError": (
            "hkx.transform(lambda x: hkx.Linear(3).weight).init(key, x)",
            'params = hkx.transform(lambda x: hkx.Linear(3)(x)).init(key, x)\nweight = params["linear"]["w"]',
        ),
        "NotCallableError": (
            """
            class Layer(hkx.Module):
                def forward(self, x):
                    return hkx.Linear(3)(x)


            hkx.transform(lambda x: Layer()(x)).init(key, x)
            """,
            """
            class Layer(hkx.Module):
                def __call__(self, x):
                    return hkx.Linear(3)(x)


            hkx.transform(lambda x: Layer()(x)).init(key, x)
            """,
        ),
    },
    "Functions that are transformed": {
        "NotAFunctionError": (
            "hkx.transform(lambda x: hkx.map(3, x)).init(key, x)",
            "hkx.transform(lambda x: hkx.map(jnp.tanh, x)).init(key, x)",
        ),
        "JitInTransformError": (
            "hkx.transform(jax.jit(lambda x: hkx.Linear(3)(x)))",
            "model = hkx.transform(lambda x: hkx.Linear(3)(x))\njax.jit(model.apply)(model.init(key, x), None, x)",
        ),
        "InvalidTransformedError": (
            "hkx.without_apply_rng(lambda x: x)",
            "hkx.without_apply_rng(hkx.transform(lambda x: x))",
        ),
        "InvalidTemplateError": (
            "hkx.multi_transform(lambda: hkx.Linear(3)).init(key, x)",
            "hkx.multi_transform(lambda: (lambda x: hkx.Linear(3)(x), (jnp.tanh, jnp.exp))).init(key, x)",
        ),
        "InvalidRNGError": (
            "hkx.transform(lambda x: hkx.Linear(3)(x)).init(x, x)",
            "hkx.transform(lambda x: hkx.Linear(3)(x)).init(jax.random.key(0), x)",
        ),
        "InvalidParamsError": (
            "hkx.transform(lambda x: hkx.Linear(3)(x)).apply(x, None, x)",
            "model = hkx.transform(lambda x: hkx.Linear(3)(x))\nmodel.apply(model.init(key, x), None, x)",
        ),
        "NonEmptyStateError": (
            "hkx.transform(lambda x: hkx.BatchNorm(True, True, 0.9)(x, True)).init(key, x)",
            "hkx.transform_with_state(lambda x: hkx.BatchNorm(True, True, 0.9)(x, True)).init(key, x)",
        ),
        "AbstractInitError": (
            """
            model = hkx.transform(lambda x: hkx.get_parameter("mean", [8], init=lambda *_: x.mean(0)))
            model.init(key, jax.ShapeDtypeStruct([4, 8], jnp.float32))
            """,
            """
            model = hkx.transform(lambda x: hkx.get_parameter("mean", [8], init=lambda *_: x.mean(0)))
            model.init(key, x)
            """,
        ),
        "LeakedByInitError": (
            """
            seen = []


            def f(x):
                h = hkx.Linear(3)(x)
                seen.append(("hidden", h))
                return h


            hkx.transform(f).init(key, x)
            """,
            """
            seen = []


            def f(x):
                h = hkx.Linear(3)(x)
                seen.append(h)
                return h


            hkx.transform(f).init(key, x)
            """,
        ),
        "InitDependsOnTracingError": (
            """
            def f(x):
                traced = isinstance(x.sum(), jax.core.Tracer)
                return hkx.Linear(9 if traced else 3)(x)


            hkx.transform(f, init="check").init(key, x)
            """,
            """
            def f(x):
                return hkx.Linear(3)(x)


            hkx.transform(f, init="check").init(key, x)
            """,
        ),
        "StrictUsageError": (
            """
            def f(x):
                return jax.vmap(lambda row: hkx.Linear(3)(row))(x)


            with hkx.config.context(check_jax_usage=True):
                hkx.transform(f).init(key, x)
            """,
            """
            def f(x):
                return hkx.vmap(lambda row: hkx.Linear(3)(row), split_rng=False)(x)


            with hkx.config.context(check_jax_usage=True):
                hkx.transform(f).init(key, x)
            """,
        ),
    },
    "Parameters, state and keys": {
        "MissingParameterError": (
            """
            params = hkx.transform(lambda x: hkx.Linear(3)(x)).init(key, x)
            hkx.transform(lambda x: hkx.Linear(3, name="liner")(x)).apply(params, None, x)
            """,
            """
            model = hkx.transform(lambda x: hkx.Linear(3)(x))
            model.apply(model.init(key, x), None, x)  # of the same function
            """,
        ),
        "ShapeMismatchError": (
            """
            model = hkx.transform(lambda x: hkx.Linear(3)(x))
            model.apply(model.init(key, x), None, jnp.ones([4, 5]))
            """,
            """
            model = hkx.transform(lambda x: hkx.Linear(3)(x))
            model.apply(model.init(key, x), None, jnp.ones([7, 8]))  # as many features as in init
            """,
        ),
        "MissingInitializerError": (
            'hkx.transform(lambda: hkx.get_parameter("w", [3])).init(key)',
            'hkx.transform(lambda: hkx.get_parameter("w", [3], init=jnp.zeros)).init(key)',
        ),
        "InvalidInitializerError": (
            'hkx.transform(lambda: hkx.get_parameter("w", [3], init=0.0)).init(key)',
            'hkx.transform(lambda: hkx.get_parameter("w", [3], init=jnp.zeros)).init(key)',
        ),
        "InvalidShapeError": (
            'hkx.transform(lambda: hkx.get_parameter("w", 3, init=jnp.zeros)).init(key)',
            'hkx.transform(lambda: hkx.get_parameter("w", [3], init=jnp.zeros)).init(key)',
        ),
        "InvalidDTypeError": (
            'hkx.transform(lambda: hkx.get_parameter("w", [3], "flaot32", jnp.zeros)).init(key)',
            'hkx.transform(lambda: hkx.get_parameter("w", [3], "float32", jnp.zeros)).init(key)',
        ),
        "InvalidEntryNameError": (
            "hkx.transform(lambda: hkx.get_parameter(3, [3], init=jnp.zeros)).init(key)",
            'hkx.transform(lambda: hkx.get_parameter("w", [3], init=jnp.zeros)).init(key)',
        ),
        "NotAnArrayError": (
            'hkx.transform(lambda: hkx.get_parameter("w", [], init=lambda *_: 3.0)).init(key)',
            'hkx.transform(lambda: hkx.get_parameter("w", [], init=lambda *_: jnp.asarray(3.0))).init(key)',
        ),
        "MissingStateError": (
            'hkx.transform_with_state(lambda: hkx.get_state("count")).init(key)',
            'hkx.transform_with_state(lambda: hkx.get_state("count", [], init=jnp.zeros)).init(key)',
        ),
        "MissingAverageError": (
            """
            model = hkx.transform_with_state(lambda x: hkx.BatchNorm(True, True, 0.9)(x, is_training=False))
            params, state = model.init(key, x)
            """,
            """
            model = hkx.transform_with_state(lambda x, is_training: hkx.BatchNorm(True, True, 0.9)(x, is_training))
            params, state = model.init(key, x, True)
            model.apply(params, state, None, x, False)
            """,
        ),
        "MissingRNGError": (
            "hkx.transform(lambda x: hkx.dropout(hkx.next_rng_key(), 0.5, x)).apply({}, None, x)",
            "hkx.transform(lambda x: hkx.dropout(hkx.next_rng_key(), 0.5, x)).apply({}, key, x)",
        ),
        "NotAParameterTreeError": (
            "hkx.transform_with_state(lambda: hkx.EMAParamsTree(0.9)([1.0])).init(key)",
            """
            params = {"linear": {"w": jnp.ones(3)}}
            hkx.transform_with_state(lambda p: hkx.EMAParamsTree(0.9)(p)).init(key, params)
            """,
        ),
        "NotAStructureError": (
            'hkx.data_structures.filter(lambda module, name, value: name == "w", [1.0])',
            'hkx.data_structures.filter(lambda module, name, value: name == "w", {"linear": {"w": x}})',
        ),
    },
    "JAX's own transforms inside of a function": {
        "ParameterInInnerTraceError": (
            """
            def f(x):
                return jax.lax.scan(lambda h, row: (h, hkx.Linear(3)(row)), 0.0, x)


            hkx.transform(f).init(key, x)
            """,
            """
            def f(x):
                return hkx.scan(lambda h, row: (h, hkx.Linear(3)(row)), 0.0, x)


            hkx.transform(f).init(key, x)
            """,
        ),
        "StateInInnerTraceError": (
            """
            def f(x):
                def step(h, row):
                    hkx.set_state("last", row)
                    return h, row

                return jax.lax.scan(step, 0.0, x)


            hkx.transform_with_state(f).init(key, x)
            """,
            """
            def f(x):
                def step(h, row):
                    hkx.set_state("last", row)
                    return h, row

                return hkx.scan(step, 0.0, x)


            hkx.transform_with_state(f).init(key, x)
            """,
        ),
        "KeyInInnerTraceError": (
            """
            def f(x):
                return jax.lax.map(lambda row: hkx.dropout(hkx.next_rng_key(), 0.5, row), x)


            hkx.transform(f).apply({}, key, x)
            """,
            """
            def f(x):
                return hkx.map(lambda row: hkx.dropout(hkx.next_rng_key(), 0.5, row), x)


            hkx.transform(f).apply({}, key, x)
            """,
        ),
        "IntermediateInInnerTraceError": (
            """
            def f(x):
                tanh = hkx.to_module(jnp.tanh)("tanh")
                return jax.lax.map(tanh, x)


            hkx.transform(hkx.capture_intermediates(f)).apply({}, None, x)
            """,
            """
            def f(x):
                tanh = hkx.to_module(jnp.tanh)("tanh")
                return hkx.map(tanh, x)


            hkx.transform(hkx.capture_intermediates(f)).apply({}, None, x)
            """,
        ),
    },
    "Loops and branches": {
        "CarryMismatchError": (
            "hkx.transform(lambda x: hkx.scan(lambda h, _: (h[:2], None), x, None, 3)).init(key, x)",
            "hkx.transform(lambda x: hkx.scan(lambda h, _: (2 * h, None), x, None, 3)).init(key, x)",
        ),
        "BodyResultError": (
            "hkx.transform(lambda x: hkx.scan(lambda h, row: h + row, 0.0, x)).init(key, x)",
            "hkx.transform(lambda x: hkx.scan(lambda h, row: (h + row.sum(), row), 0.0, x)).init(key, x)",
        ),
        "ScanLengthError": (
            "hkx.transform(lambda x: hkx.scan(lambda h, _: (h, None), x)).init(key, x)",
            "hkx.transform(lambda x: hkx.scan(lambda h, _: (h, None), x, length=3)).init(key, x)",
        ),
        "LateParameterError": (
            """
            made = []


            def body(h, row):
                made.append(h)
                linear = hkx.Linear(8, name=f"layer{len(made)}")
                return linear(h), None


            hkx.transform(lambda x: hkx.scan(body, x, None, 3)).init(key, x)
            """,
            """
            def body(h, row):
                return hkx.Linear(8)(h), None  # the same in every iteration


            hkx.transform(lambda x: hkx.scan(body, x, None, 3)).init(key, x)
            """,
        ),
        "StateInLoopError": (
            """
            def body(h, row):
                hkx.set_state("seen", jnp.append(hkx.get_state("seen", [1], init=jnp.zeros), h))
                return h, None


            hkx.transform_with_state(lambda x: hkx.scan(body, 0.0, x)).init(key, x)
            """,
            """
            def body(h, row):
                hkx.set_state("seen", hkx.get_state("seen", [], init=jnp.zeros) + h)  # keeps its shape
                return h, None


            hkx.transform_with_state(lambda x: hkx.scan(body, 0.0, x)).init(key, x)
            """,
        ),
        "StateNotAnArrayError": (
            """
            def body(h, row):
                hkx.set_state("phase", "begun")
                return h, None


            hkx.transform_with_state(lambda x: hkx.scan(body, 0.0, x)).init(key, x)
            """,
            """
            def body(h, row):
                hkx.set_state("phase", jnp.int32(1))
                return h, None


            hkx.transform_with_state(lambda x: hkx.scan(body, 0.0, x)).init(key, x)
            """,
        ),
        "ArgumentNotAnArrayError": (
            """
            class Layer(hkx.Module):
                @hkx.remat
                def __call__(self, x):
                    return hkx.Linear(3)(x)


            hkx.transform(lambda x: Layer()(x)).init(key, x)
            """,
            """
            class Layer(hkx.Module):
                def __call__(self, x):
                    return hkx.Linear(3)(x)


            hkx.transform(lambda x: hkx.remat(Layer())(x)).init(key, x)
            """,
        ),
        "ConditionEffectError": (
            """
            def go_on(x):
                return x.sum() < 99 + jax.random.uniform(hkx.next_rng_key())


            hkx.transform(lambda x: hkx.while_loop(go_on, lambda x: 2 * x, x)).init(key, x)
            """,
            """
            def go_on(carry):
                return carry[0].sum() < 99 + carry[1]


            def body(carry):
                return 2 * carry[0], jax.random.uniform(hkx.next_rng_key())


            hkx.transform(lambda x: hkx.while_loop(go_on, body, (x, 0.5))).init(key, x)
            """,
        ),
        "BranchMismatchError": (
            "hkx.transform(lambda x: hkx.cond(x.sum() > 0, lambda x: x, lambda x: x[:2], x)).init(key, x)",
            "hkx.transform(lambda x: hkx.cond(x.sum() > 0, lambda x: x, lambda x: -x, x)).init(key, x)",
        ),
        "BranchListError": (
            "hkx.transform(lambda x: hkx.switch(0, 2, x)).init(key, x)",
            "hkx.transform(lambda x: hkx.switch(0, [jnp.tanh, jnp.exp], x)).init(key, x)",
        ),
    },
    "vmap, stacks of layers, derivatives, lifting": {
        "MissingSplitRNGError": (
            "hkx.transform(lambda x: hkx.vmap(hkx.Linear(3))(x)).init(key, x)",
            "hkx.transform(lambda x: hkx.vmap(hkx.Linear(3), split_rng=False)(x)).init(key, x)",
        ),
        "NothingMappedError": (
            "hkx.transform(lambda x: hkx.vmap(hkx.Linear(3), in_axes=None, split_rng=False)(x)).init(key, x)",
            "hkx.transform(lambda x: hkx.vmap(hkx.Linear(3), in_axes=0, split_rng=False)(x)).init(key, x)",
        ),
        "BatchedKeysError": (
            """
            def noisy(row):
                return row + jax.random.normal(hkx.next_rng_key(), row.shape)


            def f(row):
                return hkx.cond(row.sum() > 0, noisy, jnp.negative, row)


            hkx.transform(lambda x: hkx.vmap(f, split_rng=False)(x)).init(key, x)
            """,
            """
            def noisy(row):
                return row + jax.random.normal(hkx.next_rng_key(), row.shape)


            def f(row):
                return hkx.cond(row.sum() > 0, noisy, jnp.negative, row)


            hkx.transform(lambda x: hkx.vmap(f, split_rng=True)(x)).init(key, x)
            """,
        ),
        "BatchedValueError": (
            """
            def f(row):
                hkx.set_state("last", row)
                return row


            hkx.transform_with_state(lambda x: hkx.vmap(f, split_rng=False)(x)).init(key, x)
            """,
            """
            def f(row):
                hkx.set_state("last", row)
                return row


            # each call has a state of its own, along axis 0
            hkx.transform_with_state(lambda x: hkx.vmap(f, split_rng=False, state_axes=0)(x)).init(key, x)
            """,
        ),
        "MappedSizeError": (
            """
            def f(x, members):
                return hkx.vmap(hkx.Linear(3), in_axes=None, axis_size=members, param_axes=0, split_rng=True)(x)


            params = hkx.transform(f).init(key, x, 2)
            hkx.transform(f).apply(params, key, x, 5)
            """,
            """
            def f(x, members):
                return hkx.vmap(hkx.Linear(3), in_axes=None, axis_size=members, param_axes=0, split_rng=True)(x)


            params = hkx.transform(f).init(key, x, 2)
            hkx.transform(f).apply(params, key, x, 2)
            """,
        ),
        "LayerFunctionError": (
            "hkx.transform(lambda x: hkx.layer_stack(2)(lambda *x: x)(x)).init(key, x)",
            "hkx.transform(lambda x: hkx.layer_stack(2)(lambda x: hkx.Linear(8)(x))(x)).init(key, x)",
        ),
        "LayerInputsError": (
            """
            def f(x, scales):
                return hkx.layer_stack(3, with_per_layer_inputs=True)(lambda x, s: (x * s, None))(x, scales)[0]


            hkx.transform(f).init(key, x, jnp.ones(2))
            """,
            """
            def f(x, scales):
                return hkx.layer_stack(3, with_per_layer_inputs=True)(lambda x, s: (x * s, None))(x, scales)[0]


            hkx.transform(f).init(key, x, jnp.ones(3))
            """,
        ),
        "StackError": (
            """
            params = hkx.transform(lambda x: hkx.layer_stack(2, name="blocks")(hkx.Linear(8))(x)).init(key, x)
            hkx.unstack_params(params, "block")
            """,
            """
            layer = lambda x: hkx.Linear(8)(x)
            params = hkx.transform(lambda x: hkx.layer_stack(2, name="blocks")(layer)(x)).init(key, x)
            hkx.unstack_params(params, "blocks")
            """,
        ),
        "MissingRuleError": (
            """
            double = hkx.custom_vjp(lambda x: 2 * x)
            hkx.transform(lambda x: double(x)).apply({}, None, x)
            """,
            """
            double = hkx.custom_vjp(lambda x: 2 * x)
            double.defvjp(lambda x: (2 * x, None), lambda _, g: (2 * g,))
            hkx.transform(lambda x: double(x)).apply({}, None, x)
            """,
        ),
        "LiftReuseError": (
            """
            inner = hkx.transform(lambda x: hkx.Linear(3)(x))


            def f(x):
                lifted = hkx.lift(inner.init, name="inner")
                return lifted(key, x), lifted(key, x)


            hkx.transform(f).init(key, x)
            """,
            """
            inner = hkx.transform(lambda x: hkx.Linear(3)(x))


            def f(x):
                return hkx.lift(inner.init, name="inner")(key, x), hkx.lift(inner.init, name="inner")(key, x)


            hkx.transform(f).init(key, x)
            """,
        ),
        "LiftedStateError": (
            """
            inner = hkx.transform_with_state(lambda x: hkx.BatchNorm(True, True, 0.9)(x, True))
            hkx.transform(lambda x: hkx.lift(inner.init)(key, x)).init(key, x)
            """,
            """
            inner = hkx.transform_with_state(lambda x: hkx.BatchNorm(True, True, 0.9)(x, True))


            def f(x):
                lifted, updater = hkx.lift_with_state(inner.init)
                y, state = inner.apply(*lifted(key, x), None, x)
                updater.update(state)
                return y


            hkx.transform_with_state(f).init(key, x)
            """,
        ),
        "StateUpdaterError": (
            """
            inner = hkx.transform_with_state(lambda x: hkx.BatchNorm(True, True, 0.9)(x, True))


            def f(x):
                lifted, updater = hkx.lift_with_state(inner.init)
                return inner.apply(*lifted(key, x), None, x)[0]


            hkx.transform_with_state(f).init(key, x)
            """,
            """
            inner = hkx.transform_with_state(lambda x: hkx.BatchNorm(True, True, 0.9)(x, True))


            def f(x):
                lifted, updater = hkx.lift_with_state(inner.init)
                y, state = inner.apply(*lifted(key, x), None, x)
                updater.update(state)  # or updater.ignore_update()
                return y


            hkx.transform_with_state(f).init(key, x)
            """,
        ),
        "ClosedOverModuleError": (
            """
            def f(x):
                linear = hkx.Linear(3)
                inner = hkx.transform(lambda x: linear(x))
                return hkx.transparent_lift(inner.init)(key, x)


            hkx.transform(f).init(key, x)
            """,
            """
            def f(x):
                inner = hkx.transform(lambda x: hkx.Linear(3)(x))
                return hkx.transparent_lift(inner.init)(key, x)


            hkx.transform(f).init(key, x)
            """,
        ),
    },
    "Layers": {
        "InvalidSizeError": (
            "hkx.transform(lambda x: hkx.Linear(2.5)(x)).init(key, x)",
            "hkx.transform(lambda x: hkx.Linear(2)(x)).init(key, x)",
        ),
        "InvalidInputError": (
            'hkx.transform(lambda x: hkx.Linear(3)("text")).init(key, x)',
            "hkx.transform(lambda x: hkx.Linear(3)(x)).init(key, x)",
        ),
        "InputDTypeError": (
            """
            images = np.zeros([1, 8, 8, 3], np.uint8)
            model = hkx.transform(lambda images: hkx.Conv2D(3, 3)(images))
            params = model.init(key, images.astype(np.float32))
            model.apply(params, None, images)
            """,
            """
            images = np.zeros([1, 8, 8, 3], np.uint8)
            model = hkx.transform(lambda images: hkx.Conv2D(3, 3)(images / np.float32(255)))
            params = model.init(key, images)
            model.apply(params, None, images)
            """,
        ),
        "ScalarInputError": (
            "hkx.transform(lambda x: hkx.Linear(3)(x)).init(key, 1.0)",
            "hkx.transform(lambda x: hkx.Linear(3)(x)).init(key, jnp.ones([1]))",
        ),
        "InvalidRankError": (
            "hkx.transform(lambda x: hkx.Conv2D(3, 3)(x)).init(key, x)",
            "hkx.transform(lambda x: hkx.Conv2D(3, 3)(x)).init(key, jnp.ones([1, 4, 8, 2]))",
        ),
        "NotABoolError": (
            "hkx.transform(lambda x: hkx.Linear(8, 3)(x)).init(key, x)",
            "hkx.transform(lambda x: hkx.Linear(3)(x)).init(key, x)  # the input's size is read from the input",
        ),
        "UnboundAxisError": (
            """
            model = hkx.transform_with_state(lambda x: hkx.BatchNorm(True, True, 0.9, cross_replica_axis="i")(x, True))
            params, state = model.init(key, x)
            model.apply(params, state, None, x)
            """,
            """
            model = hkx.transform_with_state(lambda x: hkx.BatchNorm(True, True, 0.9, cross_replica_axis="i")(x, True))
            params, state = model.init(key, x)
            jax.vmap(lambda x: model.apply(params, state, None, x), axis_name="i")(jnp.stack([x, x]))
            """,
        ),
        "NotAListError": (
            "hkx.transform(lambda x: hkx.Sequential(hkx.Linear(3))(x)).init(key, x)",
            "hkx.transform(lambda x: hkx.Sequential([hkx.Linear(3), jnp.tanh])(x)).init(key, x)",
        ),
        "NotANumberError": (
            'hkx.transform(lambda x: hkx.RMSNorm(-1, eps="small")(x)).init(key, x)',
            "hkx.transform(lambda x: hkx.RMSNorm(-1, eps=1e-6)(x)).init(key, x)",
        ),
        "OutOfRangeError": (
            "hkx.transform_with_state(lambda x: hkx.ExponentialMovingAverage(1.5)(x)).init(key, x)",
            "hkx.transform_with_state(lambda x: hkx.ExponentialMovingAverage(0.9)(x)).init(key, x)",
        ),
        "InvalidLengthError": (
            "hkx.transform(lambda x: hkx.Conv2D(3, [3, 3, 3])(x)).init(key, jnp.ones([1, 4, 8, 2]))",
            "hkx.transform(lambda x: hkx.Conv2D(3, [3, 3])(x)).init(key, jnp.ones([1, 4, 8, 2]))",
        ),
        "InvalidPaddingError": (
            'hkx.transform(lambda x: hkx.Conv1D(3, 3, padding="half")(x)).init(key, x[None])',
            'hkx.transform(lambda x: hkx.Conv1D(3, 3, padding="SAME")(x)).init(key, x[None])',
        ),
        "InvalidWindowError": (
            'hkx.transform(lambda x: hkx.max_pool(x, (1, 2, 2, 1), 1, "SAME")).init(key, x)',
            'hkx.transform(lambda x: hkx.max_pool(x, (2, 1), 1, "SAME")).init(key, x)',
        ),
        "InvalidReshapeError": (
            "hkx.transform(lambda x: hkx.Reshape([3, 3])(x)).init(key, x)",
            "hkx.transform(lambda x: hkx.Reshape([2, 4])(x)).init(key, x)  # the batch stays as it is",
        ),
        "MaskShapeError": (
            "hkx.transform(lambda x: hkx.Conv1D(3, 3, mask=np.ones([2, 8, 3]))(x)).init(key, x[None])",
            "hkx.transform(lambda x: hkx.Conv1D(3, 3, mask=np.ones([3, 8, 3]))(x)).init(key, x[None])",
        ),
        "LeadingDimensionsError": (
            """
            attention = lambda q, k: hkx.MultiHeadAttention(2, 4, w_init=hkx.initializers.RandomNormal())(q, k, k)
            hkx.transform(attention).init(key, jnp.ones([2, 5, 8]), jnp.ones([3, 5, 8]))
            """,
            """
            attention = lambda q, k: hkx.MultiHeadAttention(2, 4, w_init=hkx.initializers.RandomNormal())(q, k, k)
            hkx.transform(attention).init(key, jnp.ones([3, 5, 8]), jnp.ones([3, 5, 8]))
            """,
        ),
        "FeatureSizeError": (
            "hkx.transform(lambda x: hkx.nets.VectorQuantizer(3, 10, 0.25)(x, True)).init(key, x)",
            "hkx.transform(lambda x: hkx.nets.VectorQuantizer(8, 10, 0.25)(x, True)).init(key, x)",
        ),
        "UnusedNameError": (
            'hkx.transform(lambda x: hkx.WeightNorm(hkx.Linear(3), "kernel")(x)).init(key, x)',
            'hkx.transform(lambda x: hkx.WeightNorm(hkx.Linear(3), "w")(x)).init(key, x)',
        ),
        "UnknownLookupStyleError": (
            'hkx.transform(lambda i: hkx.Embed(9, 4, lookup_style="hash")(i)).init(key, jnp.arange(3))',
            'hkx.transform(lambda i: hkx.Embed(9, 4, lookup_style="ONE_HOT")(i)).init(key, jnp.arange(3))',
        ),
        "StateShapeError": (
            """
            model = hkx.transform_with_state(lambda x, training: hkx.BatchNorm(False, False, 0.9)(x, training))
            params, state = model.init(key, x, True)
            model.apply(params, state, None, x[:, :3], False)
            """,
            """
            model = hkx.transform_with_state(lambda x, training: hkx.BatchNorm(False, False, 0.9)(x, training))
            params, state = model.init(key, x, True)
            model.apply(params, state, None, x, False)
            """,
        ),
        "InvalidCoreStateError": (
            "hkx.transform(lambda x: hkx.LSTM(3)(x, None)).init(key, x)",
            """
            def f(x):
                core = hkx.LSTM(3)
                return core(x, core.initial_state(batch_size=4))


            hkx.transform(f).init(key, x)
            """,
        ),
    },
    "Many devices, other libraries": {
        "ShardingRuleError": (
            """
            mesh = jax.make_mesh((1,), ("model",), axis_types=(jax.sharding.AxisType.Auto,))
            params = hkx.transform(lambda x: hkx.Linear(3)(x)).init(key, x)
            hkx.sharding.shardings(params, mesh, {"linear/w": jax.P("data")})
            """,
            """
            mesh = jax.make_mesh((1,), ("model",), axis_types=(jax.sharding.AxisType.Auto,))
            params = hkx.transform(lambda x: hkx.Linear(3)(x)).init(key, x)
            hkx.sharding.shardings(params, mesh, {"linear/w": jax.P(None, "model")})
            """,
        ),
        "UnevenBatchError": (
            "hkx.sharding.shard_batch(jnp.ones([3, 2]), 2 * jax.local_devices()[:1])",
            "hkx.sharding.shard_batch(jnp.ones([4, 2]), jax.local_devices()[:1])",
        ),
        "PretrainedConfigError": (
            """
            sizes = {"vocab_size": 256, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
            config = {"model_type": "llama", "intermediate_size": 96, "logits_scaling": 8.0, **sizes}
            hkx.nets.DecoderConfig.from_pretrained(config)
            """,
            """
            sizes = {"vocab_size": 256, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
            config = {"model_type": "llama", "intermediate_size": 96, **sizes}
            hkx.nets.DecoderConfig.from_pretrained(config)
            """,
        ),
        "WeightMismatchError": (
            """
            from hkx.interop.torch import from_state_dict

            params = hkx.transform(lambda x: hkx.Linear(3)(x)).init(key, x)
            from_state_dict({"fc.weight": np.ones([3, 8])}, params)
            """,
            """
            from hkx.interop.torch import from_state_dict

            params = hkx.transform(lambda x: hkx.Linear(3)(x)).init(key, x)
            from_state_dict({"fc.weight": np.ones([3, 8]), "fc.bias": np.ones(3)}, params)
            """,
        ),
    },
}


def entries():
    """(name, wrong code, right code) of every error."""
    for errors in CATALOGUE.values():
        for name, (wrong, right) in errors.items():
            yield name, textwrap.dedent(wrong).strip(), textwrap.dedent(right).strip()


def run(code):
    """What a piece of code raises, as (name, text), or None."""
    variables = {}
    exec(BEGINNING, variables)
    try:
        exec(code, variables)
    except Exception as error:
        return type(error).__name__, str(error.args[0])
    return None


def wrapped(message):
    """A message in lines that fit into a column."""
    fill = textwrap.TextWrapper(width=76, break_long_words=False, break_on_hyphens=False).fill
    return "\n".join(
        fill(line) if len(line) > 76 and not line.startswith(" ") else line for line in message.split("\n")
    )


def page():
    """The text of docs/errors.md."""
    import hkx

    code = {name: (wrong, right) for name, wrong, right in entries()}
    lines = [
        "# Errors",
        "",
        "This page lists every named exception of hkx, with code that raises it, its message, and what to write",
        "instead. To find a message, search for its beginning. All exceptions are in `hkx.errors`. Each is a subclass",
        "of `HkxError`, and of one built-in exception: the one that Haiku raises in its place, else `ValueError` or",
        "`TypeError`. The tests run the code of this page and check the messages. Every example begins with these",
        "lines:",
        "",
        "```py",
        BEGINNING.rstrip(),
        "```",
    ]
    for theme, errors in CATALOGUE.items():
        lines += ["", f"## {theme}"]
        for name in errors:
            wrong, right = code[name]
            raised, message = run(wrong)
            if raised != name:  # a library that it needs is not installed, for example
                raise SystemExit(f"The code for {name} raised {raised}: {message}")
            lines += ["", f"### {name}", "", getattr(hkx.errors, name).__doc__.strip().partition("\n")[0], ""]
            lines += [
                "```py",
                wrong,
                "```",
                "",
                "```text",
                wrapped(message),
                "```",
                "",
                "Instead:",
                "",
                "```py",
                right,
                "```",
            ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
