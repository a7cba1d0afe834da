"""Language models from and to folders of Hugging Face, against transformers itself, and files that are not whole."""

import json
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hkx
from hkx.errors import WeightMismatchError
from hkx.interop import huggingface
from hkx.interop.decoder_tensors import decoder_shapes
from hkx.interop.safetensors import Tensors, write
from hkx.nets.pretrained_written import written_config

pytestmark = pytest.mark.unoptimised

# The `config.json` of published models, and the number of parameters that each is known for, in millions.
PUBLISHED = json.loads(pathlib.Path(__file__).with_name("published_configs.json").read_text())

TOKENS = np.random.default_rng(0).integers(3, 97, (2, 40))
SMALL = {
    "vocab_size": 97, "hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2,
    "intermediate_size": 48, "max_position_embeddings": 64, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
LLAMA3 = {"rope_type": "llama3", "rope_theta": 1e4, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
LLAMA3["original_max_position_embeddings"] = 32
LINEAR = {"rope_type": "linear", "factor": 4.0, "rope_theta": 5e3}
YARN = {"rope_type": "yarn", "rope_theta": 5000.0, "factor": 4.0, "original_max_position_embeddings": 16}
GEMMA = {"head_dim": 16, "sliding_window": 6, "query_pre_attn_scalar": 24}
QWEN_EXPERTS = {"head_dim": 16, "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 24}
DEEPSEEK = {
    "num_key_value_heads": 4, "moe_intermediate_size": 16, "n_routed_experts": 8, "num_experts_per_tok": 2,
    "kv_lora_rank": 16, "q_lora_rank": 24,
    "qk_rope_head_dim": 8, "qk_nope_head_dim": 16, "v_head_dim": 12,
}  # fmt: skip
FAMILIES = {
    "llama": ("Llama", {}),
    "llama3": ("Llama", {"rope_parameters": LLAMA3, "tie_word_embeddings": True}),
    "linear": ("Llama", {"rope_parameters": LINEAR, "attention_bias": True}),
    "yarn": ("Llama", {"rope_parameters": YARN, "mlp_bias": True, "head_dim": 16}),
    "qwen2": ("Qwen2", {"use_sliding_window": True, "sliding_window": 6, "max_window_layers": 1}),
    "qwen3": ("Qwen3", {"head_dim": 16}),
    "gemma2": ("Gemma2", GEMMA),
    "gemma3": ("Gemma3", {**GEMMA, "layer_types": ["sliding_attention", "full_attention", "sliding_attention"]}),
    "mistral": ("Mistral", {"sliding_window": 8}),
    "phi3": ("Phi3", {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5}}),
    "olmo2": ("Olmo2", {}),
    "gpt2": ("GPT2", {"n_embd": 32, "n_layer": 3, "n_head": 4, "n_positions": 64}),
    "mixtral": ("Mixtral", {"num_local_experts": 4}),
    "qwen3_moe": ("Qwen3Moe", {**QWEN_EXPERTS, "mlp_only_layers": [1], "norm_topk_prob": True}),
    "gpt_oss": ("GptOss", {"head_dim": 16, "num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": 6}),
    "deepseek": ("DeepseekV3", {**DEEPSEEK, "n_group": 4, "topk_group": 2, "first_k_dense_replace": 1}),
    "deepseek_yarn": (
        "DeepseekV3",
        {**DEEPSEEK, "q_lora_rank": None, "n_group": 1, "topk_group": 1, "n_shared_experts": 2,
         "first_k_dense_replace": 2,
         "rope_parameters": {**YARN, "mscale": 1.0, "mscale_all_dim": 0.8}, "rope_interleave": False},
    ),
}  # fmt: skip


def theirs(name, folder):
    """Saves a model of transformers with random parameters, and returns its logits."""
    torch = pytest.importorskip("torch", reason="torch is not installed")
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    kind, options = FAMILIES[name]
    make_config = getattr(transformers, {"Gemma3": "Gemma3TextConfig"}.get(kind, f"{kind}Config"))
    model_class = getattr(transformers, {"GPT2": "GPT2LMHeadModel"}.get(kind, f"{kind}ForCausalLM"))
    config = make_config(**({"vocab_size": 97} if kind == "GPT2" else SMALL) | options)
    torch.manual_seed(1)
    model = model_class._from_config(config, attn_implementation="eager").eval()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        corrections = [x for path, x in model.named_buffers() if "correction" in path]
        for x in [*model.parameters(), *corrections]:
            x.add_(torch.randn(x.shape, generator=generator) * (0.3 if x.ndim == 1 else min(x.shape[-2:]) ** -0.5))
        logits = model(torch.tensor(TOKENS)).logits
    model.save_pretrained(folder)
    return logits.numpy()


@pytest.mark.peer
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", FAMILIES)
def test_a_family_computes_what_transformers_does_with_a_cache_too_and_is_saved_as_it_was(name, tmp_path):
    expected = theirs(name, tmp_path / "theirs")
    scale = expected.std()
    config, params = huggingface.load(tmp_path / "theirs")
    model = hkx.without_apply_rng(hkx.transform(lambda tokens: hkx.nets.Decoder(config)(tokens)))
    # In float32, torch's result for DeepSeek is itself up to 1.4e-5 from that in float64, and so is ours.
    near = 2e-5 if name.startswith("deepseek") else 1e-5
    np.testing.assert_allclose(jax.jit(model.apply)(params, TOKENS), expected, atol=near * scale, rtol=0)
    huggingface.save(tmp_path / "ours", config, params)
    assert same(Tensors(tmp_path / "ours"), Tensors(tmp_path / "theirs"))
    assert hkx.nets.DecoderConfig.from_pretrained(tmp_path / "ours") == config
    _, params = huggingface.load(tmp_path / "ours", stacked=False)
    decoder = hkx.without_apply_rng(hkx.transform(lambda t, c: hkx.nets.Decoder(config, stacked=False)(t, cache=c)))
    cache = hkx.transform(lambda: hkx.nets.Decoder(config, stacked=False).initial_cache(2, 44)).apply({}, None)
    padded, out = np.stack([TOKENS[0], np.concatenate([np.zeros(8, int), TOKENS[1, :32]])]), []
    cache, apply = cache._replace(start=jnp.array([0, 8])), jax.jit(decoder.apply)
    for piece in np.split(padded, [37, 38, 39], axis=1):
        logits, cache = apply(params, piece, cache)
        out.append(logits)
    out = np.concatenate(out, axis=1)
    np.testing.assert_allclose(out[0], expected[0], atol=2e-5 * scale, rtol=0)
    np.testing.assert_allclose(out[1, 8:], expected[1, :32], atol=2e-5 * scale, rtol=0)


@pytest.mark.peer
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_transformers_loads_what_hkx_saves(tmp_path):
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    torch = pytest.importorskip("torch", reason="torch is not installed")
    for name in ("gemma3", "deepseek_yarn"):
        theirs(name, tmp_path / name)
        config, params = huggingface.load(tmp_path / name)
        params = jax.tree.map(lambda x: 0.9 * x, params)
        huggingface.save(tmp_path / "ours", config, params)
        model = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "ours", attn_implementation="eager")
        with torch.no_grad():
            expected = model(torch.tensor(TOKENS)).logits.numpy()
        ours = hkx.without_apply_rng(hkx.transform(lambda tokens, c=config: hkx.nets.Decoder(c)(tokens)))
        np.testing.assert_allclose(jax.jit(ours.apply)(params, TOKENS), expected, atol=1e-5 * expected.std(), rtol=0)


def same(a, b):
    a, b = ({name: (x.tobytes(), x.shape, x.dtype) for name, x in tensors.items()} for tensors in (a, b))
    return a == b


@pytest.mark.parametrize("name", PUBLISHED)
def test_configurations_of_published_models_are_read_and_written(name):
    config = hkx.nets.DecoderConfig.from_pretrained(PUBLISHED[name]["config"])
    assert hkx.nets.DecoderConfig.from_pretrained(written_config(config)) == config


@pytest.mark.slow
@pytest.mark.parametrize("name", PUBLISHED)
def test_decoders_have_the_numbers_of_parameters_that_published_models_have(name):
    content, millions = PUBLISHED[name]["config"], PUBLISHED[name]["millions"]
    shapes = decoder_shapes(hkx.nets.DecoderConfig.from_pretrained(content), stacked=True)
    count = sum(np.prod(x.shape, dtype=np.int64) for x in jax.tree.leaves(shapes))
    assert count / 1e6 == pytest.approx(millions, abs=0.06)


CONFIG = hkx.nets.DecoderConfig(vocab_size=8, hidden_size=4, num_layers=2, num_heads=2, intermediate_size=6)


@pytest.fixture
def folder(tmp_path):
    """A model of random numbers in bfloat16."""
    random = np.random.default_rng(0)
    shapes = decoder_shapes(CONFIG, stacked=True)
    params = jax.tree.map(lambda x: jnp.asarray(random.normal(size=x.shape), jnp.bfloat16), shapes)
    huggingface.save(tmp_path, CONFIG, params)
    return tmp_path


def rewritten(folder, change):
    """The folder's file with other tensors."""
    tensors = {name: np.array(x) for name, x in Tensors(folder).items()}
    change(tensors)
    about = {name: (x.shape, x.dtype) for name, x in tensors.items()}
    write(folder / "model.safetensors", about, lambda name: tensors[name])


def test_stacked_and_not_are_the_same_numbers_in_the_dtype_of_the_file(folder):
    _, stack = huggingface.load(folder)
    assert {x.dtype for x in jax.tree.leaves(stack)} == {jnp.dtype(jnp.bfloat16)}
    _, loop = huggingface.load(folder, stacked=False)
    jax.tree.map(np.testing.assert_array_equal, hkx.unstack_params(stack, "decoder/layers"), loop)
    _, wide = huggingface.load(folder, dtype=np.float32)
    jax.tree.map(lambda a, b: np.testing.assert_array_equal(a, b.astype(np.float32)), wide, stack)
    assert {x.dtype for x in jax.tree.leaves(wide)} == {jnp.dtype(np.float32)}
    before = {name: x.tobytes() for name, x in Tensors(folder).items()}
    huggingface.save(folder, CONFIG, loop)
    assert {name: x.tobytes() for name, x in Tensors(folder).items()} == before


@pytest.mark.eight_devices
def test_every_device_reads_its_part(folder):
    auto, devices = jax.sharding.AxisType.Auto, jax.devices()[:4]
    mesh = jax.make_mesh((2, 2), ("data", "model"), axis_types=(auto, auto), devices=devices)
    rules = hkx.nets.decoder_sharding_rules(CONFIG)
    _, divided = huggingface.load(folder, shardings=lambda shapes: hkx.sharding.shardings(shapes, mesh, rules))
    _, whole = huggingface.load(folder)
    jax.tree.map(np.testing.assert_array_equal, divided, whole)
    query = divided["decoder/layers/layer/attention/query"]["w"]
    assert {shard.data.shape for shard in query.addressable_shards} == {(2, 2, 2)}


def test_several_files_with_an_index(folder):
    tensors = {name: np.array(x) for name, x in Tensors(folder).items()}
    _, expected = huggingface.load(folder)
    (folder / "model.safetensors").unlink()
    index, names = {}, sorted(tensors)
    for i, part in enumerate((names[::2], names[1::2])):
        index |= dict.fromkeys(part, f"model-{i}.safetensors")
        about = {name: (tensors[name].shape, tensors[name].dtype) for name in part}
        write(folder / f"model-{i}.safetensors", about, tensors.__getitem__)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))
    jax.tree.map(np.testing.assert_array_equal, huggingface.load(folder)[1], expected)
    (folder / "model-1.safetensors").unlink()
    with pytest.raises(FileNotFoundError, match=r"index\.json lists: model-1\.safetensors"):
        huggingface.load(folder)


