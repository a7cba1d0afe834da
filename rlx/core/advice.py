"""Advice on arguments of the wrong rank: the call that would work.

Operators take one sequence or one step, so nearly all wrong ranks are batches, or numbers meant for every step. The
batch axis is found by trying: of the calls that may have been meant, we print those that pass all checks when they are
evaluated abstractly. Nothing here runs unless an error is about to be raised.

A check knows what is wrong (`WrongRank`), and the operator knows how it was called, so the operator catches the error
and appends the advice. Methods are not run by an operator, and give the general advice only.
"""

import contextvars
import itertools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from rlx.core.annotations import Dims

_MOST_TRIES = 64
_trying = contextvars.ContextVar("trying", default=False)


class _Call(NamedTuple):
    """A user's call of an operator."""

    operator: Callable[..., Any]
    positional: dict[str, Any]
    keywords: dict[str, Any]

    def named(self) -> dict[str, Any]:
        return self.positional | self.keywords


class _Use(NamedTuple):
    """How a suggested call uses one argument: the replacement, as text and as a function, and the mapped axis."""

    text: str
    change: Callable[[Any], Any]
    axis: int | None = None


class WrongRank(NamedTuple):
    """An argument of the wrong rank, as a check found it."""

    says: str  # the error's text, without advice
    specs: dict[str, tuple[Dims, ...]]  # for each array argument, the shapes that it may have
    too_many: bool  # whether the argument has more axes than it should


def general_advice(function: str, too_many: bool) -> str:
    """The last line of an error about a rank, if no working call was found."""
    if not too_many:
        return "Give it the axes that are missing."
    return (
        f"For a batch, give each argument a batch axis and map over it with jax.vmap(rlx.{function}); "
        "for one sequence or step, index first."
    )


def with_advice(
    wrong: WrongRank, operator: Callable[..., Any], positional: dict[str, Any], keywords: dict[str, Any]
) -> str:
    """The text of an error about a rank, with advice on how to call the operator.

    Args:
      wrong: what is wrong.
      operator: the operator.
      positional: the arguments that were passed by position, by name.
      keywords: the arguments that were passed by keyword.
    """
    texts: list[str] = []
    if not _trying.get():
        token = _trying.set(True)
        try:
            texts = _texts(_Call(operator, positional, keywords), wrong.specs, wrong.too_many)
        finally:
            _trying.reset(token)
    return "\n".join([wrong.says, *(texts or [general_advice(operator.__name__, wrong.too_many)])])


def _texts(call: _Call, specs: dict[str, tuple[Dims, ...]], too_many: bool) -> list[str]:
    whole = _first_that_works(call, specs, None)
    if whole is not None:
        return ["Give it the shape that is expected:", f"  {whole}"]
    if any(_is_starred(dims) for of_argument in specs.values() for dims in of_argument):
        return []  # it takes batches as they are, and `rlx.batched` refuses it
    mapped = {axis: text for axis in (0, 1) if (text := _first_that_works(call, specs, axis)) is not None}
    if not mapped and too_many:
        several = f"rlx.batched(rlx.{call.operator.__name__})"
        return [
            f"For a batch, write {several} and give each argument a batch axis; for one sequence or step, index first."
        ]
    if len(set(mapped.values())) < 2:
        return ["For a batch, write:", f"  {next(iter(mapped.values()))}"] if mapped else []
    return [line for axis, text in mapped.items() for line in (f"If axis {axis} is the batch, write:", f"  {text}")]


def _is_starred(dims: Dims) -> bool:
    return any(token.startswith("*") for token, _ in dims)


def _first_that_works(call: _Call, specs: dict[str, tuple[Dims, ...]], axis: int | None) -> str | None:
    """The text of the first call that passes all checks and maps over `axis`, or does not map if that is None."""
    arrays = {name: value for name, value in call.named().items() if _is_array(value)}
    uses = [list(_uses(name, arrays, specs, axis)) for name in arrays]
    for chosen in itertools.islice(itertools.product(*uses), _MOST_TRIES):
        plan = dict(zip(arrays, chosen, strict=True))
        if (axis is None) != all(use.axis is None for use in chosen):
            continue
        text = _try(call, arrays, plan)
        if text is not None:
            return text
    return None


