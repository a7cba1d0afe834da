"""Errors of layers."""

from __future__ import annotations

from collections.abc import Iterable

from hkx.errors.core import HkxError, MissingStateError, described, shortened


class InvalidInputError(HkxError, TypeError):
    """A layer was called with something that is not an array and cannot be converted to one."""

    def __init__(self, module: str, argument: str, value: object):
        super().__init__(
            f"`{argument}` of `{module}` is not an array of numbers: {described(value)}. A "
            "layer takes an array, a number or nested lists of numbers of equal length; for a tree of arrays, "
            "use `jax.tree.map`."
        )


class InputDTypeError(HkxError, ValueError):
    """A layer was called with an array of a dtype that it cannot compute with."""

    def __init__(self, module: str, argument: str, dtype: object, expected: str, converted: str | None = None):
        cast = f"`{argument}.astype(jnp.float32)`, or let a policy of `hkx.mixed_precision` cast parameters and inputs"
        super().__init__(
            f"`{argument}` of `{module}` is of dtype {dtype}, expected {expected}. Convert it first, "
            f"{converted or cast}."
        )


class InvalidCoreStateError(HkxError, TypeError):
    """A recurrent core was called with a state that does not belong to it."""

    def __init__(self, core: str, argument: str, state: object, expected: str, shape: tuple[int, ...] | None = None):
        came = f"is {described(state)}" if shape is None else f"has shape {tuple(shape)}"
        super().__init__(
            f"`{argument}`, the state of `{core}`, {came}, expected {expected}, as "
            "returned by `core.initial_state(batch_size)` or by the previous step."
        )


class StateShapeError(HkxError, TypeError):
    """The state that a layer keeps does not have the shape that the input requires."""

    def __init__(self, path: str, actual: tuple[int, ...], expected: list[int], argument: str, shape: tuple[int, ...]):
        super().__init__(
            f"State {path!r} has shape {tuple(actual)}, expected {expected}, for `{argument}` of shape {tuple(shape)}. "
            f"Call the layer with inputs shaped as in `init`, use one layer for each shape of `{argument}`, or "
            "run `init` again if the state comes from a model of another size."
        )


class ScalarInputError(HkxError, ValueError):
    """A layer that works along a dimension was called with a scalar."""

    def __init__(self, module: str):
        super().__init__(
            f"Input must not be scalar: `{module}` works along the dimensions of its input, and this one has none. For "
            "a single feature, add a dimension of size 1: `jnp.reshape(inputs, [1])`."
        )


class OutOfRangeError(HkxError, ValueError):
    """A number is too small, too large, or NaN."""

    def __init__(self, taker: str, argument: str, value: object, span: str):
        low, _, high = span[1:-1].partition(", ")
        above = "at least" if span[0] == "[" else "above"
        bound = f"{above} {low}" if high == "inf" else f"in {span}"
        super().__init__(f"`{argument}` of `{taker}` must be {bound}, got {shortened(value)}.")


class InvalidLengthError(HkxError, TypeError):
    """The length of a sequence is neither one nor the number of dimensions."""

    def __init__(self, argument: str, value: object, length: int, n: int):
        super().__init__(
            f"{argument} must be a scalar or sequence of length 1 or sequence of length {n}, got {value!r} of length "
            f"{length}."
        )


class NotAParameterTreeError(HkxError, TypeError):
    """A module that takes a parameter tree was given something else."""

    def __init__(self, value: object):
        super().__init__(
            f"`tree` must be parameters as `init` returns them, a dict of dicts of arrays, got {described(value)}."
        )


class MaskShapeError(HkxError, ValueError):
    """The mask of a convolution does not have the shape of its kernel."""

    def __init__(self, module: str, mask: tuple[int, ...], kernel: tuple[int, ...]):
        super().__init__(
            f"Mask needs to have the same shape as weights. Shapes are: {mask} of `mask`, {kernel} of `w` in {module}."
        )


class FeatureSizeError(HkxError, TypeError):
    """The last dimension of an input does not have the size that the layer was constructed for."""

    def __init__(self, module: str, shape: tuple[int, ...], argument: str, size: object):
        super().__init__(
            f"`inputs` of `{module}` has shape {shape}, expected [..., {size}]: its last dimension is what the layer "
            f"works on, and `{argument}` is {size}."
        )


