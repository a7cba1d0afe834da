"""Options of the losses of language models against loops in NumPy, and their means over micro-batches and devices."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import rlx

G, T = 4, 5


@pytest.fixture(scope="module")
def answers():
    rng = np.random.default_rng(5)
    own, old, ref = (np.float32(-rng.exponential(size=[G, T])) for _ in range(3))
    mask = np.arange(T) < np.array([5, 2, 3, 1])[:, None]
    return own, old, ref, np.float32(rng.normal(size=G)), mask


def token_loss(own, old, ref, adv, low, high, bound, kind):
    ratio = math.exp(own - old)
    if adv < 0:
        ratio = min(ratio, bound)
    kl = {"k1": own - ref, "k2": (own - ref) ** 2 / 2, "k3": math.exp(ref - own) - 1 - (ref - own)}
    return -min(ratio * adv, min(max(ratio, 1 - low), 1 + high) * adv) + 0.3 * kl[kind[:2]]


@pytest.mark.parametrize("kind", ["k1", "k2", "k3", "k3_k2"])
def test_bounds_and_divergences_of_grpo_and_dr_grpo(answers, kind):
    own, old, ref, adv, mask = answers
    options = {"kl_weight": 0.3, "epsilon_high": 0.5, "max_ratio": 1.5, "kl_estimator": kind}
    for loss, length in ((rlx.grpo_loss, None), (functools.partial(rlx.dr_grpo_loss, max_length=7), 7)):
        for i in range(G):
            terms = [token_loss(*x, adv[i], 0.1, 0.5, 1.5, kind) for x in zip(own[i], old[i], ref[i], strict=True)]
            expected = sum(np.array(terms)[mask[i]]) / (length or mask[i].sum())
            got = loss(own[i], old[i], adv[i], mask[i], 0.1, ref_log_probs_t=ref[i], **options)
            np.testing.assert_allclose(got, expected, rtol=2e-5)


def test_k3_has_the_gradient_of_k2_where_asked(answers):
    own, old, ref, _, _ = answers

    def gradient(kind):
        return jax.grad(rlx.grpo_loss)(own[0], old[0], 0.0, ref_log_probs_t=ref[0], kl_weight=1.0, kl_estimator=kind)

    np.testing.assert_allclose(gradient("k3_k2"), (own[0] - ref[0]) / T, rtol=1e-5)
    np.testing.assert_allclose(gradient("k3"), (1 - np.exp(ref[0] - own[0])) / T, rtol=1e-5)


def test_aggregations(answers):
    own, old, _, adv, mask = answers
    pg = [[-math.exp(min(own[i, t] - old[i, t], 50)) * adv[i] for t in range(T) if mask[i, t]] for i in range(G)]
    wide = {"epsilon_low": np.inf, "epsilon_high": np.inf}
    expected = {
        "token_mean": sum(map(sum, pg)) / sum(map(len, pg)),
        "sequence_mean_token_sum": np.mean([sum(x) for x in pg]),
        "sequence_mean_token_mean": np.mean([np.mean(x) for x in pg]),
        "constant": sum(map(sum, pg)) / 17.0,
    }
    for aggregation, value in expected.items():
        normalizer = 17.0 if aggregation == "constant" else None
        got = rlx.dapo_loss(own, old, adv, mask, **wide, aggregation=aggregation, normalizer=normalizer)
        np.testing.assert_allclose(got, value, rtol=1e-5, err_msg=aggregation)
    with pytest.raises(rlx.OptionError, match="aggregation"):
        rlx.dapo_loss(own, old, adv, mask, aggregation="mean")
    with pytest.raises(rlx.OptionError, match="normalizer"):
        rlx.dapo_loss(own, old, adv, mask, aggregation="constant")


@pytest.mark.slow
@pytest.mark.parametrize("loss", [rlx.dapo_loss, rlx.cispo_loss])
def test_micro_batches_and_devices_have_the_token_mean_of_all(answers, loss):
    own, old, _, adv, mask = answers
    halves = [x.reshape(2, 2, *x.shape[1:]) for x in (own, old, adv, mask)]

    def whole(own, *rest, **options):
        return jax.value_and_grad(loss)(own, *rest, **options)

    value, gradient = whole(own, old, adv, mask)
    micro = [whole(*(x[i] for x in halves), normalizer=mask.sum() / 2) for i in range(2)]
    np.testing.assert_allclose(np.mean([v for v, _ in micro]), value, rtol=1e-5)
    np.testing.assert_allclose(np.concatenate([g / 2 for _, g in micro]), gradient, rtol=1e-5)
    devices = jax.vmap(functools.partial(whole, axis_name="devices"), axis_name="devices")(*halves)
    np.testing.assert_allclose(np.mean(devices[0]), value, rtol=1e-5)
    np.testing.assert_allclose(devices[1].reshape(G, T) / 2, gradient, rtol=1e-5)


def test_group_advantages_by_the_sample_deviation():
    rewards, mask = np.float32([1, 0, 0, 5, 3]), np.array([1, 1, 1, 0, 1])
    kept = rewards[mask == 1]
    expected = (kept - kept.mean()) / np.std(kept, ddof=1)
    got = rlx.group_relative_advantages(rewards, epsilon=0.0, mask=mask, ddof=1)
    np.testing.assert_allclose(got[mask == 1], expected, rtol=1e-5)
    assert rlx.group_relative_advantages(jnp.ones(1), ddof=1).tolist() == [0]


def test_ktos_reference_point_over_devices_is_that_of_all_answers(answers):
    own, _, ref, _, mask = answers
    whole = rlx.kto_reference_point(own + 2, ref, mask)
    halves = [x.reshape(2, 2, T) for x in (own + 2, ref, mask)]
    each = jax.vmap(functools.partial(rlx.kto_reference_point, axis_name="devices"), axis_name="devices")(*halves)
    np.testing.assert_allclose(each, [whole, whole], rtol=1e-5)
    assert whole > 0
