"""What type checkers know of a program's values. Read by basedpyright (and mypy), never run."""
# ruff: noqa: F722  # the interval and the dimensions in an annotation are no forward references
# pyright: reportUnnecessaryTypeIgnoreComment=error

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, assert_type

import jax
import jax.numpy as jnp
import numpy as np

import hkx
import rlx

x = jnp.ones([2, 3])
key = jax.random.key(0)


def network(x: jax.Array, is_training: bool = True) -> jax.Array:
    return hkx.nets.MLP([4, 1])(x)


def energy(x: jax.Array) -> jax.Array:
    return x.sum()


def of_a_number(x: float) -> float:
    return x**2


def with_aux(x: jax.Array) -> tuple[jax.Array, dict[str, int]]:
    return x.sum(), {}


def of_params(params: hkx.Params, x: jax.Array) -> jax.Array:
    return x


def transforms() -> None:
    model = hkx.transform(network)
    assert_type(model.init(key, x), hkx.MutableParams)
    model.init(0, x, is_training=False)
    model.init(np.int32(3), x)
    model.init(None, x)
    model.init("key", x)  # type: ignore[arg-type]
    model.init(key)  # type: ignore[call-arg]
    params = model.init(key, x)
    assert_type(model.apply(params, None, x), jax.Array)
    model.apply(params, None, 3)  # type: ignore[arg-type]
    bare = hkx.without_apply_rng(model)
    assert_type(bare.apply(params, x), jax.Array)
    assert_type(hkx.transform(network, apply_rng=False).apply(params, x), jax.Array)
    assert_type(jax.grad(bare.apply)(params, x), Any)

    stateful = hkx.transform_with_state(network)
    params, state = stateful.init(key, x)
    assert_type(state, hkx.MutableState)
    assert_type(stateful.apply(params, state, key, x), tuple[jax.Array, hkx.MutableState])
    assert_type(hkx.without_apply_rng(stateful).apply(params, state, x), tuple[jax.Array, hkx.MutableState])
    assert_type(hkx.without_state(stateful).apply(params, None, x), jax.Array)
    assert_type(hkx.with_empty_state(model).apply(params, state, None, x), tuple[jax.Array, hkx.MutableState])

    anything: hkx.Transformed = hkx.without_apply_rng(hkx.transform(network))
    anything.apply(params, x)


class Functions(NamedTuple):
    encode: Callable[..., jax.Array]
    decode: Callable[..., jax.Array]


def several() -> None:
    def one() -> tuple[Callable[[jax.Array], jax.Array], Callable[[jax.Array], float]]:
        raise NotImplementedError

    def two() -> tuple[Callable[[jax.Array], int], tuple[Callable[[jax.Array], float], Callable[[int], str]]]:
        raise NotImplementedError

    def named() -> tuple[Callable[[jax.Array], Any], Functions]:
        raise NotImplementedError

    def many() -> tuple[Callable[[jax.Array], Any], dict[str, Any]]:
        raise NotImplementedError

    single = hkx.multi_transform(one)
    params = single.init(key, x)
    assert_type(params, hkx.MutableParams)
    assert_type(single.apply(params, None, x), float)
    first, second = hkx.multi_transform(two).apply
    assert_type(first(params, None, x), float)
    assert_type(second(params, None, 1), str)
    first_with_state, _ = hkx.multi_transform_with_state(two).apply
    assert_type(first_with_state(params, {}, None, x), tuple[float, hkx.MutableState])
    hkx.multi_transform(named).apply.encode(params, None, x)
    hkx.multi_transform(many).apply["encode"](params, None, x)
    hkx.multi_transform(many).init("key", x)  # type: ignore[arg-type]


