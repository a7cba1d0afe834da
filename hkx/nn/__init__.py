"""Layers, written with nothing but what `hkx` exports."""

from hkx.errors.slips import OF_HKX


def __getattr__(name: str) -> object:
    raise AttributeError(f"module 'hkx.nn' has no attribute {name!r}: {OF_HKX['nn']}")
