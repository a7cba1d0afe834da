"""Features of Python in modules. The expected names were read off dm-haiku 0.0.17, which gives the same."""

import copy
import enum
import functools
import pickle
import typing

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from made_names import Leaf, names

import hkx


def scaled(method):
    @functools.wraps(method)
    def call(self):
        return method(self) * hkx.get_parameter("scale", [], init=jnp.ones) + Leaf()()

    return call


def test_a_method_that_init_subclass_decorates_runs_in_its_modules_scope():
    class Base(hkx.Module):
        def __init_subclass__(cls):
            cls.__call__ = scaled(cls.__call__)

        def __call__(self):
            return Leaf()()

    class Net(Base):
        def __call__(self):
            return Leaf()()

    class Other(Base):
        pass  # the function that is added to it is no method: it runs in the scope of its caller

    assert names(lambda: Net()()) == ["net/leaf:w", "net:scale", "net/leaf_1:w"]
    assert names(lambda: Other()()) == ["other/leaf:w", "~:scale", "leaf:w"]


def test_methods_that_init_subclass_turns_into_other_callables():
    class Base(hkx.Module):
        def __init_subclass__(cls):
            hkx.transparent(cls.clear)
            cls.__call__ = functools.partial(cls.__call__, times=2)
            del cls.gone

        def gone(self):
            return 3

    class Net(Base):
        def __call__(self, times=1):
            return [Leaf()() for _ in range(times)]

        def clear(self):
            return Leaf()()

        def gone(self):
            return 4

    assert names(lambda: (Net()(), Net().clear())) == ["net/leaf:w", "net/leaf_1:w", "leaf:w"]
    assert hkx.testing.transform_and_run(lambda: Net().gone())() == 3


def test_a_method_that_a_descriptor_replaces_runs_in_its_modules_scope():
    class Scaling:
        def __set_name__(self, owner, name):
            owner.__call__ = scaled(owner.__call__)

    class Net(hkx.Module):
        scaling = Scaling()

        def __call__(self):
            return Leaf()()

    heard = []

    def listen(next_function, args, kwargs, context):
        heard.append((context.method_name, context.orig_class))
        return next_function(*args, **kwargs)

    with hkx.intercept_methods(listen):
        assert names(lambda: Net()()) == ["net/leaf:w", "net:scale", "net/leaf_1:w"]
    assert ("__call__", Net) in heard


def test_attributes_come_from_a_class_that_is_mixed_in_last():
    class Layers:
        def __getattr__(self, name):
            if name.startswith("leaf"):
                return Leaf(name=name)
            raise AttributeError(f"no {name} in Layers")

    class Net(hkx.Module, Layers):
        def __call__(self):
            return self.leaf_a(), self.leaf_b()

    assert names(lambda: Net()()) == ["net/leaf_a:w", "net/leaf_b:w"]
    with pytest.raises(AttributeError, match="no other in Layers"):
        names(lambda: Net().other)


def test_numbers_begin_anew_where_a_module_changes_its_name():
    class First(hkx.Module):
        def __init__(self, name=None):
            hkx.Module.__init__(self, name)
            self.leaves = [Leaf(), Leaf()]

    class Second(hkx.Module):
        def __init__(self, name=None):
            hkx.Module.__init__(self, name)
            self.leaves += [Leaf(), Leaf()]

    class Both(First, Second):
        def __init__(self):
            First.__init__(self)
            Second.__init__(self, "second")

        def __call__(self):
            for leaf in self.leaves:
                leaf()

    assert names(lambda: Both()()) == [
        *("both/~/leaf:w", "both/~/leaf_1:w", "second/~/leaf:w", "second/~/leaf_1:w"),
    ]


class Part(str, enum.Enum):  # noqa: UP042  # in contrast to a StrEnum's, the text of its members is not their value
    ENCODER = "encoder"
    WEIGHT = "weight"


