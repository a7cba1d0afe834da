"""In which order the tests of operators run."""

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests of one operator of the registry follow each other, whatever their files: they share compiled programs."""
    cases = {i: item.callspec.params.get("case") for i, item in enumerate(items) if hasattr(item, "callspec")}
    names = {i: case.name for i, case in cases.items() if hasattr(case, "oracle")}
    order = {name: n for n, name in enumerate(dict.fromkeys(names.values()))}
    by_operator = [items[i] for i in sorted(names, key=lambda i: order[names[i]])]
    for i, item in zip(names, by_operator, strict=True):
        items[i] = item
