"""Operators on batches: `batched` and `time_major` map an operator over those arguments that have a batch axis."""

import functools
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from rlx.core.annotations import Shaped
from rlx.core.arguments import require, whole
from rlx.core.errors import ArgumentError, OptionError, RankError, ShapeError
from rlx.core.keys import as_key
from rlx.core.operator import Contract, Operator
from rlx.core.shapes import fits
from rlx.core.tracebacks import leave_out_own_frames

_P = ParamSpec("_P")
_R = TypeVar("_R")
_Axes = tuple[int, ...]


def batched(operator: Operator[_P, _R], axis: int | tuple[int, ...] = 0, /, **axes: int | None) -> Callable[_P, _R]:
    """The operator on a batch: `jax.vmap` over those arguments that have, by its signature, a batch axis.

    An array with one axis more than the operator takes is mapped over the batch axis, by position or by keyword. An
    array of a rank that the operator takes is shared by the batch, and so are numbers, settings and structures. A
    random key is split, one for each row; an array of keys is mapped. The batch axis of a result is where that of an
    argument of this rank is. The compiled program is that of a `jax.vmap` written by hand.

    Args:
      operator: an operator of rlx that takes one step or one sequence.
      axis: the batch axis, 0 for [B, T] and 1 for [T, B]; or several, (0, 1) for [E, B, T] and (1, 2) for [T, E, B].
        Arrays with fewer axes, such as one number [B] for each sequence, have the batch axes last.
      **axes: by the argument's name, its first batch axis (further ones follow), or None if the batch shares it. This
        is for structures, for a key that all rows share (`key=None`), and for arrays that can be read in two ways.

    Returns:
      A function with the signature of the operator; the same one for the same arguments, so that `jax.jit` of it is
      compiled once.

    Raises:
      RankError: if an array has neither a rank that the operator takes nor this rank with batch axes, or if it can be
        read in two ways: λ [T] for a batch of T sequences, for instance.
      ShapeError: if batch axes differ in length.
      OptionError: if the operator takes any leading axes, and therefore batches as they are.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> rlx.batched(rlx.td_learning)(jnp.zeros(3), jnp.ones(3), 0.5 * jnp.ones(3), jnp.arange(3.0)).tolist()
      [1.0, 1.5, 2.0]
    """
    several = axis if isinstance(axis, tuple) else (axis,)
    return _batched(operator, several, tuple(axes.items()))


def time_major(operator: Operator[_P, _R], /, **axes: int | None) -> Callable[_P, _R]:
    """The operator on time-major sequences [T, B]: `rlx.batched(operator, 1)`.

    Args:
      operator: an operator of rlx that takes one sequence.
      **axes: as in `rlx.batched`.

    Returns:
      A function with the signature of the operator.

    Raises:
      RankError, ShapeError, OptionError: as `rlx.batched`.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> r_t, discount_t = jnp.array([[1.0, 0.0], [2.0, 4.0]]), jnp.full([2, 2], 0.5)
      >>> rlx.time_major(rlx.discounted_returns)(r_t, discount_t, 0.0, truncation_t=r_t < 0).tolist()
      [[2.0, 2.0], [2.0, 4.0]]
    """
    return _batched(operator, (1,), tuple(axes.items()))


