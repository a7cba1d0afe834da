"""Settings that a program may change, one value per thread; a new thread begins with those of the main thread."""

from __future__ import annotations

import contextlib
import dataclasses
import threading
import typing
from collections.abc import Iterator
from typing import Any, Literal, TypeAlias

InitSetting: TypeAlias = Literal["traced", "eager", "check"]


def init_setting(value: Any) -> InitSetting | None:
    """`value`, where it says how `init` runs a function, or is None; else ValueError."""
    if value is not None and value not in typing.get_args(InitSetting):
        known = ", ".join(f'"{name}"' for name in typing.get_args(InitSetting))
        raise ValueError(f"`init` must be one of {known}, got {value!r}.")
    return value


@dataclasses.dataclass(frozen=True)
class Settings:
    """The settings in force; see `hkx.config.set` for what each one does."""

    check_jax_usage: bool = False
    init: InitSetting = "traced"
    module_auto_repr: bool = True
    restore_flatmap: bool = False
    rng_reserve_size: int = 1


_of_main_thread = Settings()


class _Local(threading.local):
    def __init__(self) -> None:
        self.settings = _of_main_thread


_local = _Local()


def _put(settings: Settings) -> None:
    global _of_main_thread
    _local.settings = settings
    if threading.current_thread() is threading.main_thread():
        _of_main_thread = settings


def current_settings() -> Settings:
    """The settings of this thread."""
    return _local.settings


def replace_settings(**changes: Any) -> Settings:
    """Changes this thread's settings and returns those that were in force before; None leaves a setting as it is."""
    size = changes.get("rng_reserve_size")
    if size is not None and (isinstance(size, bool) or not isinstance(size, int) or size < 1):
        raise ValueError(f"`rng_reserve_size` must be an int of at least 1, got {size!r}.")
    init_setting(changes.get("init"))
    before = _local.settings
    _put(dataclasses.replace(before, **{k: v for k, v in changes.items() if v is not None}))  # type: ignore[arg-type]
    return before


@contextlib.contextmanager
def settings_scope(**changes: Any) -> Iterator[None]:
    """Changes this thread's settings until the `with` block ends."""
    before = replace_settings(**changes)
    try:
        yield
    finally:
        _put(before)
