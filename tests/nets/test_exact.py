"""Log-probabilities of an exact decoder: those of the sampler and of the learner are equal in every bit."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hkx
import rlx

pytestmark = pytest.mark.unoptimised(False)  # the bits of the programs that users run

SIZES = {"vocab_size": 300, "hidden_size": 64, "num_layers": 2, "num_heads": 4, "num_kv_heads": 2}
CONFIG = hkx.nets.DecoderConfig(**SIZES, tied_embeddings=True)
OTHERS = {
    "gemma": {"norm": "rms_plus_one", "norm_placement": "both", "attention_cap": 5.0, "logit_cap": 3.0,
              "embedding_scale": 8.0, "windows": (4, None), "local_rope_theta": 100.0, "activation": "gelu_new"},
    "gpt": {"norm": "layer", "rope_theta": None, "learned_positions": 96, "gated": False, "qkv_bias": True,
            "output_bias": True, "mlp_bias": True, "activation": "gelu"},
    "others": {"query_key_norm": "head", "sinks": True, "rope_size": 8, "rope_interleaved": True, "windows": (5, 5)},
}  # fmt: skip


def log_probs(logits, tokens):
    return rlx.softmax(0.7).logprob(tokens, logits)


def programs(config=CONFIG, exact=True, dtype=None):
    """A sampler, jitted with the number of new tokens and of answers to a prompt, and a learner."""
    tiles = hkx.nets.in_tiles if exact else lambda f, *rows: f(*rows)

    def sampler(prompts, start, new, group):
        def sample(key, logits):
            tokens = rlx.softmax(0.7).sample(key, logits)
            return tokens, tiles(log_probs, logits, tokens)

        decoder = hkx.nets.Decoder(config, stacked=False, exact=exact, dtype=dtype)
        return hkx.nets.generate(decoder, prompts, start, new, sample=sample, samples_per_prompt=group)

    def learner(prompts, start, answers):
        decoder = hkx.nets.Decoder(config, exact=exact, dtype=dtype)
        hidden = hkx.nets.answer_hidden(decoder, prompts, start, answers).reshape(-1, config.hidden_size)
        of_rows = tiles(lambda x, y: log_probs(decoder.logits(x), y), hidden, answers.ravel())
        return of_rows.reshape(answers.shape)

    def sampled(params, key, prompts, start, new, group=1):
        unstacked = hkx.unstack_params(params, "decoder/layers")
        return hkx.transform(sampler).apply(unstacked, key, prompts, start, new, group)

    return sampled, hkx.without_apply_rng(hkx.transform(learner)).apply


def compiled(config=CONFIG, exact=True, dtype=None):
    sampled, learned = programs(config, exact, dtype)
    return jax.jit(sampled, static_argnums=(4, 5)), jax.jit(learned)


def questions(rng, count, longest):
    """Prompts of several lengths, with padding on the left, and the lengths of the padding."""
    start = longest - rng.integers(1, longest + 1, count)
    return rng.integers(0, 300, [count, longest]).astype(np.int32), start.astype(np.int32)


@functools.cache
def parameters(config=CONFIG):
    """Three times the initial ones, so that tokens attend to some more than to others."""
    model = hkx.transform(lambda x: hkx.nets.Decoder(config, exact=True)(x))
    return jax.tree.map(lambda x: 3 * x, model.init(jax.random.key(0), np.zeros([1, 4], np.int32)))


def unequal(a, b):
    """How many numbers differ in a bit."""
    return int(np.sum(np.asarray(a).view(np.int32) != np.asarray(b).view(np.int32)))


def wider(prompts, start, more):
    return np.pad(prompts, [(0, 0), (more, 0)]), start + more


@pytest.mark.slow
def test_the_learner_computes_the_bits_of_the_sampler():
    """Three prompts with two answers each; the learner reads one of them, in a row with more padding."""
    sample, learn = compiled()
    prompts, start = questions(np.random.default_rng(0), 3, 8)
    answers = sample(parameters(), jax.random.key(1), prompts, start, 28, 2)
    assert np.ptp(answers.log_probs) > 1
    alone = learn(parameters(), *wider(prompts[1:2], start[1:2], 5), answers.tokens[2:4])
    assert unequal(alone, answers.log_probs[2:4]) == 0


@pytest.mark.slow
@pytest.mark.parametrize("name", [None, "gemma"])
def test_bits_are_equal_in_bfloat16(name):
    """The sampler is no stack: a compiler could leave out the rounding between its layers."""
    config = CONFIG if name is None else hkx.nets.DecoderConfig(**SIZES, **OTHERS[name])
    sample, learn = compiled(config, dtype=jnp.bfloat16)
    prompts, start = questions(np.random.default_rng(0), 3, 8)
    answers = sample(parameters(config), jax.random.key(1), prompts, start, 12, 2)
    assert np.ptp(answers.log_probs) > 1
    assert unequal(learn(parameters(config), *wider(prompts, start, 5), answers.tokens), answers.log_probs) == 0


def test_what_is_not_exact_is_refused():
    experts = hkx.nets.ExpertsConfig(num_experts=4, top_k=2, intermediate_size=8)
    with pytest.raises(ValueError, match="`exact=True` of Decoder goes with `experts=None` of its config, got Experts"):
        hkx.transform(lambda: hkx.nets.Decoder(hkx.nets.DecoderConfig(**SIZES, experts=experts), exact=True)).init(0)
    model = hkx.transform(lambda x: hkx.nets.Decoder(CONFIG, exact=True)(x, lengths=jnp.array([2])))
    with pytest.raises(ValueError, match="`lengths` go without `exact=True`"):
        model.init(0, np.zeros([1, 4], np.int32))


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 5, 12, 33, 64])
def test_bits_depend_neither_on_the_batch_nor_on_padding_nor_on_the_cache(count):
    """Sampled in batches of `count` prompts, learned from in batches of five, and once more with other padding."""
    sample, learn = compiled()
    prompts, start = questions(np.random.default_rng(count), count, 12)
    answers = sample(parameters(), jax.random.key(count), prompts, start, 30)
    assert unequal(learn(parameters(), prompts, start, answers.tokens), answers.log_probs) == 0
    assert unequal(learn(parameters(), *wider(prompts, start, 20), answers.tokens), answers.log_probs) == 0
    few = slice(max(0, count - 5), count)
    alone = learn(parameters(), *wider(prompts[few], start[few], 3), answers.tokens[few, :11])
    assert unequal(alone, answers.log_probs[few, :11]) == 0


@pytest.mark.slow
@pytest.mark.parametrize("name", OTHERS)
def test_other_families_agree_with_the_usual_decoder(name):
    config = hkx.nets.DecoderConfig(**SIZES, **OTHERS[name])
    sample, learn = compiled(config)
    prompts, start = questions(np.random.default_rng(1), 6, 9)
    answers = sample(parameters(config), jax.random.key(1), prompts, start, 12)
    assert unequal(learn(parameters(config), *wider(prompts, start, 4), answers.tokens), answers.log_probs) == 0
    usual = compiled(config, exact=False)[1](parameters(config), prompts, start, answers.tokens)
    np.testing.assert_allclose(answers.log_probs, usual, atol=5e-5)  # logits are near 10, with an ulp of 1e-6


@pytest.mark.slow
def test_gradients_are_those_of_the_usual_decoder():
    """In float64: in float32 both differ from it by roundings of some 1e-5 of the largest entry."""
    prompts, start = questions(np.random.default_rng(2), 6, 9)
    answers = np.random.default_rng(3).integers(0, 300, [12, 5]).astype(np.int32)
    weights = np.random.default_rng(4).normal(size=[12, 5])
    wide = jax.tree.map(np.float64, parameters())

    def gradient(exact):
        learned = programs(exact=exact)[1]
        return jax.jit(jax.grad(lambda p: jnp.sum(weights * learned(p, prompts, start, answers))))(wide)

    with jax.enable_x64(True):
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-9), gradient(True), gradient(False))


@pytest.mark.slow
@pytest.mark.eight_devices
@pytest.mark.parametrize("devices", [1, 2, 8])
def test_bits_depend_not_on_the_number_of_devices(devices):
    """`jax.shard_map` over prompts, on that many devices; against a learner on one, and its gradient."""
    auto = (jax.sharding.AxisType.Auto,)
    mesh, split = jax.make_mesh((devices,), ("data",), auto, devices=jax.devices()[:devices]), jax.P("data")
    sampled, learned = programs()
    prompts, start = questions(np.random.default_rng(5), 16, 12)

    def total(params, *asked):
        own = learned(params, *asked)
        return jnp.sum(own), own

    def on_each(params, key, prompts, start):
        answers = sampled(params, jax.random.fold_in(key, jax.lax.axis_index("data")), prompts, start, 8, 2)
        gradient, own = jax.grad(total, has_aux=True)(params, prompts, start, answers.tokens)
        return answers, own, gradient  # JAX sums the gradient of parameters, which are on all devices

    out = split, split, jax.P()
    both = jax.shard_map(on_each, mesh=mesh, in_specs=(jax.P(), jax.P(), split, split), out_specs=out)
    answers, own, gradient = jax.tree.map(np.asarray, jax.jit(both)(parameters(), jax.random.key(2), prompts, start))
    assert unequal(own, answers.log_probs) == 0
    one = jax.jit(jax.grad(total, has_aux=True))(parameters(), prompts, start, answers.tokens)
    assert unequal(one[1], answers.log_probs) == 0
    scale = max(np.max(np.abs(x)) for x in jax.tree.leaves(one[0]))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5 * scale), gradient, one[0])


@pytest.mark.slow
def test_a_hundred_thousand_tokens_of_a_model_that_learns():
    """LoRA merged into the weights, and changed by 100 steps that make even tokens more likely."""
    sample, learn = compiled()
    merge, base = jax.jit(hkx.merge_lora), parameters()
    lora = hkx.lora_params(0, base, 4)

    @jax.jit
    def step(lora, prompts, start, tokens):
        def gain(lora):
            own = learn(hkx.merge_lora(base, lora), prompts, start, tokens)
            return jnp.mean(jnp.where(tokens % 2 == 0, own, -own))

        return jax.tree.map(lambda x, g: x + 0.5 * g, lora, jax.grad(gain)(lora))

    rng, wrong, even = np.random.default_rng(6), 0, []
    for update in range(100):
        prompts, start = questions(rng, 16, 12)
        answers = sample(merge(base, lora), jax.random.key(update), prompts, start, 32, 2)
        again = learn(merge(base, lora), *wider(prompts, start, 7), answers.tokens)
        wrong += unequal(again, answers.log_probs)
        even.append(np.mean(answers.tokens % 2 == 0))
        lora = step(lora, prompts, start, answers.tokens)
    assert again.size * len(even) >= 100_000
    assert wrong == 0
    assert np.mean(even[-20:]) > np.mean(even[:20]) + 0.1, even  # the merged weights differ from the first ones
