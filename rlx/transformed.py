"""Returns of transformed values: bootstrap in the space of rewards, learn in another."""

import inspect
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from rlx.core.checks import check
from rlx.core.types import Array, ArrayLike
from rlx.retrace import general_off_policy_returns_from_action_values
from rlx.returns import lambda_returns, n_step_bootstrapped_returns
from rlx.value_transforms import TxPair, require_pair


def transform_values(build_targets: Callable[..., Array], *value_argnums: int) -> Callable[..., Array]:
    """Makes a function that builds targets from values into one that works on transformed values.

    The new function takes a `TxPair` before the arguments of the old one. It brings values back to the space of rewards
    with the inverse transform, builds the targets there, and transforms them: h(build(..., h⁻¹(v), ...)). From "General
    non-linear Bellman equations", van Hasselt et al. 2019 (https://arxiv.org/abs/1907.03687).

    Args:
      build_targets: function of arrays that returns targets.
      *value_argnums: positions of those of its arguments that are values; `truncation_value_t` is one too.

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
    names = list(inspect.signature(build_targets).parameters)
    function = getattr(build_targets, "__name__", "transform_values")
    value_names = {names[i] for i in value_argnums} | {"truncation_value_t"}

    def transformed(tx_pair: TxPair, *args: Any, **kwargs: Any) -> Array:
        require_pair(tx_pair, function=function)

        def inverse(name: str, value: Any) -> Any:
            if name not in value_names or value is None:
                return value
            return tx_pair.apply_inv(_steady(function, name, value))

        args = tuple(inverse(name, value) for name, value in zip(names, args, strict=False))
        kwargs = {name: inverse(name, value) for name, value in kwargs.items()}
        return tx_pair.apply(build_targets(*args, **kwargs))

    return transformed


def _signature_of(build_targets: Callable[..., Array]) -> Callable[[Callable[..., Array]], Callable[..., Array]]:
    """Shows the arguments that follow `tx_pair`, which RLax's signatures leave out, as those of `build_targets`."""

    def decorate(function: Callable[..., Array]) -> Callable[..., Array]:
        function.__signature__ = inspect.signature(build_targets)  # pyright: ignore[reportFunctionMemberAccess]
        return function

    return decorate


@_signature_of(lambda_returns)
def transformed_lambda_returns(tx_pair: TxPair, *args: Any, **kwargs: Any) -> Array:
    """λ-returns of transformed values: h(G) with G_{t-1} = r_t + γ_t [(1 - λ_t) h⁻¹(v_t) + λ_t G_t].

    From "General non-linear Bellman equations", van Hasselt et al. 2019 (https://arxiv.org/abs/1907.03687).

    Args:
      tx_pair: the transform h and its inverse, the first argument.
      *args: the arguments of `lambda_returns`; `v_t` and `truncation_value_t` are transformed values.
      **kwargs: the same, by name.

    Returns:
      Transformed returns from times [0, ..., T-1], floats [T].

    Raises:
      ArgumentError: if an argument has another rank, length or kind; map over batches with `jax.vmap`.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> half = jnp.array([0.5, 0.5])
      >>> returns = rlx.transformed_lambda_returns(rlx.IDENTITY_PAIR, jnp.array([1.0, 2.0]), half, 4 * jnp.ones(2), 1.0)
      >>> returns.tolist()
      [3.0, 4.0]
    """
    return _lambda_returns(tx_pair, *args, **kwargs)


@_signature_of(n_step_bootstrapped_returns)
def transformed_n_step_returns(tx_pair: TxPair, *args: Any, **kwargs: Any) -> Array:
    """n-step returns of transformed values: h(G), where G bootstraps from h⁻¹(v).

    From "Recurrent Experience Replay in Distributed Reinforcement Learning", Kapturowski et al. 2019
    (https://openreview.net/pdf?id=r1lyTjAqYX).

    Args:
      tx_pair: the transform h and its inverse, the first argument.
      *args: the arguments of `n_step_bootstrapped_returns`; `v_t` and `truncation_value_t` are transformed values.
      **kwargs: the same, by name.

    Returns:
      Transformed returns from times [0, ..., T-1], floats [T].

    Raises:
      ArgumentError: if an argument has another rank, length or kind; map over batches with `jax.vmap`.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> ones = jnp.ones(3)
      >>> rlx.transformed_n_step_returns(rlx.IDENTITY_PAIR, ones, 0.5 * ones, 4.0 * ones, n=2).tolist()
      [2.5, 2.5, 3.0]
    """
    return _n_step_returns(tx_pair, *args, **kwargs)


@_signature_of(general_off_policy_returns_from_action_values)
def transformed_general_off_policy_returns_from_action_values(tx_pair: TxPair, *args: Any, **kwargs: Any) -> Array:
    """Off-policy returns of transformed action values: h(G), where G is built from h⁻¹(q).

    From "General non-linear Bellman equations", van Hasselt et al. 2019 (https://arxiv.org/abs/1907.03687).

    Args:
      tx_pair: the transform h and its inverse, the first argument.
      *args: the arguments of `general_off_policy_returns_from_action_values`; `q_t` and `truncation_value_t` are
        transformed values.
      **kwargs: the same, by name.

    Returns:
      Transformed returns from times [0, ..., T-1], floats [T].

    Raises:
      ArgumentError: if an argument has another rank, length or kind; map over batches with `jax.vmap`.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> q_t, pi_t, half = jnp.array([[2.0, 4.0], [6.0, 8.0]]), jnp.full([2, 2], 0.5), jnp.array([0.5, 0.5])
      >>> rlx.transformed_general_off_policy_returns_from_action_values(
      ...     rlx.IDENTITY_PAIR, q_t, jnp.array([0, 1]), jnp.ones(2), half, half, pi_t).tolist()
      [3.125, 4.5]
    """
    return _off_policy_returns(tx_pair, *args, **kwargs)


def _steady(function: str, name: str, value: ArrayLike) -> Array:
    """The value, which is a constant where it is infinite: the slope of a transform there is no number."""
    (value,) = check(function, **{name: (value, "[*E]", "real")})
    return jnp.where(jnp.isfinite(value), value, jax.lax.stop_gradient(value))


_lambda_returns = transform_values(lambda_returns, 2)
_n_step_returns = transform_values(n_step_bootstrapped_returns, 2)
_off_policy_returns = transform_values(general_off_policy_returns_from_action_values, 0)
