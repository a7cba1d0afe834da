"""Layers, written only with names that `hkx` exports."""


def __getattr__(name: str) -> object:
    raise AttributeError(
        f"module 'hkx.nn' has no attribute {name!r}: layers are in `hkx` itself, `hkx.Linear`; `jax.nn` has functions"
    )
