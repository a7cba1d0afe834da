"""Errors survive pickling and copying, and their text says by itself what was meant."""

import copy
import importlib
import inspect
import pickle
import pkgutil
import traceback

import jax.numpy as jnp
import numpy as np
import pytest

import hkx
import rlx

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
    "type": hkx.Module,
}
SAMPLES_OF = {"StateUpdaterError": ["twice"], "MissingParameterError": ["a/w", (2,), "float32", ["a/v", "b/w"]]}


def all_exceptions():
    """Every exception class that is defined in the two packages, by its full name."""
    found = {}
    for package in (hkx, rlx):
        for info in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if info.name == "hkx.run.start.sitecustomize":  # runs where Python starts, once
                continue
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


class Net(hkx.Module):
    def __init__(self):
        super().__init__()
        self.encoder = hkx.Linear(1)

    def embed(self, x):
        return self.encodr(x)

    @property
    def broken(self):
        return self.encoder.outputsize


def within(f):
    return hkx.transform(f).apply({}, 0)


TYPOS = {
    "a layer": (lambda: hkx.Liner, "module 'hkx' has no attribute 'Liner'", "Linear"),
    "in another case": (lambda: hkx.lstm, "module 'hkx' has no attribute 'lstm'", "LSTM"),
    "an operator of rlx": (lambda: rlx.td_learnin, "module 'rlx' has no attribute 'td_learnin'", "td_learning"),
    "a network": (lambda: hkx.nets.Resnet50, "module 'hkx.nets' has no attribute 'Resnet50'", "ResNet50"),
    "an error": (lambda: hkx.errors.HkxErr, "module 'hkx.errors' has no attribute 'HkxErr'", "HkxError"),
    "a kind of replay": (lambda: rlx.replay.unifrm, "module 'rlx.replay' has no attribute 'unifrm'", "uniform"),
    "of experimental": (lambda: hkx.experimental.tabulat, "has no attribute 'tabulat'", "tabulate"),
    "an attribute of a module": (
        lambda: within(lambda: Net().embed(X)),
        "'Net' object has no attribute 'encodr'",
        "encoder",
    ),
    "a method of a module": (lambda: within(lambda: Net().embd), "'Net' object has no attribute 'embd'", "embed"),
    "in a property": (
        lambda: within(lambda: Net().broken),
        "'Linear' object has no attribute 'outputsize'",
        "output_size",
    ),
}


@pytest.mark.parametrize(("use", "text", "meant"), TYPOS.values(), ids=TYPOS)
def test_a_log_says_what_was_meant(use, text, meant):
    with pytest.raises(AttributeError) as error:
        use()
    assert str(error.value).endswith(f"{text}. Did you mean: {meant!r}?")
    logged = "".join(traceback.format_exception(error.value))
    assert logged.count("Did you mean") == 1  # Python itself does not ask once more
    same_text = [str(other) for other in (copy.copy(error.value), pickle.loads(pickle.dumps(error.value)))]
    assert same_text == [str(error.value)] * 2


@pytest.mark.parametrize("use", [lambda: hkx.Xylophone, lambda: rlx.xylophone, lambda: within(lambda: Net().xylophone)])
def test_nothing_is_meant_where_nothing_is_near(use):
    with pytest.raises(AttributeError) as error:
        use()
    assert str(error.value).endswith(("has no attribute 'Xylophone'", "has no attribute 'xylophone'"))


def test_attributes_that_libraries_look_for_are_absent_as_ever():
    assert not hasattr(hkx, "__path__x") and not hasattr(rlx, "__wrapped__")
    assert getattr(hkx, "Liner", None) is None
    assert within(lambda: getattr(Net(), "encodr", 3)) == 3
    assert within(lambda: not hasattr(Net(), "_hkx_made_wit"))


def missing(path, known):
    """The line about names that are near, of the error for a parameter of this full name among those."""
    module, _, name = path.rpartition("/")
    params = {}
    for other in known:
        bundle, _, own = other.rpartition("/")
        params.setdefault(bundle, {})[own] = np.zeros(1)

    with pytest.raises(hkx.errors.MissingParameterError) as error:
        hkx.transform(lambda: Named(name=module)(name)).apply(params, None)
    return str(error.value).splitlines()[1]


class Named(hkx.Module):
    def __call__(self, name):
        return hkx.get_parameter(name, [1], init=jnp.zeros)


NEAR = {
    "another spelling": ("linear/w", ["liner/w", "conv2_d/w"], ["liner/w"]),
    "a number": ("linear/w", ["linear_1/w", "conv2_d/w", "embed/w"], ["linear_1/w"]),
    "the same module": ("linear/w", ["linear/b", "conv2_d/w"], ["linear/b"]),
    "the same in another module": ("linear/w", ["autoencoder/~/decoder/~/linear/w", "conv2_d/w"], "first"),
    "none": ("linear/w", ["conv2_d/w", "layer_norm/scale", "layer_norm/offset", "embed/embeddings"], []),
    "none but for the name": ("linear/w", ["a/w", "b/w", "conv/w"], []),
}


@pytest.mark.parametrize(("path", "known", "near"), NEAR.values(), ids=NEAR)
def test_only_names_that_are_near_are_called_nearest(path, known, near):
    line = missing(path, known)
    near = known[:1] if near == "first" else near
    assert [other for other in known if repr(other) in line] == near
    if near:
        assert line.startswith(f"The nearest parameters that exist (of {len(known)}): ")
    else:
        assert line == f"None of the {len(known)} parameters that exist has a similar name."


def test_states_likewise():
    f = hkx.transform_with_state(lambda: hkx.get_state("counter"))
    with pytest.raises(hkx.errors.MissingStateError, match=r"None of the 1 states that exist has a similar name"):
        f.apply({}, {"~": {"mean": 1}}, None)
