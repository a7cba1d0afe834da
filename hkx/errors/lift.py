"""The mistakes that can be made with JAX transforms and control flow inside a transformed function."""

from __future__ import annotations

from collections.abc import Iterable

from hkx.errors.core import HkxError, NonEmptyStateError, described, shortened


class LateParameterError(HkxError, AssertionError):
    """A loop's body, or a branch, creates a parameter that was not created when it was visited first."""

    def __init__(self, function: str, names: Iterable[str]):
        super().__init__(
            f"New parameters were created while `{function}` traced its body: {', '.join(repr(n) for n in names)}. "
            "They do not exist yet when the first iteration is run. A body has to ask for the same parameters in every "
            "iteration: make the modules that only some iterations need before the loop."
        )


class CarryMismatchError(HkxError, TypeError):
    """A loop's body returns a carry of another structure, shape or dtype than it was given."""

    def __init__(self, function: str, what: str, difference: str):
        super().__init__(
            f"The body of `{function}` must return {what} with the structure, shapes and dtypes that it was given.\n"
            f"{difference}\nConvert the initial value before the loop, or the result at the end of the body "
            "(`x.astype(...)`, `jnp.broadcast_to(...)`)."
        )


class BranchListError(HkxError, TypeError):
    """One function, or something else, was given where a switch takes a list of branches."""

    def __init__(self, branches: object):
        super().__init__(f"`branches` of `hkx.switch` must be a sequence of functions, got {shortened(branches)}.")


class BodyResultError(HkxError, TypeError, ValueError):
    """A loop's body, or a function with `has_aux=True`, does not return a pair, or returns what is no array."""

    def __init__(self, function: str, result: object, wanted: str):
        super().__init__(f"The function given to `{function}` must return {wanted}, and returned {described(result)}.")


class StateInLoopError(HkxError, TypeError):
    """State changes its structure, shape or dtype inside a loop or a branch, or is created there in `apply`."""

    def __init__(self, function: str, difference: str):
        super().__init__(
            f"The state after the body of `{function}` is not like the state before it.\n{difference}\n"
            "A state keeps its shape and dtype; and in `apply` the given state must hold all that the body sets: "
            "`params, state = model.init(...)`, then `model.apply(params, state, ...)`."
        )


class StateNotAnArrayError(HkxError, TypeError):
    """A state that is no array, nor a tree of them, would have to pass through one of JAX's transforms."""

    def __init__(self, path: str, value: object):
        super().__init__(
            f"The state {path!r} holds {described(value)}: JAX carries arrays alone "
            "through loops, branches and transforms. Set it outside of them, keep a number in its place, or pass what "
            "does not change as an argument."
        )


class ConditionEffectError(HkxError, ValueError):
    """The condition of a `while_loop` sets state or draws a key, which the next iteration would not see."""

    def __init__(self) -> None:
        super().__init__(
            "`hkx.while_loop` does not support `hkx.set_state` or `hkx.next_rng_key` in `cond_fun`: what it changes "
            "would be lost. Set state and draw keys in `body_fun`, and pass what the condition needs on in the value."
        )


class BranchMismatchError(HkxError, TypeError):
    """The branches of a `cond` or `switch` return, or leave as states, different structures, shapes or dtypes."""

    def __init__(self, function: str, branch: int, difference: str, first: int = 0, states: bool = False):
        must = "leave states of the same structure" if states else "return the same structure"
        what = f"differs from branch {first}" if branch != first else "returns no array"
        advice = (
            "\nIt is one state, of one name. Give each branch one of its own (another name, or a module made in the "
            "branch), or convert the value (`x.astype(...)`, `jnp.asarray(0, x.dtype)`)."
        )
        super().__init__(
            f"The branches of `{function}` must {must}, shapes and dtypes. Branch {branch} {what}."
            f"\n{difference}{advice if states else ''}"
        )


class ScanLengthError(HkxError, TypeError, ValueError, IndexError, AttributeError):
    """The inputs of a `scan` or `map` have no length, or several."""

    def __init__(self, function: str, problem: str):
        super().__init__(
            f"`{function}` got {problem}. All arrays in `xs` have one leading axis of the same size, which is "
            "`length`; without arrays in `xs`, pass `length=`."
        )