class InvalidReshapeError(HkxError, ValueError):
    """The input cannot be reshaped to the requested output shape."""

    def __init__(self, output_shape: tuple[int, ...], rest: tuple[int, ...], size: int):
        super().__init__(
            f"Dimensions of shape {rest} ({size} elements) cannot be reshaped to {output_shape}. The leading "
            "dimensions, `preserve_dims` of them, are not part of it."
        )


class NotAListError(HkxError, TypeError):
    """A single value was given where a list is expected."""

    def __init__(self, module: str, argument: str, value: object):
        super().__init__(
            f"`{argument}` of `{module}` is not iterable: it is {value!r}, and should be a list, "
            f"`{argument}=[first, second]`."
        )


class InvalidPaddingError(HkxError, TypeError):
    """The padding given to a convolution is not in one of the accepted forms."""

    def __init__(self, padding: object, problem: str | None = None):
        super().__init__(
            problem
            or f"Unrecognized padding {padding!r}. It must be one of: 'SAME', 'VALID' or 'SAME_LOWER'; a pair (before, "
            "after); a sequence of such pairs; a function of `hkx.pad`; a sequence of such functions. A "
            "sequence must have one entry, or one for each spatial dimension."
        )


class InvalidRankError(HkxError, ValueError):
    """An input of a layer has too few or too many dimensions."""

    def __init__(self, module: str, argument: str, shape: tuple[int, ...], expected: Iterable[int] | int):
        if isinstance(expected, int):
            ranks, advice = f"at least {expected}", "Add leading dimensions of size 1 if needed, `x[None]`."
        else:
            ranks = f"in {list(expected)}"
            advice = "To apply a layer over further leading dimensions, use `hkx.BatchApply` or `jax.vmap`."
        super().__init__(
            f"Input to {module} needs to have rank {ranks}, but input has shape {tuple(shape)}: "
            f"`{argument}` is of rank {len(shape)}. {advice}"
        )


class LeadingDimensionsError(HkxError, ValueError):
    """The leading dimensions of two arguments of a layer do not match or broadcast."""

    def __init__(self, module: str, argument: str, shape: tuple[int, ...], expected: str):
        super().__init__(f"`{argument}` of `{module}` has shape {tuple(shape)}, expected {expected}.")


class InvalidWindowError(HkxError, ValueError):
    """A pooling window has more dimensions than the array."""

    def __init__(self, argument: str, size: object, shape: tuple[int, ...]):
        super().__init__(
            f"`{argument}` {size} has more entries than the inputs of shape {tuple(shape)} have dimensions. One number "
            "stands for all spatial dimensions; a sequence stands for the last dimensions, the channels included."
        )


class UnboundAxisError(HkxError, NameError):
    """A layer was called outside of the mapped axis over which it averages."""

    def __init__(self, argument: str, axis_name: object):
        super().__init__(
            f"`{argument}` is {axis_name!r}, but no such axis is mapped here: call `apply` within a `jax.vmap` or "
            f"`jax.pmap` with `axis_name={axis_name!r}`, or a `jax.shard_map` over a mesh that has it. Only `init` may "
            "run without it."
        )


class MissingAverageError(MissingStateError):
    """A moving average was read before any value was averaged."""

    def __init__(self, path: str):
        Exception.__init__(
            self,
            f"No value for state {path!r}: nothing has been averaged yet. Run `init` with `is_training=True` (of a "
            "normalisation layer), or with `update_stats=True`, or call `initialize(shape)` of the moving average.",
        )


class UnusedNameError(HkxError, ValueError):
    """A module was given the name of a parameter that the layer inside it does not ask for."""

    def __init__(self, module: str, argument: str, name: object, asked: Iterable[str]):
        known = ", ".join(map(repr, sorted(asked))) or "none"
        super().__init__(
            f"`{argument}` of `{module}` names {name!r}, and the layer in it asks for no such parameter when it is "
            f"called. It asks for: {known}. Name some of these."
        )


class UnknownLookupStyleError(HkxError, AttributeError):
    """The `lookup_style` of an embedding does not exist."""

    def __init__(self, style: object, styles: Iterable[str]):
        known = " or ".join(repr(s) for s in styles)
        super().__init__(f"{style!r} is not supported by `hkx.Embed`: `lookup_style` must be {known}.")
