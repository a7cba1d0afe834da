"""Frames of rlx in tracebacks, and shapes that elementwise losses refuse."""

import os
import traceback

import jax
import jax.numpy as jnp
import pytest

import rlx

RLX = os.path.dirname(rlx.__file__)


def frames_of_rlx(error):
    return [frame.name for frame in traceback.extract_tb(error.__traceback__) if frame.filename.startswith(RLX)]


@pytest.mark.parametrize("call", [
    lambda: rlx.td_learning(jnp.ones(2), 1.0, 0.9, 1.0),
    lambda: rlx.lambda_returns(jnp.ones(2), jnp.ones(2), jnp.ones(2), 1.5),
    lambda: rlx.time_major(rlx.vtrace)(*[jnp.ones([3, 2])] * 4, jnp.ones([3, 2], complex)),
])  # fmt: skip
def test_frames_of_rlx_are_left_out(call):
    with pytest.raises(rlx.ArgumentError) as raised:
        call()
    assert frames_of_rlx(raised.value) == []
    before = jax.config.jax_traceback_filtering
    jax.config.update("jax_traceback_filtering", "off")
    try:
        with pytest.raises(rlx.ArgumentError) as raised:
            call()
    finally:
        jax.config.update("jax_traceback_filtering", before)
    assert "operate" in frames_of_rlx(raised.value)


def test_an_error_of_a_users_function_has_the_frames_of_the_user():
    def broken(x):
        raise KeyError("mine")

    with pytest.raises(KeyError) as raised:
        rlx.transformed_lambda_returns(rlx.TxPair(broken, broken), *[jnp.ones(2)] * 3)
    assert frames_of_rlx(raised.value) == [] and raised.traceback[-1].name == "broken"


@pytest.mark.parametrize("loss", [rlx.l2_loss, rlx.likelihood, rlx.log_loss, rlx.huber_loss])
def test_elementwise_losses_refuse_shapes_that_broadcast_to_more_than_either_has(loss):
    row, column = jnp.full([8], 0.5), jnp.full([8, 1], 0.5)
    for given in ((row, column), (column, row), (column, row[None])):
        with pytest.raises(rlx.ShapeError, match=r"broadcast to more than either has.\nWithout the axis of 1"):
            loss(*given)
    assert loss(jnp.full([4, 8], 0.5), row).shape == (4, 8)
