"""Wrong use: each has an exception of its own, of the built-in type that programs catch, that says what to write."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hkx
from hkx import errors

X = np.ones([2, 3], np.float32)
LINEAR = hkx.transform(lambda x: hkx.Linear(2)(x))


class LateSuper(hkx.Module):
    def __init__(self):
        hkx.get_parameter("w", [], init=jnp.zeros)
        super().__init__()


@dataclasses.dataclass
class NoSuperDataclass(hkx.Module):
    size: int = 3

    def __post_init__(self):
        self.half = self.size / 2


@dataclasses.dataclass
class LateSuperDataclass(hkx.Module):
    layer: hkx.Module = dataclasses.field(default_factory=lambda: hkx.Linear(1))


def good_params():
    return LINEAR.init(jax.random.key(0), X)


def twice():
    hkx.get_parameter("w", [1], init=jnp.zeros)
    hkx.get_parameter("w", [2], init=jnp.zeros)


CASES = {
    "parameter outside": (
        lambda: hkx.get_parameter("w", [], init=jnp.zeros),
        errors.NotInTransformError,
        ValueError,
        ["hkx.get_parameter", "model.init(jax.random.key(0), x)"],
    ),
    "late super": (
        lambda: hkx.transform(LateSuper).init(None),
        errors.MissingSuperInitError,
        ValueError,
        ["LateSuper.__init__", "before", "super().__init__("],
    ),
    "no super, dataclass": (
        lambda: hkx.transform(NoSuperDataclass).init(None),
        errors.MissingSuperInitError,
        ValueError,
        [
            "`NoSuperDataclass.__post_init__` does not call",
            "first line of its __post_init__",
            "super().__post_init__()",
        ],
    ),
    "late super, dataclass": (
        lambda: hkx.transform(LateSuperDataclass).init(None),
        errors.MissingSuperInitError,
        ValueError,
        ["The dataclass `LateSuperDataclass`", "not in the `default_factory`", "super().__post_init__()"],
    ),
    "missing parameter": (
        lambda: LINEAR.apply({}, None, X),
        errors.MissingParameterError,
        ValueError,
        ["linear/w", "(3, 2)", "float32", "no parameters at all"],
    ),
    "asked twice": (
        lambda: hkx.transform(twice).init(None),
        errors.ShapeMismatchError,
        ValueError,
        ["~/w", "(1,)", "[2]", "twice"],
    ),
    "not an array": (
        lambda: LINEAR.apply({"linear": {"w": [[1.0]], "b": 0.0}}, None, X),
        errors.NotAnArrayError,
        ValueError,
        ["linear/w", "list", "jnp.asarray"],
    ),
    "no state": (
        lambda: hkx.transform_with_state(lambda: hkx.get_state("counter")).apply({}, {"~": {"conter": 1}}, None),
        errors.MissingStateError,
        ValueError,
        ["~/counter", "~/conter", "init="],
    ),
    "state without shape": (
        lambda: hkx.transform_with_state(lambda: hkx.get_state("n", init=jnp.zeros)).init(None),
        errors.MissingStateError,
        ValueError,
        ["~/n", "shape"],
    ),
    "state without transform_with_state, apply": (
        lambda: hkx.transform(lambda: hkx.set_state("n", 1)).apply({}, None),
        errors.NonEmptyStateError,
        ValueError,
        ["~/n"],
    ),
    "no key": (
        lambda: LINEAR.init(None, X),
        errors.MissingRNGError,
        ValueError,
        ["must pass a non-None PRNGKey", "jax.random.key(0)"],
    ),
    "arguments in the place of the key": (
        lambda: LINEAR.apply(good_params(), X),
        errors.InvalidRNGError,
        ValueError,
        ["apply(params, rng, *a, **k)", "(2, 3)", "float32"],
    ),
    "a string for a key": (lambda: LINEAR.init("0", X), errors.InvalidRNGError, ValueError, ["'0'", "str"]),
    "a bool for a key": (lambda: LINEAR.init(True, X), errors.InvalidRNGError, ValueError, ["True"]),
    "many keys": (
        lambda: LINEAR.init(jax.random.split(jax.random.key(0)), X),
        errors.InvalidRNGError,
        ValueError,
        ["(2,)", "keys[0]"],
    ),
    "not a key for a sequence": (lambda: hkx.PRNGSequence(None), errors.InvalidRNGError, ValueError, ["None"]),
    "a seed of too many bits": (
        lambda: LINEAR.init(2**70, X),
        errors.InvalidRNGError,
        ValueError,
        ["init(rng, *a, **k)", "1180591620717411303424", "64 bits"],
    ),
    "half a state for a sequence": (
        lambda: hkx.PRNGSequence((1,)),
        errors.InvalidRNGError,
        ValueError,
        ["`hkx.PRNGSequence`: (1,)", "internal_state"],
    ),
    "what init of a stateful pair returns": (
        lambda: LINEAR.apply(hkx.transform_with_state(lambda x: hkx.Linear(1)(x)).init(jax.random.key(0), X), None, X),
        errors.InvalidParamsError,
        TypeError,
        ["`params, state = model.init(key, x)`"],
    ),
    "init in place of what it returns": (
        lambda: LINEAR.apply(LINEAR.init, None, X),
        errors.InvalidParamsError,
        TypeError,
        ["Parameters are what `init` returns: `params = model.init(key, x)`"],
    ),
    "state of a wrong type": (
        lambda: hkx.transform_with_state(lambda: 1).apply({}, X, None),
        errors.InvalidParamsError,
        TypeError,
        ["state", "mapping"],
    ),
    "partial of jit": (
        lambda: hkx.transform_with_state(functools.partial(jax.jit(lambda x: x), 1)),
        errors.JitInTransformError,
        ValueError,
        ["instead of `hkx.transform(jax.jit(f)).apply` write `jax.jit(hkx.transform(f).apply)`"],
    ),
    "pmap": (
        lambda: hkx.transform(jax.pmap(lambda x: x)),
        errors.JitInTransformError,
        ValueError,
        ["jax.pmap(hkx.transform(f).apply)"],
    ),
    "not a function": (lambda: hkx.transform(3), TypeError, TypeError, ["3", "function"]),
    "reserve size": (lambda: hkx.config.set(rng_reserve_size=0), ValueError, ValueError, ["rng_reserve_size", "0"]),
}


@pytest.mark.parametrize("case", CASES)
def test_wrong_use_is_named(case):
    wrong, error, builtin, fragments = CASES[case]
    with pytest.raises(error) as caught:
        wrong()
    assert isinstance(caught.value, builtin)
    for fragment in fragments:
        assert fragment in str(caught.value)


@pytest.mark.parametrize("case", CASES)
def test_nothing_is_left_behind(case):
    with pytest.raises(Exception):  # noqa: B017 - which one is tested above
        CASES[case][0]()
    with pytest.raises(errors.NotInTransformError):
        hkx.running_init()
    assert jax.tree.map(jnp.shape, good_params()) == {"linear": {"w": (3, 2), "b": (2,)}}


def test_every_exception_is_documented_and_has_one_builtin_base():
    found = [e for e in vars(errors).values() if isinstance(e, type) and issubclass(e, errors.HkxError)]
    assert len(found) > 15
    haikus = errors.UnknownLookupStyleError  # raised by a call, never by an attribute
    swallowed = {AttributeError: {errors.NoSuchAttributeError, haikus}, IndexError: set()}
    for error in set(found) - {errors.HkxError}:
        assert error.__doc__
        builtin = [
            b for b in error.__mro__ if b.__module__ == "builtins" and b not in (Exception, BaseException, object)
        ]
        nearest = [base for base in builtin if not any(b is not base and issubclass(b, base) for b in builtin)]
        assert len(nearest) == 1, f"{error} is of the built-in kinds {nearest}"
        for base, meant in swallowed.items():  # Python ends an iteration, or answers False, on these
            assert not issubclass(error, base) or error in meant


class Rows:
    """An object whose rows, and one attribute, call a layer on a scalar."""

    def __getitem__(self, i):
        return hkx.Linear(3)(jnp.float32(i))

    shown = property(lambda self: self[0])


@pytest.mark.parametrize("use", [list, lambda rows: hasattr(rows, "shown"), lambda rows: getattr(rows, "shown", None)])
def test_python_does_not_swallow_an_error_of_a_layer(use):
    with pytest.raises(errors.ScalarInputError, match="Linear"):
        hkx.transform(lambda: use(Rows())).init(0)


def test_exception_in_the_users_function_is_passed_on_as_it_is():
    def f():
        with hkx.name_scope("a"), hkx.intercept_methods(lambda n, a, k, c: n(*a, **k)):
            hkx.Linear(1)(X)
            raise KeyError("mine")

    for run in (lambda: hkx.transform(f).init(0), lambda: jax.jit(hkx.transform(f).init)(0)):
        with pytest.raises(KeyError, match="mine"):
            run()
    assert list(good_params()) == ["linear"]


def test_bytes_of_a_dtype_that_numpy_lacks_are_named(tmp_path):
    np.savez(tmp_path / "checkpoint.npz", w=np.ones([3, 2], jnp.bfloat16))
    w = np.load(tmp_path / "checkpoint.npz")["w"]  # |V2
    x, b = np.ones([1, 3], jnp.bfloat16), np.zeros(2, jnp.bfloat16)
    for wrong in (w, np.full([3, 2], "a"), np.full([3, 2], 1.0, object)):
        with pytest.raises(errors.NotAnArrayError, match=r"'linear/w' is an array of dtype .*`w.view\(jnp.bfloat16\)`"):
            LINEAR.apply({"linear": {"w": wrong, "b": b}}, None, x)
    out = LINEAR.apply({"linear": {"w": w.view(jnp.bfloat16), "b": b}}, None, x)
    assert out.dtype == jnp.bfloat16 and out.tolist() == [[3.0, 3.0]]
