"""Normalisation: PopArt, which rescales targets while preserving outputs, and moving averages of moments."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from rlx.core.annotations import Float, Int, Real
from rlx.core.arguments import as_arrays, as_axis_name, require, require_ascending, require_parts, whole
from rlx.core.arrays import added_at, at_indices, pick
from rlx.core.leaves import require_real, require_structure
from rlx.core.operator import operator
from rlx.core.trees import Record, record
from rlx.core.types import Array, AxisName, PyTree, in_one_dtype, settings_in, wide_dtype

_WEIGHTS, _BIASES = Real[Array, "*E N"], Real[Array, "*F N"]
_STEP_SIZE = Real[Array, "*S", "in [0, 1]"]
_SCALE_LB, _SCALE_UB = Real[Array, "*L", "in [0, inf)"], Real[Array, "*U", "in (0, inf]"]


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


def as_popart_state(argument: str, state: Any, function: str, outputs: int | str = "N") -> PopArtState:
    """The statistics as arrays, each with one number per output, or one number for all of the given outputs."""
    require_parts(argument, state, PopArtState._fields, "a `rlx.PopArtState`", function)
    wanted = Real[Array, "N"] if outputs == "N" else Real[Array, f"{outputs}", "1"]
    given = {f"{argument}.{field}": (getattr(state, field), wanted) for field in PopArtState._fields}
    return PopArtState(*as_arrays(function, **given))


class PopArtOutput(NamedTuple):
    """The output of `rlx.unnormalize_linear`: the selected output, normalised and unnormalised.

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
    num_outputs: int, step_size: float | None, scale_lb: float, scale_ub: float, axis_name: AxisName = None
) -> tuple[Callable[[], PopArtState], Callable[..., tuple[Mapping[str, Any], PopArtState]]]:
    """Creates the initial-state and update functions of PopArt for a linear layer.

    From "Learning values across many orders of magnitude", van Hasselt et al. 2016 (https://arxiv.org/abs/1602.07714)
    and "Multi-task Deep Reinforcement Learning with PopArt", Hessel et al. 2018 (https://arxiv.org/abs/1809.04474).

    σ is computed from the difference of the mean square and the squared mean. In float32 this loses all precision if
    |μ| is several thousand times σ: in that case subtract a constant near μ from the targets.

    Args:
      num_outputs: number of outputs of the layer.
      step_size: step size of the running statistics, in [0, 1]; None for an update that changes nothing.
      scale_lb: smallest scale, at least 0.
      scale_ub: largest scale, at least `scale_lb`.
      axis_name: name, or names, of axes of `jax.pmap` or `jax.vmap` over which the targets are also split, or None.

    Returns:
      (initial_state() -> state, update(params, state, targets, indices) -> (new params, new state)), where the
      parameters of the layer are a mapping with "w" and "b", both [..., num_outputs].

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> initial_state, update = rlx.popart(1, step_size=0.5, scale_lb=1e-3, scale_ub=1e3)
      >>> params = {"w": jnp.ones([2, 1]), "b": jnp.zeros(1)}
      >>> params, state = update(params, initial_state(), jnp.array([2.0]), jnp.array([0]))
      >>> state.shift.tolist(), state.second_moment.tolist()
      ([1.0], [2.5])
    """

    num_outputs = whole("num_outputs", num_outputs, "a positive number", "popart", 1)
    if step_size is not None:
        scales = {"scale_lb": (scale_lb, _SCALE_LB), "scale_ub": (scale_ub, _SCALE_UB)}
        as_arrays("popart", step_size=(step_size, _STEP_SIZE), **scales)
        require_ascending(strictly=False, function="popart", scale_lb=scale_lb, scale_ub=scale_ub)
    # Partial applications of module-level functions can be pickled; local functions could not.
    update = functools.partial(_update_statistics, (step_size, scale_lb, scale_ub, axis_name))
    return functools.partial(_initial_statistics, num_outputs), update


def _initial_statistics(num_outputs: int) -> PopArtState:
    return PopArtState(jnp.zeros([num_outputs]), jnp.ones([num_outputs]), jnp.ones([num_outputs]))


