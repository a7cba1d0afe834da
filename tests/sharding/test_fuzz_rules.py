"""Random rules: each array in equal parts by the first rule that matches, or an error that says what is wrong."""

import re

import jax
import numpy as np
import pytest
from fuzzing import cases
from hypothesis import given
from hypothesis import strategies as st
from jax.sharding import AbstractMesh
from jax.sharding import PartitionSpec as P

import hkx

MESH = AbstractMesh((2, 4), ("data", "model"))
SIZES = {"data": 2, "model": 4}
TREE = {
    "mlp/~/linear_0": {"w": (6, 8), "b": (8,)},
    "mlp/~/linear_1": {"w": (8, 3), "b": (3,)},
    "norm": {"scale": (), "table": (4, 0, 2)},
}
SHAPES = jax.tree.map(lambda s: jax.ShapeDtypeStruct(s, np.float32), TREE, is_leaf=lambda s: isinstance(s, tuple))
PATTERNS = [".*", ".*/w", "norm/.*", "mlp/~/linear_0/b", "nothing", "(", "", ".*linear.*", re.compile(".*/b"), 3, None]
ENTRIES = [None, "data", "model", ("data", "model"), ("model",), "other", ("data", "data"), ()]


def drawn_rule(rng):
    spec = P(*[ENTRIES[rng.choice(8, p=[0.3, 0.2, 0.2, 0.1, 0.1, 0.03, 0.03, 0.04])] for _ in range(rng.integers(4))])
    odd = [("a",), "rule", (".*", None), (".*", "data"), None, [".*", spec]]
    return odd[rng.integers(len(odd))] if rng.random() < 0.05 else (PATTERNS[rng.integers(len(PATTERNS))], spec)


def expected_part(shape, path, rules):
    """What a device has of an array, worked out by hand."""
    for pattern, spec in rules:
        if re.fullmatch(pattern, path):
            axes = [() if e is None else (e,) if isinstance(e, str) else e for e in (*spec, *[None] * len(shape))]
            return tuple(n // int(np.prod([SIZES[a] for a in names])) for n, names in zip(shape, axes, strict=False))
    return shape


def problem(seed):
    rng = np.random.default_rng(seed)
    rules = [drawn_rule(rng) for _ in range(rng.integers(1, 4))]
    unmatched = rng.choice(["replicate", "error", "odd"], p=[0.7, 0.25, 0.05])
    try:
        made = hkx.sharding.shardings(SHAPES, MESH, rules, unmatched=str(unmatched))
    except hkx.errors.ShardingRuleError:
        return None
    except Exception as error:
        return f"{seed}: {rules}: {error!r}"
    for module, entries in TREE.items():
        for name, shape in entries.items():
            part, expected = made[module][name].shard_shape(shape), expected_part(shape, f"{module}/{name}", rules)
            if part != expected:
                return f"{seed}: {rules}: {module}/{name} {part}, expected {expected}"
    return None


@pytest.mark.slow
@cases(1000)
@given(st.integers(0, 2**32 - 1))
def test_rules_divide_or_say_what_is_wrong(seed):
    assert problem(seed) is None