def test_missing_left_over_and_misshapen_tensors_are_listed_in_one_error(folder):
    def change(tensors):
        tensors["model.layers.0.self_attn.q_projection.weight"] = tensors.pop("model.layers.0.self_attn.q_proj.weight")
        tensors["model.norm.weight"] = np.ones(5, np.float32)
        tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = np.ones(1, np.float32)  # is no parameter

    rewritten(folder, change)
    with pytest.raises(WeightMismatchError) as error:
        huggingface.load(folder)
    assert str(error.value).splitlines()[1:] == [
        "  model.layers.0.self_attn.q_proj.weight is missing; the nearest one left over is "
        "model.layers.0.self_attn.q_projection.weight",
        "  model.norm.weight has the shape (5,), expected (4,)",
        "  model.layers.0.self_attn.q_projection.weight is left over",
    ]


def test_a_head_that_is_tied_may_be_in_the_file_too(folder):
    content = json.loads((folder / "config.json").read_text()) | {"tie_word_embeddings": True}
    (folder / "config.json").write_text(json.dumps(content))
    with pytest.raises(WeightMismatchError, match=r"lm_head\.weight is left over"):
        huggingface.load(folder)
    rewritten(folder, lambda tensors: tensors.update({"lm_head.weight": tensors["model.embed_tokens.weight"]}))
    assert "head" not in huggingface.load(folder)[1].get("decoder", {})


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda data: data[:-3], "model.safetensors is truncated: it has .* bytes, and its header describes"),
        (lambda data: data[:40], "is truncated or damaged: it has 40 bytes, and its header"),
        (lambda data: b"", "is truncated or damaged: it has 0 bytes"),
        (lambda data: data[:8] + b"x" + data[9:], "is damaged: its header cannot be read"),
        (lambda data: data.replace(b'"BF16"', b'"BF17"'), "is damaged: its header cannot be read"),
    ],
)
def test_a_damaged_file_is_one_clear_line(damage, message, folder):
    file = folder / "model.safetensors"
    file.write_bytes(damage(file.read_bytes()))
    with pytest.raises(WeightMismatchError, match=message) as error:
        huggingface.load(folder)
    assert "\n" not in str(error.value)


def test_a_folder_without_weights_says_what_it_has(folder):
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(FileNotFoundError, match=r"which has config\.json, pytorch_model\.bin"):
        huggingface.load(folder)


def test_parameters_of_another_model_are_not_saved(folder):
    _, params = huggingface.load(folder)
    params["decoder"] = {"heads": params["decoder"]["head"]}
    with pytest.raises(WeightMismatchError, match="decoder/head is missing; the nearest one left over is"):
        huggingface.save(folder, CONFIG, params)


@pytest.mark.skipif(not pathlib.Path("/dev/full").exists(), reason="needs a device that is always full")
def test_what_cannot_be_written_leaves_the_folder_as_it_was(folder, monkeypatch):
    config, params = huggingface.load(folder)
    before = {file.name: file.read_bytes() for file in folder.iterdir()}
    whole = open

    def full(path, mode="r", *rest):
        return whole("/dev/full", mode, *rest) if "w" in mode else whole(path, mode, *rest)

    monkeypatch.setattr("builtins.open", full)
    with pytest.raises(OSError, match=r"No space left on device: '.*model\.safetensors'"):
        huggingface.save(folder, config, params)
    monkeypatch.undo()
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == before
