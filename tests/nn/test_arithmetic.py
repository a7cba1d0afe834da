"""Operations that layers compute with: what `jax.numpy` traces for them, and gives, whatever the operands are."""

import itertools
import operator

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hkx.nn import arithmetic

pytestmark = pytest.mark.unoptimised

OPERATORS = {
    "add": (arithmetic.add, operator.add),
    "subtract": (arithmetic.subtract, operator.sub),
    "multiply": (arithmetic.multiply, operator.mul),
    "divide": (arithmetic.divide, operator.truediv),
}
OPERANDS = {
    "float32": jnp.array([[1.5, -2.0, 4.0], [3.0, 0.5, 8.0]]),
    "float32, column": jnp.array([[2.0], [-1.0]]),
    "float32, scalar": jnp.float32(3),
    "float32, row": jnp.array([1.0, 2.0, 3.0]),
    "float32, of NumPy": np.float32(1e-5),
    "float32, array of NumPy": np.array([[2.0, 4.0, 1.0]], np.float32),
    "bfloat16": jnp.array([[1.5, -2.0, 4.0]], jnp.bfloat16),
    "bfloat16, of NumPy": jnp.bfloat16.dtype.type(3),
    "complex64": jnp.array([[1 + 2j, 3j, 1.0]], jnp.complex64),
    "int32": jnp.array([[7, -2, 4], [1, 2, 3]]),
    "int4": jnp.array([[7, -2, 4], [1, 2, 3]], jnp.int4),
    "bool": jnp.array([[True, False, True]]),
    "weak": jnp.asarray(2.0) * jnp.ones([2, 1], jnp.float32),
    "number": 2,
    "nan": jnp.array([[np.nan, np.inf, 0.0]]),
}


def traced(function, *operands):
    """The jaxpr, in which what is not of JAX's is a constant; or the kind of the error."""
    arrays = [x for x in operands if isinstance(x, jax.Array)]

    def of_arrays(*arrays):
        given = iter(arrays)
        return function(*(next(given) if isinstance(x, jax.Array) else x for x in operands))

    try:
        return str(jax.make_jaxpr(of_arrays)(*arrays))
    except (TypeError, ValueError) as error:
        return type(error)


@pytest.mark.parametrize("name", OPERATORS)
def test_an_operator_is_that_of_jax_numpy(name):
    ours, expected = OPERATORS[name]
    for (left, x), (right, y) in itertools.product(OPERANDS.items(), OPERANDS.items()):
        if not isinstance(x, jax.Array) and not isinstance(y, jax.Array):
            continue
        assert traced(ours, x, y) == traced(expected, x, y), (left, right)


@pytest.mark.parametrize("shape", [(3,), (2, 3), (4, 2, 3), (1, 2, 3)], ids=str)
@pytest.mark.parametrize("of", [(), (1,), (3,), (1, 3), (2, 1), (2, 3)], ids=str)
@pytest.mark.parametrize("kind", [jnp.asarray, np.asarray])
def test_broadcasting_is_that_of_jax_numpy(kind, of, shape):
    x = kind(np.arange(np.prod(of, dtype=int), dtype=np.float32).reshape(of))
    try:
        expected = jnp.broadcast_to(x, shape)
    except ValueError:
        with pytest.raises(ValueError, match="broadcast"):
            arithmetic.broadcast_to(x, shape)
        return
    np.testing.assert_array_equal(arithmetic.broadcast_to(x, list(shape)), expected)
    if isinstance(x, jax.Array):
        assert traced(lambda x: arithmetic.broadcast_to(x, shape), x) == traced(lambda x: jnp.broadcast_to(x, shape), x)


LEADING = [((), ()), ((2,), (2,)), ((1,), (1,)), ((2, 3), (2, 3)), ((1,), (2,)), ((2,), ()), ((2, 1), (3,))]


@pytest.mark.parametrize("leading, other", LEADING, ids=str)
@pytest.mark.parametrize("sizes", [(5, 6, 4, 8), (1, 6, 4, 8), (5, 1, 1, 8), (5, 6, 4, 1)], ids=str)
def test_attention_is_that_of_einsum(leading, other, sizes):
    t, T, h, d = sizes
    rng = np.random.default_rng(0)
    query, key = jnp.array(rng.normal(size=(*leading, t, h, d))), jnp.array(rng.normal(size=(*other, T, h, d)))
    weights = jnp.array(rng.normal(size=(*leading, h, t, T)))
    for ours, equation, operands in (
        (arithmetic.attention_logits, "...thd,...Thd->...htT", (query, key)),
        (arithmetic.attention_logits, "...thd,...Thd->...htT", (query, key.astype(jnp.bfloat16))),
        (arithmetic.attended_values, "...htT,...Thd->...thd", (weights, key)),
        (arithmetic.attended_values, "...htT,...Thd->...thd", (weights.astype(jnp.bfloat16), key)),
    ):
        assert traced(ours, *operands) == traced(lambda x, y, e=equation: jnp.einsum(e, x, y), *operands)
