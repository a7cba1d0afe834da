"""Errors of exchanging weights with another library."""

from __future__ import annotations

from collections.abc import Iterable

from hkx.errors.core import HkxError


class WeightMismatchError(HkxError, ValueError):
    """The weights from another library do not match the parameters of hkx, or the other way round."""

    def __init__(self, problem: str, paths: Iterable[str] = (), advice: str = ""):
        listed = "".join(f"\n  {path}" for path in paths)
        super().__init__(f"{problem}{':' if listed else '.'}{listed}{chr(10) + advice if advice else ''}")


class PretrainedConfigError(HkxError, ValueError):
    """The configuration of a pretrained model describes something that hkx does not know, or lacks an entry."""
