"""Mixed precision: the dtypes in which a module stores parameters, computes and returns, set from outside of it.

A policy acts at the boundaries of a module's methods: inputs are cast to the compute dtype, and outputs to the output
dtype. Inside a method, parameters and state are read in the compute dtype, and parameters are created in the parameter
dtype. Modules that are called inside, and have no policy of their own, read and create their parameters in the same
way, and return their results unchanged.
"""

from __future__ import annotations

import contextlib
import dataclasses
import re
import threading
import warnings
import weakref
from collections.abc import Iterator
from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np

from hkx.base.tracebacks import level_of_the_user
from hkx.core.frame import local
from hkx.core.hooks import install, pushed, uninstall
from hkx.core.module import Module


@runtime_checkable
class SupportsCasts(Protocol):
    """The interface of a policy: three functions from trees to trees.

    Example:

      >>> import hkx, jax, jax.numpy as jnp
      >>> class Rounded:  # computes in whole numbers; a method's arguments may be no arrays
      ...     def cast_to_compute(self, x):
      ...         return jax.tree.map(lambda x: x.round() if isinstance(x, jax.Array) else x, x)
      ...     def cast_to_param(self, x):
      ...         return x
      ...     cast_to_output = cast_to_param
      >>> isinstance(Rounded(), hkx.mixed_precision.SupportsCasts)
      True
      >>> def f(x):
      ...     with hkx.mixed_precision.push_policy(hkx.Linear, Rounded()):
      ...         return hkx.Linear(1, w_init=jnp.ones)(x)
      >>> print(hkx.testing.transform_and_run(f)(jnp.array([0.4, 1.7])))
      [2.]
    """

    def cast_to_compute(self, x: Any) -> Any:
        """Casts the inputs of a method, and the parameters and state that it reads."""
        ...

    def cast_to_param(self, x: Any) -> Any:
        """Casts to the dtype in which parameters are stored."""
        ...

    def cast_to_output(self, x: Any) -> Any:
        """Casts the result of a method."""
        ...


_DTYPES = {
    **dict.fromkeys(("full", "f", "float32", "f32"), "float32"),
    **dict.fromkeys(("float16", "f16"), "float16"),
    **dict.fromkeys(("bfloat16", "bf16"), "bfloat16"),
    **dict.fromkeys(("float64", "f64"), "float64"),
}
_FIELDS = {name[:n]: name for name in ("params", "compute", "output") for n in range(1, 8)}


def _dtype(text: str) -> np.dtype:
    if text in ("half", "h"):
        return jnp.dtype(jnp.bfloat16 if jax.default_backend() == "tpu" else jnp.float16)
    if text not in _DTYPES:
        raise ValueError(f"Unknown dtype {text!r} in a policy: it must be one of {', '.join(['half', *_DTYPES])}.")
    return jnp.dtype(_DTYPES[text])


def _cast(tree: Any, dtype: Any) -> Any:
    def cast(x: Any) -> Any:
        is_float = isinstance(x, (jax.Array, np.ndarray)) and jnp.issubdtype(x.dtype, jnp.floating)
        return x.astype(dtype) if is_float else x

    return jax.tree.map(cast, tree)


