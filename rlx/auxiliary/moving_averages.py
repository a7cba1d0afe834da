"""Exponential moving averages of the first and second moments of a tree's leaves."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from rlx.core.checks import check_numbers
from rlx.core.trees import Record, record
from rlx.core.types import PyTree


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
    """State of the moving averages: sums that start at zero, and how much of that start is left.

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
        """Mean and variance of each leaf, without the bias towards the start; zeros before the first update."""
        weight = 1 - self.decay_product
        safe = jnp.where(weight > 0, weight, 1)
        mean = jax.tree.map(lambda mu: mu / safe, self.mu)
        second = jax.tree.map(lambda nu: nu / safe, self.nu)
        return EmaMoments(mean, jax.tree.map(lambda m, s: jnp.maximum(s - jnp.square(m), 0), mean, second))


def create_ema(
    decay: float = 0.999, pmean_axis_name: Any = None
) -> tuple[Callable[[PyTree], EmaState], Callable[[PyTree, EmaState], tuple[EmaMoments, EmaState]]]:
    """Makes functions that track the mean and variance of each leaf of a tree, over its entries and over time.

    μ ← decay μ + (1 - decay) mean(x), ν ← decay ν + (1 - decay) mean(x²), with the bias of their start at zero removed
    as in "Adam: A Method for Stochastic Optimization", Kingma and Ba 2014 (https://arxiv.org/abs/1412.6980).

    Args:
      decay: in [0, 1]; the learning rate is 1 - decay.
      pmean_axis_name: name of an axis of `jax.pmap` or `jax.vmap` to average over too, or None.

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

    check_numbers("create_ema", decay=(decay, "[0, 1]"))
    # Parts of functions of this module can be pickled, functions made here could not.
    return _initial_state, functools.partial(_update, decay, pmean_axis_name)


def _initial_state(template: PyTree) -> EmaState:
    zeros = jax.tree.map(lambda x: jnp.zeros((), jnp.result_type(x, float)), template)
    return EmaState(zeros, zeros, jnp.ones(()))


def _update(decay: Any, pmean_axis_name: Any, tree: PyTree, state: EmaState) -> tuple[EmaMoments, EmaState]:
    def averaged(old: Any, x: Any) -> Any:
        mean = jnp.mean(x)
        if pmean_axis_name is not None:
            mean = jax.lax.pmean(mean, pmean_axis_name)
        return decay * old + (1 - decay) * mean

    mu = jax.tree.map(averaged, state.mu, tree)
    nu = jax.tree.map(lambda old, x: averaged(old, jnp.square(x)), state.nu, tree)
    new_state = EmaState(mu, nu, state.decay_product * decay)
    return new_state.debiased_moments(), new_state
