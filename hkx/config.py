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
      check_jax_usage: whether every use inside a raw JAX transform is an error. Those whose result would be wrong
        always are.
      init: how the `init` of a transformed function runs it: "traced", on abstract values; "eager", on real ones, as
        Haiku does; "check", both, with an error where they make something else. See `hkx.transform`.
      module_auto_repr: whether the repr of a module shows how it was made.
      restore_flatmap: accepted for programs written for Haiku; parameters are plain dicts.
      rng_reserve_size: how many keys are split off at a time. Above 1 the keys differ from those of the default.

    Raises:
      ValueError: if `rng_reserve_size` is not an int of at least 1, or `init` is another word.

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

    The end takes back what the context changed and nothing else, in whatever order several contexts end. What `set`
    changes in between holds on, except for a setting that an open context changes too: that one goes back with it.

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