@dataclasses.dataclass(frozen=True)
class Policy:
    """Three dtypes: for storing parameters, for computing, and for outputs.

    Only arrays with a floating dtype are cast; everything else in a tree is unchanged.

    Reference: Micikevicius et al. (2018), "Mixed precision training", arXiv:1710.03740.

    Args:
      param_dtype: the dtype in which parameters are created and stored.
      compute_dtype: the dtype to which inputs, parameters and state are cast.
      output_dtype: the dtype to which outputs are cast.

    Example:

      >>> import hkx, jax.numpy as jnp
      >>> policy = hkx.mixed_precision.Policy(jnp.float32, jnp.bfloat16, jnp.float32)
      >>> policy.cast_to_compute({"x": jnp.ones(2), "n": 3})
      {'n': 3, 'x': Array([1, 1], dtype=bfloat16)}
    """

    param_dtype: Any
    compute_dtype: Any
    output_dtype: Any

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            given = getattr(self, field.name)
            try:
                dtype = None if given is None else jnp.dtype(given)  # NumPy takes None for float64
            except TypeError:
                dtype = None
            if dtype is None or not jnp.issubdtype(dtype, jnp.floating):
                raise ValueError(f"`{field.name}` of a policy must be a floating dtype, got {given!r}.")
            object.__setattr__(self, field.name, dtype)

    @classmethod
    def parse(cls, text: str) -> Policy:
        """Parses a policy from a string.

        Args:
          text: one dtype for all three, such as `"bfloat16"`, or several of `params=`, `compute=` and `output=`,
            separated by commas, such as `"params=float32,compute=bfloat16"`. By default, the parameters are float32,
            the compute dtype is that of the parameters, and the output dtype is the compute dtype. You may abbreviate
            the keys (`p=f32,c=bf16`). The dtypes are `full` (float32), `half` (bfloat16 on a TPU, else float16),
            `float16`, `bfloat16`, `float32`, `float64`, or `f16`, `bf16`, `f32`, `f64`.

        Returns:
          The policy.

        Raises:
          ValueError: if the string has another form.

        Example:

          >>> import hkx
          >>> print(hkx.mixed_precision.Policy.parse("params=float32,compute=bfloat16,output=float32"))
          params=float32,compute=bfloat16,output=float32
        """
        if "=" not in text:
            return cls(*[_dtype(text)] * 3)
        given: dict[str, np.dtype] = {}
        for part in text.split(","):
            key, _, value = part.partition("=")
            if key not in _FIELDS:
                raise ValueError(f"Unknown key {key!r} in {text!r}: it should be 'params', 'compute' or 'output'.")
            given[_FIELDS[key]] = _dtype(value)
        param = given.get("params", _dtype("full"))
        compute = given.get("compute", param)
        return cls(param, compute, given.get("output", compute))

    def cast_to_compute(self, x: Any) -> Any:
        """`x`, a tree, with its floating arrays in `compute_dtype`."""
        return _cast(x, self.compute_dtype)

    def cast_to_param(self, x: Any) -> Any:
        """`x`, a tree, with its floating arrays in `param_dtype`."""
        return _cast(x, self.param_dtype)

    def cast_to_output(self, x: Any) -> Any:
        """`x`, a tree, with its floating arrays in `output_dtype`."""
        return _cast(x, self.output_dtype)

    def with_output_dtype(self, output_dtype: Any) -> Policy:
        """Returns the same policy with a different output dtype."""
        return dataclasses.replace(self, output_dtype=output_dtype)

    def __str__(self) -> str:
        return f"params={self.param_dtype},compute={self.compute_dtype},output={self.output_dtype}"


class _Local(threading.local):
    def __init__(self) -> None:
        self.by_class: dict[Any, Any] = {}
        self.by_pattern: dict[str, Any] = {}
        self.modules: weakref.WeakValueDictionary[int, Module] = weakref.WeakValueDictionary()  # with a policy
        self.current: Any = None


_local = _Local()
_ATTRIBUTE = "_hkx_policy"


def _class_key(cls: Any) -> Any:
    # By name, so that a reloaded class keeps its policy; local classes of the same name share one.
    return cls if "<locals>" in cls.__qualname__ else (cls.__module__, cls.__qualname__)


def _checked_target(cls: Any) -> Any:
    if isinstance(cls, (str, Module)) or (isinstance(cls, type) and issubclass(cls, Module)):
        return cls
    raise TypeError(f"A policy is set for a module class, a module or a pattern of module names, not for {cls!r}.")


