"""The flag that stops gradients may be an argument of a compiled function, as in RLax; what is no flag is named."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from operator_checks import assert_close, cast, weighted_sum
from operator_registry import CASES

import rlx

pytestmark = pytest.mark.unoptimised

BY_DEFAULT = {"q_learning", "vtrace", "importance_corrected_td_errors", "mpo_loss", "grpo_loss", "kl_penalty_pg_loss"}
FLAGGED = [case for case in CASES if getattr(rlx, case.name).contract.flag]


@pytest.mark.parametrize(
    "case",
    [pytest.param(c, id=c.name, marks=() if c.name in BY_DEFAULT else pytest.mark.slow) for c in FLAGGED],
)
def test_a_traced_flag_is_one_that_is_known(case):
    flag = getattr(rlx, case.name).contract.flag[0]
    arguments = cast(case.make(np.random.default_rng(0)), jnp.float32)
    learnable = {name: x for name, x in arguments.items() if jnp.issubdtype(x.dtype, jnp.floating)}

    def total(learnable, value):
        found = case.run({**arguments, **learnable}, **{flag: value})
        return weighted_sum([x for x in jax.tree.leaves(found) if jnp.issubdtype(jnp.result_type(x), jnp.floating)])

    of_any = jax.jit(jax.value_and_grad(total))
    for value in (True, False):
        expected = jax.jit(jax.value_and_grad(lambda x, value=value: total(x, value)))(learnable)
        assert_close(of_any(learnable, value), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("flag", ["stop_target_gradients", "use_stop_gradient"])
def test_what_is_no_flag_is_named(flag):
    q = jnp.ones(2)
    for wrong in (None, "no", [True], np.ones(2, bool), jnp.ones(2, bool), 1j):
        with pytest.raises(rlx.OptionError, match=r"q_learning: argument `stop_target_gradients` is .*True or False"):
            rlx.q_learning(q, 0, 1.0, 0.9, q, **{flag: wrong})
    for right in (np.bool_(True), 1, np.array(True), jnp.array(1.0)):
        slope = jax.grad(lambda q_t, right=right: rlx.q_learning(q, 0, 1.0, 0.9, q_t, **{flag: right}))(q)
        np.testing.assert_array_equal(slope, [0, 0])
    with pytest.raises(rlx.OptionError, match=r"batched_index: argument `keepdims` is .*known when Python runs"):
        jax.jit(rlx.batched_index)(jnp.ones((2, 2)), jnp.array([0, 1]), True)
