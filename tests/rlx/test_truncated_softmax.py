"""Top-k, top-p and min-p against loops over single actions in float64, and against transformers' logits processors."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import rlx

LOGITS = np.random.default_rng(60).normal(scale=2.0, size=[3, 4, 11])
TEMPERATURE = 0.7


def kept(logits, k=None, p=None, min_p=None):
    """Which actions of one row pass: taken from the likeliest down, one at a time."""
    order = sorted(range(len(logits)), key=lambda a: (-logits[a], a))[:k]
    mass = {a: np.exp(logits[a] - max(logits)) for a in order}
    chosen, before = [], 0.0
    for a in order:
        if (p is None or before < p * sum(mass.values())) and (min_p is None or mass[a] >= min_p):
            chosen.append(a)
        before += mass[a]
    return chosen


def expected_probs(logits, **filters):
    out = np.zeros_like(logits)
    for row in np.ndindex(logits.shape[:-1]):
        scaled = logits[row] / TEMPERATURE
        chosen = kept(scaled, **filters)
        weights = np.exp(scaled[chosen] - max(scaled))
        out[row][chosen] = weights / weights.sum()
    return out


POLICIES = {
    "top_k": (rlx.top_k(3, TEMPERATURE), {"k": 3}),
    "top_k of more than there are": (rlx.top_k(50, TEMPERATURE), {}),
    "top_p": (rlx.top_p(0.8, TEMPERATURE), {"p": 0.8}),
    "top_p of all": (rlx.top_p(1.0, TEMPERATURE), {}),
    "top_p after top_k": (rlx.top_p(0.8, TEMPERATURE, k=4), {"p": 0.8, "k": 4}),
    "min_p": (rlx.min_p(0.2, TEMPERATURE), {"min_p": 0.2}),
    "all": (rlx.top_p(0.9, TEMPERATURE, k=6, min_p=0.2), {"p": 0.9, "k": 6, "min_p": 0.2}),
}


@pytest.mark.parametrize("name", POLICIES)
def test_methods_are_those_of_the_softmax_over_what_passes(name):
    policy, filters = POLICIES[name]
    logits, probs = jnp.float32(LOGITS), expected_probs(LOGITS, **filters)
    np.testing.assert_allclose(policy.probs(logits), probs, rtol=1e-5, atol=1e-7)
    with np.errstate(divide="ignore"):
        logs = np.log(probs)
    for action in range(LOGITS.shape[-1]):
        np.testing.assert_allclose(policy.logprob(action, logits), logs[..., action], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(policy.entropy(logits), -(probs * np.where(probs > 0, logs, 0)).sum(-1), atol=1e-5)
    narrower = np.float32(np.where(probs > 0, LOGITS + np.arange(11.0), -np.inf))  # as many likely actions, elsewhere
    others = expected_probs(np.float64(narrower), **filters)
    with np.errstate(divide="ignore", invalid="ignore"):
        divergences = np.where(probs > 0, probs * (logs - np.log(others)), 0).sum(-1)
    np.testing.assert_allclose(policy.kl(logits, narrower), divergences, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", POLICIES)
def test_samples_have_these_probabilities(name):
    policy, filters = POLICIES[name]
    row, n = LOGITS[0, :2], 4000
    actions = jax.jit(lambda key, logits: policy.sample(key, logits, sample_shape=n))(
        jax.random.key(1), jnp.float32(row)
    )
    probs = expected_probs(row, **filters)
    for i in range(2):
        counts = np.bincount(np.asarray(actions)[:, i], minlength=11) / n
        np.testing.assert_allclose(counts, probs[i], atol=4 * 0.5 / n**0.5)
        assert not counts[probs[i] == 0].any()


def test_tied_actions_are_cut_after_k_in_samples_and_probabilities():
    policy, logits = rlx.top_k(2), jnp.zeros(4, jnp.bfloat16)
    assert policy.probs(logits).tolist() == [0.5, 0.5, 0, 0]
    assert set(np.asarray(policy.sample(0, logits, sample_shape=50)).tolist()) == {0, 1}


def test_a_row_that_is_no_distribution_gives_no_action():
    logits = jnp.array([[jnp.nan, 0, 0], [-jnp.inf] * 3, [0, -jnp.inf, -jnp.inf]])
    for policy in (rlx.top_k(2), rlx.top_p(0.5), rlx.min_p(0.5)):
        assert policy.sample(0, logits).tolist() == [-1, -1, 0]


def test_settings_may_be_traced_and_differ_between_rows():
    p = jnp.array([[0.5], [0.9]])
    probs = jax.jit(lambda p, x: rlx.top_p(p, TEMPERATURE).probs(x))(p, jnp.float32(LOGITS[0, :2]))
    for i in range(2):
        np.testing.assert_allclose(probs[i], expected_probs(LOGITS[0, i], p=float(p[i, 0])), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: rlx.top_k(0), r"top_k: argument `k` is 0, expected a number of actions of at least 1"),
        (lambda: rlx.top_p(0.0), r"top_p: argument `p` is 0.0, expected a number in \(0, 1\]"),
        (lambda: rlx.top_p(0.5, min_p=2), r"top_p: argument `min_p` is 2, expected a number in \[0, 1\]"),
        (lambda: rlx.min_p(-1.0), r"min_p: argument `p` is -1.0, expected a number in \[0, 1\]"),
        (lambda: rlx.min_p(0.1, temperature=0), r"min_p: argument `temperature` is 0, expected a positive number"),
        (lambda: rlx.top_k(2).probs(), r"truncated_softmax.probs: argument `logits` is None"),
    ],
)
def test_wrong_settings_are_named(make, message):
    with pytest.raises(rlx.OptionError, match=message):
        make()


@pytest.mark.peer
@pytest.mark.slow
def test_the_logits_processors_of_transformers_leave_out_the_same():
    transformers, torch = pytest.importorskip("transformers"), pytest.importorskip("torch")
    logits = np.float32(np.random.default_rng(7).normal(scale=3.0, size=[5, 1000]))
    seen = np.random.default_rng(8).integers(0, 1000, size=[5, 40])
    processors = {
        "top_k": ([transformers.TopKLogitsWarper(50)], rlx.top_k(50)),
        "top_p": ([transformers.TopPLogitsWarper(0.9)], rlx.top_p(0.9)),
        "both": ([transformers.TopKLogitsWarper(50), transformers.TopPLogitsWarper(0.9)], rlx.top_p(0.9, k=50)),
        "min_p": ([transformers.MinPLogitsWarper(0.05)], rlx.min_p(0.05)),
    }
    for name, (theirs, ours) in processors.items():
        scores = torch.from_numpy(logits)
        for processor in theirs:
            scores = processor(None, scores)
        np.testing.assert_allclose(ours.probs(logits), torch.softmax(scores, -1), rtol=2e-5, atol=1e-9, err_msg=name)
    penalised = transformers.RepetitionPenaltyLogitsProcessor(1.3)(torch.from_numpy(seen), torch.from_numpy(logits))
    used = np.zeros([5, 1000], bool)
    np.put_along_axis(used, seen, True, axis=1)
    np.testing.assert_allclose(rlx.repetition_penalty(logits, used, 1.3), penalised, rtol=1e-6)
