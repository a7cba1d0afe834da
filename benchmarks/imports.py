"""What an import costs above `import jax`, in milliseconds of CPU."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable

REFERENCE = "haiku"


def _importing(*modules: str) -> Callable[[], dict[str, float]]:
    def measure() -> dict[str, float]:
        import jax  # noqa: F401

        start = time.process_time()
        for module in modules:
            importlib.import_module(module)
        return {"import, ms": (time.process_time() - start) * 1e3}

    return measure


def _everything() -> dict[str, float]:
    """With every public name of both packages used."""
    import jax  # noqa: F401

    start = time.process_time()
    for package in map(importlib.import_module, ("hkx", "rlx")):
        for name in package.__all__:
            getattr(package, name)
    return {"import, ms": (time.process_time() - start) * 1e3}


SIDES = {
    "haiku": _importing("haiku"),
    "rlax": _importing("rlax"),
    "hkx and rlx": _importing("hkx", "rlx"),
    "hkx and rlx, every name": _everything,
    "flax linen": _importing("flax.linen"),
    "flax nnx": _importing("flax.nnx"),
    "equinox": _importing("equinox"),
}
