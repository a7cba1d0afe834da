"""The ways in which `init` runs a function: on abstract values, on real ones as `apply` does, or on both to compare."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import jax
import jax.core
import numpy as np

from hkx.base.key_arrays import for_another_use
from hkx.base.keys import is_typed_key
from hkx.base.trees import own_tree, unshared
from hkx.core.frame import local
from hkx.core.making import Eager
from hkx.core.settings import InitSetting, current_settings, settings_scope
from hkx.core.transform import Created, run_open
from hkx.errors.core import HkxError
from hkx.errors.init import AbstractInitError, InitDependsOnTracingError, LeakedByInitError
from hkx.init.fallback import ValuesNeeded, asks_for_values
from hkx.init.leaks import arrays_of, holder
from hkx.init.recording import Recording, has_abstract
from hkx.init.traced import create_traced
from hkx.jaxprs.traces import recording


def _on_shapes() -> bool:
    """True if this runs inside an `init` that was given shapes instead of arrays."""
    return bool(local.frames) and local.frames[-1].maker.on_shapes


def run_initialising(f: Callable[..., Any], key: Any, args: Any = (), kwargs: Any = None) -> Created:
    """Creates parameters and initial state by running `f` directly, on real values, including its forward pass."""
    return run_open(f, Eager(_on_shapes()), key, args, kwargs)


def create(f: Callable[..., Any], key: Any, args: Any, kwargs: Any, setting: InitSetting | None) -> Created:
    """Creates parameters and initial state in the way that `setting` says; None uses the setting `init`."""
    how = setting or current_settings().init
    if how == "traced":
        return _traced(f, key, args, kwargs)
    if has_abstract((args, kwargs)):
        raise AbstractInitError(how)
    if how == "eager":
        return _eager(f, key, args, kwargs)
    return _checked(f, key, args, kwargs)


def _eager(f: Callable[..., Any], key: Any, args: Any, kwargs: Any) -> Created:
    with settings_scope(init="eager"):  # also for transforms inside `f`
        return run_initialising(f, key, args, kwargs)


def _checked(f: Callable[..., Any], key: Any, args: Any, kwargs: Any) -> Created:
    with settings_scope(init="traced"):
        abstract = _traced(f, key, *own_tree((args, kwargs), unshared))
    real = _eager(f, for_another_use(key), args, kwargs)
    differences = [*_differences("parameter", abstract[0], real[0]), *_differences("state", abstract[1], real[1])]
    if differences:
        raise InitDependsOnTracingError(differences)
    return real


def _differences(what: str, abstract: Any, real: Any) -> Iterable[str]:
    """A line for each entry in which two two-level dicts differ."""
    mine, theirs = (
        {f"{b}/{n}": v for b, entries in tree.items() for n, v in entries.items()} for tree in (abstract, real)
    )
    for path in dict.fromkeys((*theirs, *mine)):
        if path not in mine or path not in theirs:
            yield f"{what} {path!r} is made on {'real' if path in theirs else 'abstract'} values only"
        elif _types(mine[path]) != _types(theirs[path]):
            yield f"{what} {path!r} is {_types(mine[path])} on abstract values, {_types(theirs[path])} on real ones"
        elif not _equal_up_to_rounding(mine[path], theirs[path]):
            yield f"{what} {path!r} has other values"


def _types(tree: Any) -> str:
    return str(jax.tree.map(lambda x: f"{getattr(x, 'dtype', type(x).__name__)}{list(np.shape(x))}", tree)).strip("'")


def _equal_up_to_rounding(mine: Any, theirs: Any) -> bool:
    """True if two trees of the same structure contain the same numbers, up to rounding differences from compilation."""
    for x, y in zip(jax.tree.leaves(mine), jax.tree.leaves(theirs), strict=True):
        if isinstance(x, jax.core.Tracer) or isinstance(y, jax.core.Tracer):
            continue  # under `jax.jit`
        x, y = (jax.random.key_data(z) if is_typed_key(z) else z for z in (x, y))
        x, y = (np.asarray(z, np.complex128 if np.iscomplexobj(z) else np.float64) for z in (x, y))
        if not np.allclose(x, y, rtol=1e-3, atol=1e-5, equal_nan=True):
            return False
    return True


_NOTE = (
    "`init` ran this on abstract values, as `jax.jit` does. If the code needs real ones, use "
    '`hkx.transform(f, init="eager")`.'
)


def _traced(f: Callable[..., Any], key: Any, args: Any, kwargs: Any) -> Created:
    """Creates parameters and initial state from a trace of `f`; if `f` needs real values, by running it on them."""
    abstract = has_abstract((args, kwargs))
    if not abstract and jax.config.jax_disable_jit:  # type: ignore[attr-defined]  # the user wants to look at values
        return run_initialising(f, key, args, kwargs)
    around = local.frames[-1].maker if local.frames else None
    if not abstract and isinstance(around, Recording) and recording():  # the outer `init` drops what is not needed
        return run_open(f, Recording(key, around.on_shapes, around), key, args, kwargs)
    recorder = Recording(key, abstract or _on_shapes())
    try:
        created = create_traced(f, recorder, args, kwargs)
        if abstract or not arrays_of(recorder.trace):
            _check_dead(recorder)
            return created
    except ValuesNeeded as error:
        if abstract:
            cause = error.__cause__
            if isinstance(cause, Exception) and (isinstance(cause, HkxError) or not asks_for_values(cause)):
                raise cause from cause.__cause__
            raise AbstractInitError() from cause
    except Exception as error:
        if not isinstance(error, HkxError) and _NOTE not in getattr(error, "__notes__", ()):
            error.add_note(_NOTE)
        raise
    try:
        created = run_initialising(f, for_another_use(key), args, kwargs)
    except jax.errors.UnexpectedTracerError as error:
        _check_dead(recorder, error)
        raise
    _check_dead(recorder)
    return created


def _check_dead(recorder: Recording, cause: Exception | None = None) -> None:
    """Raises an error if the user's program still holds a traced array of the abstract run."""
    place = holder(arrays_of(recorder.trace))
    if place is not None:
        raise LeakedByInitError(place) from cause
