"""Bellman equations for transformed values, as in R2D2: bootstrap in reward space, learn in transformed space."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from rlx.core.annotations import Float, Int, Mask, Real
from rlx.core.arguments import as_arrays, require, whole
from rlx.core.arrays import pick
from rlx.core.errors import ShapeError
from rlx.core.masking import masked
from rlx.core.operator import maybe_stop, operator
from rlx.core.types import Array
from rlx.retrace import general_off_policy_returns_from_action_values, truncated_ratios
from rlx.returns import lambda_returns, n_step_bootstrapped_returns
from rlx.value_transforms import IDENTITY_PAIR, TxPair, require_pair


def transform_values(build_targets: Callable[..., Array], *value_argnums: int) -> Callable[..., Array]:
    """Adapts a function that builds targets from values to work on transformed values.

    The new function takes a `TxPair` before the original arguments. It maps values back to reward space with the
    inverse transform, builds the targets there, and transforms them: h(build(..., h⁻¹(v), ...)). From "General
    non-linear Bellman equations", van Hasselt et al. 2019 (https://arxiv.org/abs/1907.03687).

    Args:
      build_targets: function of arrays that returns targets.
      *value_argnums: positions of the arguments that are values, counted from the end if negative; `truncation_value_t`
        is treated as one too.

    Returns:
      A function (tx_pair, *args, **kwargs) that returns transformed targets.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> build = rlx.transform_values(rlx.lambda_returns, 2)
      >>> half = jnp.array([0.5, 0.5])
      >>> build(rlx.IDENTITY_PAIR, jnp.array([1.0, 2.0]), half, jnp.array([4.0, 8.0]), 0.5).tolist()
      [3.5, 6.0]
    """
    require(callable(build_targets), "build_targets", build_targets, "a function", "transform_values")
    for i in value_argnums:
        whole("value_argnums", i, "positions of arguments", "transform_values")
    names = _names_of(build_targets)
    function = getattr(build_targets, "__name__", "transform_values")
    value_names = {names[i] for i in value_argnums if i in range(len(names))} | {"truncation_value_t"}

    def transformed(tx_pair: TxPair, *args: Any, **kwargs: Any) -> Array:
        require_pair(tx_pair, function=function)

        def inverse(name: str, value: Any) -> Any:
            if value is None:
                return value
            (value,) = as_arrays(function, **{name: (value, Real[Array, "*E"])})
            return tx_pair.apply_inv(_constant_where_infinite(value))

        given = list(args)
        for i in {range(len(given))[i] for i in value_argnums if -len(given) <= i < len(given)}:
            given[i] = inverse(names[i] if i < len(names) else f"args[{i}]", given[i])
        named = {name: inverse(name, value) if name in value_names else value for name, value in kwargs.items()}
        return tx_pair.apply(build_targets(*given, **named))

    return transformed


def _names_of(function: Callable[..., Any]) -> list[str]:
    """The arguments that may be passed by position; none for a function without a readable signature."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return []
    return [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]


