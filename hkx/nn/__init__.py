"""Layers, written with nothing but what `hkx` exports."""
