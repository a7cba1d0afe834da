"""The names of modules, parameters and scopes. The expected names were read off dm-haiku 0.0.17."""

import dataclasses

import jax
import jax.numpy as jnp
import pytest
from made_names import Leaf, names

import hkx


@pytest.mark.parametrize(
    ("asked", "given"),
    [
        (["a", "a", "a_2", "a"], ["a", "a_1", "a_2", "a_3"]),
        (["b_3", "b", "b"], ["b_3", "b_4", "b_5"]),
        (["a_2", "a_1"], ["a_2", "a_1"]),
        (["x_1_1", "x_1", "x"], ["x_1_1", "x_1", "x_2"]),
        (["x_0", "x"], ["x_0", "x_1"]),
        (["a", "a_0"], ["a", "a_0"]),
        (["x_01", "x_1"], ["x_01", "x_1"]),
        (["n_007", "n_007", "n"], ["n_007", "n_007_1", "n"]),
        (["n1", "n1", "n"], ["n1", "n1_1", "n"]),
        (["a", "b", "a", "b"], ["a", "b", "a_1", "b_1"]),
        (["_x", "A"], ["_x", "A"]),
    ],
)
def test_names_are_made_unique(asked, given):
    assert names(lambda: [Leaf(name=n)() for n in asked]) == [f"{n}:w" for n in given]


@pytest.mark.parametrize("asked", [["a_3", "a_3"], ["a", "a", "a_1"], ["a_1", "a", "a_1"]])
def test_numbered_name_that_is_taken(asked):
    with pytest.raises(hkx.errors.DuplicateNameError, match="not unique"):
        names(lambda: [Leaf(name=n)() for n in asked])


@pytest.mark.parametrize("name", ["a/b", "1a", "~", "a~b", "", "a b", "/a", "../x", "a/", "force:a", "x\n", 3])
def test_invalid_names(name):
    with pytest.raises(hkx.errors.InvalidNameError, match="an identifier of Python"):
        names(lambda: Leaf(name=name)())


class Tree(hkx.Module):
    def __init__(self, name=None):
        super().__init__(name=name)
        self.made_by_method = self.make()
        self.first, self.second = Leaf(), self.hidden()

    def make(self):
        return Leaf()

    @hkx.transparent
    def hidden(self):
        return Leaf()

    def __call__(self):
        for leaf in (self.made_by_method, self.first, self.second):
            leaf()
        self.step()
        self.step()
        self.clear()
        self.called()
        return self.half

    def step(self):
        Leaf()()
        self.inner()
        return (lambda: Leaf()())()

    def inner(self):
        Leaf()()

    @hkx.transparent
    def clear(self):
        Leaf()()

    @hkx.name_like("__call__")
    def called(self):
        Leaf()()

    @property
    def half(self):
        return Leaf()()


def test_methods_are_scopes():
    assert names(lambda: Tree()()) == [
        "tree/~make/leaf:w",
        "tree/~/leaf:w",
        "tree/~/leaf_1:w",
        "tree/~step/leaf:w",
        "tree/~inner/leaf:w",
        "tree/~step/leaf_1:w",
        "tree/leaf:w",
        "tree/~half/leaf:w",
    ]


def test_one_instance_shares_two_do_not():
    def f():
        leaf = Leaf()
        leaf()
        leaf()
        Leaf()()

    assert names(f) == ["leaf:w", "leaf_1:w"]


def test_super_call_and_submodule_given_from_outside():
    class Holder(hkx.Module):
        def __init__(self, leaf):
            super().__init__()
            self.leaf = leaf

        def __call__(self):
            self.leaf()
            Leaf()()

    class Sub(Holder):
        def __call__(self):
            super().__call__()
            Leaf()()

    assert names(lambda: Sub(Leaf())()) == ["leaf:w", "sub/leaf:w"]


def test_dataclasses():
    @dataclasses.dataclass
    class Plain(hkx.Module):
        size: int
        name: str | None = None

        def __call__(self):
            return hkx.get_parameter("w", [self.size], init=jnp.zeros)

    @dataclasses.dataclass
    class Post(hkx.Module):
        size: int

        def __post_init__(self):
            super().__post_init__(name="hey")
            self.leaf = Leaf()

        def __call__(self):
            return self.leaf()

    def f():
        Plain(3)()
        Plain(3, name="foo")()
        Plain(size=4)()
        Post(3)()

    assert names(f) == ["plain:w", "foo:w", "plain_1:w", "hey/~/leaf:w"]