@operator()
def transformed_lambda_returns(
    tx_pair: TxPair,
    r_t: Real[Array, "T"],
    discount_t: Real[Array, "T"],
    v_t: Float[Array, "T", "T K"],
    lambda_: Real[Array | float, "", "#T", "in [0, 1] if scalar"] = 1.0,
    stop_target_gradients: bool = False,
    *,
    truncation_t: Mask[Array, "T"] | None = None,
    truncation_value_t: Float[Array, "T", "T K"] | None = None,
) -> Float[Array, "T", "T K"]:
    """λ-returns of transformed values: h(G) with G_{t-1} = r_t + γ_t [(1 - λ_t) h⁻¹(v_t) + λ_t G_t].

    From "General non-linear Bellman equations", van Hasselt et al. 2019 (https://arxiv.org/abs/1907.03687). For the
    returns see `lambda_returns`. Values may also be distributions over K bins, if `tx_pair` maps to such.

    Args:
      tx_pair: the transform h and its inverse.
      r_t: rewards at times [1, ..., T].
      discount_t: discounts at times [1, ..., T]; 0 where an episode terminated.
      v_t: transformed values of the states at times [1, ..., T].
      lambda_: λ in [0, 1]; the last entry has no effect.
      stop_target_gradients: whether to stop gradients through the returns.
      truncation_t: true where the sequence was truncated at time t without terminating: the return of that step
        bootstraps, and the next step starts a new segment. The result equals that of each segment processed separately.
      truncation_value_t: transformed values of the states at which it was truncated, used where `truncation_t` is true;
        taken from `v_t` by default.

    Returns:
      Transformed returns from times [0, ..., T-1].

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> half = jnp.array([0.5, 0.5])
      >>> returns = rlx.transformed_lambda_returns(rlx.IDENTITY_PAIR, jnp.array([1.0, 2.0]), half, 4 * jnp.ones(2), 1.0)
      >>> returns.tolist()
      [3.0, 4.0]
    """
    v_t = _inverse(tx_pair, "v_t", v_t, r_t.shape)
    ends_t = _inverse(tx_pair, "truncation_value_t", truncation_value_t, r_t.shape)
    returns = lambda_returns.kernel(r_t, discount_t, v_t, lambda_, truncation_t=truncation_t, truncation_value_t=ends_t)
    return tx_pair.apply(maybe_stop(returns, stop_target_gradients))


@operator()
def transformed_n_step_returns(
    tx_pair: TxPair,
    r_t: Real[Array, "T"],
    discount_t: Real[Array, "T"],
    v_t: Float[Array, "T", "T K"],
    n: int,
    lambda_t: Real[Array | float, "", "#T", "T-1", "in [0, 1] if scalar"] = 1.0,
    stop_target_gradients: bool = False,
    *,
    truncation_t: Mask[Array, "T"] | None = None,
    truncation_value_t: Float[Array, "T", "T K"] | None = None,
) -> Float[Array, "T", "T K"]:
    """n-step returns of transformed values: h(G), where G bootstraps from h⁻¹(v).

    From "Recurrent Experience Replay in Distributed Reinforcement Learning", Kapturowski et al. 2019
    (https://openreview.net/pdf?id=r1lyTjAqYX). For the returns see `n_step_bootstrapped_returns`.
    Values may also be distributions over K bins, if `tx_pair` maps to such.

    Args:
      tx_pair: the transform h and its inverse.
      r_t: rewards at times [1, ..., T].
      discount_t: discounts at times [1, ..., T]; 0 where an episode terminated.
      v_t: transformed values of states, or of states and actions, at times [1, ..., T].
      n: number of steps, at least 1, a Python integer.
      lambda_t: λ at times [1, ..., T] or [1, ..., T-1]; the one at time T has no effect.
      stop_target_gradients: whether to stop gradients through the returns.
      truncation_t: true where the sequence was truncated at time t without terminating: the return of that step
        bootstraps, and the next step starts a new segment. The result equals that of each segment processed separately.
      truncation_value_t: transformed values of the states at which it was truncated, used where `truncation_t` is true;
        taken from `v_t` by default.

    Returns:
      Transformed returns from times [0, ..., T-1].

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> ones = jnp.ones(3)
      >>> rlx.transformed_n_step_returns(rlx.IDENTITY_PAIR, ones, 0.5 * ones, 4.0 * ones, n=2).tolist()
      [2.5, 2.5, 3.0]
    """
    v_t = _inverse(tx_pair, "v_t", v_t, r_t.shape)
    ends_t = _inverse(tx_pair, "truncation_value_t", truncation_value_t, r_t.shape)
    returns = n_step_bootstrapped_returns.kernel(
        r_t, discount_t, v_t, n, lambda_t, truncation_t=truncation_t, truncation_value_t=ends_t
    )
    return tx_pair.apply(maybe_stop(returns, stop_target_gradients))


