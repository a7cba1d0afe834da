"""Generated text against passes over whole sequences without a cache, and what stands in the compiled loop."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hkx

pytestmark = pytest.mark.unoptimised

CONFIG = hkx.nets.DecoderConfig(vocab_size=50, hidden_size=32, num_layers=2, num_heads=4, num_kv_heads=2)
PROMPTS = [[3, 7, 11, 2, 9], [5], [8, 1, 4]]
TOKENS = jnp.array([[0] * (5 - len(prompt)) + prompt for prompt in PROMPTS])
START = jnp.array([0, 4, 2])
NEW = 6


def model_of(**options):
    def program(prompts, start):
        return hkx.nets.generate(hkx.nets.Decoder(CONFIG, stacked=False), prompts, start, NEW, **options)

    return hkx.transform(program)


@pytest.fixture(scope="module")
def params():
    """With larger embeddings than the initial ones, so that answers are not all equal."""
    initial = model_of().init(jax.random.key(3), TOKENS, START)
    return initial | {"decoder/embed": jax.tree.map(lambda x: 30 * x, initial["decoder/embed"])}


WHOLE = jax.jit(hkx.without_apply_rng(hkx.transform(lambda x: hkx.nets.Decoder(CONFIG, stacked=False)(x))).apply)


def whole_logits(params, tokens):
    """The logits after a sequence, and after each of its beginnings, by one pass."""
    padded = jnp.array([list(tokens) + [0] * (5 + NEW - len(tokens))])  # of one length, so that it compiles once
    return WHOLE(params, padded)[0, : len(tokens)]


def drawn(key, logits):
    tokens = jax.random.categorical(key, logits / 2)
    return tokens, jnp.take_along_axis(jax.nn.log_softmax(logits / 2), tokens[:, None], axis=1)[:, 0]


def test_greedy_answers_are_those_of_whole_passes(params):
    answers = jax.jit(model_of().apply)(params, None, TOKENS, START)
    for row, prompt in enumerate(PROMPTS):
        text = list(prompt)
        for _ in range(NEW):
            text.append(int(jnp.argmax(whole_logits(params, text)[-1])))
        assert answers.tokens[row].tolist() == text[len(prompt) :]
    assert len(np.unique(answers.tokens)) > 3
    assert not np.any(answers.log_probs) and answers.lengths.tolist() == [NEW] * 3


def test_log_probabilities_are_those_of_the_distribution_sampled_from(params):
    answers = jax.jit(model_of(sample=drawn).apply)(params, jax.random.key(1), TOKENS, START)
    for row, prompt in enumerate(PROMPTS):
        new = answers.tokens[row].tolist()
        logits = np.float64(whole_logits(params, prompt + new))[len(prompt) - 1 : -1] / 2
        expected = [x[token] - np.log(np.exp(x).sum()) for x, token in zip(logits, new, strict=True)]
        np.testing.assert_allclose(answers.log_probs[row], expected, atol=2e-5)


@pytest.mark.slow
def test_rows_end_at_stop_tokens_and_the_loop_with_the_last_row(params):
    calls = []

    def counted(key, logits):
        jax.debug.callback(lambda: calls.append(1))
        return drawn(key, logits)

    free = jax.jit(model_of(sample=drawn).apply)(params, jax.random.key(2), TOKENS, START)
    stops = [int(free.tokens[row, column]) for row, column in ((0, 1), (1, 3), (2, 0))]
    answers = jax.jit(model_of(sample=counted, stop_tokens=stops).apply)(params, jax.random.key(2), TOKENS, START)
    jax.effects_barrier()
    lengths = [next(i for i, token in enumerate(row) if token in stops) + 1 for row in free.tokens.tolist()]
    assert answers.lengths.tolist() == lengths and max(lengths) < NEW
    assert len(calls) == max(lengths)
    for row, length in enumerate(lengths):
        expected = free.tokens[row, :length].tolist() + [0] * (NEW - length)
        assert answers.tokens[row].tolist() == expected
        np.testing.assert_allclose(answers.log_probs[row, :length], free.log_probs[row, :length], atol=1e-5)
        assert not np.any(answers.log_probs[row, length:])


@pytest.mark.slow
def test_a_prompt_is_read_once_for_all_of_its_samples(params):
    apply = jax.jit(model_of(sample=drawn, samples_per_prompt=4).apply)
    answers = apply(params, jax.random.key(4), TOKENS, START)
    repeated = jax.jit(model_of(sample=drawn).apply)(
        params, jax.random.key(4), jnp.repeat(TOKENS, 4, 0), jnp.repeat(START, 4)
    )
    np.testing.assert_array_equal(answers.tokens, repeated.tokens)
    np.testing.assert_allclose(answers.log_probs, repeated.log_probs, atol=1e-5)
    assert len(np.unique(answers.tokens[:4], axis=0)) > 1
    text = apply.lower(params, jax.random.key(4), TOKENS, START).as_text()
    assert "tensor<3x5x32xf32>" in text and "tensor<12x5x32xf32>" not in text


def loop_of(compiled):
    """The text of all computations of the largest loop of a compiled program, its body and what that calls."""
    computations = {}
    for block in re.split(r"\n(?=%|ENTRY)", compiled.as_text()):
        computations[re.match(r"(?:ENTRY )?%?([\w.-]+)", block)[1]] = block
    bodies = re.findall(r"body=%([\w.-]+)", compiled.as_text())

    def reached(name):
        called = re.findall(r"(?:calls|to_apply|body|condition)=%([\w.-]+)", computations[name])
        return {name}.union(*(reached(each) for each in called))

    return max(("\n".join(computations[x] for x in reached(body)) for body in bodies), key=len)


@pytest.mark.slow
@pytest.mark.unoptimised(False)
def test_no_copy_of_a_cache_and_no_slice_of_weights_is_in_the_loop(params):
    lowered = jax.jit(model_of(samples_per_prompt=2).apply).lower(params, None, TOKENS, START)
    loop = loop_of(lowered.compile())
    assert "f32[6,2,11,8]" in loop  # the keys of a layer: [N, K, S, D]
    for shape, operation in re.findall(r"= f32\[([\d,]+)\]\S* (copy|dynamic-slice|slice|transpose)\(", loop):
        size = np.prod([int(n) for n in shape.split(",")])
        assert size < 6 * 2 * 11 * 8, f"{operation} of f32[{shape}]"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"stacked": True}, r'needs a decoder without a stack.*\n?.*`hkx.unstack_params\(params, "decoder/layers"\)`'),
        ({"start": jnp.zeros(2, jnp.int32)}, r"`start` must have shape \(3,\), a number for each prompt, got \(2,\)"),
        ({"prompts": TOKENS[0]}, r"`prompts` is of rank 1"),
        ({"max_new_tokens": 0}, "`max_new_tokens` must be an integer, at least 1, got 0"),
        ({"learned_positions": 8}, "8 learned positions, and 11 are needed"),
    ],
)
def test_wrong_arguments_are_named(options, message):
    config = CONFIG
    if "learned_positions" in options:
        config = hkx.nets.DecoderConfig(
            vocab_size=50, hidden_size=32, num_layers=1, num_heads=4, rope_theta=None, learned_positions=8
        )

    def program():
        decoder = hkx.nets.Decoder(config, stacked=options.get("stacked", False))
        start, new = options.get("start", START), options.get("max_new_tokens", NEW)
        return hkx.nets.generate(decoder, options.get("prompts", TOKENS), start, new)

    with pytest.raises((ValueError, TypeError), match=message):
        hkx.transform(program).init(jax.random.key(0))


@pytest.mark.slow
@pytest.mark.parametrize("remat", [None, True])
def test_hidden_vectors_of_answers_are_those_of_whole_passes_with_their_gradients(params, remat):
    """Three prompts of several lengths with two answers each; the oracle reads each prompt with its answer, alone."""
    answers = jnp.asarray(np.random.default_rng(4).integers(0, 50, size=[6, 3]))
    like = hkx.transform(lambda x: hkx.nets.Decoder(CONFIG)(x)).init(jax.random.key(0), TOKENS)
    stacked = hkx.stack_params(params, like, "decoder/layers")

    def scores(prompts, start, answers):
        decoder = hkx.nets.Decoder(CONFIG, remat=remat)
        hidden = hkx.nets.answer_hidden(decoder, prompts, start, answers)
        return jnp.einsum("nad,vd->nav", hidden, decoder.head())

    def whole(params):
        logits = []
        for row, answer in enumerate(answers.tolist()):
            text = PROMPTS[row // 2] + answer
            logits.append(whole_logits(params, text)[len(PROMPTS[row // 2]) - 1 : -1])
        return jnp.stack(logits)

    score = hkx.without_apply_rng(hkx.transform(scores)).apply
    weights = jax.random.normal(jax.random.key(1), [6, 3, 50])
    value, gradient = jax.jit(jax.value_and_grad(lambda p: jnp.sum(weights * score(p, TOKENS, START, answers))))(
        stacked
    )
    expected, its_gradient = jax.value_and_grad(lambda p: jnp.sum(weights * whole(p)))(params)
    np.testing.assert_allclose(value, expected, rtol=1e-4)
    gradient = hkx.unstack_params(gradient, "decoder/layers")
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-3), gradient, dict(its_gradient))


def test_answers_that_do_not_fit_to_prompts_are_named(params):
    def scores(answers):
        return hkx.nets.answer_hidden(hkx.nets.Decoder(CONFIG, stacked=False), TOKENS, START, answers)

    score = hkx.without_apply_rng(hkx.transform(scores)).apply
    with pytest.raises(ValueError, match="4 rows for 3 prompts"):
        score(params, jnp.ones([4, 2], int))
    with pytest.raises(hkx.errors.InvalidRankError, match="answers"):
        score(params, jnp.ones([6], int))
