"""What `@operator` reads from a signature, and what it then promises: one check a call, a true signature, a kernel."""

import functools
import inspect
import itertools
import pickle
import pydoc
import typing

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from operator_checks import cast, draw
from operator_registry import CASES

import rlx
from rlx.core import arguments
from rlx.core import operator as operator_module
from rlx.core.annotations import Float, Int, Mask, Num, Real
from rlx.core.arguments import require
from rlx.core.operator import operator
from rlx.core.types import Array, ArrayLike

pytestmark = pytest.mark.unoptimised

OPERATORS = {name: getattr(rlx, name) for name in rlx.__all__ if hasattr(getattr(rlx, name), "kernel")}
BY_NAME = {case.name: case for case in CASES}
ONE, THREE = jnp.ones(1), jnp.ones(3)


@operator()
def plain(
    x: Float[Array, "T A"],
    i: Int[Array, "T"],
    weight: Real[Array | float, "", "#T", "in [0, 1] if scalar"] = 0.5,
    n: int = 2,
    mask: Mask[Array, "T"] | None = None,
    *,
    bins: Real[Array, "{n}"] | None = None,
    use_stop_gradient: bool = True,
) -> Float[Array, "T"]:
    require(n >= 1, "n", n, "a positive number")
    return x, i, weight, n, mask, bins, use_stop_gradient


@operator()
def broadcasting(x: Num[Array, "*#E A"], y: Real[Array, "*#E"], z: Real[Array, "3"] = THREE) -> Float[Array, "*E"]:
    return x, y, z


def test_what_reaches_the_kernel():
    x, i, weight, n, mask, bins, stop = plain(np.ones([4, 2]), np.zeros(4, int), 1, np.int64(3), bins=THREE)
    assert isinstance(x, jax.Array) and isinstance(i, jax.Array) and bins.shape == (3,)
    assert (weight, type(weight), n, type(n), mask, stop) == (1.0, float, 3, int, None, True)
    half = plain(jnp.ones([4, 2], jnp.bfloat16), jnp.zeros(4, int), np.ones(4, int), mask=np.ones(4, bool))
    assert half[2].dtype == jnp.bfloat16 and half[4].dtype == bool  # a real takes the dtype of the floats, a mask none
    assert plain(jnp.ones([4, 2]), jnp.zeros(4, int), jnp.full(1, 7.0))[2].shape == ()  # of length one: a number
    assert plain(jnp.ones([1, 2]), jnp.zeros(1, int), jnp.full(1, 7.0))[2].shape == (1,)
    assert plain(jnp.ones([4, 2]), jnp.zeros(4, int), stop_target_gradients=False)[-1] is False


def test_leading_axes_that_broadcast_get_one_rank():
    x, y, _ = broadcasting(np.ones([5, 1, 2]), np.ones(4))
    assert (x.shape, y.shape) == ((5, 1, 2), (1, 4))
    with pytest.raises(
        rlx.ShapeError, match=r"^broadcasting: argument `y` has shape \[3\], expected one that broadcasts"
    ):
        broadcasting(np.ones([4, 2]), THREE)
    with pytest.raises(rlx.ShapeError, match=r"`z` has shape \[1\], expected shape \[3\]"):
        broadcasting(np.ones([4, 2]), 1, ONE)


@pytest.mark.parametrize("error, text, more", [
    (rlx.ArgumentError, "plain: missing a required argument: 'i'", {}),
    (rlx.ArgumentError, "plain: got an unexpected keyword argument 'm'", {"i": 0, "m": 1}),
    (rlx.ArgumentError, "plain: got an unexpected keyword argument 'index'", {"index": 0}),
    (rlx.ArgumentError, "plain: multiple values for argument 'x'", {"x": 1}),
    (rlx.RankError, "plain: argument `i` has rank 0", {"i": 0}),
    (rlx.OptionError, "plain: argument `n` is 1.5, expected a whole number, a Python integer", {"n": 1.5}),
    (rlx.OptionError, "plain: argument `n` is None", {"n": None}),
    (rlx.OptionError, "plain: argument `n` is 0, expected a positive number.", {"n": 0}),
    (rlx.OptionError, "plain: argument `weight` is 2, expected a number in [0, 1].", {"weight": 2}),
    (rlx.DTypeError, "plain: argument `weight` is None, expected an array", {"weight": None}),
    (rlx.DTypeError, "plain: argument `mask` is a str", {"mask": "no"}),
    (rlx.ShapeError, "`bins` has shape [3], expected shape [{n}] with {n} = 2 from `n`", {"bins": THREE}),
    (rlx.OptionError, "two spellings", {"stop_target_gradients": True, "use_stop_gradient": True}),
])  # fmt: skip
def test_errors_name_operator_and_argument(error, text, more):
    given = {} if error is rlx.ArgumentError else {"i": np.zeros(4, int)}
    with pytest.raises(error) as caught:
        plain(np.ones([4, 2]), **{**given, **more})
    assert text in str(caught.value)