@operator(masks={"discount_t": ("c_t",)})
def transformed_general_off_policy_returns_from_action_values(
    tx_pair: TxPair,
    q_t: Float[Array, "T A", "T A K"],
    a_t: Int[Array, "T", "in [-1, A)"],
    r_t: Real[Array, "T"],
    discount_t: Real[Array, "T"],
    c_t: Real[Array, "T"],
    pi_t: Float[Array, "T A"],
    stop_target_gradients: bool = False,
    *,
    truncation_t: Mask[Array, "T"] | None = None,
    truncation_value_t: Float[Array, "T", "T K"] | None = None,
) -> Float[Array, "T", "T K"]:
    """Off-policy returns of transformed action values: h(G), where G is built from h⁻¹(q).

    From "General non-linear Bellman equations", van Hasselt et al. 2019 (https://arxiv.org/abs/1907.03687). For the
    returns see `general_off_policy_returns_from_action_values`. Values may also be distributions over K bins, if
    `tx_pair` maps to such.

    Args:
      tx_pair: the transform h and its inverse.
      q_t: transformed action values at times [1, ..., T].
      a_t: actions at times [1, ..., T]; the last entry has no effect.
      r_t: rewards at times [1, ..., T].
      discount_t: discounts at times [1, ..., T]; 0 where an episode terminated.
      c_t: coefficients at times [1, ..., T]; the last entry has no effect.
      pi_t: probabilities of the target policy at times [1, ..., T].
      stop_target_gradients: whether to stop gradients through the returns.
      truncation_t: true where the sequence was truncated at time t without terminating: the return of that step
        bootstraps, and the next step starts a new segment. The result equals that of each segment processed separately.
      truncation_value_t: transformed values of the states at which it was truncated, used where `truncation_t` is true;
        by default h(Σ_a π_t(a) h⁻¹(q_t[a])).

    Returns:
      Transformed returns from times [0, ..., T-1].

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> q_t, pi_t, half = jnp.array([[2.0, 4.0], [6.0, 8.0]]), jnp.full([2, 2], 0.5), jnp.array([0.5, 0.5])
      >>> rlx.transformed_general_off_policy_returns_from_action_values(
      ...     rlx.IDENTITY_PAIR, q_t, jnp.array([0, 1]), jnp.ones(2), half, half, pi_t).tolist()
      [3.125, 4.5]
    """
    if stop_target_gradients is not True:  # the slope of h⁻¹ at NaN is NaN
        q_t = masked(discount_t, q_t)
    q_t = _inverse(tx_pair, "q_t", q_t, pi_t.shape)
    ends_t = _inverse(tx_pair, "truncation_value_t", truncation_value_t, r_t.shape)
    ends = {"truncation_t": truncation_t, "truncation_value_t": ends_t}
    arguments = q_t, a_t, r_t, discount_t, c_t, pi_t, stop_target_gradients
    return tx_pair.apply(general_off_policy_returns_from_action_values.kernel(*arguments, **ends))


@operator()
def transformed_q_lambda(
    q_tm1: Float[Array, "T A"],
    a_tm1: Int[Array, "T", "in [-1, A)"],
    r_t: Real[Array, "T"],
    discount_t: Real[Array, "T"],
    q_t: Float[Array, "T A"],
    lambda_: Real[Array | float, "", "#T", "in [0, 1] if scalar"],
    stop_target_gradients: bool = True,
    tx_pair: TxPair = IDENTITY_PAIR,
    *,
    truncation_t: Mask[Array, "T"] | None = None,
    truncation_value_t: Float[Array, "T"] | None = None,
) -> Float[Array, "T"]:
    """Q(λ) temporal-difference errors of transformed values: h(λ-returns of max_a h⁻¹(q_t[a])) - q_{t-1}[a_{t-1}].

    From "General non-linear Bellman equations", van Hasselt et al. 2019 (https://arxiv.org/abs/1907.03687).

    Args:
      q_tm1: transformed action values at times [0, ..., T-1].
      a_tm1: actions at times [0, ..., T-1].
      r_t: rewards at times [1, ..., T].
      discount_t: discounts at times [1, ..., T]; 0 where an episode terminated.
      q_t: transformed action values at times [1, ..., T].
      lambda_: λ in [0, 1]; the last entry has no effect.
      stop_target_gradients: whether to stop gradients through the targets (all but the values at times [0, ..., T-1]).
      tx_pair: the transform of the values and its inverse.
      truncation_t: true where the sequence was truncated at time t without terminating: the target of that step
        bootstraps, and the next step starts a new segment. The result equals that of each segment processed separately.
      truncation_value_t: values of the states at which it was truncated, used where `truncation_t` is true; by default
        max_a q_t[a], in transformed space like all values here.

    Returns:
      Errors at times [0, ..., T-1].

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> q_t, half = jnp.array([[4.0, 0.0], [0.0, 8.0]]), jnp.array([0.5, 0.5])
      >>> a_tm1, r_t = jnp.array([0, 1]), jnp.array([1.0, 2.0])
      >>> rlx.transformed_q_lambda(jnp.ones([2, 2]), a_tm1, r_t, half, q_t, 0.5).tolist()
      [2.5, 5.0]
    """
    ends = {"truncation_t": truncation_t, "truncation_value_t": truncation_value_t}
    v_t = jnp.max(q_t, axis=-1)
    target = transformed_lambda_returns.kernel(tx_pair, r_t, discount_t, v_t, lambda_, False, **ends)
    return maybe_stop(target, stop_target_gradients) - pick(q_tm1, a_tm1)


