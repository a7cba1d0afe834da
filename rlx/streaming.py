"""Learning from a stream, one step at a time and without replay: ObGD, with eligibility traces."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from rlx.core.annotations import Float, Mask, Real
from rlx.core.arguments import as_arrays, require_parts
from rlx.core.errors import ArgumentError
from rlx.core.leaves import as_arrays_of, require_alike
from rlx.core.types import Array, ArrayLike, PyTree, settings_in, wide_dtype


class Transformation(NamedTuple):
    """A pair of functions, as in Optax: `init(params)` and `update(updates, state, params)`."""

    init: Callable[..., Any]
    update: Callable[..., tuple[Any, Any]]


class ObGDState(NamedTuple):
    """The state of `rlx.obgd` between steps."""

    trace: PyTree  # z, a tree like the parameters


def obgd(
    learning_rate: ArrayLike = 1.0, discount: ArrayLike = 0.99, lambda_: ArrayLike = 0.8, kappa: ArrayLike = 2.0
) -> Transformation:
    """Overshooting-bounded gradient descent with eligibility traces: z ← γ λ z + ∇v, θ ← θ + α' δ z.

    The step size is bounded, α' = min(α, 1 / (κ max(|δ|, 1) ‖z‖₁)), so that the prediction does not overshoot its
    target. It lets a single network learn from each transition once: `td_error` is δ = r_t + γ v(s_t) - v(s_tm1)
    (`rlx.td_learning`), and `updates` is the gradient of the prediction v(s_tm1) itself, not of a loss. For a policy,
    pass ∇ log π(a_tm1), to which the paper adds sign(δ) τ times the gradient of the entropy, with κ = 3. The paper's
    networks are initialised sparsely (`hkx.initializers.Sparse`) and normalise each layer; observations and rewards are
    scaled by running statistics. From "Streaming Deep Reinforcement Learning Finally Works", Elsayed, Vasan and Mahmood
    2024 (https://arxiv.org/abs/2410.14606), algorithm 3.

    The result is a pair of functions like Optax's transformations. Optax passes extra arguments only to its own class,
    so to chain it, convert the pair: `optax.GradientTransformationExtraArgs(*rlx.obgd())`.

    - `init(params)`: the state.
    - `update(updates, state, params=None, *, td_error, reset=False)`: the update to add to the parameters, and the new
      state. `td_error` is a number; `reset` says whether the step was the last of its episode (or Q(λ) took a
      non-greedy action), after which the traces are reset.

    Args:
      learning_rate: α > 0.
      discount: γ in [0, 1].
      lambda_: λ in [0, 1].
      kappa: κ > 0; a value above 1 keeps the step smaller by that factor than the one that would overshoot.

    Returns:
      The pair.

    Raises:
      OptionError: if a number is out of its range.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> import rlx
      >>> def value(params, s):
      ...     return jnp.dot(params["w"], s)
      >>> optimizer = rlx.obgd(discount=0.5, lambda_=1.0)
      >>> params, s_tm1, s_t = {"w": jnp.zeros(2)}, jnp.array([1.0, 0.0]), jnp.array([0.0, 1.0])
      >>> state = optimizer.init(params)
      >>> v_tm1, gradient = jax.value_and_grad(value)(params, s_tm1)
      >>> td_error = rlx.td_learning(v_tm1, r_t=2.0, discount_t=0.5, v_t=value(params, s_t))
      >>> updates, state = optimizer.update(gradient, state, td_error=td_error)
      >>> updates["w"].tolist()  # 2 · min(1, 1 / (2 · 2 · 1))
      [0.5, 0.0]
      >>> params = jax.tree.map(jnp.add, params, updates)
    """
    as_arrays(
        "obgd",
        learning_rate=(learning_rate, Real[Array, "", "in (0, inf)"]),
        discount=(discount, Real[Array, "", "in [0, 1]"]),
        lambda_=(lambda_, Real[Array, "", "in [0, 1]"]),
        kappa=(kappa, Real[Array, "", "in (0, inf)"]),
    )
    # Partial applications of module-level functions can be pickled; local functions could not.
    return Transformation(_init, functools.partial(_update, learning_rate, discount, lambda_, kappa))


def _init(params: PyTree) -> ObGDState:
    return ObGDState(jax.tree.map(jnp.zeros_like, as_arrays_of("params", params, "obgd")))


def _update(
    learning_rate: ArrayLike,
    discount: ArrayLike,
    lambda_: ArrayLike,
    kappa: ArrayLike,
    updates: PyTree,
    state: ObGDState,
    params: PyTree = None,
    *,
    td_error: ArrayLike | None = None,
    reset: ArrayLike = False,
    **others: Any,
) -> tuple[PyTree, ObGDState]:
    del params, others  # passed by Optax chains
    if td_error is None:
        raise ArgumentError(
            "obgd: argument `td_error` is missing. Pass it to update(updates, state, td_error=...). A chain of Optax's "
            "hands it on to its own class alone: write optax.GradientTransformationExtraArgs(*rlx.obgd()) there."
        )
    delta, reset = as_arrays("obgd", td_error=(td_error, Float[Array, ""]), reset=(reset, Mask[Array, ""]))
    require_parts("state", state, ObGDState._fields, "the state that `init(params)` or `update` returned", "obgd")
    updates = as_arrays_of("updates", updates, "obgd")
    require_alike("updates", updates, "state.trace", state.trace, "obgd", dtypes=False)
    wide = wide_dtype(delta.dtype)
    learning_rate, kappa, discount, lambda_ = settings_in(wide, learning_rate, kappa, discount, lambda_)
    decay = jnp.multiply(discount, lambda_)
    trace = jax.tree.map(lambda z, gradient: (decay * z + gradient).astype(z.dtype), state.trace, updates)
    delta = delta.astype(wide)
    length = sum(jnp.sum(jnp.abs(z.astype(wide))) for z in jax.tree.leaves(trace))
    overshoot = learning_rate * kappa * jnp.maximum(jnp.abs(delta), 1) * length
    step = learning_rate / jnp.maximum(overshoot, 1) * delta
    remaining = jax.tree.map(lambda z: jnp.where(reset, jnp.zeros_like(z), z), trace)
    return jax.tree.map(lambda z: (step * z.astype(wide)).astype(z.dtype), trace), ObGDState(remaining)
