"""Settings that a program may change, one value per thread; a new thread begins with those of the main thread."""

from __future__ import annotations

import contextlib
import dataclasses
import threading
import typing
from collections.abc import Iterator
from typing import Any, Literal, TypeAlias

import numpy as np

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

    def __post_init__(self) -> None:
        size = self.rng_reserve_size
        if isinstance(size, bool) or not isinstance(size, (int, np.integer)) or size < 1:
            raise ValueError(f"`rng_reserve_size`, the RNG reserve size, must be an int of at least 1, got {size!r}.")
        init_setting(self.init)


class _Layers:
    """The settings of one thread: what was set, and over it what each open context changes, the latest on top."""

    def __init__(self, settings: Settings):
        self._lowest: dict[str, Any] = dataclasses.asdict(settings)
        self._contexts: list[dict[str, Any]] = []
        self.in_force = settings

    def _layer_of(self, name: str) -> dict[str, Any]:
        """The uppermost layer that says what a setting is."""
        return next((layer for layer in reversed(self._contexts) if name in layer), self._lowest)

    def _update(self) -> None:
        self.in_force = Settings(**{name: self._layer_of(name)[name] for name in self._lowest})

    def checked(self, changes: dict[str, Any]) -> dict[str, Any]:
        """Those that change something; raises while nothing is changed yet."""
        changes = {name: value for name, value in changes.items() if value is not None}
        dataclasses.replace(self.in_force, **changes)
        return changes

    def replace(self, changes: dict[str, Any]) -> None:
        """Changes settings until the contexts end that changed them before."""
        for name, value in self.checked(changes).items():
            self._layer_of(name)[name] = value
        self._update()

    def open(self, layer: dict[str, Any]) -> None:
        """Puts a layer on top, which `close` takes away again, and it alone: contexts may end in any order."""
        self._contexts.append(layer)
        self._update()

    def close(self, layer: dict[str, Any]) -> None:
        """Takes away a layer."""
        self._contexts = [other for other in self._contexts if other is not layer]
        self._update()


_of_main_thread = _Layers(Settings())


class _Local(threading.local):
    def __init__(self) -> None:
        is_main = threading.current_thread() is threading.main_thread()
        self.layers = _of_main_thread if is_main else _Layers(_of_main_thread.in_force)


_local = _Local()


def current_settings() -> Settings:
    """The settings of this thread."""
    return _local.layers.in_force


def replace_settings(**changes: bool | int | str | None) -> Settings:
    """Changes this thread's settings and returns those that were in force before; None leaves a setting as it is."""
    before = current_settings()
    _local.layers.replace(changes)
    return before


@contextlib.contextmanager
def settings_scope(**changes: bool | int | str | None) -> Iterator[None]:
    """Changes settings of the thread that enters the `with` block until it ends, in whichever thread that is."""
    layers = _local.layers
    layer = layers.checked(changes)
    try:
        try:
            layers.open(layer)
            yield
        finally:
            layers.close(layer)
    finally:
        layers.close(layer)  # again, for a Ctrl-C that came while that ran
