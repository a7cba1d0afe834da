"""What is said, beyond the error itself, to a program that does as with another library, or nearly right."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from hkx.errors.core import NoSuchAttributeError, NotCallableError
from hkx.errors.near import did_you_mean


def missing_attribute(owner: Any, name: str, instead: Mapping[str, str]) -> Any:
    """What asking for an attribute does that `owner` does not have, where a class gives this as its `__getattr__`.

    Args:
      owner: the object.
      name: the attribute.
      instead: what to write instead of it, by attributes that other libraries have.
    """
    absent = not hasattr(type(owner), name)  # and no property that failed
    if absent and name in instead:
        raise NoSuchAttributeError(owner, name, instead[name])
    try:
        return object.__getattribute__(owner, name)  # raises again what it raised before, in a property too
    except AttributeError as error:
        if absent and name != "name" and not name.startswith("_") and (meant := did_you_mean(name, dir(owner))):
            error.args, error.name, error.obj = (f"{error}{meant}",), name, None  # given it, Python asks again
        if callable(getattr(type(owner), "setup", None)):
            error.add_note("Unless you do, nobody calls `setup`: make modules in `__init__`, or where needed.")
        raise


def refusing_call(cls: type, advice: str) -> Callable[..., Any]:
    """What calling a module does whose class has `forward` in place of `__call__`."""

    def __call__(self: Any, *args: Any, **kwargs: Any) -> Any:
        following = getattr(super(cls, self), "__call__", None)  # noqa: B004  # of a class mixed in after this one
        if following is None:
            raise NotCallableError(f"{type(self).__name__!r} object", advice)
        return following(*args, **kwargs)

    return __call__


def note_arguments(error: Exception, cls: type, args: Any, kwargs: Any, has_fields: bool) -> None:
    """Adds the arguments of the constructor to an error that is about them."""
    if has_fields:
        error.add_note(f"For the fields of {cls.__name__} to be arguments, decorate it with `@dataclasses.dataclass`.")
        return
    signature = inspect.signature(cls)
    try:
        signature.bind(*args, **kwargs)
    except TypeError:
        plain = [parameter.replace(annotation=inspect.Parameter.empty) for parameter in signature.parameters.values()]
        error.add_note(f"The arguments are `{cls.__name__}{inspect.Signature(plain)}`.")


def note_initializer(error: TypeError, init: Any) -> None:
    """Says what an initializer is, where the error comes from giving something else."""
    if isinstance(init, type):
        error.add_note(f"The initializer is a class: give an object of it, `{init.__name__}(…)`.")
        return
    with contextlib.suppress(TypeError, ValueError):  # a function without a signature
        if next(iter(inspect.signature(init).parameters), None) in ("key", "rng"):
            error.add_note(
                "An initializer is a function of (shape, dtype), and draws keys itself. One of JAX or Flax is given as "
                "`lambda shape, dtype: f(hkx.next_rng_key(), shape, dtype)`."
            )