@operator()
def transformed_n_step_q_learning(
    q_tm1: Float[Array, "T A"],
    a_tm1: Int[Array, "T", "in [-1, A)"],
    target_q_t: Float[Array, "T A"],
    a_t: Int[Array, "T", "in [-1, A)"],
    r_t: Real[Array, "T"],
    discount_t: Real[Array, "T"],
    n: int,
    stop_target_gradients: bool = True,
    tx_pair: TxPair = IDENTITY_PAIR,
    *,
    truncation_t: Mask[Array, "T"] | None = None,
    truncation_value_t: Float[Array, "T"] | None = None,
) -> Float[Array, "T"]:
    """n-step Q-learning temporal-difference errors of transformed values.

    h(n-step returns that bootstrap from h⁻¹(target_q_t[a_t])) - q_{t-1}[a_{t-1}]. With a_t = argmax target_q_t this is
    Q-learning; with a_t the argmax of the online values it is double Q-learning. From "Recurrent Experience Replay in
    Distributed Reinforcement Learning", Kapturowski et al. 2019 (https://openreview.net/pdf?id=r1lyTjAqYX).

    Args:
      q_tm1: transformed action values at times [0, ..., T-1].
      a_tm1: actions at times [0, ..., T-1].
      target_q_t: transformed action values at times [1, ..., T] to bootstrap from.
      a_t: actions at times [1, ..., T].
      r_t: rewards at times [1, ..., T].
      discount_t: discounts at times [1, ..., T]; 0 where an episode terminated.
      n: number of steps, at least 1, a Python integer.
      stop_target_gradients: whether to stop gradients through the targets (all but the values at times [0, ..., T-1]).
      tx_pair: the transform of the values and its inverse.
      truncation_t: true where the sequence was truncated at time t without terminating: the target of that step
        bootstraps, and the next step starts a new segment. The result equals that of each segment processed separately.
      truncation_value_t: values of the states at which it was truncated, used where `truncation_t` is true; by default
        target_q_t[a_t], in transformed space like all values here.

    Returns:
      Errors at times [0, ..., T-1].

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> a, ones = jnp.array([0, 1, 0]), jnp.ones(3)
      >>> q_t = jnp.full([3, 2], 4.0)
      >>> rlx.transformed_n_step_q_learning(jnp.ones([3, 2]), a, q_t, a, ones, 0.5 * ones, n=2).tolist()
      [1.5, 1.5, 2.0]
    """
    ends = {"truncation_t": truncation_t, "truncation_value_t": truncation_value_t}
    v_t = pick(target_q_t, a_t)
    target = transformed_n_step_returns.kernel(tx_pair, r_t, discount_t, v_t, n, 1.0, False, **ends)
    return maybe_stop(target, stop_target_gradients) - pick(q_tm1, a_tm1)