def _update_statistics(
    settings: tuple[Any, ...], params: Mapping[str, Any], state: PopArtState, targets: Any, indices: Any
) -> tuple[Mapping[str, Any], PopArtState]:
    step_size, *others = settings
    if step_size is None:
        return params, state
    new_state = art(state, targets, indices, step_size, *others)
    return pop(params, state, new_state), new_state


@operator(widen=False)
def art(
    state: PopArtState,
    targets: Real[Array, "*#E"],
    indices: Int[Array, "*#E"],
    step_size: Real[Array | float, "", "N", "in [0, 1]"],
    scale_lb: Real[Array | float, "", "N", "in [0, inf)"],
    scale_ub: Real[Array | float, "", "N", "in (0, inf]"],
    axis_name: AxisName = None,
) -> PopArtState:
    """Moves the running statistics of the selected outputs towards their targets.

    μ_i += β Σ (x - μ_i) and ν_i += β Σ (x² - ν_i) over the targets x with index i; σ_i = √(ν_i - μ_i²) within bounds.
    See `popart` for the paper. Gradients are stopped through targets.

    Args:
      state: statistics before the update.
      targets: unnormalised targets.
      indices: the output that each target belongs to, integers that broadcast against `targets`; targets of a negative
        index, or one past the last output, change nothing.
      step_size: β; like the bounds, one number, or one for each output.
      scale_lb: smallest scale.
      scale_ub: largest scale, at least `scale_lb`.
      axis_name: name, or names, of axes of `jax.pmap` or `jax.vmap` over which the targets are also split, or None.

    Returns:
      The updated statistics.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> state = rlx.PopArtState(jnp.zeros(2), jnp.ones(2), jnp.ones(2))
      >>> rlx.art(state, jnp.array([2.0]), jnp.array([1]), 0.5, 1e-3, 1e3).shift.tolist()
      [0.0, 1.0]
    """
    require_ascending(strictly=False, scale_lb=scale_lb, scale_ub=scale_ub)
    old = as_popart_state("state", state, "art")
    for name, x in {"step_size": step_size, "scale_lb": scale_lb, "scale_ub": scale_ub}.items():
        if jnp.ndim(x):
            as_arrays("art", **{"state.shift": (old.shift, Real[Array, "N"]), name: (x, Real[Array, "N"])})
    indices = jnp.where(indices < 0, old.shift.shape[0], indices)
    targets, indices = jnp.broadcast_arrays(targets, indices)
    # In half precision, squares would leave no precision for the variance, and their sums may overflow.
    wide = wide_dtype(targets.dtype, old.shift.dtype)
    targets = jax.lax.stop_gradient(targets).astype(wide)
    step_size, scale_lb, scale_ub = settings_in(wide, step_size, scale_lb, scale_ub)

    def moved(mean: Array, samples: Array) -> Array:
        change = added_at(jnp.zeros_like(mean), indices, samples - at_indices(mean, indices))
        if axis_name is not None:
            change = jax.lax.psum(change, axis_name)
        return mean + step_size * change

    shift = moved(old.shift.astype(wide), targets)
    second_moment = moved(old.second_moment.astype(wide), jnp.square(targets))
    scale = jnp.clip(jnp.sqrt(jnp.maximum(second_moment - jnp.square(shift), 0)), scale_lb, scale_ub)
    new = PopArtState(shift, scale, second_moment)
    return jax.tree.map(lambda x, like: jax.lax.stop_gradient(x).astype(like.dtype), new, old)


