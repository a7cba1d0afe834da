"""hkx.data_structures: the expected values are written out by hand."""

import copy
import pickle
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hkx import data_structures as ds
from hkx import errors

PARAMS = {"b/c": {"w": 1, "b": 2}, "a": {"z": 3, "y": 4}, "empty": {}}


def test_traverse_goes_in_order_of_names():
    assert list(ds.traverse(PARAMS)) == [("a", "y", 4), ("a", "z", 3), ("b/c", "b", 2), ("b/c", "w", 1)]
    assert list(ds.traverse({"a": {"tree": {"leaf": 1}}})) == [("a", "tree", {"leaf": 1})]


def test_filter_map_partition():
    assert ds.filter(lambda m, n, v: n == "w" or v == 3, PARAMS) == {"a": {"z": 3}, "b/c": {"w": 1}}
    assert ds.map(lambda m, n, v: f"{m}/{n}={v}", PARAMS) == {
        "a": {"y": "a/y=4", "z": "a/z=3"},
        "b/c": {"b": "b/c/b=2", "w": "b/c/w=1"},
    }
    big, small = ds.partition(lambda m, n, v: v > 2, PARAMS)
    assert (big, small) == ({"a": {"y": 4, "z": 3}}, {"b/c": {"b": 2, "w": 1}})
    parts = ds.partition_n(lambda m, n, v: v % 3, PARAMS, 4)
    assert parts == ({"a": {"z": 3}}, {"a": {"y": 4}, "b/c": {"w": 1}}, {"b/c": {"b": 2}}, {})
    for bad in (-1, 2):
        with pytest.raises(AssertionError, match=r"must be in range \[0, 2\)"):
            ds.partition_n(lambda m, n, v, bad=bad: bad, PARAMS, 2)


def test_merge():
    assert ds.merge({"z": {"w": 1}}, {"a": {"w": 2}}, {"z": {"w": 3, "b": 4}}) == {"z": {"w": 3, "b": 4}, "a": {"w": 2}}
    assert ds.merge() == ds.merge({"a": {}}) == {}
    first = {"a": {"w": np.ones(2, np.float32)}}
    second = {"a": {"w": jax.ShapeDtypeStruct((2,), jnp.float32)}}
    assert ds.merge(first, second, check_duplicates=True) == second
    for other in (np.ones(3, np.float32), np.ones(2, np.int32)):
        with pytest.raises(ValueError, match="different shape/dtype: 'a/w' is"):
            ds.merge(first, {"a": {"w": other}}, check_duplicates=True)
    for old, new in [(None, {"x": np.ones(2)}), ({"x": 1, "y": [2]}, 3), ((1, 2), "text"), (2, 2.5)]:  # no arrays
        assert ds.merge({"a": {"w": old}}, {"a": {"w": new}}, check_duplicates=True) == {"a": {"w": new}}
        for pair in [(first, {"a": {"w": old}}), ({"a": {"w": old}}, first)]:
            with pytest.raises(ValueError, match="different shape/dtype: 'a/w' is"):
                ds.merge(*pair, check_duplicates=True)
    given = {"a": {"w": 1}}
    ds.merge(given)["a"]["w"] = 2
    assert given == {"a": {"w": 1}}


def test_is_subset():
    assert ds.is_subset(subset={"a": {"y": 0}}, superset=PARAMS)
    assert ds.is_subset(subset={"new": {}}, superset=PARAMS)
    assert not ds.is_subset(subset={"a": {"w": 0}}, superset=PARAMS)
    assert not ds.is_subset(subset={"new": {"y": 0}}, superset=PARAMS)


def test_sizes():
    tree = {"a": jnp.ones([2, 3]), "b": [jax.ShapeDtypeStruct((5,), jnp.bfloat16), np.ones(4, np.int8)], "c": None}
    assert (ds.tree_size(tree), ds.tree_bytes(tree)) == (15, 24 + 10 + 4)
    assert (ds.tree_size(jax.random.key(0)), ds.tree_bytes(jax.random.key(0))) == (1, 8)
    assert (ds.tree_size([1, 2.0]), ds.tree_bytes([1, 2.0])) == (2, 8)


