"""One argument of a layer, of its constructor or of its call, of another shape, dtype or kind: an answer, or an error
that hkx raises itself, or one of JAX's that says as much. Never another one from inside of JAX, NumPy or Python."""

from __future__ import annotations

import functools
import inspect
import linecache
import pathlib
import traceback
import types
import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from fuzzing import cases, outcome
from hypothesis import given
from hypothesis import strategies as st
from layer_registry import CASES, LARGE, Case

import hkx

pytestmark = [pytest.mark.slow, pytest.mark.unoptimised]

HKX = str(pathlib.Path(inspect.getfile(hkx)).parent)
KEY = jax.random.PRNGKey(0)
LAYERS = [case for case in (*CASES, *LARGE) if case.name != "decoder"]  # a configuration makes it, not arguments
OTHERS: list[Any] = [
    *(None, True, 0, 1, 2, -1, 1.5, 10**30, 1j, float("nan"), float("inf"), "x", b"x", [], [3], (1, 2), {}, {1}),
    *(range(2), object(), np.array(2), np.array([1, 2]), np.float32(2), np.int64(2), jnp.array(2), KEY),
    [[1.0], [1.0, 2.0]],
]
DTYPES = ["bool", "int8", "uint8", "int32", "float16", "bfloat16", "float32", "complex64"]
LOOPS = ("n_steps", "unroll")  # a Python loop of so many steps
CHECKED_BY_JAX = ("precision", "implementation")  # which names them
SAID_WELL = (  # by JAX, NumPy or Python, so that hkx does not check it first
    *("incompatible shapes for broadcasting", "is out of bounds for array of dimension"),
    *("Cannot concatenate arrays", "concatenate requires", "Zero-dimensional arrays cannot be concatenated"),
    *("Size of label", "Einstein sum subscript", "Ellipses lengths"),
    *("cannot reshape array", "cannot select an axis to squeeze"),
    *("data type ", "Non-hashable static arguments", "expected string or bytes-like object"),
)


def damaged(x: np.ndarray, rng: np.random.Generator) -> Any:
    """An array of another shape, dtype or kind."""
    axis = rng.integers(x.ndim) if x.ndim else 0
    made = [
        lambda: x[None],
        lambda: x[..., None],
        lambda: x[0] if x.ndim else x,
        lambda: np.concatenate([x, np.take(x, [0], axis)], axis) if x.ndim else x[None],
        lambda: np.take(x, [], axis) if x.ndim else np.zeros([0]),
        lambda: np.take(x, [0], axis) if x.ndim else x[None],
        lambda: jnp.asarray(x).astype(rng.choice(DTYPES)),
        lambda: x.tolist(),
        lambda: np.array([None, None]),
        lambda: jax.random.key(0),
        lambda: OTHERS[rng.integers(len(OTHERS))],
    ]
    return made[rng.integers(len(made))]()


class Library:
    """hkx, but one argument of one call of it is another. `calls` lists the arguments that may be."""

    def __init__(self, place: tuple[int, str] | None = None, value: Any = None, source: Any = hkx, calls: Any = None):
        self.place, self.value, self.source = place, value, source
        self.calls: list[list[str]] = [] if calls is None else calls

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.source, name)
        if isinstance(found, types.ModuleType):
            return Library(self.place, self.value, found, self.calls)
        return functools.partial(self.call, found) if callable(found) else found

    def call(self, function: Any, *args: Any, **kwargs: Any) -> Any:
        """Calls a function or class of the library."""
        parameters = inspect.signature(function).parameters.values()
        named = [p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
        number = len(self.calls)
        self.calls.append([] if len(named) < len(args) else named)
        if self.place is not None and self.place[0] == number:
            kwargs = {**dict(zip(named, args, strict=False)), **kwargs, self.place[1]: self.value}
            args = ()
        return function(*args, **kwargs)


def run(case: Case, arrays: Any, library: Library) -> None:
    """Makes the layer's parameters, and calls it with them."""

    def both() -> None:
        model = hkx.transform_with_state(lambda: case.call(library, *arrays))
        params, state = model.init(KEY)
        library.calls.clear()
        model.apply(params, state, KEY)

    jax.eval_shape(both)


def came_from_inside(error: Exception) -> bool:
    """Whether an error is not one that hkx raises itself, nor JAX's of a traced value, nor one of the program."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [i for i, frame in enumerate(frames) if frame.filename.startswith(HKX)]
    program = [i for i, frame in enumerate(frames) if frame.filename.endswith("layer_registry.py")]
    of_program = max(program, default=0) > max(own, default=0)
    if of_program or isinstance(error, hkx.errors.HkxError | jax.errors.JAXTypeError):
        return False
    if any(text in str(error) for text in SAID_WELL):
        return False
    last = frames[-1]
    raised = linecache.getline(last.filename, last.lineno or 0).strip().startswith("raise ")
    return not (raised and last.filename.startswith(HKX))


@functools.cache
def calls_of(case: Case) -> list[list[str]]:
    """The arguments of the calls of the library that a case makes."""
    library = Library()
    run(case, case.arrays(), library)
    return library.calls


def broken_rule(seed: int) -> str | None:
    """Damages one argument of one layer; what is wrong with what comes of it, or None."""
    rng = np.random.default_rng(seed)
    case = LAYERS[rng.integers(len(LAYERS))]
    arrays, library, what = case.arrays(), Library(), ""
    calls = enumerate(calls_of(case))
    places = [(i, name) for i, names in calls for name in names if name not in CHECKED_BY_JAX]
    if arrays and (not places or rng.random() < 0.4):
        i = rng.integers(len(arrays))
        arrays[i] = damaged(arrays[i], rng)
        what = f"argument {i}: {arrays[i]!r:.80}"
    else:
        number, name = places[rng.integers(len(places))]
        value = OTHERS[rng.integers(len(OTHERS))]
        if name in LOOPS and isinstance(value, int) and value > 100:
            return None
        library, what = Library((number, name), value), f"call {number}, {name}={value!r}"
    with jax.numpy_rank_promotion("allow"), warnings.catch_warnings():  # as it is where nobody has set it
        warnings.simplefilter("ignore", UserWarning)  # JAX says that it has no 64 bits
        warnings.filterwarnings("ignore", "Implicit conversion of an array to a dtype")  # JAX says what to write
        error = outcome(lambda: run(case, arrays, library))[1]
    return f"{case.name}, {what}: {error!r:.300}" if error is not None and came_from_inside(error) else None


@cases(300)
@given(st.integers(0, 2**32 - 1))
def test_a_layer_answers_or_says_what_is_wrong(seed: int) -> None:
    assert broken_rule(seed) is None
