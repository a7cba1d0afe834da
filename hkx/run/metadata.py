"""Answers to `importlib.metadata.version("dm-haiku")`: the releases whose names hkx and rlx have."""

from __future__ import annotations

import importlib.metadata
import re
from typing import Any

from hkx.run.private import RELEASES

VERSIONS = {"dm-haiku": RELEASES["haiku"], "rlax": RELEASES["rlax"]}


class Served(importlib.metadata.Distribution):
    """The metadata of a distribution whose modules `hkx.run` serves; it has no files."""

    def __init__(self, name: str):
        self._name = name

    def read_text(self, filename: str) -> str | None:
        if filename != "METADATA":
            return None
        return (
            f"Metadata-Version: 2.1\nName: {self._name}\nVersion: {VERSIONS[self._name]}\n"
            "Summary: served by hkx, as the program runs under python -m hkx.run\n"
        )

    def locate_file(self, path: Any) -> Any:
        raise FileNotFoundError(f"{self._name} has no files, as python -m hkx.run serves it")


def served(name: str | None) -> list[Served]:
    """The distribution of this name, as any spelling has it; none if all are asked for."""
    normalized = re.sub(r"[-_.]+", "-", name or "").lower()
    return [Served(normalized)] if normalized in VERSIONS else []
