"""Cores and averages with a state of another shape than their inputs want: named errors, and what broadcasts, does."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hkx
from hkx.errors import InvalidCoreStateError, LeadingDimensionsError, NotAnArrayError, StateShapeError
from hkx.interop.cells import ResetAfterGRU

pytestmark = pytest.mark.unoptimised
KEY = jax.random.PRNGKey(0)
CORES: dict[str, tuple[Callable[[], hkx.RNNCore], tuple[int, ...]]] = {
    "VanillaRNN": (lambda: hkx.VanillaRNN(4), (2, 3)),
    "LSTM": (lambda: hkx.LSTM(4), (2, 3)),
    "GRU": (lambda: hkx.GRU(4), (2, 3)),
    "ResetAfterGRU": (lambda: ResetAfterGRU(4), (2, 3)),
    "Conv1DLSTM": (lambda: hkx.Conv1DLSTM(5, 4, 3), (2, 5, 3)),
    "Conv2DLSTM": (lambda: hkx.Conv2DLSTM((2, 5), 4, 3), (2, 2, 5, 3)),
    "Conv3DLSTM": (lambda: hkx.Conv3DLSTM((2, 1, 5), 4, 3), (2, 2, 1, 5, 3)),
    "DeepRNN": (lambda: hkx.DeepRNN([hkx.LSTM(4), jnp.tanh, hkx.GRU(4)]), (2, 3)),
    "skip": (lambda: hkx.deep_rnn_with_skip_connections([hkx.LSTM(4), hkx.GRU(4)]), (2, 3)),
    "ResetCore": (lambda: hkx.ResetCore(hkx.LSTM(4)), (2, 3)),
}
UNROLLS: dict[str, Any] = {
    "step": lambda core, x, state: core(x, state),
    "dynamic": lambda core, x, state: hkx.dynamic_unroll(core, jax.tree.map(lambda a: a[None], x), state),
    "static": lambda core, x, state: hkx.static_unroll(core, jax.tree.map(lambda a: a[None], x), state),
}
each_core = pytest.mark.parametrize("name", list(CORES))


@pytest.fixture(autouse=True)
def broadcasting() -> Any:
    """As in programs: what broadcasts is of different ranks."""
    with jax.numpy_rank_promotion("allow"):
        yield


def run(name: str, change: Callable[[Any], Any], unroll: str = "step", what: Any = jax.eval_shape) -> Any:
    make, shape = CORES[name]
    x = jnp.linspace(-1.0, 1.0, int(np.prod(shape))).reshape(shape)

    def f() -> Any:
        core = make()
        state = jax.tree.map(lambda s: s + jnp.linspace(0.1, 0.9, s.size).reshape(s.shape), core.initial_state(2))
        inputs = (x, jnp.asarray(False)) if name == "ResetCore" else x
        return UNROLLS[unroll](core, inputs, change(state))

    model = hkx.transform(f)
    return what(lambda: model.apply(model.init(KEY), None))


@each_core
@pytest.mark.parametrize("unroll", UNROLLS)
def test_a_state_of_another_batch_is_named(name: str, unroll: str) -> None:
    run(name, lambda state: state, unroll)
    with pytest.raises(InvalidCoreStateError, match=r"has shape \(3, .*expected \[2, ") as raised:
        run(name, lambda state: jax.tree.map(lambda s: jnp.concatenate([s, s[:1]]), state), unroll)
    assert "state" in str(raised.value).split()[0] and "core.initial_state(batch_size)" in str(raised.value)


@each_core
@pytest.mark.parametrize("wrong", [None, (), "text", object()], ids=["None", "empty", "str", "object"])
def test_a_state_of_another_structure_is_named(name: str, wrong: Any) -> None:
    if name == "VanillaRNN" and wrong == ():
        pytest.skip("an array of no numbers, which its second layer is made for")
    with pytest.raises(InvalidCoreStateError, match="state"):
        run(name, lambda state: wrong)


@each_core
def test_a_state_of_another_size_is_named(name: str) -> None:
    def wider(state: Any) -> Any:
        return jax.tree.map(lambda s: jnp.concatenate([s, s[..., :1]], axis=-1), state)

    if name == "VanillaRNN":  # in Haiku it is what its second layer is made for, and only no loop can carry it
        assert run(name, wider)[0].shape == (2, 4)
        name, error = "VanillaRNN", hkx.errors.CarryMismatchError
        with pytest.raises(error):
            run(name, wider, "dynamic")
        return
    with pytest.raises(InvalidCoreStateError, match=r"\b5\), expected \[.*\b4\]"):
        run(name, wider)


@pytest.mark.parametrize("name", ["VanillaRNN", "LSTM", "Conv1DLSTM", "ResetCore"])
def test_one_state_stands_for_the_whole_batch(name: str) -> None:
    one = run(name, lambda state: jax.tree.map(lambda s: s[:1], state), what=lambda f: f())
    all_ = run(name, lambda state: jax.tree.map(lambda s: jnp.repeat(s[:1], 2, 0), state), what=lambda f: f())
    jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=1e-6), one, all_)


def test_a_cell_of_another_shape_is_named_as_the_cell() -> None:
    with pytest.raises(InvalidCoreStateError, match=r"`prev_state.cell`.*has shape \(3, 4\), expected \[2, 4\]"):
        run("LSTM", lambda state: hkx.LSTMState(state.hidden, jnp.ones([3, 4])))
    with pytest.raises(InvalidCoreStateError, match=r"`state.cell`.*has shape \(3, 5, 4\), expected \[2, 5, 4\]"):
        run("Conv1DLSTM", lambda state: hkx.LSTMState(state.hidden, jnp.ones([3, 5, 4])))
    assert run("LSTM", lambda state: hkx.LSTMState(state.hidden, jnp.ones([4])))[0].shape == (2, 4)


def test_cores_take_lists_and_numpy_arrays_as_states() -> None:
    for name in ("VanillaRNN", "GRU", "ResetAfterGRU"):
        expected = run(name, lambda state: state, what=lambda f: f())
        got = run(name, lambda state: np.asarray(state).tolist(), what=lambda f: f())
        jax.tree.map(np.testing.assert_array_equal, got, expected)


def test_a_stack_takes_more_states_than_it_has_cores() -> None:
    for name in ("DeepRNN", "skip"):
        assert len(run(name, lambda state: (*state, jnp.ones(3)))[1]) == 2
        with pytest.raises(InvalidCoreStateError, match="a tuple of 2 states"):
            run(name, lambda state: state[:1])


def test_bidirectional_takes_a_pair_of_states() -> None:
    def outputs(change: Any) -> Any:
        def f() -> Any:
            core = hkx.Bidirectional(hkx.LSTM(4), hkx.GRU(4))
            states = core.forward.initial_state(2), core.backward.initial_state(2)
            return core(jnp.ones([5, 2, 3]), change(states))[0]

        return jax.eval_shape(hkx.transform(f).init, KEY)

    outputs(lambda states: states)
    for wrong in (lambda s: s[:1], lambda s: (*s, s[0]), lambda s: 3):
        with pytest.raises(InvalidCoreStateError, match=r"`initial_states`.*expected a pair of states"):
            outputs(wrong)
    with pytest.raises(InvalidCoreStateError, match=r"`state`, the state of `GRU`, has shape \(3, 4\)"):
        outputs(lambda states: (states[0], jnp.ones([3, 4])))


def test_lengths_of_another_batch_are_named() -> None:
    def unrolled(lengths: Any) -> Any:
        def f() -> Any:
            core = hkx.LSTM(4)
            return hkx.dynamic_unroll(core, jnp.ones([5, 2, 3]), core.initial_state(2), sequence_lengths=lengths)

        return jax.eval_shape(hkx.transform(f).init, KEY)

    for right in ([1, 2], [4], 3):
        unrolled(jnp.asarray(right))
    for wrong in ([1, 2, 3], [[1, 2, 3], [4, 5, 5]]):
        with pytest.raises(LeadingDimensionsError, match=r"`sequence_lengths`.*expected \[2"):
            unrolled(jnp.asarray(wrong))


def averaged(shapes: list[tuple[int, ...]], **options: Any) -> tuple[list[np.ndarray], list[Any]]:
    model = hkx.transform_with_state(lambda x: hkx.ExponentialMovingAverage(0.5, **options)(x))
    values = [np.asarray(np.random.RandomState(i).randn(*shape), np.float32) for i, shape in enumerate(shapes)]
    _, state = model.init(KEY, values[0])
    out = []
    for value in values:
        average, state = model.apply({}, state, KEY, value)
        out.append(average)
    return values, out


@pytest.mark.parametrize("shapes", [[(3,), (2,)], [(2,), (2, 1)]])
def test_an_average_of_another_shape_is_named(shapes: Any) -> None:
    with pytest.raises(StateShapeError) as raised:
        averaged(shapes)
    for text in ("exponential_moving_average/hidden", f"has shape {shapes[0]}", f"`value` of shape {shapes[1]}"):
        assert text in str(raised.value)


@pytest.mark.parametrize("shapes", [[(), (3,)], [(2, 3), (3,)]])
def test_an_average_that_broadcasts_does(shapes: Any) -> None:
    (first, second), (_, average) = averaged(shapes)
    expected = (
        0.25 * np.float64(first) + 0.5 * np.float64(second)
    ) / 0.75  # zero at first, and 1 - 0.5**2 of the weights
    np.testing.assert_allclose(average, expected, rtol=1e-6)


@pytest.mark.parametrize("options", [{}, {"zero_debias": False, "warmup_length": 1}], ids=["debiased", "warmed up"])
def test_averages_that_are_stacked_count_each_for_itself(options: dict[str, Any]) -> None:
    model = hkx.transform_with_state(lambda x: hkx.ExponentialMovingAverage(0.5, **options)(x))
    _, state = model.init(KEY, 0.0)
    values, states = np.asarray([[1, 2, 3], [5, 7, 11]], np.float32), []
    for i in range(3):  # three averages, the i-th of which has seen i values
        alone = state
        for value in values[:i, i]:
            _, alone = model.apply({}, alone, KEY, value)
        states.append(alone)
    expected = [model.apply({}, alone, KEY, 2.0)[0] for alone in states]
    stacked = jax.tree.map(lambda *x: jnp.stack(x), *states)
    np.testing.assert_allclose(model.apply({}, stacked, KEY, 2.0)[0], expected, rtol=1e-6)


def test_a_parameter_of_another_shape_is_named_by_its_average_and_its_norm() -> None:
    for tree_of in (lambda: hkx.EMAParamsTree(0.9), lambda: hkx.SNParamsTree()):
        model = hkx.transform_with_state(lambda p, tree_of=tree_of: tree_of()(p))
        params, state = model.init(KEY, {"linear": {"w": jnp.ones([2, 3])}})
        model.apply(params, state, KEY, {"linear": {"w": jnp.ones([2, 3])}})
        with pytest.raises(StateShapeError, match=r"params_tree/linear__w/.* for `value` of shape \(2, 4\)"):
            model.apply(params, state, KEY, {"linear": {"w": jnp.ones([2, 4])}})


@pytest.mark.parametrize("u0", [jnp.ones([2, 3]), jnp.ones([3]), jnp.ones([1, 2])], ids=["rows", "vector", "columns"])
def test_a_singular_vector_of_another_matrix_is_named(u0: jax.Array) -> None:
    model = hkx.transform_with_state(lambda w: hkx.SpectralNorm()(w))
    params, state = model.init(KEY, jnp.ones([2, 3]))
    with pytest.raises(StateShapeError, match=r"'spectral_norm/u0' has shape .*expected \[1, 3\]"):
        model.apply(params, {"spectral_norm": dict(state["spectral_norm"], u0=u0)}, KEY, jnp.ones([2, 3]))


NORMS = {
    "BatchNorm": lambda x, training, **o: hkx.BatchNorm(False, False, 0.9, **o)(x, training),
    "BatchRenorm": lambda x, training, **o: hkx.BatchRenorm(False, False, 0.9, **o)(x, training),
}


@pytest.mark.parametrize(("name", "training"), [("BatchNorm", False), ("BatchRenorm", True)])
@pytest.mark.parametrize(
    "data_format, before, after, fits",
    [
        ("channels_last", (2, 3), (2, 5, 3), True),
        ("channels_last", (2, 3), (2, 4), False),
        ("channels_first", (2, 3, 5), (4, 3, 6), True),
        ("channels_first", (2, 3), (2, 3, 5), False),  # the 3 channels would be those of the 5 steps
    ],
)
def test_averages_of_other_channels_are_named(
    name: str, training: bool, data_format: str, before: Any, after: Any, fits: bool
) -> None:
    model = hkx.transform_with_state(lambda x, t: NORMS[name](x, t, data_format=data_format))
    x, y = (np.float32(np.random.RandomState(i).randn(*shape)) for i, shape in enumerate((before, after)))
    params, state = model.init(KEY, x, True)
    if not fits:
        with pytest.raises(StateShapeError, match=r"batch_(re)?norm/~/mean_ema/(average|hidden)' has shape .*for `"):
            model.apply(params, state, KEY, y, training)
        return
    out, _ = model.apply(params, state, KEY, y, training)
    if not training:
        axis = tuple(i for i in range(x.ndim) if i != (x.ndim - 1 if data_format == "channels_last" else 1))
        channels = [-1] if data_format == "channels_last" else [-1, 1]
        mean, variance = (np.reshape(s(np.float64(x), axis=axis), channels) for s in (np.mean, np.var))
        np.testing.assert_allclose(
            np.reshape(out, y.shape),
            (y - mean) / np.sqrt(variance + (1e-5 if name == "BatchNorm" else 1e-3)),
            1e-4,
            1e-4,
        )


@pytest.mark.parametrize("name", NORMS)
def test_one_channel_is_no_average_of_three(name: str) -> None:
    model = hkx.transform_with_state(NORMS[name])
    for before, after in (((2, 1), (2, 3)), ((2, 3), (2, 1))):  # both broadcast
        params, state = model.init(KEY, jnp.ones(before), True)
        with pytest.raises(StateShapeError, match=r"mean_ema/average' has shape \(1, .\), expected \[1, .\]"):
            model.apply(params, state, KEY, jnp.ones(after), False)


def test_dimensions_from_the_end_fit_their_averages() -> None:
    model = hkx.transform_with_state(lambda x, t: hkx.BatchNorm(False, False, 0.9, axis=(-3, -2))(x, t))
    x = np.float32(np.random.RandomState(0).randn(4, 5, 3))
    params, state = model.init(KEY, x, True)
    out, _ = model.apply(params, state, KEY, x, False)
    np.testing.assert_allclose(out, (x - x.mean((0, 1))) / np.sqrt(x.var((0, 1)) + 1e-5), 1e-4, 1e-4)


def test_a_table_of_another_size_is_named() -> None:
    def model(columns: int, dim: int = 4) -> hkx.TransformedWithState:
        return hkx.transform_with_state(lambda x: hkx.nets.VectorQuantizerEMA(dim, columns, 0.25, 0.9)(x, True)["loss"])

    x = jnp.ones([2, 4])
    params, state = model(5).init(KEY, x)
    jax.eval_shape(model(5).apply, params, state, None, x)
    with pytest.raises(
        StateShapeError, match=r"vector_quantizer_ema/embeddings' has shape \(4, 5\), expected \[4, 3\]"
    ):
        jax.eval_shape(model(3).apply, params, state, None, x)
    with pytest.raises(StateShapeError, match=r"expected \[2, 5\]"):
        jax.eval_shape(model(5, 2).apply, params, state, None, jnp.ones([2, 2]))


STATES: dict[str, tuple[Callable[..., Any], str]] = {
    "average": (lambda x, init=False: hkx.BatchNorm(False, False, 0.9)(x, init), "batch_norm/~/mean_ema/average"),
    "hidden": (lambda x, _=0: hkx.BatchRenorm(False, False, 0.9)(x, True), "batch_renorm/~/var_ema/hidden"),
    "counter": (lambda x, _=0: hkx.ExponentialMovingAverage(0.9)(x), "exponential_moving_average/counter"),
    "u0": (lambda x, _=0: hkx.SpectralNorm()(x), "spectral_norm/u0"),
    "embeddings": (
        lambda x, _=0: hkx.nets.VectorQuantizerEMA(3, 2, 0.2, 0.9)(x, False),
        "vector_quantizer_ema/embeddings",
    ),
}


@pytest.mark.parametrize("name", STATES)
def test_a_state_that_is_no_array_is_named(name: str) -> None:
    f, path = STATES[name]
    model = hkx.transform_with_state(f)
    x = jnp.ones([2, 3])
    params, state = model.init(KEY, x, True)
    module, entry = path.rsplit("/", 1)
    for wrong in (None, "text", [0.5, 0.5], {"w": 0.5}):
        state[module] = {**state[module], entry: wrong}
        with pytest.raises(NotAnArrayError, match=f"The value of '{path}' is .* which has no shape.*`jnp.asarray`"):
            model.apply(params, state, KEY, x)


def test_a_state_may_be_a_number() -> None:
    model = hkx.transform_with_state(lambda x: hkx.ExponentialMovingAverage(0.75, zero_debias=False)(x))
    state = {"exponential_moving_average": {"hidden": 4.0, "average": 4.0, "counter": 1}}
    out, state = model.apply({}, state, None, jnp.array([0.0, 8.0]))
    assert out.tolist() == [3.0, 5.0] and state["exponential_moving_average"]["counter"] == 2
