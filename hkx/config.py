"""Settings, one value per thread: `hkx.config.set(…)` and `with hkx.config.context(…)`.

A new thread starts with the settings that the main thread has when the new thread first needs one.
"""

from __future__ import annotations

import contextlib

from hkx.core.settings import InitSetting, replace_settings, settings_scope

__all__ = ["context", "set"]


def set(
    *,
    check_jax_usage: bool | None = None,
    init: InitSetting | None = None,
    module_auto_repr: bool | None = None,
    restore_flatmap: bool | None = None,
    rng_reserve_size: int | None = None,
) -> None:
    """Changes settings of this thread; None leaves a setting as it is.

    A thread that is started later begins with the settings of the main thread.

    Args:
      check_jax_usage: whether every use of hkx inside a raw JAX transform is an error. Uses whose result would be
        wrong are errors in any case.
      init: how the `init` of a transformed function runs it: "traced", on abstract values; "eager", on real ones, as
        Haiku does; "check", both, with an error if the results differ. See `hkx.transform`.
      module_auto_repr: whether the repr of a module shows the call that created it.
      restore_flatmap: accepted for programs written for Haiku; parameters are plain dicts.
      rng_reserve_size: the number of keys split off at a time. Above 1 the keys differ from those of the default.

    Raises:
      ValueError: if `rng_reserve_size` is not an int of at least 1, or `init` is none of the three words.

    Example:

      >>> import hkx
      >>> hkx.config.set(rng_reserve_size=1)
    """
    replace_settings(
        check_jax_usage=check_jax_usage,
        init=init,
        module_auto_repr=module_auto_repr,
        restore_flatmap=restore_flatmap,
        rng_reserve_size=rng_reserve_size,
    )


def context(
    *,
    check_jax_usage: bool | None = None,
    init: InitSetting | None = None,
    module_auto_repr: bool | None = None,
    restore_flatmap: bool | None = None,
    rng_reserve_size: int | None = None,
) -> contextlib.AbstractContextManager[None]:
    """Changes settings of this thread until the `with` block ends; the arguments are those of `set`.

    The end of the block restores the settings that it changed and no others, in whatever order several blocks end.
    `set` inside the block lasts, unless the block set the same setting: that one is restored.

    Raises:
      ValueError: on entering the block, as `set`.

    Example:

      >>> import hkx
      >>> with hkx.config.context(rng_reserve_size=8):
      ...     keys = hkx.PRNGSequence(0).take(8)
    """
    return settings_scope(
        check_jax_usage=check_jax_usage,
        init=init,
        module_auto_repr=module_auto_repr,
        restore_flatmap=restore_flatmap,
        rng_reserve_size=rng_reserve_size,
    )
