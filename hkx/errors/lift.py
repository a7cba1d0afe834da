"""Errors of hkx's JAX transforms and control flow inside a transformed function."""

from __future__ import annotations

from collections.abc import Iterable

from hkx.errors.core import HkxError, NonEmptyStateError, described, shortened
from hkx.errors.near import as_imported


class LateParameterError(HkxError, AssertionError):
    """A loop's body, or a branch, creates a parameter that it did not create when it was first traced."""

    def __init__(self, function: str, names: Iterable[str]):
        super().__init__(
            f"New parameters were created while `{function}` traced its body: {', '.join(repr(n) for n in names)}. "
            "They did not exist when the first iteration ran. The body must request the same parameters in every "
            "iteration: create modules that only some iterations need before the loop."
        )


class CarryMismatchError(HkxError, TypeError):
    """A loop's body returns a carry whose structure, shape or dtype differs from the one that it was given."""

    def __init__(self, function: str, what: str, difference: str):
        super().__init__(
            f"The body of `{function}` must return {what} with the structure, shapes and dtypes that it was given.\n"
            f"{difference}\nConvert the initial value before the loop, or the result at the end of the body "
            "(`x.astype(...)`, `jnp.broadcast_to(...)`)."
        )


class BranchListError(HkxError, TypeError):
    """The branches given to `switch` are not a sequence: a single function, for example."""

    def __init__(self, branches: object):
        super().__init__(f"`branches` of `hkx.switch` must be a sequence of functions, got {shortened(branches)}.")


class BodyResultError(HkxError, TypeError):
    """A loop's body, or a function with `has_aux=True`, returns no pair, or something that is not an array."""

    def __init__(self, function: str, result: object, wanted: str):
        super().__init__(f"The function given to `{function}` must return {wanted}, but returned {described(result)}.")


class StateInLoopError(HkxError, TypeError):
    """A state changes its structure, shape or dtype inside a loop or a branch, or is created there during `apply`."""

    def __init__(self, function: str, difference: str):
        super().__init__(
            f"The state after the body of `{function}` is not like the state before it.\n{difference}\n"
            "A state must keep its shape and dtype, and in `apply` the given state must contain all that is set: "
            "`params, state = model.init(...)`, then `model.apply(params, state, ...)`."
        )


class StateNotAnArrayError(HkxError, TypeError):
    """A state that is neither an array nor a tree of arrays would have to pass through a JAX transform."""

    def __init__(self, path: str, value: object):
        super().__init__(
            f"The state {path!r} holds {described(value)}: only arrays can pass "
            "through JAX's loops, branches and transforms. Set it outside of them, store a number instead, or pass "
            "a value that does not change as an argument."
        )


class ArgumentNotAnArrayError(HkxError, TypeError):
    """A function under `hkx.remat` or `hkx.jit` was given an argument that is neither an array nor marked static."""

    def __init__(self, function: str, argument: str, value: object):
        super().__init__(
            f"{argument} under `{function}` is {described(value)}, which is no array. Mark it static, with "
            f"`static_argnums`. If it is the module whose method was decorated, wrap the method where it is called "
            f"instead: `{function}(self.method)(x)`."
        )


class ConditionEffectError(HkxError, ValueError):
    """The condition of a `while_loop` sets state or draws a key, which the next iteration would not see."""

    def __init__(self) -> None:
        super().__init__(
            "`hkx.while_loop` does not support `hkx.set_state` or `hkx.next_rng_key` in `cond_fun`: its changes "
            "would be lost. Set state and draw keys in `body_fun`, and pass what the condition needs in the value."
        )


class BranchMismatchError(HkxError, TypeError):
    """The branches of a `cond` or `switch` return values, or set states, of different structures, shapes or dtypes."""

    def __init__(self, function: str, branch: int, difference: str, first: int | None = 0, states: bool = False):
        """`first` is the branch that this one differs from; None if it returns something that is not an array."""
        must = "leave states of the same structure" if states else "return the same structure"
        what = "returns no array" if first is None else f"differs from branch {first}"
        advice = (
            "\nThe branches share this state, since its name is the same. Give each branch one of its own (another "
            "name, or a module created in the branch), or convert the value "
            "(`x.astype(...)`, `jnp.asarray(0, x.dtype)`)."
        )
        super().__init__(
            f"The branches of `{function}` must {must}, shapes and dtypes. Branch {branch} {what}."
            f"\n{difference}{advice if states else ''}"
        )


class ScanLengthError(HkxError, ValueError):
    """The length of a `scan` or `map` is missing, or its inputs disagree on it."""

    def __init__(self, function: str, problem: str):
        super().__init__(
            f"`{function}` got {problem}. All arrays in `xs` must have a leading axis of the same size, "
            "`length`; without arrays in `xs`, pass `length=`."
        )