def _uses(name: str, arrays: dict[str, Any], specs: dict[str, tuple[Dims, ...]], axis: int | None) -> Iterator[_Use]:
    """The ways in which an argument may have been meant, likely ones first."""
    value = arrays[name]
    rank, written = np.ndim(value), _written(name, value)
    keep = _Use(written, lambda x: x)
    if name in ("key", "rng_key"):
        batch = next((other for other in arrays if other != name and np.ndim(arrays[other]) > (axis or 0)), None)
        if axis is not None and batch is not None:
            number = arrays[batch].shape[axis]
            yield _Use(written, lambda x: jax.random.split(x, number), 0)
        yield keep
        return
    if name not in specs:
        yield keep
        return
    ends_in_1 = np.shape(value)[-1:] == (1,)
    if ends_in_1 and any(getattr(x, "shape", (1,))[-1:] != (1,) for other, x in arrays.items() if other in specs):
        # The last axis of a critic's output [B, 1], beside rewards [B].
        for dims in specs[name]:
            if rank == len(dims) + 1 + (axis is not None):
                mapped = None if axis is None else min(axis, len(dims))
                yield _Use(f"{written}[..., 0]", lambda x: x[..., 0], mapped)
    for dims in specs[name]:
        if axis is not None and rank == len(dims) + 1:
            yield _Use(written, lambda x: x, min(axis, len(dims)))
    if any(_is_starred(dims) or rank == len(dims) for dims in specs[name]):
        yield keep
        return
    for dims in specs[name]:
        if rank == 0:
            yield from _repeated(name, dims, arrays, specs, axis)
        if rank == len(dims) - 1:
            text = f"{written}[None]" if isinstance(value, (jax.Array, np.ndarray)) else f"jnp.asarray({written})[None]"
            yield _Use(text, lambda x: jnp.asarray(x)[None])


def _repeated(
    name: str,
    dims: Dims,
    arrays: dict[str, Any],
    specs: dict[str, tuple[Dims, ...]],
    axis: int | None,
) -> Iterator[_Use]:
    """Ways to repeat a number that was passed instead of an array, in the shape of another argument."""
    value, rank = arrays[name], len(dims) + (axis is not None)
    for other, model in arrays.items():
        if dims in specs.get(other, ()) and np.ndim(model) == rank:
            written, mapped = _written(name, value), None if axis is None else min(axis, len(dims))
            if jnp.issubdtype(model.dtype, jnp.floating) or not jnp.issubdtype(jnp.result_type(value), jnp.floating):
                yield _Use(f"jnp.full_like({other}, {written})", lambda x, like=model: jnp.full_like(like, x), mapped)
            else:
                shape = model.shape
                yield _Use(f"jnp.full({other}.shape, {written})", lambda x, shape=shape: jnp.full(shape, x), mapped)


def _try(call: _Call, arrays: dict[str, Any], plan: dict[str, _Use]) -> str | None:
    """The text of the call with its arguments used as planned, or None if that raises an error."""
    mapped = [name for name, use in plan.items() if use.axis is not None]
    axes = tuple(plan[name].axis for name in mapped)

    def run(traced: dict[str, Any]) -> Any:
        changed = {name: plan[name].change(traced.get(name, value)) for name, value in arrays.items()}

        def operate(*rows: Any) -> Any:
            given = call.named() | changed | dict(zip(mapped, rows, strict=True))
            return call.operator(*(given[x] for x in call.positional), **{x: given[x] for x in call.keywords})

        rows = [changed[name] for name in mapped]
        return jax.vmap(operate, in_axes=axes)(*rows) if mapped else operate()

    try:
        # Numbers are not traced, so that settings are checked too.
        jax.eval_shape(run, {name: value for name, value in arrays.items() if np.ndim(value)})
    except Exception:
        return None
    function = f"rlx.{call.operator.__name__}"
    if mapped:
        function = f"rlx.{'time_major' if 1 in axes else 'batched'}({function})"
    texts = {x: plan[x].text if x in plan else _written(x, value) for x, value in call.named().items()}
    return f"{function}({_listed(call, texts)})"


def _listed(call: _Call, texts: dict[str, str]) -> str:
    return ", ".join([texts[x] for x in call.positional] + [f"{x}={texts[x]}" for x in call.keywords])


def _written(name: str, value: Any) -> str:
    """The value of a Python number, or the name of anything else."""
    return repr(value) if isinstance(value, (bool, int, float)) and np.isfinite(value) else name


def _is_array(value: Any) -> bool:
    return isinstance(value, (jax.Array, np.ndarray, np.generic, int, float)) and not isinstance(value, bool)