@pytest.mark.parametrize("count", [ds.tree_size, ds.tree_bytes])
def test_what_is_no_array_is_not_counted(count):
    """JAX takes a mapping that is not a pytree for a leaf."""
    frozen = types.MappingProxyType({"w": jnp.ones([2, 3])})
    for wrong in (frozen, "text", types.SimpleNamespace(w=1)):
        with pytest.raises(errors.NotAnArrayError, match=r"(?s)The value of \"tree\['linear'\]\" is .* no shape"):
            count({"linear": wrong, "zero": np.zeros(2)})


def test_only_a_mapping_is_copied():
    for wrong in (None, [1], "text", 3):
        for copied in (ds.to_mutable_dict, ds.to_immutable_dict):
            with pytest.raises(TypeError, match=r"`mapping` of .* expected a mapping"):
                copied(wrong)


def test_mutable_and_immutable_dicts():
    frozen = ds.to_immutable_dict({"b": {"w": 1}, "a": 2})
    assert frozen == {"a": 2, "b": {"w": 1}} and frozen["b"]["w"] == 1 and len(frozen) == 2
    assert hash(frozen) == hash(ds.to_immutable_dict({"a": 2, "b": {"w": 1}}))
    with pytest.raises(TypeError):
        frozen["a"] = 3  # type: ignore[index]
    with pytest.raises(AttributeError, match="to_mutable_dict"):
        frozen.a = 3  # type: ignore[attr-defined]
    assert jax.tree.map(lambda x: x + 1, frozen) == {"a": 3, "b": {"w": 2}}
    paths = [jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_leaves_with_path(frozen)]
    assert paths == ["['a']", "['b']['w']"]
    assert pickle.loads(pickle.dumps(frozen)) == frozen
    assert jax.jit(lambda p: p["b"]["w"] * 2)(frozen) == 2
    mutable = ds.to_mutable_dict(frozen)
    assert type(mutable) is dict and type(mutable["b"]) is dict and mutable == frozen
    proxy = types.MappingProxyType({"a": types.MappingProxyType({"w": 1})})
    haiku = ds.to_haiku_dict(proxy)
    assert type(haiku["a"]) is dict and haiku == {"a": {"w": 1}}
    with pytest.raises(TypeError):
        ds.to_immutable_dict(1)  # type: ignore[arg-type]


def test_what_is_pickled_or_copied_of_an_immutable_dict_is_a_dict():
    """As of Haiku's: a checkpoint is read where nothing but Python's own types is known."""
    frozen = ds.to_immutable_dict({"b": {"w": 1}, "a": 2})
    assert b"hkx" not in pickle.dumps(frozen)
    for other in (pickle.loads(pickle.dumps(frozen)), copy.copy(frozen), copy.deepcopy(frozen)):
        assert type(other) is dict and type(other["b"]) is dict and other == {"b": {"w": 1}, "a": 2}


def test_an_immutable_dict_is_made_of_pairs_and_tells_how_it_is_read():
    frozen = ds.to_immutable_dict({"b": {"w": 1}, "a": 2})
    assert type(frozen)((key, frozen[key]) for key in frozen) == frozen  # as libraries for nested structures do
    with pytest.raises(AttributeError, match=r"`.a` is not supported on `FrozenDict`: use `\['a'\]`"):
        frozen.a  # type: ignore[attr-defined]  # noqa: B018


@pytest.mark.peer
def test_an_immutable_dict_under_dm_tree():
    tree = pytest.importorskip("tree")
    frozen = ds.to_immutable_dict({"b": {"w": 1}, "a": [2]})
    mapped = tree.map_structure(lambda x: x + 1, frozen)
    assert type(mapped) is type(frozen) and mapped == {"b": {"w": 2}, "a": [3]}


def test_containers_among_the_values_of_a_haiku_dict_are_copied():
    values, array = [1, {"y": 2}], np.ones(2)
    copied = ds.to_haiku_dict({"a": {"w": values, "x": array}})
    values[1]["y"] = 3
    values.append(4)
    assert copied["a"]["w"] == [1, {"y": 2}] and copied["a"]["x"] is array
