"""What functions that hkx makes from others say of their arguments and results."""

import functools
import inspect
import typing

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hkx

ANY = typing.Any


def energy(x: jax.Array, scale: float = 2.0, *, square: bool = True) -> float:
    return (x**2 if square else x).sum() * scale


def inside(look):
    """What `look` finds inside of a transformed function."""
    found = []
    hkx.transform_with_state(lambda: found.append(look())).apply({}, {}, 0)
    return found[0]


def shape_of(signature):
    """A signature without its annotations."""
    plain = [p.replace(annotation=p.empty) for p in signature.parameters.values()]
    return str(inspect.Signature(plain))


MESH = jax.make_mesh((1,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
ALL = "(x, scale=2.0, *, square=True)"
SIGNATURES = {
    "grad": (lambda: hkx.grad(energy), ALL, ANY),
    "value_and_grad": (lambda: hkx.value_and_grad(energy), ALL, tuple[float, ANY]),
    "remat": (lambda: hkx.remat(energy), ALL, float),
    "jit": (lambda: hkx.jit(energy), ALL, float),
    "vmap": (lambda: hkx.vmap(energy, split_rng=False), ALL, inspect.Signature.empty),
    "layer_stack": (lambda: hkx.layer_stack(3)(energy), "(x, scale=2.0, /, *, reverse=False)", float),
    "shard_map": (
        lambda: hkx.shard_map(energy, mesh=MESH, in_specs=jax.P(), out_specs=jax.P()),
        "(x, scale=2.0, /)",
        float,
    ),
    "custom_jvp": (lambda: hkx.custom_jvp(energy), ALL, float),
    "custom_vjp": (lambda: hkx.custom_vjp(energy), ALL, float),
    "purify": (lambda: hkx.purify(energy), "(carry, x, scale=2.0, *, square=True)", tuple[float, hkx.Carry]),
    "to_module": (lambda: hkx.to_module(energy)(), ALL, float),
    "to_module, unbound": (
        lambda: hkx.to_module(energy).__call__,
        "(self, x, scale=2.0, *, square=True)",
        float,
    ),
    "lift": (lambda: hkx.lift(hkx.transform(energy).init), "(rng, x, scale=2.0, *, square=True)", hkx.Params),
    "transparent_lift": (
        lambda: hkx.transparent_lift(hkx.transform(energy).init),
        "(rng, x, scale=2.0, *, square=True)",
        hkx.Params,
    ),
    "tabulate of a pair": (lambda: hkx.tabulate(hkx.transform(energy)), ALL, None),
    "eval_summary": (lambda: hkx.eval_summary(energy), ALL, None),
    "to_dot": (lambda: hkx.to_dot(energy), ALL, str),
    "capture_intermediates": (lambda: hkx.capture_intermediates(energy), ALL, None),
}


@pytest.mark.parametrize("name", SIGNATURES)
def test_wrappers_say_what_they_take_and_return(name):
    make, arguments, result = SIGNATURES[name]
    signature = inside(lambda: inspect.signature(make()))
    assert shape_of(signature) == arguments
    if result is None:
        assert signature.return_annotation is not float
    else:
        assert signature.return_annotation == result


def test_auxiliary_results_are_the_second():
    def with_aux(x) -> tuple[float, dict[str, int]]:
        return x, {}

    gradient, both = hkx.grad(with_aux, has_aux=True), hkx.value_and_grad(with_aux, has_aux=True)
    assert inspect.signature(gradient).return_annotation == tuple[ANY, dict[str, int]]
    assert inspect.signature(both).return_annotation == tuple[tuple[float, dict[str, int]], ANY]
    assert inspect.signature(hkx.grad(lambda x: (x, 1), has_aux=True)).return_annotation == tuple[ANY, ANY]


def test_type_hints_are_those_of_the_signature():
    assert "return" not in typing.get_type_hints(hkx.vmap(energy, split_rng=False))
    assert typing.get_type_hints(hkx.value_and_grad(energy))["return"] == tuple[float, ANY]
    assert typing.get_type_hints(hkx.grad(energy))["x"] is jax.Array


def test_functions_without_a_signature_have_none_afterwards():
    assert hkx.grad(jnp.sin)(0.0) == 1.0
    with pytest.raises(ValueError, match="signature"):
        inspect.signature(hkx.grad(type("NoSignature", (), {"__signature__": None, "__call__": max})()))


def test_the_stacked_function_takes_what_its_signature_says():
    stack = hkx.layer_stack(2, pass_reverse_to_layer_fn=True)(lambda x, *, reverse: x - 1 if reverse else x + 1)
    assert shape_of(inspect.signature(stack)) == "(x, /, *, reverse=False)"
    assert (stack(0.0), stack(0.0, reverse=True)) == (2.0, -2.0)


CLASHES = [
    (lambda params, rng, x: params + rng + x, "(params, rng, params_, rng_, /, x)"),
    (lambda rng, x: rng + x, "(params, rng, rng_, /, x)"),
    (lambda x, params: x + params, "(params, rng, x, params_, /)"),
    (lambda params, params_: params + params_, "(params, rng, params__, /, params_)"),
    (lambda *params, **rng: sum(params), "(params, rng, *params_, **rng_)"),
    (lambda x, *, rng=None: x, "(params, rng, x)"),
]


@pytest.mark.parametrize("f, expected", CLASHES)
def test_arguments_of_the_names_that_the_transform_adds(f, expected):
    model = hkx.transform(f)
    signature = inspect.signature(model.apply)
    assert shape_of(signature) == expected
    own = [p for p in list(signature.parameters.values())[2:] if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    args = list(range(1, len(own) + 1))
    signature.bind({}, None, *args)
    assert model.apply({}, None, *args) == f(*args)
    for other in (hkx.with_empty_state(model), hkx.transform_with_state(f)):
        names = list(inspect.signature(other.apply).parameters)
        assert names == ["params", "state", *list(signature.parameters)[1:]]
    assert "rng" not in inspect.signature(hkx.without_apply_rng(model).apply).parameters


def test_a_state_of_the_users_own():
    model = hkx.with_empty_state(hkx.transform(lambda x, state: x + state))
    assert shape_of(inspect.signature(model.apply)) == "(params, state, rng, x, state_, /)"
    assert model.apply({}, {}, None, 1, 2) == (3, {})


def test_wrapped_functions_keep_name_and_docstring():
    assert hkx.grad(energy).__name__ == "energy" and hkx.layer_stack(2)(energy).__doc__ == energy.__doc__


@pytest.mark.parametrize(
    "transform",
    [
        hkx.transform,
        lambda f: hkx.without_state(hkx.transform_with_state(f)),
        lambda f: hkx.transform(f, apply_rng=False),
    ],
)
def test_a_state_given_by_name_is_refused_as_haiku_does(transform):
    model = transform(lambda state: state)
    with pytest.raises(TypeError, match=r"'state' by name.*pass them positionally"):
        model.apply({}, state=1) if "rng" not in inspect.signature(model.apply).parameters else model.apply(
            params={}, rng=None, state=1
        )
    rng = [None] if "rng" in inspect.signature(model.apply).parameters else []
    assert model.apply({}, *rng, 1) == 1
    assert inspect.signature(hkx.transform(lambda x, state: x).apply).parameters["state"].kind.name == "POSITIONAL_ONLY"


@pytest.mark.parametrize("transform", [hkx.transform, hkx.transform_with_state])
def test_a_key_given_by_name_where_there_is_none_is_refused_as_haiku_does(transform):
    model = hkx.without_apply_rng(transform(lambda rng: rng))
    with pytest.raises(TypeError, match="pass them positionally"):
        model.apply(params=None, state=None, rng=None)


def test_compiled_programs_are_called_as_with_haiku():
    haiku = pytest.importorskip("haiku")
    for transform in ("transform", "transform_with_state"):
        theirs, ours = getattr(haiku, transform)(energy), getattr(hkx, transform)(energy)
        assert (ours.init.__name__, ours.apply.__name__) == (theirs.init.__name__, theirs.apply.__name__)
    assert hkx.to_module(lambda x: x).__doc__ == haiku.to_module(lambda x: x).__doc__


def test_pairs_tell_the_function_that_they_were_made_of():
    model, with_state = hkx.transform(energy), hkx.transform_with_state(energy)
    for f in (model, with_state):
        for pair in (f, hkx.without_apply_rng(f)):
            assert pair.init._original_fn is energy and pair.apply._original_fn is energy
    for pair in (hkx.without_state(with_state), hkx.with_empty_state(model)):
        assert pair.init._original_fn is energy and pair.apply._original_fn is energy


def test_the_keys_of_immutable_dicts_are_shown_without_values():
    assert (
        repr(hkx.data_structures.to_immutable_dict({"a": {"w": 1}, "b": {}}).keys()) == "KeysOnlyKeysView(['a', 'b'])"
    )


def test_annotations_that_are_text_are_read_where_they_were_written():
    written = """
from __future__ import annotations
from numpy import float32 as Number
def f(x: Number, later: Missing, some: list["Number"], *, flag: bool = True) -> Number: ...
"""
    names: dict = {}
    exec(written, names)
    for fun in (names["f"], functools.partial(names["f"], flag=False)):
        model, with_state = hkx.transform(fun), hkx.transform_with_state(fun)
        for function in (model.init, model.apply, with_state.apply):
            hints = typing.get_type_hints(function)  # of dm-haiku's functions it gives types, too
            assert hints["x"] is np.float32 and hints["flag"] is bool and "later" not in hints
            assert hints["some"] == list[np.float32]
        assert typing.get_type_hints(model.apply)["return"] is np.float32
        assert typing.get_type_hints(with_state.apply)["return"].__args__[0] is np.float32
        assert "later: 'Missing'" in str(inspect.signature(model.apply))
