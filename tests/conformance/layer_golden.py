"""Writes layer_golden.json: names, shapes and initial values as dm-haiku makes them. A script, which needs dm-haiku."""

from __future__ import annotations

import json
import pathlib
import zlib
from typing import Any

import jax
import numpy as np

GOLDEN = pathlib.Path(__file__).with_name("layer_golden.json")
SEED = 7


def described(tree: Any) -> dict[str, list[Any]]:
    """Shape, dtype and a checksum of the bits of every array in a dict of dicts."""
    return {
        f"{bundle}:{name}": [list(np.shape(x)), str(np.asarray(x).dtype), zlib.crc32(np.asarray(x).tobytes())]
        for bundle, entries in sorted(tree.items())
        for name, x in sorted(entries.items())
    }


def initial(lib: Any, case: Any) -> dict[str, Any]:
    """The parameters that `init` makes, and the names and shapes of the state.

    The values of the state are statistics of the inputs, which depend on the order of summation.
    """
    model = lib.transform_with_state(lambda *args: case.call(lib, *args))
    params, state = model.init(jax.random.PRNGKey(SEED), *case.arrays())
    states = {name: facts[:2] for name, facts in described(state).items()}
    return {"params": described(params), "state": states}


def main() -> None:
    """Writes the file."""
    import haiku
    from layer_registry import CASES

    golden = {case.name: initial(haiku, case) for case in CASES if not case.ours}
    lines = [f"{json.dumps(name)}: {json.dumps(facts)}" for name, facts in golden.items()]
    GOLDEN.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
