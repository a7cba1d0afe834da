"""Wrong shapes and dtypes in `get_parameter`, and trees of parameters that are none: errors that say what is wrong."""

import jax.numpy as jnp
import numpy as np
import pytest

import hkx

X = np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)


class Model(hkx.Module):
    def __call__(self, x):
        count = hkx.get_state("count", [], jnp.int32, init=jnp.zeros)
        hkx.set_state("count", count + 1)
        return hkx.nets.MLP([4, 2])(x) * hkx.get_parameter("scale", [], init=jnp.ones) * count


PAIR = hkx.transform_with_state(lambda x: Model()(x))
PARAMS, STATE = PAIR.init(0, X)


@pytest.mark.parametrize("shape", ["23", None, 2.5, {3}, [2.5], [-1], ["3"], [None], [True], [2**70]])
def test_what_is_no_shape(shape):
    with pytest.raises(hkx.errors.InvalidShapeError, match=r"The shape of '~/w' is .* should be a sequence of whole"):
        hkx.transform(lambda: hkx.get_parameter("w", shape, init=jnp.ones)).init(None)


@pytest.mark.parametrize("dtype", ["flaot32", 3, object, "U3", np.ones(2), jnp.float32(2), [], {}])
def test_what_is_no_dtype(dtype):
    with pytest.raises(hkx.errors.InvalidDTypeError, match=r"The dtype of '~/w' is .* `jnp.float32`"):
        hkx.transform(lambda: hkx.get_parameter("w", [2], dtype, init=jnp.ones)).init(None)


@pytest.mark.parametrize("what", ["params", "state"])
def test_what_is_no_mapping_of_names(what):
    params, state = PARAMS, {"model": {"count": jnp.int32(2)}}
    params, state = ({**params, "model": 3}, state) if what == "params" else (params, {"model": 3})
    with pytest.raises(hkx.errors.InvalidParamsError, match=rf"^{what}\['model'\] argument .* a mapping is needed"):
        PAIR.apply(params, state, None, X)
