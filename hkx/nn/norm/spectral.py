"""Spectral normalisation, of one matrix and of a tree of parameters."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from hkx import Module, get_state, initializers, set_state
from hkx.arguments import Flag, Num, Number, PositiveSize
from hkx.nn.norm.params_tree import map_params
from hkx.nn.numerics import check_state, constant, narrowed, state_array, widened


def _unit(x: jax.Array, eps: Any) -> jax.Array:
    squares = jnp.sum(x * x, keepdims=True)
    return x * jax.lax.rsqrt(squares + constant(eps, squares.dtype))


class SpectralNorm(Module):
    """Divides a matrix by its largest singular value, which is estimated by power iteration.

    Each call does `n_steps` of `v = unit(u Wᵀ)`, `u = unit(v W)`, starting from the `u` of the last call, and estimates
    the singular value by `sigma = v W uᵀ`. Both are state: `u0`, of shape `[1, columns]`, random at first, and `sigma`.

    Reference: Miyato et al. (2018), "Spectral normalization for generative adversarial networks", arXiv:1802.05957.

    Args:
      eps: a constant that is added to the squared norm of a vector before the vector is divided by the norm.
      n_steps: the number of power iterations of a call, at least 1.
      name: the module's name.

    Raises:
      ValueError: if `n_steps` is less than 1.

    Example:

      >>> import hkx, jax, jax.numpy as jnp
      >>> f = hkx.transform_with_state(lambda w: hkx.SpectralNorm(n_steps=20)(w))
      >>> w = jnp.diag(jnp.array([4.0, 1.0]))
      >>> params, state = f.init(jax.random.key(0), w)
      >>> print(f.apply(params, state, None, w)[0].round(2))
      [[1.   0.  ]
       [0.   0.25]]
    """

    def __init__(
        self, eps: Number[float, "[0, inf)", "..."] = 1e-4, n_steps: PositiveSize = 1, name: str | None = None
    ):
        super().__init__(name=name)
        self.eps = eps
        self.n_steps = n_steps

    def __call__(
        self, value: Num[Any, "..."], update_stats: Flag = True, error_on_non_matrix: Flag = False
    ) -> jax.Array:
        """Normalises `value`.

        Args:
          value: a matrix. In an array with more dimensions, all dimensions except the last count as one.
          update_stats: whether the state is updated.
          error_on_non_matrix: whether an array with more than two dimensions is an error.

        Returns:
          `value / sigma`.

        Raises:
          ValueError: if `value` is a scalar or a vector, or has more than two dimensions when that is an error.
          StateShapeError: if the state is that of a matrix with another number of columns.
          NotAnArrayError: if the state is not an array.
        """
        if value.ndim < 2:
            raise ValueError(
                f"The spectral norm is not well defined for a `value` of shape {value.shape}: it is that of a matrix."
            )
        if value.ndim > 2 and error_on_non_matrix:
            raise ValueError(
                f"Input is {value.ndim}D but `error_on_non_matrix` is True: `value` has shape {value.shape}."
            )
        wide = widened(value)
        matrix = wide.reshape(math.prod(value.shape[:-1]), value.shape[-1])
        old = get_state("u0", (1, value.shape[-1]), value.dtype, init=initializers.RandomNormal())
        old = state_array(self, "u0", old)
        u = widened(old)
        columns = value.shape[-1]
        check_state(u.shape == (1, columns), self, "u0", u, (1, columns), "value", value)
        v = u
        for _ in range(self.n_steps):
            v = _unit(jnp.matmul(u, matrix.T), self.eps)
            u = _unit(jnp.matmul(v, matrix), self.eps)
        u, v = jax.lax.stop_gradient(u), jax.lax.stop_gradient(v)
        sigma = jnp.matmul(jnp.matmul(v, matrix), u.T)[0, 0]
        if update_stats:
            set_state("u0", narrowed(u, value, old))
            set_state("sigma", narrowed(sigma, value, old))
        return narrowed(wide / sigma, value, old)

    @property
    def u0(self) -> jax.Array:
        """The estimate of the right singular vector, shape `[1, columns]`."""
        return get_state("u0")

    @property
    def sigma(self) -> jax.Array:
        """The last estimate of the largest singular value; 1 before the first."""
        return get_state("sigma", (), init=jnp.ones)


class SNParamsTree(Module):
    """Applies `hkx.SpectralNorm` to every parameter of a tree.

    Args:
      eps: see `hkx.SpectralNorm`.
      n_steps: see `hkx.SpectralNorm`.
      ignore_regex: parameters whose path (`"mlp/~/linear_0/b"`) matches this regular expression at its start are not
        changed; these must include all vectors.
      name: the module's name.

    Example:

      >>> import hkx, jax, jax.numpy as jnp
      >>> f = hkx.transform_with_state(lambda p: hkx.SNParamsTree(ignore_regex=".*b")(p))
      >>> params, state = f.init(jax.random.key(0), {"linear": {"w": jnp.ones([2, 2]), "b": jnp.ones(2)}})
      >>> list(state)
      ['sn_params_tree/linear__w']
    """

    def __init__(
        self,
        eps: Number[float, "[0, inf)", "..."] = 1e-4,
        n_steps: PositiveSize = 1,
        ignore_regex: str = "",
        name: str | None = None,
    ):
        super().__init__(name=name)
        self.eps = eps
        self.n_steps = n_steps
        self.ignore_regex = ignore_regex

    def __call__(self, tree: Mapping[str, Mapping[str, Any]], update_stats: Flag = True) -> dict[str, dict[str, Any]]:
        """Normalises the parameters.

        Args:
          tree: parameters as `init` returns them.
          update_stats: whether the state is updated.

        Returns:
          A tree of the same structure.

        Raises:
          TypeError: if `tree` is not a dict of dicts.
          ValueError: if a parameter that is not ignored is a scalar or a vector.
        """

        def normalise(name: str, value: Any) -> jax.Array:
            return SpectralNorm(self.eps, self.n_steps, name=name)(value, update_stats=update_stats)

        return map_params(tree, normalise, self.ignore_regex, tilde="_tilde")