@operator(masks={"discount_t": ("mu_t", "lambda_")})
def transformed_retrace(
    q_tm1: Float[Array, "T A"],
    q_t: Float[Array, "T A"],
    a_tm1: Int[Array, "T", "in [-1, A)"],
    a_t: Int[Array, "T", "in [-1, A)"],
    r_t: Real[Array, "T"],
    discount_t: Real[Array, "T"],
    pi_t: Float[Array, "T A"],
    mu_t: Float[Array, "T"],
    lambda_: Real[Array | float, "", "#T", "in [0, 1] if scalar"],
    eps: Real[Array | float, "", "in [0, inf)"] = 1e-8,
    stop_target_gradients: bool = True,
    tx_pair: TxPair = IDENTITY_PAIR,
    *,
    truncation_t: Mask[Array, "T"] | None = None,
    truncation_value_t: Float[Array, "T"] | None = None,
) -> Float[Array, "T"]:
    """Retrace errors of transformed values: h(Retrace returns of h⁻¹(q_t)) - q_{t-1}[a_{t-1}].

    For the returns see `retrace`. From "Recurrent Experience Replay in Distributed Reinforcement Learning", Kapturowski
    et al. 2019 (https://openreview.net/pdf?id=r1lyTjAqYX).

    Args:
      q_tm1: transformed action values at times [0, ..., T-1].
      q_t: transformed action values at times [1, ..., T].
      a_tm1: actions at times [0, ..., T-1].
      a_t: actions at times [1, ..., T].
      r_t: rewards at times [1, ..., T].
      discount_t: discounts at times [1, ..., T]; 0 where an episode terminated.
      pi_t: probabilities of the target policy at times [1, ..., T].
      mu_t: probabilities with which the behaviour policy took the actions `a_t`.
      lambda_: λ in [0, 1]; the last entry has no effect.
      eps: ε, added to `mu_t` before dividing by it.
      stop_target_gradients: whether to stop gradients through the targets (all but the values at times [0, ..., T-1]).
      tx_pair: the transform of the values and its inverse.
      truncation_t: true where the sequence was truncated at time t without terminating: the target of that step
        bootstraps, and the next step starts a new segment. The result equals that of each segment processed separately.
      truncation_value_t: values of the states at which it was truncated, used where `truncation_t` is true; by default
        h(Σ_a π_t(a) h⁻¹(q_t[a])), in transformed space like all values here.

    Returns:
      Errors at times [0, ..., T-1].

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> q, a, half = jnp.array([[2.0, 4.0], [6.0, 8.0]]), jnp.array([0, 1]), jnp.array([0.5, 0.5])
      >>> pi_t = jnp.full([2, 2], 0.5)
      >>> rlx.transformed_retrace(q, q, a, a, jnp.ones(2), half, pi_t, half, 0.5).tolist()
      [1.125, -3.5]
    """
    c_t = lambda_ * truncated_ratios(discount_t, pi_t, a_t, mu_t, eps)
    ends = {"truncation_t": truncation_t, "truncation_value_t": truncation_value_t}
    arguments = q_t, a_t, r_t, discount_t, c_t, pi_t, stop_target_gradients
    target = transformed_general_off_policy_returns_from_action_values.kernel(tx_pair, *arguments, **ends)
    return maybe_stop(target, stop_target_gradients) - pick(q_tm1, a_tm1)


def _inverse(tx_pair: TxPair, argument: str, value: Array | None, shape: tuple[int, ...]) -> Any:
    """h⁻¹ of values, which has this shape, or None of None."""
    require_pair(tx_pair)
    if value is None:
        return None
    inverse = tx_pair.apply_inv(_constant_where_infinite(value))
    if jnp.shape(inverse) != shape:
        raise ShapeError(
            f"argument `{argument}` has shape {list(value.shape)}, which `tx_pair.apply_inv` maps to shape "
            f"{list(jnp.shape(inverse))}, expected values of shape {list(shape)}."
        )
    return inverse


def _constant_where_infinite(value: Array) -> Array:
    """The value, with gradients stopped where it is infinite, since the slope of a transform is undefined there."""
    return jnp.where(jnp.isfinite(value), value, jax.lax.stop_gradient(value))