def pop(params: Mapping[str, Any], old: PopArtState, new: PopArtState) -> dict[str, Array]:
    """Changes a linear layer so that its unnormalised outputs stay the same under new statistics.

    w' = w σ / σ' and b' = (b σ + μ - μ') / σ'. See `popart` for the paper.

    Args:
      params: mapping with "w" and "b", both [..., num_outputs].
      old: statistics before the update.
      new: statistics after the update.

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
    is_layer = isinstance(params, Mapping) and {"w", "b"} <= set(params)
    require(is_layer, "params", params, 'a mapping with "w" and "b", the parameters of a linear layer', "pop")
    w, b = as_arrays("pop", **{"params['w']": (params["w"], _WEIGHTS), "params['b']": (params["b"], _BIASES)})
    old, new = as_popart_state("old", old, "pop", w.shape[-1]), as_popart_state("new", new, "pop", w.shape[-1])
    wide = wide_dtype(w.dtype, b.dtype, old.scale.dtype)
    old, new = (PopArtState(*(x.astype(wide) for x in state)) for state in (old, new))
    new_w = w.astype(wide) * jnp.broadcast_to(old.scale / new.scale, w.shape)
    scale, shift, new_scale, new_shift = (
        jnp.broadcast_to(x, b.shape) for x in (old.scale, old.shift, new.scale, new.shift)
    )
    new_b = (b.astype(wide) * scale + shift - new_shift) / new_scale
    return {"w": _in_dtype_of(w, new_w), "b": _in_dtype_of(b, new_b)}


def _in_dtype_of(parameter: Array, x: Array) -> Array:
    """`x` in the dtype of a parameter, so that a half-precision parameter keeps its dtype."""
    return x.astype(parameter.dtype) if jnp.issubdtype(parameter.dtype, jnp.floating) else x


@operator(widen=False)
def normalize(state: PopArtState, unnormalized: Real[Array, "*#E"], indices: Int[Array, "*#E"]) -> Float[Array, "*E"]:
    """Normalises values: (x - μ_i) / σ_i.

    Args:
      state: statistics.
      unnormalized: values.
      indices: the output that each value belongs to, integers that broadcast against `unnormalized`, such as a scalar.

    Returns:
      Floats of the broadcast shape of both arguments.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> state = rlx.PopArtState(jnp.array([1.0]), jnp.array([2.0]), jnp.array([5.0]))
      >>> float(rlx.normalize(state, 5.0, 0))
      2.0
    """
    unnormalized, shift, scale = _of_outputs("normalize", state, unnormalized, indices)
    return (unnormalized - shift) / scale


@operator(widen=False)
def unnormalize(state: PopArtState, normalized: Real[Array, "*#E"], indices: Int[Array, "*#E"]) -> Float[Array, "*E"]:
    """The inverse of `normalize`: x σ_i + μ_i.

    Args:
      state: statistics.
      normalized: values.
      indices: the output that each value belongs to, integers that broadcast against `normalized`, such as a scalar.

    Returns:
      Floats of the broadcast shape of both arguments.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> state = rlx.PopArtState(jnp.array([1.0]), jnp.array([2.0]), jnp.array([5.0]))
      >>> float(rlx.unnormalize(state, 2.0, 0))
      5.0
    """
    normalized, shift, scale = _of_outputs("unnormalize", state, normalized, indices)
    return scale * normalized + shift


def _of_outputs(function: str, state: PopArtState, x: Array, indices: Array) -> tuple[Array, Array, Array]:
    """The values, and the mean and scale of the output that each belongs to, in one dtype."""
    state = as_popart_state("state", state, function)
    x, shift, scale = in_one_dtype(x, at_indices(state.shift, indices), at_indices(state.scale, indices))
    return x, shift, scale


@operator(widen=False)
def unnormalize_linear(state: PopArtState, inputs: Float[Array, "*#E N"], indices: Int[Array, "*#E"]) -> PopArtOutput:
    """Selects one output of a linear layer for each example, and unnormalises it.

    Args:
      state: statistics.
      inputs: normalised outputs of the layer.
      indices: the output to select, integers that broadcast against the leading axes of `inputs`.

    Returns:
      `PopArtOutput(normalized, unnormalized)`.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> state = rlx.PopArtState(jnp.array([0.0, 1.0]), jnp.array([1.0, 2.0]), jnp.array([1.0, 5.0]))
      >>> float(rlx.unnormalize_linear(state, jnp.array([3.0, 4.0]), 1).unnormalized)
      9.0
    """
    shape = jnp.broadcast_shapes(inputs.shape[:-1], indices.shape)
    indices = jnp.broadcast_to(indices, shape)
    selected = pick(jnp.broadcast_to(inputs, shape + inputs.shape[-1:]), indices)
    return PopArtOutput(selected, unnormalize.kernel(state, selected, indices))


@record
class EmaMoments(Record):
    """Mean and variance of each leaf.

    Example:
      >>> import rlx
      >>> rlx.EmaMoments(mean=1.0, variance=2.0).to_tuple()
      (1.0, 2.0)
    """

    mean: PyTree
    variance: PyTree


@record
class EmaState(Record):
    """State of the moving averages: sums that start at zero, and the remaining weight of that start.

    Example:
      >>> import rlx
      >>> initial_state, _ = rlx.create_ema(0.9)
      >>> sorted(initial_state(1.0))
      ['decay_product', 'mu', 'nu']
    """

    mu: PyTree  # average of each leaf, biased towards zero
    nu: PyTree  # average of each leaf's square, biased towards zero
    decay_product: Any  # decay to the power of the number of updates

    def debiased_moments(self) -> EmaMoments:
        """Mean and variance of each leaf, without the bias towards the initial zeros; zeros before the first update."""
        weight = 1 - self.decay_product
        safe = jnp.where(weight > 0, weight, 1)
        mean, second = (
            jax.tree.map(lambda x: x / safe.astype(wide_dtype(jnp.result_type(x))), m) for m in (self.mu, self.nu)
        )
        return EmaMoments(mean, jax.tree.map(lambda m, s: jnp.maximum(s - jnp.square(m), 0), mean, second))


def create_ema(
    decay: float = 0.999, pmean_axis_name: AxisName = None
) -> tuple[Callable[[PyTree], EmaState], Callable[[PyTree, EmaState], tuple[EmaMoments, EmaState]]]:
    """Creates functions that track the mean and variance of each leaf of a tree, over its entries and over time.

    μ ← decay μ + (1 - decay) mean(x), ν ← decay ν + (1 - decay) mean(x²), with the bias of the zero initialisation
    removed as in "Adam: A Method for Stochastic Optimization", Kingma and Ba 2014 (https://arxiv.org/abs/1412.6980).

    The variance is ν - μ². In float32 this loses all precision if |μ| is several thousand times the standard deviation:
    in that case subtract a constant near μ first.

    Args:
      decay: in [0, 1]; the learning rate is 1 - decay.
      pmean_axis_name: name, or names, of axes of `jax.pmap` or `jax.vmap` to average over as well, or None.

    Returns:
      (initial_state(tree) -> `EmaState`, update(tree, state) -> (`EmaMoments`, new state)); moments have one number for
      each leaf.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> initial_state, update = rlx.create_ema(0.5)
      >>> moments, state = update(jnp.array([1.0, 3.0]), initial_state(jnp.zeros(2)))
      >>> float(moments.mean), float(moments.variance)
      (2.0, 1.0)
    """

    as_arrays("create_ema", decay=(decay, Real[Array, "*P", "in [0, 1]"]))
    # Partial applications of module-level functions can be pickled; local functions could not.
    return _initial_averages, functools.partial(_update_averages, decay, pmean_axis_name)


def _initial_averages(template: PyTree) -> EmaState:
    require_real("template", template, "create_ema")
    # Two arrays, because a compiled function takes no array twice if its arguments are donated.
    mu, nu = (jax.tree.map(lambda x: jnp.zeros((), wide_dtype(jnp.result_type(x))), template) for _ in range(2))
    return EmaState(mu, nu, jnp.ones(()))


def _update_averages(decay: Any, pmean_axis_name: Any, tree: PyTree, state: EmaState) -> tuple[EmaMoments, EmaState]:
    def averaged(old: Any, x: Any, power: int) -> Any:
        # In the dtype of the average: squares of integers could overflow, and averages in half precision stop changing.
        mean = jnp.mean(jnp.asarray(x, wide_dtype(jnp.result_type(old))) ** power)
        if pmean_axis_name is not None:
            mean = jax.lax.pmean(mean, pmean_axis_name)
        (rate,) = settings_in(mean.dtype, decay)
        return rate * old + (1 - rate) * mean

    as_axis_name("pmean_axis_name", pmean_axis_name, "create_ema")
    require_parts("state", state, EmaState._fields(), "a `rlx.EmaState`", "create_ema")
    require_structure("tree", tree, "state.mu", state.mu, "create_ema")
    require_real("tree", tree, "create_ema")
    mu = jax.tree.map(lambda old, x: averaged(old, x, 1), state.mu, tree)
    nu = jax.tree.map(lambda old, x: averaged(old, x, 2), state.nu, tree)
    decay_product = jnp.asarray(state.decay_product)  # a number in a state that was made by hand
    wide = wide_dtype(decay_product.dtype)
    new_state = EmaState(mu, nu, decay_product.astype(wide) * jnp.asarray(decay, wide))
    return new_state.debiased_moments(), new_state
