"""The base of all named exceptions, and those of the core.

Each is also a subclass of one built-in exception: the one that Haiku raises in its place, else ValueError or TypeError.
"""

from __future__ import annotations

import types
from collections.abc import Iterable
from typing import Any

import numpy as np

from hkx.errors.near import as_imported, nearest


def _remade(cls: type[HkxError], args: tuple[Any, ...]) -> HkxError:
    error = cls.__new__(cls, *args)
    error.args = args
    return error


class HkxError(Exception):
    """The base of every exception that hkx raises by name."""

    def __reduce__(self) -> tuple[Any, ...]:
        # Python rebuilds a copied or pickled exception from its `args`, which are here the finished text, and not what
        # the constructors take. `__new__` alone restores the text, and the state restores the rest: the `__dict__`,
        # which includes notes, and what built-in classes store outside of it, such as the `name` of an AttributeError.
        # Its `obj` is left out, as in Python's own pickles, because it may not be picklable.
        names = {
            name
            for cls in type(self).__mro__
            for name, field in vars(cls).items()
            if isinstance(field, types.MemberDescriptorType) and not name.startswith("_") and name != "obj"
        }
        fields = {name: value for name in names if (value := getattr(self, name, None)) is not None}
        return _remade, (type(self), self.args), fields | self.__dict__


def shortened(value: object) -> str:
    """The `repr` of a value, cut off after 200 characters."""
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:200]}…"


def described(value: object) -> str:
    """The shortened `repr` of a value, and its type."""
    return f"{shortened(value)} of type {type(value).__name__}"


class NotInTransformError(HkxError, ValueError):
    """A function or module that needs a running transform was used outside of one."""

    def __init__(self, name: str, is_module: bool = False):
        must, hkx = "must be initialized inside an" if is_module else "must be used as part of an", as_imported()
        super().__init__(
            f"`{name}` {must} `{hkx}.transform`. Put the code into a function and transform that:\n\n"
            "    def forward(x):\n"
            f"        ...  # {name} goes here\n"
            "        return y\n\n"
            f"    model = {hkx}.transform(forward)\n"
            "    params = model.init(jax.random.key(0), x)\n"
            "    y = model.apply(params, None, x)"
        )


class MissingSuperInitError(HkxError, ValueError):
    """A module's `__init__` did not call `super().__init__()` first."""

    def __init__(self, cls: type, too_late: bool = False):
        first = next(base for base in cls.__mro__ if "__init__" in vars(base))
        is_dataclass = getattr(vars(first).get("__dataclass_params__"), "init", False)  # its `__init__` is generated
        method = "__post_init__" if is_dataclass else "__init__"
        problem = f"`{cls.__name__}.{method}` does not call the super constructor."
        advice = f"Make this the first line of its {method} method:"
        if too_late:
            maker = f"The dataclass `{cls.__name__}`" if is_dataclass else f"`{cls.__name__}.{method}`"
            problem = f"{maker} creates a parameter or a submodule before it calls the super constructor."
            if is_dataclass:
                advice = "Create it in `__post_init__`, not in the `default_factory` of a field, and after this line:"
        call = "super().__post_init__()" if is_dataclass else "super().__init__(name=name)"
        super().__init__(f"{problem} {advice}\n\n    {call}")


class InvalidNameError(HkxError, ValueError):
    """A module or a scope has a name that is not an identifier."""

    def __init__(self, name: object, class_name: str = ""):
        advice = (
            "Use letters, digits and underscores; for a full path that ignores the enclosing modules, wrap it in "
            "`hkx.force_name`."
        )
        if class_name and not isinstance(name, str):
            advice = (
                f"`name` of `{class_name}` is of type {type(name).__name__}: was one argument too many passed? A layer "
                "takes only the size of its output; it reads the size of its input from the input. "
                f"`hkx.transform` takes a function that makes the module and calls it: `lambda x: {class_name}(…)(x)`."
            )
        if isinstance(name, str) and name.startswith("/"):
            advice = "Name scopes must not start with /: remove it."
        super().__init__(f"{name!r} is not a valid module name: a name is an identifier of Python. {advice}")


class NotANameError(InvalidNameError):
    """The name given to a module is not a string."""


class NameExpectedError(HkxError, TypeError):
    """A class made by `to_module` was constructed with something other than a name."""

    def __init__(self, function: str, given: object):
        super().__init__(
            f"Expected a string name where {function!r} is made a module, got: {given}. "
            f"Pass the function's own arguments in the call: `hkx.to_module({function})()(x)`."
        )


class NoSuchAttributeError(HkxError, AttributeError):
    """An attribute was read that exists in another library, but not in hkx."""

    def __init__(self, owner: object, name: str, advice: str):
        message = f"{type(owner).__name__!r} object has no attribute {name!r}: {advice}."
        super().__init__(message, name=name)