def test_members_of_enums_are_names():
    heard = []

    def listen(next_getter, value, context):
        heard.append((context.full_name, context.name))
        return next_getter(value)

    def f():
        with hkx.custom_getter(listen):
            Leaf(name=Part.ENCODER)()
            with hkx.name_scope(Part.WEIGHT):
                Leaf(name=Part.ENCODER)()
                Leaf(name=Part.ENCODER)()
            hkx.get_parameter(Part.WEIGHT, [], init=jnp.zeros)
            hkx.get_state(Part.WEIGHT, [], init=jnp.zeros)

    params, state = hkx.transform_with_state(f).init(None)
    assert [str.__str__(name) for name in params] == ["encoder", "weight/encoder", "weight/encoder_1", "~"]
    assert jax.tree.map(jnp.shape, [params["~"], state["~"]]) == [{"weight": ()}, {"weight": ()}]
    assert heard[0] == ("encoder/w", "w")
    assert heard[-1] == ("~/weight", "weight")


def in_a_transform(f):
    return hkx.testing.transform_and_run(f)()


def test_a_program_that_searches_a_modules_attributes_finds_only_its_own():
    class Sum(hkx.Module):
        def __init__(self, leaf, weights):
            super().__init__()
            self.parts = {"leaf": leaf, "weights": weights}

    def f():
        module = Sum(Leaf(), np.ones(3))
        found = [type(x) for x in jax.tree.leaves(vars(module)) if isinstance(x, hkx.Module | np.ndarray)]
        return found, sorted(name for name in vars(module) if not name.startswith("_"))

    assert in_a_transform(f) == ([Leaf, np.ndarray], ["module_name", "name", "parts"])


def test_a_module_is_copied_and_pickled_whatever_its_constructor_was_given():
    def f():
        module = hkx.nets.MLP(iter([1, 2]))
        made = copy.copy(module), copy.deepcopy(module)
        linear = hkx.Linear(2, w_init=lambda shape, dtype: jnp.ones(shape, dtype))
        linear.w_init = None
        made += (pickle.loads(pickle.dumps(linear)),)
        return [(repr(new).partition("(")[0], new.name) for new in made], repr(made[2]) == repr(linear)

    assert in_a_transform(f) == ([("MLP", "mlp"), ("MLP", "mlp"), ("Linear", "linear")], True)


class Net(hkx.Module):
    def __call__(self, name):
        Leaf(name=hkx.force_name(name))()


def test_copies_list_what_they_make_themselves():
    def f():
        net = Net()
        net("a")
        new, other = copy.deepcopy(net), pickle.loads(pickle.dumps(net))
        new("b"), other("c")
        return [[*module.params_dict()] for module in (net, new, other)]

    assert in_a_transform(f) == [["a/w"], ["a/w", "b/w"], ["a/w", "c/w"]]


def test_attributes_of_modules_that_are_alike_are_equal():
    def attributes(module):
        return {name: value for name, value in vars(module).items() if "name" not in name}

    def f():
        a, b, c = hkx.Linear(2), hkx.Linear(2), hkx.Linear(3)
        return attributes(a) == attributes(b), attributes(a) == attributes(c)

    assert in_a_transform(f) == (True, False)


KINDS = hkx.Transformed, hkx.TransformedWithState, hkx.MultiTransformed, hkx.MultiTransformedWithState


@pytest.mark.parametrize("kind", KINDS)
def test_pairs_are_plain_named_tuples(kind):
    # Beartype refuses generic ones as annotations, and typeguard does not find the names in annotations that are text.
    assert kind.__mro__ == (kind, tuple, object)
    assert not any(isinstance(field, str | typing.ForwardRef) for field in kind.__annotations__.values())
    assert kind[..., jax.Array].__origin__ is kind
    pair = kind(1, apply=2)
    assert pair == (1, 2)
    assert repr(pair) == f"{kind.__name__}(init=1, apply=2)"
    with pytest.raises(AttributeError, match=r"has no attribute 'aply'\. Did you mean"):
        pair.aply  # noqa: B018
