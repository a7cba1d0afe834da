"""Advice added to errors, for code that is nearly right or uses the names of another library."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from hkx.errors.core import NoSuchAttributeError, NotCallableError
from hkx.errors.near import did_you_mean


def missing_attribute(owner: Any, name: str, instead: Mapping[str, str]) -> Any:
    """The implementation of a class's `__getattr__`: raises an AttributeError with advice.

    Args:
      owner: the object.
      name: the missing attribute.
      instead: for attributes of other libraries, what to write instead.
    """
    absent = not hasattr(type(owner), name)  # otherwise it is a property that raised an AttributeError
    if absent and name in instead:
        raise NoSuchAttributeError(owner, name, instead[name])
    try:
        return object.__getattribute__(owner, name)  # raises the original error again
    except AttributeError as error:
        if absent and name != "name" and not name.startswith("_") and (meant := did_you_mean(name, dir(owner))):
            # Given `obj`, Python would add a suggestion of its own.
            error.args, error.name, error.obj = (f"{error}{meant}",), name, None
        if callable(getattr(type(owner), "setup", None)):
            error.add_note("hkx does not call `setup`: create modules in `__init__`, or where they are used.")
        raise


def refusing_call(cls: type, advice: str) -> Callable[..., Any]:
    """The `__call__` of a module class that defines `forward` instead: raises an error with advice."""

    def __call__(self: Any, *args: Any, **kwargs: Any) -> Any:
        following = getattr(super(cls, self), "__call__", None)  # noqa: B004  # of a class mixed in after this one
        if following is None:
            raise NotCallableError(f"{type(self).__name__!r} object", advice)
        return following(*args, **kwargs)

    return __call__


def note_arguments(error: Exception, cls: type, args: Any, kwargs: Any, has_fields: bool) -> None:
    """Adds a note about the constructor's arguments to an error that they caused."""
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
    """Adds a note to the TypeError of calling `init`, if it is not an initializer but looks like a common mistake."""
    if isinstance(init, type):
        error.add_note(f"The initializer is a class: pass an instance of it, `{init.__name__}(…)`.")
        return
    with contextlib.suppress(TypeError, ValueError):  # a function without a signature
        if next(iter(inspect.signature(init).parameters), None) in ("key", "rng"):
            error.add_note(
                "An initializer is a function of (shape, dtype) that draws keys itself. Wrap an initializer of JAX or "
                "Flax as `lambda shape, dtype: f(hkx.next_rng_key(), shape, dtype)`."
            )


# What to write instead of attributes of PyTorch and Flax that hkx does not have.
_LIST = "`print(module)` shows the modules that it holds, `hkx.tabulate(f)(x)` all modules that run"
_PARAMETERS = (
    "parameters are not attributes: `init` returns them, `params = model.init(key, x)`, as a dict of dicts of arrays, "
    "`params['linear']['w']`; inside the transformed function, `module.params_dict()` returns a module's own"
)
_MODE = "a module has no mode: give its `__call__` an argument `is_training`, and pass it on to the layers that need it"
_DEVICE = "JAX creates parameters on its default device; to move them: `params = jax.device_put(params, device)`"
_DTYPE = "a layer takes the dtype of its input; `hkx.mixed_precision` sets another dtype for a class of modules"
_FROZEN = "to freeze parameters, do not pass them to `jax.grad`: `hkx.data_structures.partition` splits parameters"
_CALL = "name the method that computes `__call__`, and call the module itself, `module(x)`"
_PAIR = "`model = hkx.transform(f)` has them: `params = model.init(key, x)` and `y = model.apply(params, key, x)`"

OF_MODULES = {
    "forward": _CALL,
    **dict.fromkeys(("parameters", "named_parameters", "weight", "bias", "kernel", "w", "b"), _PARAMETERS),
    **dict.fromkeys(("children", "named_children", "modules", "named_modules"), _LIST),
    **dict.fromkeys(("train", "eval", "training"), _MODE),
    **dict.fromkeys(("to", "cuda", "cpu", "device"), _DEVICE),
    **dict.fromkeys(("half", "float", "double", "bfloat16"), _DTYPE),
    **dict.fromkeys(("requires_grad", "requires_grad_"), _FROZEN),
    **dict.fromkeys(("init", "apply"), _PAIR),
    "zero_grad": "there is nothing to reset: `jax.grad(loss)(params)` returns new gradients at each call",
    "load_state_dict": (
        "parameters are passed to `apply`; `hkx.interop.torch.from_state_dict` converts PyTorch's weights"
    ),
    "register_parameter": "`hkx.get_parameter(name, shape, init=…)` creates a parameter where it is used",
    "register_buffer": "`hkx.get_state(name, shape, init=…)` and `hkx.set_state(name, value)` store other values",
    "add_module": "not needed: a module belongs to the module whose method creates it",
    "param": "`hkx.get_parameter(name, shape, dtype, init)` creates a parameter where it is used",
    "make_rng": "`hkx.next_rng_key()` returns a new key at each call",
    **dict.fromkeys(("sow", "perturb"), "`hkx.set_state(name, value)` keeps a value, `hkx.capture_intermediates` all"),
    **dict.fromkeys(("variables", "params"), _PARAMETERS),
    "variable": "`hkx.get_state(name, shape, dtype, init)` creates a state where it is used",
}

_MODEL = "a transformed function is the pair `init` and `apply`, and holds no parameters"
OF_TRANSFORMED = {
    **dict.fromkeys(("parameters", "named_parameters", "state_dict"), f"{_MODEL}: `params = model.init(key, x)`"),
    "load_state_dict": f"{_MODEL}; {OF_MODULES['load_state_dict']}",
    **dict.fromkeys(("train", "eval", "training"), f"{_MODEL}: give the function an argument `is_training`"),
    **dict.fromkeys(("to", "cuda", "cpu"), f"{_MODEL}: `params = jax.device_put(params, device)`"),
    **dict.fromkeys(("forward", "predict"), f"{_MODEL}: `y = model.apply(params, key, x)`"),
    **dict.fromkeys(("weight", "bias", "params", "children", "modules"), f"{_MODEL}: `params = model.init(key, x)`"),
    **dict.fromkeys(("bind", "init_with_output"), f"{_MODEL}: `params = model.init(key, x)`"),
    "tabulate": "`print(hkx.tabulate(f)(x))`, where `f` is the function before `hkx.transform`",
    **{name: OF_MODULES[name] for name in ("half", "float", "double", "requires_grad", "requires_grad_", "zero_grad")},
}

OF_BRANCHES = (
    "Modules in all branches of an `hkx.cond` or `hkx.switch` are numbered from the same start, so this branch shares "
    "its parameters with an earlier one. For parameters of its own, make its modules before the `hkx.cond`, or name "
    'them: `hkx.Linear(8, name="second")`.'
)
