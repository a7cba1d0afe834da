"""Operators of 2017 to 2025 at their limits, and how some make up a published algorithm."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import rlx

pytestmark = pytest.mark.unoptimised

PAIRS = {"symexp": rlx.symexp_twohot_pair(), "symlog": rlx.symlog_twohot_pair()}


def test_directions_of_zero_tiny_and_huge_latents():
    """A cosine does not depend on lengths, down to zero and up to what float32 holds; slopes are finite there too."""
    latents, both = np.float32([[3.0, 4.0]]), jax.jit(jax.value_and_grad(rlx.spr_loss))
    for size in np.float32([1.0, 1e-30, 1e30]):
        loss, slope = both(size * latents, np.float32([[0.0, 1.0 / size]]))
        np.testing.assert_allclose(loss, -0.8, rtol=1e-6)
        # d cos / dy = (z - cos · y) / ‖y‖ for the directions y = (0.6, 0.8) and z = (0, 1).
        np.testing.assert_allclose(slope * size, [[0.48 / 5, -0.36 / 5]], rtol=1e-5)
    loss, slope = both(0 * latents, latents)
    assert float(loss) == 0 and np.all(np.isfinite(slope))


@pytest.mark.parametrize("dtype, size", [(jnp.float32, 6e37), (jnp.float16, 1e-6), (jnp.float16, 1.6e4)])
def test_the_direction_of_latents_whose_reciprocal_is_out_of_range(dtype, size):
    latents = jnp.asarray(np.float32(size) * np.float32([[3.0, 4.0]]), dtype)
    cosine = float(latents[0, 1]) / np.hypot(*np.float64(latents[0]))  # of what the dtype holds
    loss = jax.jit(rlx.spr_loss)(latents, jnp.asarray([[0.0, 1.0]], dtype))
    np.testing.assert_allclose(np.float32(loss), -cosine, rtol=2e-3)


def test_spo_pulls_back_a_ratio_that_is_past_its_optimum():
    """Where PPO's clip has no slope: the optimum of the quadratic is 1 + ε · sign(A)."""
    ratios, adv = np.float32([1.0, 1.25, 1.5, 0.75, 0.5]), np.float32([2.0, 2.0, 2.0, -2.0, -2.0])
    both = jax.jit(jax.value_and_grad(rlx.simple_policy_optimization_loss))
    np.testing.assert_allclose(5 * both(ratios, adv, 0.25)[1], [-2, 0, 2, 0, -2], atol=1e-6)  # of a mean of five
    np.testing.assert_allclose(both(ratios, adv, np.inf)[0], -np.mean(ratios * adv), rtol=1e-6)


def test_a_particle_that_is_out_stays_out_whatever_it_holds():
    @jax.jit
    def log_weights_and_slope(bad):
        def log_weights(r_t):
            rows = jnp.stack([r_t, 0.0 * r_t, bad])
            given = jnp.array([0.0, 0.0, -jnp.inf]), rows, jnp.ones(3), rows, 0 * rows
            return rlx.sequential_monte_carlo_log_weights(*given, temperature=2.0)

        return log_weights(3.0), jax.grad(lambda r_t: log_weights(r_t)[0])(3.0)

    for bad in np.float32([1.0, np.nan, np.inf]):
        found, slope = log_weights_and_slope(bad)
        np.testing.assert_allclose(found, [-np.log(2), -np.log(2), -np.inf], rtol=1e-6)
        assert np.isfinite(slope)


@pytest.mark.parametrize("name", ["r_t", "discount_t", "v_tm1", "v_t", "log_ratios_tm1"])
def test_nothing_of_a_particle_that_is_excluded_reaches_a_gradient(name):
    """Nor that of the temperature, which is a sum over particles; expected is that of the two others alone."""
    rng = np.random.default_rng(0)
    given = {x: rng.normal(size=3).astype(np.float32) for x in ("r_t", "discount_t", "v_tm1", "v_t", "log_ratios_tm1")}
    log_weights = np.float32([0.0, -np.inf, -1.0])

    def first(log_weights, inputs, temperature):
        return rlx.sequential_monte_carlo_log_weights(log_weights, **inputs, temperature=temperature)[0]

    slopes = jax.jit(jax.grad(first, (1, 2)))
    others, temperature = slopes(log_weights[::2], {x: y[::2] for x, y in given.items()}, 2.0)
    found, of_temperature = slopes(log_weights, given | {name: np.where([0, 1, 0], np.nan, given[name])}, 2.0)
    np.testing.assert_allclose(of_temperature, temperature, rtol=1e-5)
    for x, y in found.items():
        np.testing.assert_allclose(y, np.insert(others[x], 1, 0.0), rtol=1e-5)


def test_latents_that_are_not_followed_further():
    """ρ = 0 keeps the first step alone, whose weight is 1; its slope in ρ is the second step's error."""
    both = jax.jit(jax.value_and_grad(rlx.latent_consistency_loss, (0, 2)))
    for second, expected in ((3.0, 9.0), (np.inf, None)):
        loss, slopes = both(np.float32([[2.0], [second]]), np.zeros([2, 1], np.float32), 0.0)
        assert float(loss) == 4.0 and slopes[0].tolist() == [[4.0], [0.0]]
        assert expected is None or float(slopes[1]) == expected


