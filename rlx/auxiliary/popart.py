"""PopArt: adaptive rescaling of targets that preserves the outputs of the layer that predicts them."""

import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from rlx.core.arrays import pick
from rlx.core.checks import check, check_ascending, check_broadcast, check_numbers, whole_number
from rlx.core.types import Array, ArrayLike


class PopArtState(NamedTuple):
    """Running statistics of the targets of each output.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> rlx.PopArtState(shift=jnp.zeros(1), scale=jnp.ones(1), second_moment=jnp.ones(1)).scale.tolist()
      [1.0]
    """

    shift: Any  # [num_outputs], mean
    scale: Any  # [num_outputs], standard deviation, within bounds
    second_moment: Any  # [num_outputs], mean of squares


class PopArtOutput(NamedTuple):
    """What `rlx.unnormalize_linear` returns: one selected output, in both scales.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> state = rlx.PopArtState(shift=jnp.ones(1), scale=2 * jnp.ones(1), second_moment=5 * jnp.ones(1))
      >>> [float(x) for x in rlx.unnormalize_linear(state, jnp.array([3.0]), 0)]
      [3.0, 7.0]
    """

    normalized: Array  # [*E]
    unnormalized: Array  # [*E]


def popart(
    num_outputs: int, step_size: float | None, scale_lb: float, scale_ub: float, axis_name: Any = None
) -> tuple[Callable[[], PopArtState], Callable[..., tuple[Mapping[str, Any], PopArtState]]]:
    """Makes the initial state and the update of PopArt for a linear layer.

    From "Learning values across many orders of magnitude", van Hasselt et al. 2016 (https://arxiv.org/abs/1602.07714)
    and "Multi-task Deep Reinforcement Learning with PopArt", Hessel et al. 2018 (https://arxiv.org/abs/1809.04474).

    Args:
      num_outputs: number of outputs of the layer.
      step_size: step size of the running statistics, in [0, 1]; None for an update that changes nothing.
      scale_lb: smallest scale, at least 0.
      scale_ub: largest scale, at least `scale_lb`.
      axis_name: name, or names, of axes of `jax.pmap` or `jax.vmap` that hold further targets, or None.

    Returns:
      (initial_state() -> state, update(params, state, targets, indices) -> (new params, new state)), where the
      parameters of the layer are a mapping with "w" [..., num_outputs] and "b" [num_outputs].

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> initial_state, update = rlx.popart(1, step_size=0.5, scale_lb=1e-3, scale_ub=1e3)
      >>> params = {"w": jnp.ones([2, 1]), "b": jnp.zeros(1)}
      >>> params, state = update(params, initial_state(), jnp.array([2.0]), jnp.array([0]))
      >>> state.shift.tolist(), state.second_moment.tolist()
      ([1.0], [2.5])
    """

    num_outputs = whole_number("popart", "num_outputs", num_outputs, "a positive number")
    if step_size is not None:
        _check_settings("popart", step_size, scale_lb, scale_ub)
    # Parts of functions of this module can be pickled, functions made here could not.
    update = functools.partial(_update, step_size, scale_lb, scale_ub, axis_name)
    return functools.partial(_initial_state, num_outputs), update


def _initial_state(num_outputs: int) -> PopArtState:
    return PopArtState(jnp.zeros([num_outputs]), jnp.ones([num_outputs]), jnp.ones([num_outputs]))


def _update(
    step_size: ArrayLike | None,
    scale_lb: ArrayLike,
    scale_ub: ArrayLike,
    axis_name: Any,
    params: Mapping[str, Any],
    state: PopArtState,
    targets: ArrayLike,
    indices: ArrayLike,
) -> tuple[Mapping[str, Any], PopArtState]:
    if step_size is None:
        return params, state
    new_state = art(state, targets, indices, step_size, scale_lb, scale_ub, axis_name)
    return pop(params, state, new_state), new_state


def art(
    state: PopArtState,
    targets: ArrayLike,
    indices: ArrayLike,
    step_size: ArrayLike,
    scale_lb: ArrayLike,
    scale_ub: ArrayLike,
    axis_name: Any = None,
) -> PopArtState:
    """Moves the running statistics of the selected outputs towards their targets.

    μ_i += β Σ (x - μ_i) and ν_i += β Σ (x² - ν_i) over the targets x with index i; σ_i = √(ν_i - μ_i²) within bounds.
    See `popart` for the paper. Targets are constants to gradients.

    Args:
      state: statistics before.
      targets: unnormalised targets, numbers [*E].
      indices: which output each target belongs to, integers that broadcast against `targets`.
      step_size: β in [0, 1], number [].
      scale_lb: smallest scale, number [] of at least 0.
      scale_ub: largest scale, number [] of at least `scale_lb`.
      axis_name: name, or names, of axes of `jax.pmap` or `jax.vmap` that hold further targets, or None.

    Returns:
      Statistics after.

    Raises:
      ArgumentError: if shapes differ, or `indices` does not hold integers.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> state = rlx.PopArtState(jnp.zeros(2), jnp.ones(2), jnp.ones(2))
      >>> rlx.art(state, jnp.array([2.0]), jnp.array([1]), 0.5, 1e-3, 1e3).shift.tolist()
      [0.0, 1.0]
    """
    _check_settings("art", step_size, scale_lb, scale_ub)
    targets, indices = jnp.broadcast_arrays(
        *check_broadcast("art", targets=(targets, "real"), indices=(indices, "int"))
    )
    targets = jax.lax.stop_gradient(targets)

    def moved(mean: Array, samples: Array) -> Array:
        change = jnp.zeros_like(mean).at[indices].add((samples - mean[indices]).astype(mean.dtype))
        if axis_name is not None:
            change = jax.lax.psum(change, axis_name)
        return mean + step_size * change

    shift = moved(jnp.asarray(state.shift), targets)
    second_moment = moved(jnp.asarray(state.second_moment), jnp.square(targets))
    variance = jnp.maximum(second_moment - jnp.square(shift), 0)
    scale = jnp.clip(jnp.sqrt(variance), scale_lb, scale_ub)
    return PopArtState(*(jax.lax.stop_gradient(x) for x in (shift, scale, second_moment)))