def test_name_scope():
    def leaf_and_parameter():
        hkx.get_parameter("v", [1], init=jnp.zeros)
        Leaf()()

    def f():
        for scope, method in [
            ("s", "__call__"),
            ("s", "__call__"),
            ("s/t", "__call__"),
            ("s", "bar"),
            ("s", "__init__"),
            (hkx.force_name("full/path"), "__call__"),
        ]:
            with hkx.name_scope(scope, method_name=method):
                leaf_and_parameter()
        assert hkx.current_name() == "~"

    assert names(f) == [
        *("s:v", "s/leaf:w", "s_1:v", "s_1/leaf:w", "s_2/t:v", "s_2/t/leaf:w"),
        *("s_3:v", "s_3/~bar/leaf:w", "s_4:v", "s_4/~/leaf:w", "full/path:v", "full/path/leaf:w"),
    ]


def test_name_scope_inside_modules():
    class Net(hkx.Module):
        def __init__(self):
            super().__init__()
            with hkx.name_scope("in"):
                self.leaf = Leaf()
            assert hkx.current_name() == "net"

        def __call__(self):
            with hkx.name_scope("in"):
                Leaf()()
            self.leaf()
            with hkx.name_scope(hkx.force_name("away")):
                Leaf()()

    assert names(lambda: Net()()) == ["net/in/leaf:w", "net/~/in/leaf:w", "away/leaf:w"]


def test_force_name_shares():
    def f():
        Leaf(name=hkx.force_name("abs/leaf"))()
        m = Leaf(name=hkx.force_name("abs/leaf"))
        m()
        assert (m.name, m.module_name) == ("leaf", "abs/leaf")

    assert names(f) == ["abs/leaf:w"]


def test_params_dict_and_state_dict_hold_what_was_made_inside():
    class Outer(hkx.Module):
        def __init__(self, given):
            super().__init__()
            self.given = given

        def __call__(self):
            self.given()
            Leaf()()
            hkx.set_state("n", 1)

    def f():
        other = Leaf(name="other")
        outer = Outer(Leaf(name="given"))
        other()
        outer()
        assert list(outer.params_dict()) == ["given/w", "outer/leaf/w"]
        assert outer.state_dict() == {"outer/n": 1}

    hkx.transform_with_state(f).init(None)


def test_each_part_of_a_name_scope_counts_as_its_method():
    def f():
        for method in ("__init__", "other"):
            with hkx.name_scope("a/b_1/c", method_name=method):
                assert hkx.current_name() == {"__init__": "a/~/b_1/~/c", "other": "a_1/~other/b_1/~other/c"}[method]
                Leaf()()

    assert names(f) == ["a/~/b_1/~/c/~/leaf:w", "a_1/~other/b_1/~other/c/~other/leaf:w"]


def test_a_name_put_together_from_a_forced_one_is_forced():
    class Pair(hkx.Module):
        def __init__(self, name):
            super().__init__(name=name)
            self.leaves = Leaf(name=f"{name}_left"), Leaf(name=name + "_right")

        def __call__(self):
            return [leaf() for leaf in self.leaves]

    assert names(lambda: Pair(hkx.force_name("abs/pair"))()) == ["abs/pair_left:w", "abs/pair_right:w"]
    with pytest.raises(hkx.errors.InvalidNameError):
        names(lambda: Leaf(name=hkx.force_name("a//b"))())


def test_a_module_may_change_its_full_name():
    class Moved(Leaf):
        def __init__(self):
            super().__init__()
            self.module_name = f"net/{self.module_name}"
            self.part = Leaf()
            hkx.get_parameter("early", [1], init=jnp.zeros)

        def __call__(self):
            self.part()
            Leaf()()
            self.module_name = "late"
            with hkx.name_scope("scope"):
                Leaf()()
            super().__call__()
            return hkx.current_name(), sorted(self.params_dict())

    created = [
        "net/moved:early",
        "net/moved/~/leaf:w",
        "net/moved/leaf:w",
        "late/scope/leaf:w",
        "late:w",
        "leaf:w",
    ]
    assert names(lambda: (Moved()(), Leaf()())) == created
    model = hkx.transform(lambda: Moved()())
    mine = ["late/scope/leaf/w", "late/w", "net/moved/leaf/w", "net/moved/~/leaf/w"]
    assert model.apply(model.init(None), None) == ("late", mine)


