"""Methods that IPython's `%autoreload` has changed in place run in their module's scope, with the names of their file.

The functions here do to a class what `%autoreload` does, so that the tests need no IPython.
"""

import sys
import types

import jax
import jax.numpy as jnp
import pytest

import hkx

X = jnp.ones([2, 4])
FILE = """
import hkx
class Base(hkx.Module):
    def __call__(self, x): return hkx.Linear(5)(x)
class Net(Base):
    size = property(lambda self: hkx.Linear(1, name="size")(x).sum())
    def __call__(self, x): return hkx.Linear(3)(x)
"""
EDITED = FILE.replace("Linear(1", "Linear(2").replace("hkx.Linear(3)(x)", "self.other(super().__call__(x))")
EDITED += "    def other(self, x): return x * self.size\n"


@pytest.fixture
def file(monkeypatch):
    """The module of a file that has been imported."""
    monkeypatch.setitem(sys.modules, "IPython.extensions.autoreload", types.ModuleType("autoreload"))
    module = types.ModuleType("edited_file")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    module.x = X
    exec(compile(FILE, "edited_file.py", "exec"), vars(module))
    return module


def as_written(file):
    """The edited classes as plain ones, with the module's names, but for the metaclass."""
    text = EDITED.replace("hkx.Module", "object").split("class Base", 1)[1]
    names = {}
    exec(compile(f"class Base{text}", "<string>", "exec"), vars(file) | names, names)
    return names["Net"]


def shapes(net):
    return {name: entries["w"].shape for name, entries in hkx.transform(lambda x: net()(x)).init(0, X).items()}


AFTER = {"net/linear": (4, 5), "net/~size/size": (4, 2)}


def test_the_code_of_a_method_put_into_its_wrapper(file):
    def put(wrapper, function):  # the wrapper keeps its globals, and has all else of the function
        changed = types.FunctionType(function.__code__, wrapper.__globals__, "", None, function.__closure__)
        changed.__dict__.update(function.__dict__)
        return changed

    assert shapes(file.Net) == {"net/linear": (4, 3)}
    new = vars(as_written(file))
    file.Net.__call__ = put(file.Net.__call__, new["__call__"])
    file.Net.size = property(put(vars(file.Net)["size"].fget, new["size"].fget))
    file.Net.other = new["other"]  # a new method is added as it is
    assert shapes(file.Net) == AFTER
    assert shapes(file.Net) == AFTER


def test_the_attributes_of_a_wrapper_replaced_by_those_of_the_new_class(file):
    net = file.Net
    assert shapes(net) == {"net/linear": (4, 3)}
    exec(compile(EDITED, "edited_file.py", "exec"), vars(file))
    net.__call__.__dict__ = file.Net.__call__.__dict__
    net.other, net.size = file.Net.other, file.Net.size
    assert shapes(net) == shapes(file.Net) == AFTER


def test_other_functions_that_a_program_sets_are_left_alone(file):
    def plain(self, x):
        return hkx.Linear(1)(x)

    file.Net.__call__ = plain  # as in Haiku, it is not wrapped, and runs in its caller's scope
    assert shapes(file.Net) == {"linear": (4, 1)}
    assert jax.tree.leaves(hkx.transform(lambda x: file.Net()(x)).init(0, X))