class NotCallableError(HkxError, TypeError):
    """Something was called that is callable in another library, but not in hkx."""

    def __init__(self, what: str, advice: str):
        super().__init__(f"{what} is not callable: {advice}.")


class DuplicateNameError(HkxError, ValueError):
    """A name that ends in a number was requested twice in one scope."""

    def __init__(self, name: str):
        super().__init__(
            f"Module name {name!r} is not unique: another module in the same scope already has it. Omit the "
            "number to have a free one added, or call the first module again to share its parameters."
        )


class UsedScopeError(HkxError, ValueError):
    """A name scope was entered a second time."""

    def __init__(self) -> None:
        super().__init__(
            "A name_scope is not reusable: modules created in the second block would get the names of those in the "
            "first. Write `with hkx.name_scope(name):` again, or create all modules in one block."
        )


class MissingParameterError(HkxError, ValueError):
    """`apply` needs a parameter that is not among the given parameters."""

    def __init__(self, path: str, shape: object, dtype: object, known: Iterable[str]):
        known = list(known)
        module, _, name = path.rpartition("/")
        advice = "Were the parameters created by `init` of this same function, and does `init` run every branch of it?"
        if path in known:
            advice = f"{path!r} is a single key here, but module and name must be two: {{{module!r}: {{{name!r}: …}}}}."
        elif any(key.startswith("params/") for key in known):
            advice = "hkx has no collections: pass what is stored under 'params'."
        super().__init__(
            f"There is no parameter {path!r} (shape {tuple(shape)}, dtype {dtype}): "  # type: ignore[arg-type]
            f"parameters must be created as part of `init`.\n{nearest(path, known, 'parameters')}\n{advice}"
        )


class MissingInitializerError(HkxError, ValueError):
    """A parameter has to be created, but no initializer was given."""

    def __init__(self, path: str):
        super().__init__(
            f"Initializer must be specified: parameter {path!r} is created here, so `hkx.get_parameter` needs "
            "`init=`, for example `init=jnp.zeros` or `init=hkx.initializers.TruncatedNormal()`."
        )


class MissingStateError(HkxError, ValueError):
    """`get_state` was called for a state that has no value yet, without what it takes to create one."""

    def __init__(self, path: str, known: Iterable[str], needs_shape: bool = False):
        if needs_shape:
            message = (
                f"State {path!r} does not exist. To create it, provide shape and dtype, and what makes its value: "
                "`hkx.get_state(name, shape, dtype, init)`."
            )
        else:
            message = (
                f"No value for state {path!r}, perhaps set an init function?\n{nearest(path, known, 'states')}\n"
                "Pass `init=` (with a shape) to `hkx.get_state`, or call `hkx.set_state` first."
            )
        super().__init__(message)


class ShapeMismatchError(HkxError, ValueError):
    """A parameter's value does not have the requested shape."""

    def __init__(self, path: str, actual: object, expected: object, dtype: object, created: bool):
        source = (
            "`init` (its initializer, or a custom creator or getter)" if created else "the parameters passed to `apply`"
        )
        super().__init__(
            f"{path!r} with retrieved shape {actual} does not match shape={list(expected)} dtype={dtype}: "  # type: ignore[call-overload]
            f"the value comes from {source}. Do the parameters belong to inputs or a model of another size, or is a "
            "parameter of this name requested twice with different shapes?"
            + " Two calls of `hkx.vmap` or `hkx.grad` that create modules of the same name create the same module."
            * created
        )


class NotAnArrayError(HkxError, ValueError):
    """The value of a parameter, or of a state that a layer computes with, is not an array, or not one of numbers."""

    def __init__(self, path: str, value: object):
        what = f"{described(value)}, which has no shape"
        advice = "Parameters and the states of layers are arrays: `jnp.asarray` makes one from a number or a list."
        if callable(value):
            name = type(value).__name__
            advice = f"It looks like an initializer: pass an instance, `{name}()`, instead of the class."
        elif isinstance(value, np.ndarray):
            what = f"an array of dtype {value.dtype}, which JAX does not have"
            advice = "If NumPy has loaded bfloat16 as bytes, `w.view(jnp.bfloat16)` converts them; else pass numbers."
        super().__init__(f"The value of {path!r} is {what}. {advice}")


class NonEmptyStateError(HkxError, ValueError):
    """A function that was transformed without state uses state."""

    def __init__(self, names: Iterable[str] = (), transform: str = "transform_with_state"):
        listed = ", ".join(repr(n) for n in names)
        super().__init__(
            f"If your transformed function uses `hkx.{{get,set}}_state` then use `hkx.{transform}`."
            + (f"\nThe state that was created: {listed}." if listed else "")
            + f"\n\n    model = hkx.{transform}(f)\n"
            "    params, state = model.init(key, x)\n"
            "    y, state = model.apply(params, state, key, x)"
        )