def _checked_policy(policy: Any) -> Any:
    if isinstance(policy, str):
        return Policy.parse(policy)
    if not isinstance(policy, SupportsCasts):
        raise TypeError(
            f"`policy` must have the methods cast_to_compute, cast_to_param and cast_to_output, got {policy!r}. "
            'For example `hkx.mixed_precision.Policy.parse("params=float32,compute=bfloat16")`.'
        )
    return policy


def current_policy() -> Any:
    """Returns the policy that applies at this point: that of the innermost running module that has one, or None.

    Example:

      >>> import hkx
      >>> print(hkx.mixed_precision.current_policy())
      None
    """
    return _local.current


def get_policy(cls: type[Module] | Module | str) -> Any:
    """Returns the policy that was set for a module class, a module or a pattern, or None.

    Args:
      cls: the same as for `set_policy`.

    Raises:
      TypeError: if it is of another kind.

    Example:

      >>> import hkx
      >>> print(hkx.mixed_precision.get_policy(hkx.Linear))
      None
    """
    target = _checked_target(cls)
    if isinstance(target, str):
        return _local.by_pattern.get(target)
    if isinstance(target, Module):
        return getattr(target, _ATTRIBUTE, None)
    return _local.by_class.get(_class_key(target))


_NOT_INHERITED = (
    "A policy of `hkx.Module` itself is without effect, as the policy of a class does not extend to its subclasses. "
    'For all modules, give the pattern of all names: `hkx.mixed_precision.set_policy(".*", policy)`.'
)


def set_policy(cls: type[Module] | Module | str, policy: Any) -> None:
    """Sets the policy for a module class, for one module, or for all modules whose names match, in this thread.

    If several policies apply to a module, the policy of the module itself is used first, then that of the pattern that
    was set last, then that of its class. The policy of a class does not apply to its subclasses. Policies of modules
    and patterns apply to all methods except `__init__`, where the module has no name yet.

    Args:
      cls: a subclass of `hkx.Module`; or a module; or a regular expression that matches the whole of a module's full
        name, such as `"encoder/.*"`; `".*"` stands for all modules.
      policy: a `Policy`, a string (see `Policy.parse`), or any object with the methods `cast_to_compute`,
        `cast_to_param` and `cast_to_output`.

    Raises:
      TypeError: if one of the two is of another kind.
      ValueError: if the string of the policy has another form.

    Warns:
      UserWarning: if `cls` is `hkx.Module` itself, whose policy would have no effect.

    Example:

      >>> import hkx, jax, jax.numpy as jnp
      >>> hkx.mixed_precision.set_policy(hkx.Linear, "params=float32,compute=bfloat16,output=float16")
      >>> model = hkx.transform(lambda x: hkx.Linear(1)(x))
      >>> params = model.init(jax.random.key(0), jnp.ones([1, 1]))
      >>> params["linear"]["w"].dtype, model.apply(params, None, jnp.ones([1, 1])).dtype
      (dtype('float32'), dtype('float16'))
      >>> hkx.mixed_precision.clear_policy(hkx.Linear)
    """
    target, policy = _checked_target(cls), _checked_policy(policy)
    if target is Module:
        warnings.warn(_NOT_INHERITED, UserWarning, stacklevel=level_of_the_user(contextlib.__file__))
    install(_cast_at_borders, "call")  # has no effect while there is no policy
    if isinstance(target, str):
        re.compile(target)
        _local.by_pattern.pop(target, None)
        _local.by_pattern[target] = policy
    elif isinstance(target, Module):
        object.__setattr__(target, _ATTRIBUTE, policy)
        _local.modules[id(target)] = target
    else:
        _local.by_class[_class_key(target)] = policy


