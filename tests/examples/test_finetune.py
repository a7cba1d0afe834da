"""examples/finetune.py on a random decoder of two layers: the loss of what it saved, by one pass over each example."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hkx
from hkx.interop import huggingface

pytest.importorskip("tokenizers")

import finetune
from test_grpo import config  # noqa: F401

pytestmark = [pytest.mark.long, pytest.mark.unoptimised]


@pytest.fixture
def settings(config, tmp_path):  # noqa: F811
    small = {"lora": 4, "steps": 30, "learning_rate": 0.02, "batch_size": 8, "longest": 12, "test_share": 0.2}
    return {"model": config.model, "template": "{prompt}", "output": str(tmp_path / "out"), **small}


def run(rows, settings, tmp_path, capsys):
    """The losses before and after, the share at the end, and log-probabilities of answers by what was saved."""
    (tmp_path / "data.jsonl").write_text("\n".join(map(json.dumps, rows)))
    c = finetune.Config(data=str(tmp_path / "data.jsonl"), **settings)
    finetune.main(c)
    lines = capsys.readouterr().out.splitlines()
    before = float(next(x for x in lines if x.startswith("held-out loss before: ")).split()[-1])
    after, share = (float(lines[-1].replace(",", "").split()[i]) for i in (2, -1))
    model, params = huggingface.load(c.output)
    net = hkx.without_apply_rng(hkx.transform(lambda tokens: hkx.nets.Decoder(model)(tokens)))
    data, found = finetune.read(c, *finetune.load(c.model)[2:]), []
    for i in range(8):
        prompt = data.prompts[i, data.start[i] :]
        for answer, counts in zip(data.answers[i], data.mask[i], strict=True):
            text = jnp.array([*prompt, *answer[counts]])
            log_probs = jax.nn.log_softmax(net.apply(params, text[None])[0, len(prompt) - 1 : -1])
            found.append(np.take_along_axis(np.asarray(log_probs), answer[counts][:, None], axis=1)[:, 0])
    return before, after, share, found


def test_answers_are_imitated(settings, tmp_path, capsys):
    rows = [{"prompt": f"{i}?", "completion": "ab" * (1 + i % 2)} for i in range(41)]
    before, after, share, found = run(rows, settings | {"lora": 0}, tmp_path, capsys)
    mean = np.mean(np.concatenate(found))
    assert after == pytest.approx(-mean, abs=2e-3) and share == pytest.approx(np.exp(mean), abs=2e-3)
    assert after < before / 4


def test_chosen_answers_are_preferred(settings, tmp_path, capsys):
    rows = [{"prompt": f"{i}?", "chosen": "a" * (1 + i % 3), "rejected": "b"} for i in range(41)]
    before, after, share, found = run(rows, settings, tmp_path, capsys)
    assert before == pytest.approx(np.log(2), abs=1e-3) and after < before - 0.1 and share == 1
    assert np.mean([x.sum() for x in found[::2]]) > np.mean([x.sum() for x in found[1::2]])


def test_a_bad_file_is_one_line(settings, tmp_path, capsys):
    with pytest.raises(SystemExit, match="example 2 has no rejected"):
        run([{"prompt": "", "chosen": "", "rejected": ""}, {"prompt": "", "chosen": ""}], settings, tmp_path, capsys)
    with pytest.raises(SystemExit, match="too few for a test and a batch of 8"):
        run([{"prompt": "a", "completion": "b"}] * 8, settings, tmp_path, capsys)
    with pytest.raises(SystemExit, match="no example of at most 12 tokens"):
        run([{"prompt": "a" * 20, "completion": "b"}] * 8, settings, tmp_path, capsys)
