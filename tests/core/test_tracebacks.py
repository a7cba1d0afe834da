"""What a person sees of an error in a transformed function, and of the signatures of layers and functions."""

import inspect
import os
import pydoc
import traceback

import jax
import jax.numpy as jnp
import pytest

import hkx
from hkx.core import store

X = jnp.ones([2, 3])
HKX = os.path.dirname(hkx.__file__) + os.sep
JAX = os.path.dirname(jax.__file__) + os.sep


class Mistake(Exception):
    pass


class Block(hkx.Module):
    def __call__(self, x):
        self.fail(hkx.Linear(3)(x))
        return x

    def fail(self, h):
        if h.shape == (3,):
            raise Mistake


def body(carry, x):
    return carry, Block()(x)


def model(x):
    return hkx.scan(body, 0, x)[1]


def shown(error):
    """The functions in a traceback from the innermost caller of hkx on, JAX's own left out."""
    entries = [e for e in traceback.extract_tb(error.__traceback__) if not e.filename.startswith(JAX)]
    return [e.name for e in entries][1:], [e.filename for e in entries if e.filename.startswith(HKX)]


def caught(function, *args, error=Mistake):
    with pytest.raises(error) as found:
        function(*args)
    return found.value


PAIR = hkx.transform_with_state(model)
PARAMS = {"block/linear": {"w": jnp.ones([3, 3]), "b": jnp.ones(3)}}
SEVERAL = hkx.multi_transform(lambda: (model, [model]))
CALLS = {
    "init": lambda: PAIR.init(0, X),
    "apply": lambda: PAIR.apply(PARAMS, {}, None, X),
    "without state": lambda: hkx.transform(model).apply(PARAMS, None, X),
    "without a key": lambda: hkx.transform(model, apply_rng=False).apply(PARAMS, X),
    "jit of apply": lambda: jax.jit(PAIR.apply)(PARAMS, {}, None, X),
    "tabulate": lambda: hkx.tabulate(model)(X),
    "transform_and_run": lambda: hkx.testing.transform_and_run(model)(X),
    "one of several": lambda: SEVERAL.apply[0](PARAMS, None, X),
}


@pytest.mark.parametrize("call", CALLS)
def test_of_an_error_in_a_module_in_a_loop_the_program_is_shown_alone(call):
    error = caught(CALLS[call])
    functions, ours = shown(error)
    assert functions == ["<lambda>", "model", "body", "__call__", "fail"] and ours == []
    assert sum("JAX_TRACEBACK_FILTERING" in note for note in error.__notes__) >= 1  # how to see the rest


def test_an_error_that_hkx_names_ends_in_the_line_that_asked():
    error = caught(PAIR.apply, {}, {}, None, X, error=hkx.errors.MissingParameterError)
    functions, ours = shown(error)
    assert functions == ["model", "body", "__call__", "__call__"] and ours == [f"{HKX}nn{os.sep}linear.py"]


def test_where_hkx_itself_fails_the_line_stays(monkeypatch):
    def f():
        hkx.get_parameter("w", [])

    monkeypatch.setattr(store, "effectful_frame", int)
    functions, ours = shown(caught(hkx.transform(f).apply, {}, None, error=ValueError))
    assert functions == ["f", "get_parameter"] and ours == [f"{HKX}core{os.sep}store.py"]


def test_nothing_is_left_out_where_jax_is_told_so():
    before = jax.config.jax_traceback_filtering
    jax.config.update("jax_traceback_filtering", "off")
    try:
        error = caught(CALLS["apply"])
    finally:
        jax.config.update("jax_traceback_filtering", before)
    assert f"{HKX}core{os.sep}module.py" in shown(error)[1] and not hasattr(error, "__notes__")


@pytest.mark.parametrize("filtering", ["auto", "off"])
def test_a_flag_that_jit_traces_comes_with_what_to_write(filtering, monkeypatch):
    model = hkx.transform(
        lambda x, is_training: hkx.transform(lambda x: 2 * x if is_training else x).apply({}, None, x)
    )
    monkeypatch.setitem(jax.config.values, "jax_traceback_filtering", filtering)
    error = caught(jax.jit(model.apply), {}, None, X, True, error=jax.errors.TracerBoolConversionError)
    assert sum("static_argnames" in note for note in error.__notes__) == 1
    run = jax.jit(model.apply, static_argnames="is_training")
    assert [float(run({}, None, X, is_training=flag).sum()) for flag in (True, False)] == [12, 6]


@pytest.mark.parametrize("name", ["Linear", "scan", "get_parameter"])
def test_help_begins_with_the_true_signature(name):
    value = getattr(hkx, name)
    made_by = inspect.signature(value.__init__ if inspect.isclass(value) else value)
    parameters = [p for p in made_by.parameters.values() if p.name != "self"]
    assert list(inspect.signature(value).parameters.values()) == parameters and len(parameters) > 3
    text = pydoc.render_doc(value, renderer=pydoc.plaintext)
    assert all(str(p) in text.partition("Args:")[0] for p in parameters)
    assert value.__doc__.splitlines()[0] in text