def pop(params: Mapping[str, Any], old: PopArtState, new: PopArtState) -> dict[str, Array]:
    """Changes a linear layer so that its unnormalised outputs stay the same under new statistics.

    w' = w σ / σ' and b' = (b σ + μ - μ') / σ'. See `popart` for the paper.

    Args:
      params: mapping with "w" [..., num_outputs] and "b" [num_outputs].
      old: statistics before.
      new: statistics after.

    Returns:
      A dict with the new "w" and "b".

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> old = rlx.PopArtState(jnp.zeros(1), jnp.ones(1), jnp.ones(1))
      >>> new = rlx.PopArtState(jnp.ones(1), 2 * jnp.ones(1), 5 * jnp.ones(1))
      >>> rlx.pop({"w": jnp.ones([1, 1]), "b": jnp.ones(1)}, old, new)["w"].tolist()
      [[0.5]]
    """
    w, b = jnp.asarray(params["w"]), jnp.asarray(params["b"])
    ratio = old.scale / new.scale
    new_w = w * jnp.broadcast_to(ratio, w.shape)
    return {"w": new_w, "b": (b * old.scale + old.shift - new.shift) / new.scale}


def normalize(state: PopArtState, unnormalized: ArrayLike, indices: ArrayLike) -> Array:
    """Normalises values: (x - μ_i) / σ_i.

    Args:
      state: statistics.
      unnormalized: numbers [*E].
      indices: which output each belongs to, integers that broadcast against `unnormalized`, one for all for instance.

    Returns:
      Floats of the shape of both together.

    Raises:
      ArgumentError: if the shapes do not broadcast, or `indices` does not hold integers.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> state = rlx.PopArtState(jnp.array([1.0]), jnp.array([2.0]), jnp.array([5.0]))
      >>> float(rlx.normalize(state, 5.0, 0))
      2.0
    """
    unnormalized, indices = check_broadcast("normalize", unnormalized=(unnormalized, "real"), indices=(indices, "int"))
    return (unnormalized - jnp.asarray(state.shift)[indices]) / jnp.asarray(state.scale)[indices]


def unnormalize(state: PopArtState, normalized: ArrayLike, indices: ArrayLike) -> Array:
    """Undoes `normalize`: x σ_i + μ_i.

    Args:
      state: statistics.
      normalized: numbers [*E].
      indices: which output each belongs to, integers that broadcast against `normalized`, one for all for instance.

    Returns:
      Floats of the shape of both together.

    Raises:
      ArgumentError: if the shapes do not broadcast, or `indices` does not hold integers.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> state = rlx.PopArtState(jnp.array([1.0]), jnp.array([2.0]), jnp.array([5.0]))
      >>> float(rlx.unnormalize(state, 2.0, 0))
      5.0
    """
    normalized, indices = check_broadcast("unnormalize", normalized=(normalized, "real"), indices=(indices, "int"))
    return jnp.asarray(state.scale)[indices] * normalized + jnp.asarray(state.shift)[indices]


def unnormalize_linear(state: PopArtState, inputs: ArrayLike, indices: ArrayLike) -> PopArtOutput:
    """Selects one output of a linear layer for each example, and unnormalises it.

    Args:
      state: statistics.
      inputs: normalised outputs of the layer, floats [*E, num_outputs].
      indices: which output to select, integers that broadcast against the leading axes of `inputs`.

    Returns:
      `PopArtOutput(normalized, unnormalized)`, each floats [*E].

    Raises:
      ArgumentError: if shapes do not fit, or `indices` does not hold integers.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> state = rlx.PopArtState(jnp.array([0.0, 1.0]), jnp.array([1.0, 2.0]), jnp.array([1.0, 5.0]))
      >>> float(rlx.unnormalize_linear(state, jnp.array([3.0, 4.0]), 1).unnormalized)
      9.0
    """
    name = "unnormalize_linear"
    inputs, indices = check(name, inputs=(inputs, "[*E, N]", "float"), indices=(indices, "[*I]", "int"))
    inputs, indices = check_broadcast(name, inputs=(inputs, "float"), indices=(indices[..., None], "int"))
    shape = jnp.broadcast_shapes(inputs.shape[:-1], indices.shape[:-1])
    indices = jnp.broadcast_to(indices[..., 0], shape)
    selected = pick(jnp.broadcast_to(inputs, shape + inputs.shape[-1:]), indices)
    return PopArtOutput(selected, unnormalize(state, selected, indices))


def _check_settings(function: str, step_size: ArrayLike, scale_lb: ArrayLike, scale_ub: ArrayLike) -> None:
    check_numbers(
        function, step_size=(step_size, "[0, 1]"), scale_lb=(scale_lb, "[0, inf)"), scale_ub=(scale_ub, "(0, inf]")
    )
    check_ascending(function, strictly=False, scale_lb=scale_lb, scale_ub=scale_ub)
