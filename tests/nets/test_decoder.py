"""Decoders of language models: names, caches, packed and padded texts, dtypes, devices, and configurations."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

import hkx
from hkx.errors import PretrainedConfigError

pytestmark = pytest.mark.unoptimised

SIZES = {
    "vocab_size": 40,
    "hidden_size": 16,
    "num_layers": 3,
    "num_heads": 4,
    "num_kv_heads": 2,
    "intermediate_size": 24,
}
EXPERTS = hkx.nets.ExpertsConfig(num_experts=4, top_k=2, intermediate_size=8, dense_layers=(0,))
CONFIGS = {
    "plain": hkx.nets.DecoderConfig(**SIZES),
    "windows": hkx.nets.DecoderConfig(**SIZES, windows=(3, None, 3), local_rope_theta=100.0, tied_embeddings=True),
    "experts": hkx.nets.DecoderConfig(**SIZES, experts=EXPERTS),
}
TOKENS = np.random.default_rng(0).integers(0, 40, (2, 10))


def model_of(config, method="__call__", **options):
    """`apply` is compiled, and takes the arguments of a method of the decoder."""

    def f(*args, **kwargs):
        return getattr(hkx.nets.Decoder(config, **options), method)(*args, **kwargs)

    model = hkx.without_apply_rng(hkx.transform(f))
    return model._replace(apply=jax.jit(model.apply))


@pytest.fixture(scope="module")
def params():
    """For each configuration, initial parameters of a stack."""
    return {name: model_of(config).init(jax.random.key(0), TOKENS) for name, config in CONFIGS.items()}


def unstacked(params):
    for name in ("decoder/layers", "decoder/dense_layers"):
        if any(bundle.startswith(f"{name}/") for bundle in params):
            params = hkx.unstack_params(params, name)
    return params


def test_names_and_shapes(params):
    layer = {"attention/query": (16, 16), "attention/key": (16, 8), "attention/value": (16, 8)}
    layer |= {"attention/output": (16, 16), "mlp/gate": (16, 24), "mlp/up": (16, 24), "mlp/down": (24, 16)}
    expected = {f"decoder/layers/layer/{name}": {"w": (3, *shape)} for name, shape in layer.items()}
    expected |= {f"decoder/layers/layer/{name}_norm": {"scale": (3, 16)} for name in ("attention", "mlp")}
    expected |= {
        "decoder/embed": {"embeddings": (40, 16)},
        "decoder/norm": {"scale": (16,)},
        "decoder": {"head": (40, 16)},
    }
    assert jax.tree.map(jnp.shape, params["plain"]) == expected


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name != "windows")) for name in CONFIGS]
)
def test_stacked_or_not_and_with_a_cache_or_not(name, params):
    config, stack = CONFIGS[name], params[name]
    loop = unstacked(stack)
    shapes = jax.eval_shape(model_of(config, stacked=False).init, jax.random.key(0), TOKENS)
    assert jax.tree.map(jnp.shape, loop) == jax.tree.map(jnp.shape, shapes)
    expected = model_of(config).apply(stack, TOKENS)
    assert np.std(expected) > 0.1
    np.testing.assert_allclose(model_of(config, stacked=False).apply(loop, TOKENS), expected, atol=1e-5)
    padded = np.stack([TOKENS[0], np.concatenate([np.zeros(4, int), TOKENS[1, :6]])])
    for own, stacked in ((stack, True), (loop, False)):
        model = model_of(config, stacked=stacked)
        cache = hkx.transform(lambda s=stacked: hkx.nets.Decoder(config, stacked=s).initial_cache(2, 12)).apply(
            {}, None
        )
        first, cache = model.apply(own, padded[:, :9], cache=cache._replace(start=jnp.array([0, 4])))
        last, cache = model.apply(own, padded[:, 9:], cache=cache)
        found = np.concatenate([first, last], axis=1)
        assert int(cache.length) == 10
        np.testing.assert_allclose(found[0], expected[0], atol=1e-5)
        np.testing.assert_allclose(found[1, 4:], expected[1, :6], atol=1e-5)


def test_hidden_and_logits_are_the_two_halves(params):
    config, own = CONFIGS["plain"], params["plain"]
    hidden = model_of(config, "hidden").apply(own, TOKENS)
    assert hidden.shape == (2, 10, 16)
    expected = np.asarray(hidden) @ np.asarray(own["decoder"]["head"]).T
    np.testing.assert_allclose(model_of(config, "logits").apply(own, hidden), expected, atol=1e-5)
    np.testing.assert_allclose(model_of(config).apply(own, TOKENS), expected, atol=1e-5)


def test_packed_texts_are_separate_ones_and_padding_has_no_effect(params):
    config, own = CONFIGS["plain"], params["plain"]
    model = model_of(config)
    packed = model.apply(own, TOKENS, segments=np.array([[0] * 10, [7] * 4 + [2] * 6]))
    expected = model.apply(own, TOKENS)
    np.testing.assert_allclose(packed[0], expected[0], atol=1e-5)
    np.testing.assert_allclose(packed[1, :4], expected[1, :4], atol=1e-5)
    np.testing.assert_allclose(packed[1, 4:], model.apply(own, TOKENS[1:, 4:])[0], atol=1e-5)
    # as if positions were given
    positions = np.stack([np.arange(10), [0, 1, 2, 3, 0, 1, 2, 3, 4, 5]])
    given = model.apply(own, TOKENS, segments=np.array([[0] * 10, [7] * 4 + [2] * 6]), positions=positions)
    np.testing.assert_array_equal(given, packed)
    padded = model.apply(own, TOKENS, lengths=np.array([10, 6]))
    np.testing.assert_allclose(padded[1, :6], expected[1, :6], atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("name", CONFIGS)
def test_it_starts_near_the_loss_of_equal_chances(name):
    config = CONFIGS[name]
    logits = model_of(config).apply(jax.jit(model_of(config).init)(jax.random.key(1), TOKENS), TOKENS)
    loss = -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(logits[:, :-1]), TOKENS[:, 1:, None], axis=-1))
    assert abs(loss - np.log(40)) < 0.15
    own = jnp.mean(jnp.take_along_axis(jax.nn.softmax(logits), TOKENS[..., None], axis=-1))
    assert own < 2 / 40  # a tied decoder does not repeat its input either


@pytest.mark.slow
def test_remat_gives_the_same_gradient(params):
    config, own = CONFIGS["windows"], params["windows"]

    def gradient(**options):
        return jax.jit(jax.grad(lambda p: jnp.mean(model_of(config, **options).apply(p, TOKENS) ** 2)))(own)

    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6), gradient(remat=True), gradient())


def test_a_dtype_is_computed_in_and_parameters_are_created_in_float32(params):
    config = CONFIGS["plain"]
    model = model_of(config, dtype=jnp.bfloat16)
    shapes = jax.eval_shape(model.init, jax.random.key(0), TOKENS)
    assert {x.dtype for x in jax.tree.leaves(shapes)} == {np.dtype(np.float32)}
    own = params["plain"]
    assert model_of(config, "hidden", dtype=jnp.bfloat16).apply(own, TOKENS).dtype == jnp.bfloat16
    logits = model.apply(own, TOKENS)
    assert logits.dtype == np.float32
    np.testing.assert_allclose(logits, model_of(config).apply(own, TOKENS), atol=0.05)
    assert "bf16[16,16]" in str(jax.make_jaxpr(model.apply)(own, TOKENS))
    low = jax.tree.map(lambda x: x.astype(jnp.bfloat16), own)
    assert model_of(config, "hidden").apply(low, TOKENS).dtype == jnp.bfloat16


def test_tokens_that_do_not_fit_into_a_cache(params):
    config, own = CONFIGS["plain"], unstacked(params["plain"])
    model = hkx.without_apply_rng(hkx.transform(lambda t, c: hkx.nets.Decoder(config, stacked=False)(t, cache=c)))
    cache = hkx.transform(lambda: hkx.nets.Decoder(config, stacked=False).initial_cache(2, 8)).apply({}, None)
    with pytest.raises(ValueError, match="room for 8 tokens and holds 0: 10 more do not fit"):
        model.apply(own, TOKENS, cache)
    with pytest.raises(ValueError, match="`segments` and `lengths` go without a cache"):
        model_of(config, stacked=False).apply(own, TOKENS[:, :4], cache=cache, lengths=jnp.array([1, 2]))
    step = jax.jit(model.apply)
    full = step(own, TOKENS[:, :8], cache)
    assert np.all(np.isfinite(full[0]))
    assert np.all(np.isnan(step(own, TOKENS[:, 8:9], full[1])[0]))  # the length is traced, so no error can be raised


@pytest.mark.slow
@pytest.mark.eight_devices
def test_on_eight_devices_numbers_are_those_of_one(params):
    mesh = jax.make_mesh((2, 4), ("data", "model"), axis_types=(jax.sharding.AxisType.Auto,) * 2)
    for name in ("plain", "experts"):
        config, model = CONFIGS[name], model_of(CONFIGS[name])
        rules = hkx.nets.decoder_sharding_rules(config)
        shardings = hkx.sharding.shardings(params[name], mesh, rules)
        divided = jax.device_put(params[name], shardings)
        query, head = divided["decoder/layers/layer/attention/query"]["w"], divided["decoder"]["head"]
        assert [x.sharding.shard_shape(x.shape)[-2:] for x in (query, head)] == [(8, 4), (10, 8)]
        tokens = jax.device_put(TOKENS, jax.NamedSharding(mesh, P("data")))
        np.testing.assert_allclose(model.apply(divided, tokens), model.apply(params[name], TOKENS), atol=1e-5)


LLAMA = {
    "model_type": "llama", "vocab_size": 40, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2,
    "num_attention_heads": 4, "rms_norm_eps": 1e-5,
}  # fmt: skip
read = hkx.nets.DecoderConfig.from_pretrained


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model_type": "mamba"}, "`model_type` 'mamba' is not supported; these are: llama,"),
        (
            {"residual_multiplier": 0.2, "clip_qkv": 8},
            "may change what the model computes:\n  'clip_qkv': 8\n",
        ),
        ({"hidden_act": "xielu"}, "The activation 'xielu' is unknown"),
        ({"quantization_config": {"bits": 4}}, "'quantization_config' is {'bits': 4}, and only None is supported"),
        ({"rope_scaling": {"type": "dynamic", "factor": 2.0}}, "'rope_scaling': .*got 'dynamic'"),
        ({"rope_scaling": {"type": "linear", "factor": 2.0, "gain": 2}}, "'rope_scaling': .*has 'gain'"),
        ({"partial_rotary_factor": 0.5}, "'partial_rotary_factor' is 0.5, and only 1 is supported for 'llama'"),
        ({"layer_types": ["sliding_attention"] * 2}, "'layer_types' must all be 'full_attention'"),
        ({"hidden_size": None, "hidden_sizes": 16}, "lacks 'hidden_size'. Did you mean it by 'hidden_sizes'?"),
        ({"hidden_size": 16.5}, "'hidden_size' must be an integer, at least 1, got 16.5"),
        ({"model_type": "mistral", "attention_bias": True}, "'attention_bias' is True"),
        ({"model_type": "gpt2", "scale_attn_weights": False}, "'scale_attn_weights' is False, and only True"),
        ({"is_encoder_decoder": True}, "'is_encoder_decoder' is True, and only False is supported"),
    ],
)
def test_entries_of_a_configuration_that_would_change_numbers_are_refused_by_name(changes, message):
    with pytest.raises(PretrainedConfigError, match=message.replace("?", r"\?")):
        read(LLAMA | changes)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"torch_dtype": "bfloat16", "eos_token_id": [1, 2], "attention_dropout": 0.1, "logits_scaling": None}, {}),
        ({"rope_theta": 5e5}, {"rope_theta": 5e5}),
        ({"rope_parameters": {"rope_type": "default", "rope_theta": 5e5}}, {"rope_theta": 5e5}),
        (
            {"rope_scaling": {"type": "linear", "factor": 2.0}},
            {"rope_scaling": (("factor", 2.0), ("rope_type", "linear"))},
        ),
        ({"model_type": "mistral", "sliding_window": None, "num_attention_heads": 8}, {"windows": (None, None)}),
        ({"model_type": "mistral", "num_attention_heads": 8}, {"windows": (4096, 4096), "num_kv_heads": 8}),
        (
            {"model_type": "gemma2"},
            {"windows": (4096, None), "logit_cap": 30.0, "head_dim": 256},
        ),
        ({"model_type": "gemma2", "final_logit_softcapping": None}, {"logit_cap": None}),
    ],
)
def test_spellings_and_defaults_of_configurations(changes, expected):
    config = read(LLAMA | changes)
    assert {name: getattr(config, name) for name in expected} == expected


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_kv_heads": 3}, "`num_kv_heads` 3 must divide `num_heads` 4"),
        ({"windows": (4,)}, "`windows` has 1 entries for 3 layers"),
        ({"rope_size": 3}, "`rope_size` must be even and at most `head_dim` 4, got 3"),
    ],
)
def test_sizes_that_do_not_fit_each_other(changes, message):
    with pytest.raises(ValueError, match=message):
        hkx.nets.DecoderConfig(**SIZES | changes)


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        (
            {"norm": "rmsnorm"},
            ValueError,
            "`norm` of `DecoderConfig` must be 'rms' or 'rms_plus_one' or 'layer', got 'rms",
        ),
        (
            {"query_key_norm": "heads"},
            ValueError,
            "`query_key_norm` of `DecoderConfig` must be 'head' or 'all', got 'head",
        ),
        ({"gated": "false"}, TypeError, "`gated` of `DecoderConfig` must be True or False, got 'false'"),
        ({"rope_theta": "1e4"}, TypeError, "`rope_theta` of `DecoderConfig` must be a number"),
        (
            {"learned_positions": 1.5},
            TypeError,
            "`learned_positions` of `DecoderConfig` must be an integer, at least 0",
        ),
        ({"windows": (0, None, 2)}, TypeError, "`windows` of `DecoderConfig` must be an integer, at least 1, got 0"),
    ],
)
def test_a_field_of_another_kind_is_refused_by_name(changes, error, message):
    with pytest.raises(error, match=message):
        hkx.nets.DecoderConfig(**SIZES | changes)


def test_fields_of_experts_and_of_latent_attention_are_checked_too():
    with pytest.raises(ValueError, match="`router` of `ExpertsConfig` must be 'softmax' or 'sigmoid', got 'topk'"):
        hkx.nets.ExpertsConfig(num_experts=4, top_k=2, intermediate_size=8, router="topk")
    with pytest.raises(TypeError, match="`kv_rank` of `LatentConfig` must be an integer"):
        hkx.nets.LatentConfig(kv_rank=None, query_rank=None, key_size=8, rotary_size=4, value_size=8)