class MissingRNGError(HkxError, ValueError):
    """A random key was requested, but none was passed to `init` or `apply`."""

    def __init__(self, name: str = "next_rng_key"):
        super().__init__(
            f"`hkx.{name}` requires an RNG to be passed into the transformed function: you must pass a non-None "
            "PRNGKey to init, and one to apply if random numbers are drawn there.\n\n"
            "    params = model.init(jax.random.key(0), x)\n"
            "    y = model.apply(params, jax.random.key(1), x)"
        )


class InvalidRNGError(HkxError, ValueError):
    """Something other than a random key was given where one is needed."""


class InvalidParamsError(HkxError, TypeError):
    """The parameters or the state passed to `apply` are not a mapping."""

    def __init__(self, what: str, value: object):
        super().__init__(
            f"{what} argument does not appear valid: a mapping is needed, and it is of {type(value)}.\n"
            "The signatures are `apply(params, rng, ...)` for `hkx.transform`, `apply(params, state, rng, ...)` for "
            "`hkx.transform_with_state`, each without `rng` after `hkx.without_apply_rng`.\n"
            f"The argument was: {shortened(value)}.{_how_to_come_by_params(value)}"
        )


def _how_to_come_by_params(value: object) -> str:
    if isinstance(value, tuple):
        return "\n`init` of `hkx.transform_with_state` returns a pair: `params, state = model.init(key, x)`."
    return "\nParameters are what `init` returns: `params = model.init(key, x)`." if callable(value) else ""


class JitInTransformError(HkxError, ValueError):
    """A function that is already compiled or mapped was passed to `transform`."""

    def __init__(self, kind: str):
        hkx = as_imported()
        super().__init__(
            f"A function that went through `jax.{kind}` was passed to `{hkx}.transform`. It is not a pure function "
            "yet: its parameters and keys are not among its arguments. Transform first, then compile the result: "
            f"instead of `{hkx}.transform(jax.{kind}(f)).apply` write `jax.{kind}({hkx}.transform(f).apply)`."
        )


class InvalidTemplateError(HkxError, TypeError):
    """The function given to `multi_transform` does not return a pair `(init, apply)`."""

    def __init__(self, returned: object):
        super().__init__(
            "`hkx.multi_transform` takes a function that returns a pair: a function that uses all modules, and a tree "
            f"of functions. In place of the pair or of one of these functions, it returned {returned!r}.\n\n"
            "    def f():\n"
            "        encoder, decoder = hkx.Linear(2), hkx.Linear(5)\n"
            "        return lambda x: decoder(encoder(x)), (encoder, decoder)"
        )


class InvalidTransformedError(HkxError, ValueError):
    """Something other than a transformed function was given."""

    def __init__(self, value: object, taker: str, *makers: str):
        """`makers` are the functions whose results `taker` accepts, the usual one first."""
        *others, last = (f"`hkx.{maker}`" for maker in makers)
        results = f"{', '.join(others)} or {last}" if others else last
        super().__init__(
            f"Must be called with the result of {results}, actually called with {type(value)}: "
            f"`hkx.{taker}(hkx.{makers[0]}(f))`."
        )


class JaxUsageError(HkxError, ValueError):
    """A JAX transform was used inside a transformed function in a way that gives a wrong result.

    Its subclasses below are raised where the mistake happens, which hkx recognises by the trace that is running.
    Except for `StrictUsageError`, they are raised only where the result would be wrong.
    """


class StrictUsageError(JaxUsageError):
    """With `check_jax_usage` on: hkx was used inside a raw JAX transform, whether or not the result would be right."""

    def __init__(self, name: str):
        super().__init__(
            f"`{name}` is used inside a JAX transform within your transformed function, which the setting "
            f"`check_jax_usage` forbids.\n{_FIX}"
        )


class ParameterInInnerTraceError(JaxUsageError):
    """A parameter was created inside a raw JAX transform, so its value would be an invalid tracer outside."""

    def __init__(self, path: str):
        super().__init__(
            f"Parameter {path!r} is created inside a function that JAX is tracing (jax.jit, jax.lax.scan, "
            f"jax.lax.cond, jax.checkpoint …) within your transformed function, so its initial value would be a "
            f"tracer.\n{_FIX}"
        )


