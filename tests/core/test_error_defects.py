"""Errors survive pickling and copying, and their text says by itself what was meant."""

import concurrent.futures
import copy
import importlib
import inspect
import multiprocessing
import pickle
import pkgutil
import traceback

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hkx
import rlx

LINEAR = hkx.transform(lambda x: hkx.Linear(1)(x))
X = np.ones(1, np.float32)

SAMPLES = {  # arguments by annotation, for those constructors that take more than a text
    "str": "a/w",
    "object": np.arange(3),
    "bool": True,
    "int": 2,
    "float": 0.5,
    "Iterable[str]": ["a/b", "b/w"],
    "Iterable[int]": [1, 2],
    "tuple[int, ...]": (2, 3),
    "tuple[int, ...] | None": (2, 3),
    "str | None": "hkx.cond",
}
SAMPLES_OF = {"StateUpdaterError": ["twice"], "MissingParameterError": ["a/w", (2,), "float32", ["a/v", "b/w"]]}


def all_exceptions():
    """Every exception class that is defined in the two packages, by its full name."""
    found = {}
    for package in (hkx, rlx):
        for info in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            try:
                module = importlib.import_module(info.name)
            except ImportError:  # of an optional library
                continue
            for name, value in vars(module).items():
                if isinstance(value, type) and issubclass(value, BaseException) and value.__module__ == info.name:
                    found[f"{info.name}.{name}"] = value
    return found


EXCEPTIONS = all_exceptions()


def made(cls):
    """An exception of a class, by its constructor."""
    if cls.__name__ in SAMPLES_OF:
        return cls(*SAMPLES_OF[cls.__name__])
    if not inspect.isfunction(cls.__init__) or not cls.__module__.startswith("hkx."):
        return cls("a text")
    parameters = list(inspect.signature(cls.__init__).parameters.values())[1:]
    return cls(*[SAMPLES.get(p.annotation, "a text") for p in parameters])


def again(error):
    """The ways to get a second one."""
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        yield pickle.loads(pickle.dumps(error, protocol))
    yield copy.copy(error)
    yield copy.deepcopy(error)


def attributes(error):
    return {name: getattr(error, name) for name in ("args", "name", "__dict__") if hasattr(error, name)}


def same(error):
    for other in again(error):
        assert type(other) is type(error)
        assert str(other) == str(error)
        assert attributes(other) == attributes(error)
        # the last line of a log, notes included
        assert traceback.format_exception_only(other) == traceback.format_exception_only(error)


def test_all_exceptions_are_found():
    public = {name for name in vars(importlib.import_module("hkx.errors")) if name.endswith("Error")}
    assert {name.rpartition(".")[2] for name in EXCEPTIONS} >= public | {"RankError", "ShapeError", "ArgumentError"}
    assert len(EXCEPTIONS) > 70


@pytest.mark.parametrize("cls", EXCEPTIONS.values(), ids=EXCEPTIONS)
def test_exceptions_can_be_pickled_and_copied(cls):
    error = made(cls)
    same(error)
    error.add_note("seen at step 3")
    error.step = 3
    same(error)


class OfAUser(hkx.errors.HkxError, OSError):
    """As somebody else may write one: with arguments and attributes of its own."""

    def __init__(self, code, *, path):
        super().__init__(code, f"cannot read {path}")
        self.path = path


def test_exceptions_of_users_too():
    error = OfAUser(2, path="weights")
    assert (error.errno, error.strerror) == (2, "cannot read weights")
    same(error)
    assert all((other.errno, other.path) == (2, "weights") for other in again(error))


RAISED = {
    "missing parameter": lambda: LINEAR.apply({}, None, X),
    "attribute of another library": lambda: LINEAR.parameters(),
    "wrong constructor argument, with a note": lambda: hkx.transform(lambda: hkx.LSTM(3, 4)).init(0),
    "in an inner trace": lambda: hkx.transform(lambda: jax.jit(hkx.next_rng_key)()).apply({}, 0),
    "a layer's input": lambda: LINEAR.init(0, "text"),
    "state": lambda: hkx.transform(lambda: hkx.set_state("n", 1)).init(0),
    "loop": lambda: hkx.transform(lambda: hkx.fori_loop(0, 2, lambda i, x: (x, x), jnp.ones(1))).apply({}, 0),
    "rlx": lambda: rlx.discounted_returns(jnp.ones([4, 2]), jnp.ones([4, 2]), 0.0),
}


@pytest.mark.parametrize("use", RAISED.values(), ids=RAISED)
def test_what_is_really_raised_can_be_pickled_and_copied(use):
    with pytest.raises((hkx.errors.HkxError, rlx.ArgumentError)) as error:
        use()
    same(error.value)


def test_an_error_in_a_worker_process_comes_back():
    # spawned: a fork of a process that runs JAX may hang
    with concurrent.futures.ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        with pytest.raises(hkx.errors.NotInTransformError, match=r"`hkx\.get_parameter` must be used as part of an"):
            pool.submit(hkx.get_parameter, "w", [2]).result(timeout=60)
        assert pool.submit(abs, -1).result(timeout=60) == 1  # the pool lives
