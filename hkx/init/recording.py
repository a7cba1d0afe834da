"""The maker of the abstract run of `init`: it records one operation for each requested value, in any JAX trace."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Sequence
from typing import Any

import jax
import jax.core
import jax.export
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from hkx.arguments import checked_integer
from hkx.base.draws import Draw, sample
from hkx.base.key_arrays import checks_reuse, for_each_key, is_partitionable, key_batch
from hkx.base.keys import has_custom_implementation
from hkx.base.types import Array, DType
from hkx.core.making import filled_like, split_key
from hkx.jaxprs.traces import recording

draw_p = Primitive("hkx_draw")
fill_p = Primitive("hkx_fill")
split_p = Primitive("hkx_split")
split_p.multiple_results = True
example_p = Primitive("hkx_example")

NO_ANCHOR = np.int32(0)


def type_like(aval: Any, shape: tuple[int, ...], dtype: Any, parts: Sequence[Any] = ()) -> Any:
    """The type of an array on the mesh of another, which varies between devices as that does.

    Its first dimensions are divided as `parts` says.
    """
    mesh, whole = aval.sharding.mesh, (None for _ in shape[len(parts) :])
    sharding = None if mesh.empty else jax.NamedSharding(mesh, jax.P(*parts, *whole))
    return aval.update(shape=shape, dtype=dtype, sharding=sharding, weak_type=False)


def _draw_type(keys: Any, draw: Draw) -> Any:
    """The type of what is drawn: divided, and different between devices, as the keys are."""
    batch = key_batch(keys)
    parts = keys.sharding.spec[: len(batch)]
    return _on_current_mesh(type_like(keys, (*batch, *draw.shape), np.dtype(draw.dtype), parts))


def _on_current_mesh(aval: Any) -> Any:
    """The type of what JAX makes here, also from values that were made outside of the current mesh."""
    mesh = jax.sharding.get_abstract_mesh()
    if mesh.empty or not aval.sharding.mesh.empty:
        return aval
    return aval.update(sharding=jax.NamedSharding(mesh, aval.sharding.spec))


def _draw(keys: Array, *, draw: Draw) -> Array:
    return for_each_key(functools.partial(sample, draw), keys)


def split_keys(keys: Array, *, num: int) -> Sequence[Array]:
    return _split_each(keys, num) if key_batch(keys) else split_key(keys, num)


@functools.partial(jax.jit, static_argnums=1)
def _split_each(keys: Array, num: int) -> Sequence[Array]:
    return for_each_key(functools.partial(split_key, num=num), keys)


def _fill(_: Array, *, shape: tuple[int, ...], dtype: Any, value: int) -> Array:
    return jnp.full(shape, value, dtype)


def _for_all_keys(primitive: Primitive, args: Any, dims: Any, **params: Any) -> tuple[Any, Any]:
    """One operation for all keys of a `vmap`: recording takes as long for 1000 calls as for 2."""
    out = primitive.bind(jnp.moveaxis(args[0], dims[0], 0), **params)
    return out, [0] * len(out) if primitive.multiple_results else 0


draw_p.def_abstract_eval(lambda keys, *, draw: _draw_type(keys, draw))
split_p.def_abstract_eval(lambda keys, *, num: [_on_current_mesh(keys)] * num)
fill_p.def_abstract_eval(
    lambda _, *, shape, dtype, value: _on_current_mesh(jax.core.ShapedArray(shape, np.dtype(dtype)))
)
example_p.def_abstract_eval(lambda value: value.strip_weak_type())
# They may be part of any program, such as a loop's body, that is then compiled unchanged.
for primitive, computed in ((draw_p, _draw), (split_p, split_keys), (fill_p, _fill), (example_p, lambda value: value)):
    primitive.def_impl(computed)
    mlir.register_lowering(primitive, mlir.lower_fun(computed, multiple_results=primitive.multiple_results))
for primitive in (draw_p, split_p):
    batching.primitive_batchers[primitive] = functools.partial(_for_all_keys, primitive)
batching.primitive_batchers[example_p] = lambda args, dims: (example_p.bind(*args), dims[0])
ad.primitive_jvps[example_p] = lambda values, tangents: (example_p.bind(*values), tangents[0])


class Recording:
    """A maker that records what is requested.

    Attributes:
      anchor: in the abstract run, a traced number on which constant parameters depend, and are not computed then.
    """

    def __init__(self, key: Array | None, on_shapes: bool = False, around: Recording | None = None):
        self.key = key
        self.on_shapes = on_shapes
        self.anchor: Any = NO_ANCHOR if around is None else around.anchor
        self.trace: weakref.ref[Any] | None = None  # the trace of the abstract run
        self.has_values = not recording()  # False if `init` itself is being traced
        # The `split` of a user's own PRNG implementation is called immediately, and as often as in an ordinary run.
        self.splits_at_once = self.has_values and key is not None and has_custom_implementation(key)

    def draw(self, draw: Draw, key: Array) -> Array:
        if draw.dtype != np.float32 or any(map(jax.export.is_symbolic_dim, draw.shape)):
            return sample(draw, key)
        together = draw.size > 0 and is_partitionable(key)
        return draw_p.bind(key, draw=draw) if together else sample(draw, key)

    def fill(self, shape: Any, dtype: DType, value: int) -> Array:
        shape = tuple(checked_integer(n, "shape", None) for n in (shape if np.ndim(shape) else (shape,)))
        return fill_p.bind(self.anchor, shape=shape, dtype=jax.dtypes.canonicalize_dtype(dtype), value=value)

    def split(self, key: Array, num: int) -> Sequence[Array]:
        if self.splits_at_once and not isinstance(key, jax.core.Tracer):
            with jax.ensure_compile_time_eval():
                return split_key(key, num)
        if checks_reuse():  # JAX takes keys that an operation of ours returns for used ones
            return split_key(key, num)
        return split_p.bind(key, num=num)

    def example(self, value: Array, otherwise: Any) -> Array:
        return filled_like(value, otherwise) if self.on_shapes else example_p.bind(value)


def has_abstract(tree: Any) -> bool:
    """True if any leaf is a `jax.ShapeDtypeStruct`."""
    return any(isinstance(x, jax.ShapeDtypeStruct) for x in jax.tree.leaves(tree))
