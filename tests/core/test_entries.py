"""Dicts of two levels: what was kept stays as it was, and what has not changed is not copied."""

import pytest

from hkx.base import entries
from hkx.core.frame import Frame, Phase
from hkx.lift.crossing import snapshot


@pytest.fixture
def tree():
    return {"a": {"w": [1], "b": [2]}, "c": {"w": [3]}}


@pytest.mark.parametrize("change", [entries.add, entries.add_absent])
def test_what_was_kept_stays_as_it_was_and_shares_what_has_not_changed(tree, change):
    kept, copy = entries.snapshot_of(tree), entries.copied(tree)
    change(tree, {"a": {"new": [4]}, "d": {"w": [5]}})
    assert kept == copy
    assert kept["c"] is tree["c"]  # a model of n modules would be copied in each of n loops
    assert kept["a"] is not tree["a"]
    assert entries.changed(kept, tree) == {"a": {"new": [4]}, "d": {"w": [5]}}
    assert entries.changed(tree, tree) == {}


def test_an_entry_is_changed_where_it_is_another_object(tree):
    kept = entries.snapshot_of(tree)
    entries.add(tree, {"a": {"w": [1], "b": tree["a"]["b"]}})
    assert entries.changed(kept, tree) == {"a": {"w": [1]}}
    entries.add_absent(tree, {"a": {"w": None}})
    assert tree["a"]["w"] == [1]
    entries.add(tree, {"c": {"none": None}})
    assert entries.changed(kept, tree)["c"] == {"none": None}


def test_a_name_is_new_where_nothing_was_kept_under_it(tree):
    kept = entries.snapshot_of(tree)
    assert not entries.has_new_names(kept, tree)
    entries.add(tree, {"a": {"w": [9]}})
    assert not entries.has_new_names(kept, tree)  # another value
    entries.add(tree, {"a": {"new": [4]}})
    assert entries.has_new_names(kept, tree)
    assert entries.has_new_names(tree, {**tree, "d": {"w": [5]}})
    assert not entries.has_new_names(tree, {})


def test_merged_and_copied_leave_what_they_were_given(tree):
    before = entries.copied(tree)
    both = entries.merged(tree, {"a": {"w": [9]}})
    assert both == {"a": {"w": [9], "b": [2]}, "c": {"w": [3]}}
    copy = entries.copied(tree)
    copy["a"]["w"] = [7]
    assert tree == before


def test_a_running_function_copies_a_modules_dict_once_for_each_time_that_it_was_kept():
    frame = Frame({}, {}, None, phase=Phase.OPEN)
    frame.put(frame.params, "a", "w", 1)
    own = frame.params["a"]
    frame.put(frame.params, "a", "b", 2)
    assert frame.params["a"] is own  # with a thousand entries in one module each costs the same
    before = snapshot(frame)
    frame.put(frame.params, "a", "w", 3)
    assert before.params == {"a": {"w": 1, "b": 2}}
    assert frame.params == {"a": {"w": 3, "b": 2}}
    again = frame.params["a"]
    frame.put(frame.params, "a", "c", 4)
    assert frame.params["a"] is again is not own