class MissingSplitRNGError(HkxError, TypeError):
    """`vmap` was called without `split_rng`, which says whether the mapped calls draw different keys."""

    def __init__(self) -> None:
        super().__init__(
            "`hkx.vmap` requires the split_rng argument: `hkx.vmap(f, split_rng=True)` gives every mapped call its own "
            "keys (for example for dropout), `split_rng=False` gives all of them the same. For code that cannot be "
            f"changed, set `{as_imported()}.vmap.require_split_rng = False`."
        )


class NothingMappedError(HkxError, ValueError):
    """`vmap` was given nothing to map over."""

    def __init__(self, name: str):
        super().__init__(
            f"{name} must have at least one non-None value in in_axes: `hkx.vmap` has no array to map over. "
            "To map over parameters or keys alone, pass `axis_size=`."
        )


class BatchedValueError(HkxError, ValueError):
    """Inside `vmap`, a shared parameter or state was set to a value that differs between the mapped calls."""

    def __init__(self, kind: str, path: str):
        axes = "param_axes" if kind == "parameter" else "state_axes"
        super().__init__(
            f"The {kind} {path!r} is given a value inside `hkx.vmap` that differs between the mapped calls, but "
            f"they all share one {kind}.\n`hkx.vmap(f, split_rng=..., {axes}=0)` keeps one for each, stacked "
            "along a leading axis; or reduce the value over the mapped axis first: `hkx.vmap(f, axis_name='i', ...)` "
            "and `jax.lax.pmean(value, 'i')`."
        )


class BatchedKeysError(HkxError, ValueError):
    """Inside `vmap` with shared keys, the mapped calls leave the sequence of keys in different states."""

    def __init__(self) -> None:
        super().__init__(
            "The calls inside `hkx.vmap(f, split_rng=False)` share one sequence of keys, but after them it differs "
            "between the mapped calls: do they draw keys in a branch or a loop that depends on a mapped value?\n"
            "`split_rng=True` gives each call its own keys; or draw the key before the branch or the loop, and pass it "
            "in (inside, `with hkx.with_rng(key): ...` draws from it)."
        )


class LiftReuseError(HkxError, ValueError):
    """A lifted function would store a parameter under a name that is already taken."""

    def __init__(self, path: str):
        super().__init__(
            f"Key {path!r} already exists in the destination params, and is not replaced by the one of the inner "
            "function. If that is meant, pass `allow_reuse=True`; if not, another `name=`."
        )


class LiftedStateError(NonEmptyStateError):
    """The `init` passed to `lift` also returns state."""

    def __init__(self) -> None:
        ValueError.__init__(
            self,
            "For stateful lifted functions use `hkx.lift_with_state`: `hkx.lift` was given an `init` that returns "
            "`(params, state)`.",
        )


class ClosedOverModuleError(HkxError, ValueError):
    """A function lifted with `transparent_lift` uses a module that was created outside of it."""

    def __init__(self, name: str):
        super().__init__(
            f"You close over a module, {name!r}, that was created outside of the function that is lifted with "
            "`hkx.transparent_lift`: its parameters would be created a second time, under another name. Create the "
            "module in the function, or pass its output to the function."
        )


class StateUpdaterError(HkxError, ValueError):
    """The state updater that `lift_with_state` returned was used twice, not at all, or in another transform."""

    def __init__(self, when: str):
        texts = {
            "twice": "A state updater must only be used once: call either `.update(state)` or `.ignore_update()`.",
            "never": "The LiftWithStateUpdater of `lift_with_state` must be used: call `.update(state)`, or "
            "`.ignore_update()`, in the function that made it.",
            "elsewhere": "A state updater must be used within the same call to init/apply: its "
            "`lift_with_state` was called outside of the transform that is running now.",
        }
        super().__init__(texts[when])


class LayerFunctionError(HkxError, ValueError):
    """`layer_stack` cannot repeat the function that it was given, or not on these inputs."""


class LayerInputsError(HkxError, AssertionError):
    """The leading axis of the per-layer inputs of a `layer_stack` does not match the number of layers."""

    def __init__(self, shape: object, num_layers: int):
        super().__init__(
            f"A per-layer input has shape {shape}, but there are {num_layers} layers: its leading axis must have one "
            "entry for each layer."
        )


class MissingRuleError(HkxError, ValueError):
    """A function with a custom derivative was called before its derivative rule was defined."""

    def __init__(self, kind: str, how: str):
        super().__init__(f"No derivative rule is defined for this `hkx.{kind}` function: call its `{how}` first.")


class StackError(HkxError, ValueError):
    """Parameters cannot be stacked or unstacked as requested."""


class MappedSizeError(HkxError, ValueError):
    """The size of a stacked parameter or state along its mapped axis does not match that of the inputs."""

    def __init__(self, kind: str, path: str, shape: object, axis: int, size: int):
        super().__init__(
            f"The {kind} {path!r} has shape {shape}, and is mapped along axis {axis}, which should be of size {size}. "
            "Does it come from a model with a different number of members or layers?"
        )