def test_params_dict_has_in_apply_what_is_made_later():
    class Outer(hkx.Module):
        def __call__(self):
            before = list(self.params_dict()), list(self.state_dict())
            with hkx.name_scope("in"):
                hkx.set_state("n", hkx.get_state("n", [], init=jnp.zeros))
                Leaf()()
            return before

    def f():
        Leaf(name="outermost")()
        return Outer()()

    model = hkx.transform_with_state(f)
    before, _ = model.apply(*model.init(None), None)
    assert before == (["outer/in/leaf/w"], ["outer/in/n"])


def test_to_module_and_current_name():
    def encoder():
        return hkx.current_name(), Leaf()()

    def f():
        module = hkx.to_module(encoder)
        assert module()()[0] == "encoder"
        assert module(name="other")()[0] == "other"

    assert names(f) == ["encoder/leaf:w", "other/leaf:w"]


def test_nested_transform_has_its_own_names():
    class Outer(hkx.Module):
        def __call__(self):
            inner = hkx.transform(lambda: Leaf()())
            params = inner.init(None)
            assert list(params) == ["leaf"]
            inner.apply(params, None)
            return Leaf()()

    assert names(lambda: Outer()()) == ["outer/leaf:w"]


def test_parameters_are_plain_dicts_in_order_of_creation():
    def f():
        for name in ["z", "a", "m"]:
            Leaf(name=name)()
            hkx.get_parameter(name, [], init=jnp.ones)

    params = hkx.transform(f).init(None)
    assert type(params) is dict and all(type(v) is dict for v in params.values())
    assert list(params) == ["z", "~", "a", "m"] and list(params["~"]) == ["z", "a", "m"]


def test_method_names_show_in_the_compiled_program():
    model = hkx.transform(lambda x: hkx.Linear(1)(x))
    params = model.init(0, jnp.ones([1, 1]))
    text = jax.jit(model.apply).lower(params, None, jnp.ones([1, 1])).as_text(debug_info=True)
    assert "linear/dot_general" in text


def test_force_name_reserves_its_name_where_it_stands():
    assert names(lambda: [Leaf(name=hkx.force_name("foo"))(), Leaf(name="foo")()]) == ["foo:w", "foo_1:w"]


def test_constructor_may_count_as_another_method():
    class Net(hkx.Module):
        @hkx.name_like("__call__")
        def __init__(self):
            super().__init__()
            self.leaf = Leaf()

    assert names(lambda: Net().leaf()) == ["net/leaf:w"]


@pytest.mark.parametrize("name", ["a b", "1a", "", "/a", "a/", "a//b", "a/2", "~a~", "a/~~", 3])
def test_each_part_of_a_forced_name_is_an_identifier(name):
    for use in (lambda: Leaf(name=hkx.force_name(name))(), lambda: hkx.name_scope(hkx.force_name(name))):
        with pytest.raises(hkx.errors.InvalidNameError):
            hkx.transform(use).init(None)


@pytest.mark.parametrize("name", ["~", "a/~/b", "a/~encode/b", "_a/B_1"])
def test_forced_names_of_methods(name):
    assert names(lambda: Leaf(name=hkx.force_name(name))()) == [f"{name}:w"]


@pytest.mark.parametrize(
    ("class_name", "name"),
    [
        ("_Stack", "__stack"),
        ("__Stack", "___stack"),
        ("My_Net", "my__net"),
        ("_RNNCore2D", "_rnn_core2_d"),
        ("_X", "_x"),
    ],
)
def test_name_of_a_class_with_underscores(class_name, name):
    """AlphaFold's checkpoints have names like these: its stack of layers is a class whose name begins with one."""
    assert names(lambda: type(class_name, (Leaf,), {})()()) == [f"{name}:w"]