class MissingSplitRNGError(HkxError, TypeError):
    """`vmap` was not told whether the mapped calls draw different keys."""

    def __init__(self) -> None:
        super().__init__(
            "`hkx.vmap` requires the split_rng argument: `hkx.vmap(f, split_rng=True)` gives every mapped call its own "
            "keys (for example for dropout), `split_rng=False` gives all of them the same. Code that cannot be changed "
            "may set `hk.vmap.require_split_rng = False` (`import hkx as hk`)."
        )


class NothingMappedError(HkxError, ValueError):
    """`vmap` has nothing to map over."""

    def __init__(self, name: str):
        super().__init__(
            f"{name} must have at least one non-None value in in_axes to use with `hkx.vmap`. "
            "To map over parameters or keys alone, pass `axis_size=`."
        )


class BatchedValueError(HkxError, ValueError):
    """Inside `vmap`, a shared parameter or state was given a value that differs between the mapped calls."""

    def __init__(self, kind: str, path: str):
        axes = "param_axes" if kind == "parameter" else "state_axes"
        super().__init__(
            f"The {kind} {path!r} is given a value inside `hkx.vmap` that differs between the mapped calls, but "
            f"there is one {kind} for all of them.\n`hkx.vmap(f, split_rng=..., {axes}=0)` keeps one for each, stacked "
            "along a leading axis; or reduce the value over the mapped axis first: `hkx.vmap(f, axis_name='i', ...)` "
            "and `jax.lax.pmean(value, 'i')`."
        )


class LiftReuseError(HkxError, ValueError):
    """A lifted function would store a parameter under a name that is taken."""

    def __init__(self, path: str):
        super().__init__(
            f"Key {path!r} already exists in the destination params. To prevent accidental parameter re-use during "
            "lift, a parameter already defined in the outer scope is not re-used. Pass `allow_reuse=True` if that is "
            "meant, or another `name=`."
        )


class LiftedStateError(NonEmptyStateError):
    """The `init` that was lifted returns state as well."""

    def __init__(self) -> None:
        ValueError.__init__(
            self,
            "For stateful lifted functions use `hkx.lift_with_state`: `hkx.lift` was given an `init` that returns "
            "`(params, state)`.",
        )


class ClosedOverModuleError(HkxError, ValueError):
    """A function that is lifted without a name uses a module that was made outside of it."""

    def __init__(self, name: str):
        super().__init__(
            f"You close over a module, {name!r}, that was made outside of the function that is lifted with "
            "`hkx.transparent_lift`: its parameters would be created a second time, under another name. Make the "
            "module in the function, or pass in what it returns."
        )


class StateUpdaterError(HkxError, ValueError):
    """What `lift_with_state` returned for writing state back was used twice, not at all, or somewhere else."""

    def __init__(self, when: str):
        texts = {
            "twice": "State updater must only be used once: call either `.update(state)` or `.ignore_update()`.",
            "never": "LiftWithStateUpdater (from `lift_with_state`) must be used, call `.update(..)` or "
            "`.ignore_update()` before it goes out of scope.",
            "elsewhere": "State updater must be used within the same call to init/apply that made it: "
            "`lift_with_state` was called outside of the transform that is running now.",
        }
        super().__init__(texts[when])


class LayerFunctionError(HkxError, ValueError):
    """`layer_stack` was given a function, or inputs, that it cannot repeat."""


class LayerInputsError(HkxError, AssertionError):
    """The per-layer inputs of a `layer_stack` have another length than there are layers."""

    def __init__(self, shape: object, num_layers: int):
        super().__init__(
            f"A per-layer input has shape {shape}, and there are {num_layers} layers: its leading axis holds one entry "
            "for each layer."
        )


class MissingRuleError(HkxError, AttributeError):
    """A function with a derivative of its own was called before it was given one."""

    def __init__(self, kind: str, how: str):
        super().__init__(f"No rule was given to this `hkx.{kind}` function: call its `{how}` first.")


class StackError(HkxError, ValueError):
    """Parameters cannot be stacked, or taken apart, as asked."""


class MappedSizeError(HkxError, ValueError):
    """A stacked parameter or state has another size along its mapped axis than the inputs."""

    def __init__(self, kind: str, path: str, shape: object, axis: int, size: int):
        super().__init__(
            f"The {kind} {path!r} has shape {shape}, and is mapped along axis {axis}, which should be of size {size}. "
            "Does it come from a model with another number of members or layers?"
        )