@functools.cache  # one function for each operator, so that `jax.jit` of it is compiled once
def _batched(operator: Any, axes: _Axes, named: tuple[tuple[str, int | None], ...]) -> Callable[..., Any]:
    plan = _Plan(_contract_of(operator), _checked(axes), dict(named))

    def run(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        values = plan.contract.bind(args, kwargs)
        mapped = plan.axes_of(values)
        size = plan.size(values, mapped)
        if size is None:
            return operator(**values)
        for name in plan.contract.keys:
            if name not in mapped and plan.named.get(name, 0) is not None:
                values[name] = jax.random.split(as_key(name, values[name], plan.contract.name), size)
                mapped[name] = tuple(range(len(size)))
        rows = {name: values.pop(name) for name in mapped}
        return _mapped(functools.partial(operator, **values), rows, mapped, plan.axes)

    def on_batch(*args: Any, **kwargs: Any) -> Any:
        try:
            return run(args, kwargs)
        except Exception as error:
            leave_out_own_frames(error)
            raise

    made: Any = functools.update_wrapper(on_batch, operator)
    del made.kernel, made.contract  # they are of single rows
    return made


def _mapped(function: Callable[..., Any], rows: dict[str, Any], mapped: dict[str, _Axes], axes: _Axes) -> Any:
    """`function(**rows)`, mapped; its results have the batch at `axes`, or last if they have fewer axes."""
    structure: list[Any] = []
    most = axes[-1]

    def on_row(*row: Any) -> list[tuple[Any, ...]]:
        leaves, tree = jax.tree.flatten(function(**dict(zip(rows, row, strict=True))))
        ranks = [min(jnp.ndim(x), most) for x in leaves]
        structure[:] = tree, ranks
        # The axes of results depend on their ranks, which are known only now: one tuple for each rank.
        return [tuple(x for x, own in zip(leaves, ranks, strict=True) if own == rank) for rank in range(most + 1)]

    run = on_row
    for i, axis in enumerate(axes):  # the last one is the outermost
        out_axes = [min(axis, rank + i) for rank in range(most + 1)]
        run = jax.vmap(run, in_axes=tuple(mapped[name][i] for name in rows), out_axes=out_axes)
    of_rank = [iter(leaves) for leaves in run(*rows.values())]
    tree, ranks = structure
    return jax.tree.unflatten(tree, [next(of_rank[rank]) for rank in ranks])


class _Plan:
    """The mapped arguments of an operator, and their batch axes."""

    def __init__(self, contract: Contract, axes: _Axes, named: dict[str, int | None]):
        self.contract, self.axes, self.named = contract, axes, named
        self.name = f"rlx.{'time_major' if axes == (1,) else 'batched'}({contract.name})"
        for name, axis in named.items():
            if name not in contract.annotations:
                known = ", ".join(contract.annotations)
                raise ArgumentError(f"{self.name}: got an unexpected keyword argument {name!r}. It takes {known}.")
            if axis is not None:
                whole(name, axis, "an axis or None", self.name, least=0)

    def axes_of(self, values: dict[str, Any]) -> dict[str, _Axes]:
        """The batch axes of each mapped argument."""
        count = len(self.axes)
        mapped = {
            name: tuple(range(axis, axis + count))
            for name, axis in self.named.items()
            if axis is not None and values[name] is not None
        }
        for name in self.contract.keys:
            if name not in self.named and _axes_of_keys(values[name]) >= count:
                mapped[name] = tuple(range(count))
        lengths: dict[str, Any] = {}
        unclear: list[str] = []
        for name, annotation in self.contract.arrays.items():
            shape, own = getattr(values[name], "shape", ()), {len(dims) for dims in annotation.shapes}
            if name in self.named or not shape:
                continue
            each, shared = len(shape) - count in own, len(shape) in own
            if not (each or shared):
                raise self._wrong_rank(name, shape, annotation)
            if each and shared:
                unclear.append(name)
            else:
                if each:
                    mapped[name] = self._last(len(shape))
                    shape = _without(shape, mapped[name])
                fits(name, shape, annotation.shapes, lengths)
        for name in unclear:
            axes = self._last(values[name].ndim)
            if self._is_for_each_row(name, values, axes, lengths, self.size(values, mapped)):
                mapped[name] = axes
        return mapped

    def size(self, values: dict[str, Any], mapped: dict[str, _Axes]) -> tuple[int, ...] | None:
        """The lengths of the batch axes, or None if nothing is mapped."""
        first, size = "", None
        for name, axes in mapped.items():
            for leaf in jax.tree.leaves(values[name]):
                shape = np.shape(leaf)
                if len(shape) <= axes[-1]:
                    raise RankError(
                        f"{self.name}: argument `{name}` has rank {len(shape)} (shape {_text(shape)}), expected "
                        f"{'the batch axis ' if len(axes) == 1 else 'batch axes up to '}{axes[-1]}."
                    )
                own = tuple(shape[i] for i in axes)
                if size is not None and own != size:
                    raise ShapeError(
                        f"{self.name}: argument `{name}` has shape {_text(shape)}, whose batch is "
                        f"{_text(own, brackets=len(own) > 1)}, expected {_text(size, brackets=len(own) > 1)} as in "
                        f"`{first}`.\nGive all arrays the same layout: [B, T] is rlx.batched, [T, B] is rlx.time_major."
                    )
                first, size = first or name, own
        return size

    def _is_for_each_row(
        self, name: str, values: dict[str, Any], axes: _Axes, lengths: dict[str, Any], size: tuple[int, ...] | None
    ) -> bool:
        """Decides, by the lengths of others, about an array that may be one entry for each row or shared by all."""
        shape, shapes = values[name].shape, self.contract.arrays[name].shapes
        own = tuple(shape[i] for i in axes)
        of_shared, of_each = dict(lengths), dict(lengths)
        shared = fits(name, shape, shapes, of_shared)
        each = size in (None, own) and fits(name, _without(shape, axes), shapes, of_each)
        # [T, K] of values is not the other reading of [T, B], because no other argument has a length K.
        if each and shared and set(own) != {1} and of_shared.keys() <= of_each.keys():
            call = f"rlx.batched(rlx.{self.contract.name}, {self.axes[0] if len(self.axes) == 1 else self.axes}"
            raise RankError(
                f"{self.name}: argument `{name}` has shape {_text(shape)}, which can be one for each row of the "
                f"batch or the same for all rows.\nSay which: {call}, {name}={axes[0]}) or {call}, {name}=None)."
            )
        return each

    def _wrong_rank(self, name: str, shape: tuple[int, ...], annotation: Shaped) -> RankError:
        more = "one more axis" if len(self.axes) == 1 else f"{len(self.axes)} more axes"
        return RankError(
            f"{self.name}: argument `{name}` has rank {len(shape)} (shape {_text(shape)}), expected shape "
            f"{annotation.expected}, or {more} for the batch."
        )

    def _last(self, rank: int) -> _Axes:
        """The batch axes of an argument of this rank: the declared ones, or the last if it has fewer axes."""
        return tuple(min(axis, rank - len(self.axes) + i) for i, axis in enumerate(self.axes))


def _contract_of(operator: Any) -> Contract:
    contract = getattr(operator, "contract", None)
    require(isinstance(contract, Contract), "operator", operator, "an operator of rlx, such as rlx.vtrace", "batched")
    assert isinstance(contract, Contract)
    any_rank = next((name for name, a in contract.arrays.items() if any("*" in word for word in a.words)), None)
    if any_rank is not None:
        raise OptionError(
            f"batched: argument `operator` is rlx.{contract.name}, which takes `{any_rank}` with any leading axes.\n"
            "Call it on the batch itself; to treat rows separately, use jax.vmap."
        )
    return contract


def _checked(axes: _Axes) -> _Axes:
    checked = [whole("axis", axis, "a batch axis of at least 0, or a tuple of them", "batched", 0) for axis in axes]
    require(0 < len(set(checked)) == len(axes), "axis", axes, "different batch axes", "batched")
    return tuple(sorted(checked))


def _axes_of_keys(key: Any) -> int:
    """The rank of an array of keys; raw keys have one axis more."""
    typed = jnp.issubdtype(getattr(key, "dtype", np.int32), jax.dtypes.prng_key)
    return getattr(key, "ndim", 0) - (not typed)


def _without(shape: tuple[int, ...], axes: _Axes) -> tuple[int, ...]:
    return tuple(n for i, n in enumerate(shape) if i not in axes)


def _text(shape: tuple[int, ...], brackets: bool = True) -> str:
    text = ", ".join(map(str, shape))
    return f"[{text}]" if brackets else text
