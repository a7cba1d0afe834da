"""Settings that a program may change, separately for each thread. A new thread begins with those of the main thread."""

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
    """Returns `value` if it is a valid setting of `init`, or None; otherwise raises ValueError."""
    if value is not None and (not isinstance(value, str) or value not in typing.get_args(InitSetting)):
        known = ", ".join(f'"{name}"' for name in typing.get_args(InitSetting))
        raise ValueError(f"`init` must be one of {known}, got {value!r}.")
    return value  # pyright: ignore[reportReturnType]


@dataclasses.dataclass(frozen=True)
class Settings:
    """The active settings; see `hkx.config.set` for what each one does."""

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
    """The settings of one thread: a base layer, and above it a layer of changes for each open context, newest last."""

    def __init__(self, settings: Settings):
        self._lowest: dict[str, Any] = dataclasses.asdict(settings)
        self._contexts: list[dict[str, Any]] = []
        self.in_force = settings

    def _layer_of(self, name: str) -> dict[str, Any]:
        """The topmost layer that contains a setting."""
        return next((layer for layer in reversed(self._contexts) if name in layer), self._lowest)

    def _update(self) -> None:
        self.in_force = Settings(**{name: self._layer_of(name)[name] for name in self._lowest})

    def checked(self, changes: dict[str, Any]) -> dict[str, Any]:
        """The changes that are not None. Raises an error if one is invalid, before any is made."""
        changes = {name: value for name, value in changes.items() if value is not None}
        dataclasses.replace(self.in_force, **changes)
        return changes

    def replace(self, changes: dict[str, Any]) -> None:
        """Changes each setting in the topmost layer that contains it, so until that layer's context ends."""
        for name, value in self.checked(changes).items():
            self._layer_of(name)[name] = value
        self._update()

    def open(self, layer: dict[str, Any]) -> None:
        """Adds a layer on top. `close` removes only this layer, so contexts may end in any order."""
        self._contexts.append(layer)
        self._update()

    def close(self, layer: dict[str, Any]) -> None:
        """Removes a layer."""
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
    """Changes this thread's settings and returns the previous ones; None leaves a setting unchanged."""
    before = current_settings()
    _local.layers.replace(changes)
    return before


@contextlib.contextmanager
def settings_scope(**changes: bool | int | str | None) -> Iterator[None]:
    """Changes settings of the thread that enters the `with` block until it ends, even if another thread ends it."""
    layers = _local.layers
    layer = layers.checked(changes)
    try:
        try:
            layers.open(layer)
            yield
        finally:
            layers.close(layer)
    finally:
        layers.close(layer)  # again, in case Ctrl-C interrupted the first call