def symexp(x):
    return np.sign(x) * (np.exp(np.abs(x)) - 1)


def symlog(x):
    return np.sign(x) * np.log(np.abs(x) + 1)


def dreamer_critic(logits, r_t, continues_t, values_t, first_version):
    """DreamerV3's critic (Hafner et al. 2023): λ-returns, two-hot over 255 bins, cross entropy and its slope.

    The second version of the paper spaces the bins by symexp and spreads the return itself over them; the first spreads
    symlog of the return over even bins.
    """
    steps, ahead = len(r_t), values_t[-1]
    even = np.linspace(-20, 20, 255)
    bins = even if first_version else symexp(even)
    losses, slopes = np.zeros(steps), np.zeros(logits.shape)
    for t in reversed(range(steps)):
        ahead = r_t[t] + 0.997 * continues_t[t] * ((1 - 0.95) * values_t[t] + 0.95 * ahead)
        x = symlog(ahead) if first_version else ahead
        k = max(np.flatnonzero(bins <= x)[-1], 0)
        twohot = np.zeros(255)
        twohot[k] = abs(bins[k + 1] - x) / abs(bins[k + 1] - bins[k])
        twohot[k + 1] = abs(bins[k] - x) / abs(bins[k + 1] - bins[k])
        probs = np.exp(logits[t]) / np.exp(logits[t]).sum()
        losses[t], slopes[t] = -twohot @ np.log(probs), probs - twohot
    return losses, slopes


@pytest.mark.parametrize("version", ["symexp", pytest.param("symlog", marks=pytest.mark.slow)])
def test_dreamers_critic_is_made_of_what_is_there(version):
    random = np.random.default_rng(5)
    logits, values_t = random.normal(size=(8, 255)), 30 * random.normal(size=8)
    r_t, continues_t = symexp(3 * random.normal(size=8)), (np.arange(8) != 4).astype(float)

    def loss(logits):
        returns = rlx.lambda_returns(jnp.float32(r_t), jnp.float32(0.997 * continues_t), jnp.float32(values_t), 0.95)
        return jax.vmap(lambda row, target: rlx.classification_value_loss(row, target, PAIRS[version]))(logits, returns)

    losses, slopes = jax.jit(lambda x: (loss(x), jax.grad(lambda x: loss(x).sum())(x)))(jnp.float32(logits))
    expected = dreamer_critic(logits, r_t, continues_t, values_t, version == "symlog")
    # 2e-4: the guard of RLax's two-hot encodings over the width of a bin, and the rounding of symlog(x) in float32.
    np.testing.assert_allclose(losses, expected[0], atol=2e-4)
    np.testing.assert_allclose(slopes, expected[1], atol=2e-4)
    # What it predicts: the mean over bins, of values in the second version and of their symlog in the first.
    probs = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    even = np.linspace(-20, 20, 255)
    mean = symexp(probs @ even) if version == "symlog" else probs @ symexp(even)
    np.testing.assert_allclose(PAIRS[version].apply_inv(jax.nn.softmax(jnp.float32(logits))), mean, rtol=2e-4)


def test_pqn_is_its_recurrence():
    """R_t = r_t + γ_t (λ R_{t+1} + (1 - λ) max_a q(s_{t+1}, a)), the last of them without λ: by hand, in two steps."""
    q, a_tm1 = jnp.array([[1.0, 2.0], [4.0, 3.0], [5.0, 6.0]]), jnp.array([0, 1])
    r_t, discount_t = jnp.array([10.0, 20.0]), jnp.array([0.5, 0.25])
    last = 20 + 0.25 * 6
    first = 10 + 0.5 * (0.75 * last + 0.25 * 4)
    found = rlx.pqn_q_lambda(q, a_tm1, r_t, discount_t, 0.75)
    np.testing.assert_allclose(found, [first - 1, last - 3], rtol=1e-6)


def test_a_large_ratio_without_an_advantage_leaves_simple_policy_optimization_alone():
    loss = functools.partial(rlx.simple_policy_optimization_loss, use_stop_gradient=False)
    ratios, adv, epsilon = np.float32([1e25, 1.5]), np.float32([0.0, 2.0]), 0.2
    value, slopes = jax.value_and_grad(loss, argnums=(0, 1, 2))(ratios, adv, epsilon)
    own, own_slopes = jax.value_and_grad(loss, argnums=(0, 1, 2))(ratios[1:], adv[1:], epsilon)
    np.testing.assert_allclose(value, own / 2, rtol=1e-6)
    np.testing.assert_allclose(slopes[0], [0, own_slopes[0][0] / 2], rtol=1e-6)
    np.testing.assert_allclose(slopes[1], [-1e25 / 2, own_slopes[1][0] / 2], rtol=1e-6)
    np.testing.assert_allclose(slopes[2], own_slopes[2] / 2, rtol=1e-6)