def clear_policy(cls: type[Module] | Module | str) -> None:
    """Removes the policy of a module class, a module or a pattern, if it has one.

    Args:
      cls: the same as for `set_policy`.

    Raises:
      TypeError: if it is of another kind.

    Example:

      >>> import hkx
      >>> hkx.mixed_precision.clear_policy(hkx.Linear)
    """
    target = _checked_target(cls)
    if isinstance(target, str):
        _local.by_pattern.pop(target, None)
    elif isinstance(target, Module):
        if hasattr(target, _ATTRIBUTE):
            object.__delattr__(target, _ATTRIBUTE)
        _local.modules.pop(id(target), None)
    else:
        _local.by_class.pop(_class_key(target), None)
    if not (_local.by_class or _local.by_pattern or _local.modules):
        uninstall(_cast_at_borders, "call")


@contextlib.contextmanager
def push_policy(cls: type[Module] | Module | str, policy: Any) -> Iterator[None]:
    """Sets a policy until the `with` block ends; then restores the previous one.

    Args:
      cls: as for `set_policy`.
      policy: as for `set_policy`.

    Returns:
      A context manager.

    Raises:
      ValueError: inside a method of the same class (or module) whose policy would change.
      TypeError: as for `set_policy`.

    Example:

      >>> import hkx, jax, jax.numpy as jnp
      >>> def f(x):
      ...     with hkx.mixed_precision.push_policy(hkx.Linear, "bfloat16"):
      ...         return hkx.Linear(1)(x)
      >>> model = hkx.transform(f)
      >>> params = model.init(jax.random.key(0), jnp.ones([1, 1]))
      >>> params["linear"]["w"].dtype
      dtype(bfloat16)
    """
    if any(cls is running for running in _running()):
        raise ValueError(
            f"`push_policy` for {cls!r} while one of its methods runs: inside a method, a new policy for the "
            "same class is not supported. Push it where the module is called."
        )
    before = get_policy(cls)
    try:
        try:
            set_policy(cls, policy)
            yield
        finally:
            _put_back(cls, before)
    finally:
        _put_back(cls, before)  # again, in case Ctrl-C interrupted the first call


def _put_back(cls: Any, before: Any) -> None:
    if before is None:
        clear_policy(cls)
    else:
        set_policy(cls, before)


def _running() -> list[Any]:
    """The module whose method is running, and its class."""
    scopes = local.frames[-1].scopes if local.frames else []
    module = next((scope.module for scope in reversed(scopes) if scope.module is not None), None)
    return [] if module is None else [module, type(module)]


def _policy_of(module: Any) -> Any:
    own = getattr(module, _ATTRIBUTE, None)
    if own is not None:
        return own
    name = vars(module).get("module_name")  # absent while `__init__` runs
    if name is not None:
        for pattern, policy in reversed(_local.by_pattern.items()):
            if re.fullmatch(pattern, name):
                return policy
    return _local.by_class.get(_class_key(type(module)))


def _create_in_param_dtype(next_creator: Any, shape: Any, dtype: Any, init: Any, context: Any) -> Any:
    del context
    return next_creator(shape, _local.current.cast_to_param(np.zeros((), dtype)).dtype, init)


def _read_in_compute_dtype(next_getter: Any, value: Any, context: Any) -> Any:
    del context
    return next_getter(_local.current.cast_to_compute(value))


def _cast_at_borders(next_function: Any, args: Any, kwargs: Any, context: Any) -> Any:
    """The interceptor that applies the policies."""
    policy = _policy_of(context.module)
    if policy is None:
        return next_function(*args, **kwargs)
    before, hooks = _local.current, contextlib.ExitStack()
    try:
        try:
            if before is None:
                hooks.enter_context(pushed(_create_in_param_dtype, "create_param"))
                hooks.enter_context(pushed(_read_in_compute_dtype, "get_param", "get_state"))
            _local.current = policy
            args, kwargs = policy.cast_to_compute((args, kwargs))
            return policy.cast_to_output(next_function(*args, **kwargs))
        finally:
            _local.current = before
            hooks.close()
    finally:
        _local.current = before  # again, in case Ctrl-C interrupted the first call
        hooks.close()