@pytest.mark.parametrize("name", OPERATORS)
def test_signature_and_help_show_what_callers_may_give_and_the_kernel_what_reaches_it(name):
    function = OPERATORS[name]
    shown = inspect.signature(function).parameters
    own = inspect.signature(function.kernel, eval_str=True).parameters
    hints = typing.get_type_hints(function)
    assert list(shown) == list(own) and hints.keys() == {*own, "return"}
    assert all(hints[key] in (ArrayLike, ArrayLike | None) for key in function.contract.arrays)  # what beartype reads
    for key, parameter in shown.items():
        assert (parameter.kind, parameter.default) == (own[key].kind, own[key].default)
        if key in function.contract.arrays:
            assert parameter.annotation.type == ArrayLike and own[key].annotation.type in (Array, Array | float)
            assert parameter.annotation.words == own[key].annotation.words
    assert "ArrayLike" in pydoc.render_doc(function) or not function.contract.arrays
    assert inspect.isfunction(function)
    assert pickle.loads(pickle.dumps(function)) is function
    assert pickle.loads(pickle.dumps(function.kernel)) is function.kernel


@pytest.mark.parametrize("name", [n for n in OPERATORS if n in BY_NAME])
def test_a_call_is_checked_once(name, monkeypatch):
    counted = itertools.count()

    def counting(*args):
        next(counted)
        return arguments.convert(*args)

    monkeypatch.setattr(operator_module, "convert", counting)
    jax.eval_shape(BY_NAME[name].run, cast(draw(BY_NAME[name], 0), jnp.float32))
    assert next(counted) == 1


@pytest.mark.parametrize("name", OPERATORS)
def test_masks_are_declared_of_arguments_that_exist(name):
    contract = OPERATORS[name].contract
    for weight, names in contract.masks.items():
        assert {weight, *names} <= contract.arrays.keys()


def test_what_a_declared_weight_leaves_out_does_not_reach_the_kernel():
    @operator(masks={"w": ("x", "q")})
    def masked(w: Real[Array, "T"], x: Float[Array, "T"], q: Float[Array, "T A"]) -> Float[Array, "T"]:
        return x, q

    nan, inf = jnp.nan, jnp.inf
    q = jnp.array([[nan, 1.0], [-inf, 1.0], [-inf, -inf], [nan, 2.0]])
    x, rows = masked(jnp.array([0, 0, 0, 1]), jnp.array([nan, 3.0, -inf, nan]), q)
    np.testing.assert_array_equal(x, [0, 3, 0, nan])
    np.testing.assert_array_equal(rows, [[0, 1], [0, 1], [0, 0], [nan, 2]])


def test_what_does_not_count_is_zero_to_the_kernel():
    @operator(masks={"mask_t": ("x_t", "adv")})
    def counted(
        x_t: Float[Array, "G T"], adv: Real[Array, "G"], mask_t: Mask[Array, "", "G T"] | None = None
    ) -> Float[Array, ""]:
        return x_t, adv

    x, adv = jnp.array([[jnp.nan, 3e38], [1.0, 2.0]]), jnp.array([jnp.inf, 5.0])
    kept, whose = counted(x, adv, np.array([[0, 0], [0, 1]]))
    assert (kept.tolist(), whose.tolist()) == ([[0, 0], [0, 2]], [0, 5])
    assert counted(x, adv, False)[0].tolist() == [[0, 0], [0, 0]]
    np.testing.assert_array_equal(counted(x, adv)[0], x)


def test_arrays_of_numpy_that_a_compiled_function_closes_over():
    """They reach operators under `vmap` as they are, inside `jit`, where custom derivatives do not take them."""
    rows = [np.ones([2, 3], np.float32), np.zeros(2, np.int32), np.ones(2), np.zeros(2), np.full([2, 3], np.nan)]
    assert jax.jit(lambda: jax.vmap(rlx.q_learning)(*rows))().tolist() == [0.0, 0.0]
    several = [np.ones([2, 4], np.float32)] * 3
    assert jax.jit(lambda: jax.vmap(functools.partial(rlx.lambda_returns, lambda_=0.5))(*several))().shape == (2, 4)