class StateInInnerTraceError(JaxUsageError):
    """State was created or set inside a raw JAX transform, so its value would be lost, or be an invalid tracer."""

    def __init__(self, path: str):
        super().__init__(
            f"State {path!r} is created or set inside a function that JAX is tracing (jax.jit, jax.lax.scan, jax.vmap, "
            f"jax.grad …) within your transformed function, so its value would be lost.\n{_FIX}"
        )


class KeyInInnerTraceError(JaxUsageError):
    """A key was drawn inside a raw JAX transform, so every iteration would see the same key."""

    def __init__(self) -> None:
        super().__init__(
            "A random key is drawn inside a function that JAX is tracing (jax.jit, jax.lax.scan, jax.lax.cond, "
            "jax.checkpoint …), from a sequence that was created outside of it: every iteration would get the same "
            f"key, and the sequence would hold a tracer afterwards.\n{_FIX}\n"
            "Or draw the keys first (`hkx.next_rng_keys(n)`) and pass them in."
        )


_FIX = (
    "Use the function of the same name from hkx, which passes parameters, state and keys through:\n\n"
    "    hkx.scan(body, init, xs)      # not jax.lax.scan(body, init, xs)\n"
    "    hkx.cond(p, f, g, x)          # not jax.lax.cond(p, f, g, x)\n"
    "    hkx.remat(f)(x)               # not jax.checkpoint(f)(x)\n"
    "    hkx.vmap(f, split_rng=False)  # not jax.vmap(f)\n"
    "    hkx.purify(f)                 # for any other transform, such as a solver\n\n"
    "Apply `jax.jit` to the result of the transform instead: `jax.jit(hkx.transform(f).apply)`."
)


class IntermediateInInnerTraceError(JaxUsageError):
    """An intermediate value to be captured is valid only inside a loop, a branch or another transform.

    `function` is the function of hkx in which it is computed, or None for a raw JAX transform; `value` is the part
    that is not an array, if there is one.
    """

    def __init__(self, module_name: str, method_name: str, function: str | None = None, value: object = None):
        if value is not None:
            why = f"it holds {value!r} of type {type(value).__name__}, and only arrays can leave a JAX transform."
            advice = "Return arrays from the method"
        elif function is None:
            why = "it is computed inside a JAX transform (jax.lax.scan, jax.vmap, jax.jit …), and is not valid outside."
            advice = "Use the function of the same name from hkx, which passes it out (hkx.scan, hkx.vmap, hkx.jit)"
        else:
            why = f"it is computed inside {function}, which cannot pass it out."
            advice = _CAPTURE_INSTEAD.get(function, "Compute it outside")
        super().__init__(
            f"The result of `{method_name}` of module {module_name!r} cannot be captured: {why}\n{advice}; or leave it "
            "out:\n\n    hkx.capture_intermediates(f, filter=lambda module, method: method == '__call__' and "
            f"module.module_name != {module_name!r})"
        )


_SELECT = "Compute all branches and choose with `jnp.where` or `jax.lax.select_n`"
_CAPTURE_INSTEAD = {
    "hkx.while_loop": "Its number of iterations is unknown: use `hkx.scan`, which stacks the values of all iterations",
    "hkx.fori_loop": "Use `hkx.scan`, which stacks the values of all iterations",
    "hkx.cond": _SELECT,
    "hkx.switch": _SELECT,
    "hkx.shard_map": "Return it from the mapped function, and specify with `out_specs` how its parts are combined",
}


class ShardingRuleError(HkxError, ValueError):
    """A rule for sharding arrays over a mesh cannot be used, or an array has none although it needs one."""

    @staticmethod
    def unused(rule: str, known: Iterable[str]) -> ShardingRuleError:
        """For a rule whose pattern matches no path."""
        known = list(known)
        some = ", ".join(repr(path) for path in known[:6]) + (", …" if len(known) > 6 else "")
        advice = "Remove the rule, or change its pattern."
        if "" in known:
            advice += (
                " An empty path is that of an array without a name: for JAX, only arrays in dicts have names. Instead "
                "of another mapping, such as Haiku's FlatMap, pass `hkx.data_structures.to_mutable_dict(shapes)`."
            )
        return ShardingRuleError(
            f"{rule} matches none of the {len(known)} arrays. A pattern is a regular expression that must match the "
            f"whole path 'module/name'. The paths are: {some}. {advice}"
        )

    @staticmethod
    def unmatched(path: str, shape: tuple[int, ...]) -> ShardingRuleError:
        """For an array without a rule, where every array must have one."""
        return ShardingRuleError(
            f"No rule matches {path!r} of shape {shape}. Add a rule for it, such as ({path!r}, PartitionSpec()), which "
            "replicates it on all devices, or pass `unmatched='replicate'` for all arrays without a rule."
        )


class UnevenBatchError(HkxError, ValueError):
    """The leading dimension of a batch cannot be divided into equal parts."""
