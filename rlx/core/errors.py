"""Every exception that rlx raises, one per kind of mistake.

RLax reports wrong ranks, shapes and dtypes as `AssertionError` (from chex), and others as `ValueError` or `TypeError`
(from array code that fails later). Code written for it may catch any of these, so `ArgumentError` is all three.
"""

from typing import Any


class ArgumentError(AssertionError, ValueError, TypeError):
    """An argument that an operator cannot take. The message names the function and the argument.

    It is an `AssertionError`, a `ValueError` and a `TypeError`, so that `except` clauses written for RLax keep working.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> try:
      ...     rlx.td_learning(jnp.ones(3), 1.0, 0.9, 1.0)
      ... except rlx.ArgumentError as error:
      ...     print(type(error).__name__)
      RankError
    """


class RankError(ArgumentError):
    """An array with the wrong number of axes, most often because a batched array was passed without `rlx.batched`.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> try:
      ...     rlx.discounted_returns(jnp.ones([4, 2]), jnp.ones([4, 2]), 0.0)
      ... except rlx.RankError as error:
      ...     print(str(error).splitlines()[0])
      discounted_returns: argument `r_t` has rank 2 (shape [4, 2]), expected shape [T].
    """

    wrong_rank: Any = None  # a `WrongRank`, until `rlx.core.operator` has added the advice


class ShapeError(ArgumentError):
    """An array of the right rank whose length does not fit the other arguments.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> try:
      ...     rlx.discounted_returns(jnp.ones(4), jnp.ones(5), 0.0)
      ... except rlx.ShapeError as error:
      ...     print(str(error).splitlines()[0])
      discounted_returns: argument `discount_t` has shape [5], expected shape [T] with T = 4 from `r_t`.
    """


class DTypeError(ArgumentError):
    """An array of the wrong kind of number, for instance a float where an action index is expected.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> try:
      ...     rlx.q_learning(jnp.ones(3), 1.0, 0.0, 0.9, jnp.ones(3))
      ... except rlx.DTypeError as error:
      ...     print(str(error).splitlines()[0])
      q_learning: argument `a_tm1` has dtype float32, expected integers.
    """


class OptionError(ArgumentError):
    """A setting (not an array) outside what a function accepts, for instance `n = 0` steps.

    Example:
      >>> import jax.numpy as jnp
      >>> import rlx
      >>> try:
      ...     rlx.n_step_bootstrapped_returns(jnp.ones(4), jnp.ones(4), jnp.ones(4), n=0)
      ... except rlx.OptionError as error:
      ...     print(str(error).splitlines()[0])
      n_step_bootstrapped_returns: argument `n` is 0, expected a positive number of steps.
    """
