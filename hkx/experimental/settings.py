"""Names of Haiku's `experimental` package that are other names, or other defaults, of what hkx has elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hkx.core.hooks import GetterContext
from hkx.core.settings import current_settings, replace_settings
from hkx.lift.wrappers import eval_shape
from hkx.tools.summary import Summarised
from hkx.tools.summary import tabulate as full_tabulate
from hkx.tools.table import Table

ParamContext = GetterContext
"""Another name of `GetterContext`."""


def check_jax_usage(enabled: bool = True) -> bool:
    """Sets whether every use of hkx inside a raw JAX transform is an error: `hkx.config.set(check_jax_usage=...)`.

    Uses whose result would be wrong are errors in any case.

    Args:
      enabled: the new setting.

    Returns:
      The previous setting.

    Example:

      >>> import hkx
      >>> hkx.experimental.check_jax_usage(False)
      False
    """
    return replace_settings(check_jax_usage=enabled).check_jax_usage


def module_auto_repr(enabled: bool) -> bool:
    """Sets whether the repr of a module shows the call that created it.

    Args:
      enabled: the new setting.

    Returns:
      The previous setting.

    Example:

      >>> import hkx
      >>> hkx.experimental.module_auto_repr(True)
      True
    """
    return replace_settings(module_auto_repr=enabled).module_auto_repr


def rng_reserve_size(size: int) -> int:
    """Sets how many keys are split off at a time; above 1 the keys differ from those of the default.

    Args:
      size: the number of keys, at least 1.

    Returns:
      The previous setting.

    Raises:
      ValueError: if `size` is not an int of at least 1.

    Example:

      >>> import hkx
      >>> hkx.experimental.rng_reserve_size(1)
      1
    """
    before = current_settings().rng_reserve_size
    replace_settings(rng_reserve_size=size)
    return before


def fast_eval_shape(fun: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """The shapes and dtypes that a function returns; the same as `hkx.eval_shape`, since `init` samples nothing there.

    Args:
      fun: the function.
      *args: its arguments, or `jax.ShapeDtypeStruct` in their place.
      **kwargs: likewise.

    Returns:
      The result of `fun` with `jax.ShapeDtypeStruct` in place of arrays.

    Example:

      >>> import hkx, jax, jax.numpy as jnp
      >>> model = hkx.transform(lambda x: hkx.Linear(2)(x))
      >>> hkx.experimental.fast_eval_shape(model.init, jax.random.key(0), jnp.ones([1, 3]))["linear"]["b"]
      ShapeDtypeStruct(shape=(2,), dtype=float32)
    """
    return eval_shape(fun, *args, **kwargs)


def tabulate(
    f: Summarised,
    *,
    columns: Sequence[str] | None = (
        "module",
        "config",
        "owned_params",
        "input",
        "output",
        "params_size",
        "params_bytes",
    ),
    filters: Sequence[str] | None = ("has_output",),
    tabulate_kwargs: Mapping[str, Any] = {"tablefmt": "grid"},
) -> Callable[..., Table]:
    """`hkx.tabulate` with Haiku's columns and rows, of any width.

    Args:
      f: as for `hkx.tabulate`.
      columns: as for `hkx.tabulate`.
      filters: as for `hkx.tabulate`; None means `"has_output"`.
      tabulate_kwargs: as for `hkx.tabulate`.

    Returns:
      As `hkx.tabulate`.

    Raises:
      ValueError: as `hkx.tabulate`.

    Example:

      >>> import hkx, jax.numpy as jnp
      >>> table = hkx.experimental.tabulate(lambda x: hkx.Linear(2)(x), columns=["module", "input", "output"],
      ...                                   tabulate_kwargs={"tablefmt": "plain"})
      >>> print(table(jnp.ones([1, 3])))
      Module           Input     Output
      linear (Linear)  f32[1,3]  f32[1,2]
    """
    shown = ("has_output",) if filters is None else filters
    return full_tabulate(f, columns=columns, filters=shown, tabulate_kwargs=tabulate_kwargs, total=False, width=None)
