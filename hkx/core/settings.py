"""Settings that a program may change, one value per thread; a new thread begins with those of the main thread."""

from __future__ import annotations

import contextlib
import dataclasses
import threading
from collections.abc import Iterator


@dataclasses.dataclass(frozen=True)
class Settings:
    """The settings in force; see `hkx.config.set` for what each one does."""

    check_jax_usage: bool = False
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


def replace_settings(**changes: bool | int | None) -> Settings:
    """Changes this thread's settings and returns those that were in force before; None leaves a setting as it is."""
    size = changes.get("rng_reserve_size")
    if size is not None and (isinstance(size, bool) or not isinstance(size, int) or size < 1):
        raise ValueError(f"`rng_reserve_size` must be an int of at least 1, got {size!r}.")
    before = _local.settings
    _put(dataclasses.replace(before, **{k: v for k, v in changes.items() if v is not None}))  # type: ignore[arg-type]
    return before


@contextlib.contextmanager
def settings_scope(**changes: bool | int | None) -> Iterator[None]:
    """Changes this thread's settings until the `with` block ends."""
    before = replace_settings(**changes)
    try:
        yield
    finally:
        _put(before)