def wrappers() -> None:
    assert_type(hkx.grad(energy)(x), jax.Array)
    assert_type(hkx.grad(of_a_number)(2.0), jax.Array)
    assert_type(hkx.grad(of_params)({}, x), hkx.Params)
    assert_type(hkx.grad(with_aux, has_aux=True)(x), tuple[jax.Array, dict[str, int]])
    assert_type(hkx.value_and_grad(energy)(x), tuple[jax.Array, jax.Array])
    assert_type(hkx.value_and_grad(of_params)({}, x), tuple[jax.Array, hkx.Params])
    (value, aux), gradient = hkx.value_and_grad(with_aux, has_aux=True)(x)
    assert_type(value, jax.Array)
    assert_type(aux, dict[str, int])
    assert_type(gradient, jax.Array)
    by_both = hkx.value_and_grad(of_params, argnums=(0, 1))({}, x)
    assert_type(by_both, tuple[jax.Array, tuple[Any, ...]])
    assert_type(hkx.grad(of_params, (0, 1))({}, x), tuple[Any, ...])
    assert_type(hkx.grad(with_aux, [0], has_aux=True)(x), tuple[tuple[Any, ...], dict[str, int]])
    inner, stateful = hkx.transform(energy), hkx.transform_with_state(energy)
    assert_type(hkx.lift(inner.init)(0, x), hkx.MutableParams)
    assert_type(hkx.transparent_lift(inner.init)(0, x), hkx.MutableParams)
    assert_type(hkx.lift_with_state(stateful.init)[0](0, x), tuple[hkx.MutableParams, hkx.MutableState])
    assert_type(hkx.jvp(energy, (x,), (x,)), tuple[jax.Array, jax.Array])
    assert_type(hkx.vjp(energy, x)[0], jax.Array)
    assert_type(hkx.linearize(energy, x)[1](x), jax.Array)
    assert_type(hkx.vmap(energy, split_rng=False)(x), jax.Array)
    assert_type(hkx.remat(network)(x, is_training=True), jax.Array)
    assert_type(hkx.jit(network)(x), jax.Array)
    assert_type(hkx.jit(static_argnums=1)(network)(x), jax.Array)
    assert_type(hkx.eval_shape(network, x), jax.ShapeDtypeStruct)
    assert_type(hkx.eval_shape(network, jax.ShapeDtypeStruct([2], jnp.float32)), jax.ShapeDtypeStruct)
    assert_type(hkx.layer_stack(3)(energy)(x), jax.Array)
    assert_type(hkx.layer_stack(3)(energy)(x, reverse=True), jax.Array)
    assert_type(hkx.custom_jvp(network)(x), jax.Array)
    assert_type(hkx.cond(True, energy, energy, x), jax.Array)
    assert_type(hkx.while_loop(lambda x: True, energy, x), jax.Array)


def modules() -> None:
    assert_type(hkx.get_parameter("w", [2]), jax.Array)
    assert_type(hkx.get_state("s", [2], init=jnp.zeros), jax.Array)
    assert_type(hkx.Linear(2)(x), jax.Array)
    assert_type(hkx.Sequential([hkx.Linear(2), hkx.Linear(3)])(x), jax.Array)
    assert_type(hkx.Sequential([hkx.Linear(2), jnp.tanh])(x), jax.Array)
    gru, lstm = hkx.GRU(4), hkx.LSTM(4)
    assert_type(hkx.dynamic_unroll(gru, x, gru.initial_state(2)), tuple[jax.Array, jax.Array])
    assert_type(hkx.static_unroll(lstm, x, lstm.initial_state(2)), tuple[jax.Array, hkx.LSTMState])
    sizes: Mapping[str, jax.Array] = hkx.Linear(2).params_dict()
    del sizes
    hkx.PRNGSequence(0)
    hkx.PRNGSequence(hkx.PRNGSequence(key).internal_state)


def operators() -> None:
    assert_type(rlx.q_learning(x, 0, 1.0, 0.9, x), jax.Array)
    assert_type(rlx.lambda_returns(x, x, x, 0.9), jax.Array)
    assert_type(rlx.td_learning(0, 1.0, 0.9, 2.0, use_stop_gradient=False), jax.Array)
    assert_type(rlx.q_learning.kernel(x, x, x, x, x), jax.Array)
    rlx.q_learning("x", 0, 1.0, 0.9, x)  # pyright: ignore[reportArgumentType]
    rlx.q_learning(x, 0, 1.0, 0.9)  # pyright: ignore[reportCallIssue]


class Scaled(hkx.Module):
    def __init__(
        self,
        size: hkx.arguments.Size,
        rate: hkx.arguments.Number[float, "[0, 1)"] = 0.5,
        flag: hkx.arguments.Flag = True,
        w_init: hkx.initializers.Initializer | None = None,
    ):
        super().__init__()
        self.size, self.rate, self.flag, self.w_init = size, rate, flag, w_init

    def __call__(self, x: hkx.arguments.Num[jax.Array, "... D"]) -> jax.Array:
        return x


def declared_arguments() -> None:
    layer = Scaled(3)
    assert_type(layer.size, int)
    assert_type(layer.rate, float)
    assert_type(layer.flag, bool)
    assert_type(layer(x), jax.Array)
    Scaled("x")  # pyright: ignore[reportArgumentType]
    Scaled(3, flag="x")  # pyright: ignore[reportArgumentType]
    hkx.Linear(3, with_bias=3.0)  # pyright: ignore[reportArgumentType]
    hkx.max_pool(x, 2, 2, "OTHER")  # pyright: ignore[reportArgumentType]
