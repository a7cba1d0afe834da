"""Low-rank adaptation as a transformation of parameters: of any model, without a change to it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp

from hkx.arguments import checked_integer
from hkx.base.entries import check_structure
from hkx.base.keys import as_key
from hkx.base.types import PRNGKey

Params = Mapping[str, Mapping[str, Any]]


def lora_params(
    key: PRNGKey, params: Params, rank: int, *, where: Callable[[str, str, Any], bool] | None = None
) -> dict[str, dict[str, Any]]:
    """New parameters A and B of low rank, whose product `hkx.merge_lora` adds to the weights of a model.

    For each weight `[*stack, in, out]`, A is `[*stack, in, rank]`, uniform between `-1 / sqrt(in)` and `1 / sqrt(in)`,
    and B is `[*stack, rank, out]`, of zeros: at the start the model's outputs are unchanged. Train A and B only; then
    `params` also serve as the reference of a KL penalty. Modules and entries have the names of `hkx.LoRALinear`.

    Reference: Hu et al. (2021), "LoRA: low-rank adaptation of large language models", arXiv:2106.09685.

    Args:
      key: a key.
      params: the parameters of the model.
      rank: the rank of the added matrices, at least 1.
      where: a function of module name, entry name and array that says which weights to adapt; by default those called
        `w` with 2 or more axes, which are those of `hkx.Linear`, stacked or not. In a model with convolutions,
        exclude their weights.

    Returns:
      A dict of the modules with adapted weights, each with `lora_a` and `lora_b`.

    Raises:
      ValueError: if no weight is adapted, or one of them has fewer than 2 axes.
      InvalidSizeError: if the rank is not a whole number above 0.

    Example:

      >>> import hkx, jax, jax.numpy as jnp
      >>> model = hkx.without_apply_rng(hkx.transform(lambda x: hkx.nets.MLP([8, 2])(x)))
      >>> params = model.init(0, jnp.ones([1, 3]))
      >>> lora = hkx.lora_params(1, params, rank=2)
      >>> jax.tree.map(jnp.shape, lora["mlp/~/linear_0"])
      {'lora_a': (3, 2), 'lora_b': (2, 8)}
      >>> def loss(lora, x):
      ...     return jnp.sum(model.apply(hkx.merge_lora(params, lora), x) ** 2)
      >>> jax.tree.map(jnp.shape, jax.grad(loss)(lora, jnp.ones([1, 3])))["mlp/~/linear_1"]
      {'lora_a': (8, 2), 'lora_b': (2, 2)}
    """
    check_structure("hkx.lora_params", params)
    rank = checked_integer(rank, "rank", 1)
    chosen = [
        (module, name, value)
        for module, entries in params.items()
        for name, value in entries.items()
        if (name == "w" and value.ndim >= 2 if where is None else where(module, name, value))
    ]
    for module, name, value in chosen:
        if value.ndim < 2 or name != "w":
            raise ValueError(
                f"`where` of hkx.lora_params chose {module}/{name} of shape {value.shape}. Choose entries called `w` "
                "with 2 axes or more."
            )
    if not chosen:
        raise ValueError("hkx.lora_params found no weight to adapt. Say which by `where=`.")
    out = {}
    keys = jax.random.split(as_key(key, "`key` of hkx.lora_params"), len(chosen))
    for own, (module, _, value) in zip(keys, chosen, strict=True):
        *stack, size, output_size = value.shape
        limit = size**-0.5
        a = jax.random.uniform(own, (*stack, size, rank), value.dtype, -limit, limit)
        out[module] = {"lora_a": a, "lora_b": jnp.zeros((*stack, rank, output_size), value.dtype)}
    return out


def merge_lora(params: Params, lora: Params, scale: Any = 1.0) -> dict[str, dict[str, Any]]:
    """Parameters with the adaptation added: `w + scale A B` in place of each adapted weight.

    Gradients flow to A and B, and to `params`. One set of weights serves sampling and learning, so both compute the
    same numbers.

    Args:
      params: the parameters of the model.
      lora: A and B, from `hkx.lora_params`.
      scale: the factor of the product, which papers call alpha / rank.

    Returns:
      New parameters, with the names, shapes and dtypes of `params`.

    Raises:
      ValueError: if there is no weight for an adaptation, or the shapes do not fit.

    Example:

      >>> import hkx, jax.numpy as jnp
      >>> params = {"linear": {"w": jnp.ones([2, 2]), "b": jnp.zeros(2)}}
      >>> lora = {"linear": {"lora_a": jnp.array([[1.0], [2.0]]), "lora_b": jnp.array([[3.0, 0.0]])}}
      >>> hkx.merge_lora(params, lora)["linear"]["w"].tolist()
      [[4.0, 1.0], [7.0, 1.0]]
    """
    out = {module: dict(entries) for module, entries in params.items()}
    for module, entries in lora.items():
        w, a, b = out.get(module, {}).get("w"), entries["lora_a"], entries["lora_b"]
        product = None if a.shape[-1] != b.shape[-2] else (*a.shape[:-1], b.shape[-1])
        if w is None or w.shape != product:
            shape = "no such weight" if w is None else f"a weight of shape {w.shape}"
            raise ValueError(
                f"hkx.merge_lora: {module} has matrices of shapes {a.shape} and {b.shape}, and there is {shape} in "
                "`params`. Pass the parameters that `hkx.lora_params` got."
            )
        out[module]["w"] = (w + scale * jnp.matmul(a, b)).astype(w.dtype)
    return out
