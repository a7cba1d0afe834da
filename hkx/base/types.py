"""Type aliases and protocols used throughout hkx."""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping, Sequence
from typing import Any, Protocol, TypeAlias, runtime_checkable

import jax
import numpy as np

Array: TypeAlias = jax.Array
Shape: TypeAlias = Sequence[int]
DType: TypeAlias = Any
PRNGKey: TypeAlias = jax.Array | np.ndarray | np.integer | int
"""A typed key (`jax.random.key`), a raw `uint32` key (`jax.random.PRNGKey`) or an `int` seed."""

Initializer: TypeAlias = Callable[[Shape, DType], Any]
Params: TypeAlias = Mapping[str, Mapping[str, Array]]
State: TypeAlias = Mapping[str, Mapping[str, Array]]
MutableParams: TypeAlias = MutableMapping[str, MutableMapping[str, Array]]
MutableState: TypeAlias = MutableMapping[str, MutableMapping[str, Array]]


@runtime_checkable
class ModuleProtocol(Protocol):
    """The interface of all modules, whatever their class, for type annotations and `isinstance`.

    Example:

      >>> import hkx
      >>> def names(*parts: hkx.ModuleProtocol) -> list[str]:
      ...     return [part.module_name for part in parts]
      >>> found = hkx.testing.transform_and_run(lambda: names(hkx.Linear(1), hkx.nets.MLP([1])))
      >>> found()
      ['linear', 'mlp']
      >>> isinstance(print, hkx.ModuleProtocol)
      False
    """

    name: str
    module_name: str

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if Protocol not in cls.__bases__:
            base = cls.__bases__[0].__name__
            raise TypeError(
                f"{cls.__name__} subclasses `hkx.{base}`, which is a Protocol. For another protocol, "
                f"write `class {cls.__name__}({base}, Protocol)`, or subclass `hkx.Module` for a module."
            )

    def params_dict(self) -> Mapping[str, Array]:
        """The parameters of the module and of its submodules, by full name."""
        ...

    def state_dict(self) -> Mapping[str, Array]:
        """The state of the module and of its submodules, by full name."""
        ...


@runtime_checkable
class SupportsCall(ModuleProtocol, Protocol):
    """A module that can be called: for type annotations and `isinstance`.

    Example:

      >>> import hkx, jax.numpy as jnp
      >>> def twice(layer: hkx.SupportsCall, x):
      ...     return layer(layer(x))
      >>> def f(x):
      ...     layer = hkx.Linear(2)
      ...     return isinstance(layer, hkx.SupportsCall), twice(layer, x).shape
      >>> hkx.testing.transform_and_run(f)(jnp.ones([1, 2]))
      (True, (1, 2))
    """

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Applies the module."""
        ...
