"""What the benchmarks compare is the same program, and what they print is what was measured."""

import collections
import json
import pathlib
import signal
import subprocess
import sys
import types

import jax
import numpy as np
import pytest
from jax.extend.core import jaxprs_in_params

import hkx
from benchmarks import __main__ as command
from benchmarks import bsuite_steps, gpu, gpu_language, grpo_peers, harness, models

MODELS = {
    "perceptron": lambda library: models.perceptron(library, 3),
    "transformer": lambda library: models.transformer(library, 2),
    "resnet": lambda library: models.resnet(library, 32),
}


def operations(program, count):
    for eqn in program.eqns:
        inner = list(jaxprs_in_params(eqn.params))
        for one in inner:
            operations(one, count)
        if not inner:
            count[eqn.primitive.name] += 1
    return count


@pytest.mark.parametrize("name", ["perceptron", "transformer", pytest.param("resnet", marks=pytest.mark.slow)])
def test_no_operation_more_than_the_program_written_by_hand(name):
    (by_hand, _), (ours, arguments) = MODELS[name](None), MODELS[name](hkx)
    with jax.numpy_rank_promotion("allow"):
        expected, found = (
            operations(jax.make_jaxpr(f)(*arguments).jaxpr, collections.Counter()) for f in (by_hand, ours)
        )
    assert sum(expected.values()) > 10
    assert not found - expected


@pytest.mark.parametrize("name", ["perceptron", pytest.param("transformer", marks=pytest.mark.slow)])
def test_the_program_written_by_hand_computes_the_same(name):
    (by_hand, _), (ours, arguments) = MODELS[name](None), MODELS[name](hkx)
    random = np.random.default_rng(0)
    arguments = jax.tree.map(lambda x: random.normal(size=x.shape).astype(np.float32), arguments)
    with jax.numpy_rank_promotion("allow"):
        np.testing.assert_allclose(by_hand(*arguments), ours(*arguments), rtol=1e-5, atol=1e-5)


def test_a_training_step_takes_over_its_buffers():
    apply, (params, x) = models.perceptron(hkx, 3)

    def step(params, x):
        return jax.tree.map(lambda p, g: p - 0.1 * g, params, jax.grad(lambda p: apply(p, x).sum())(params))

    before = jax.tree.leaves(params)
    jax.jit(step, donate_argnums=0)(params, x)
    assert all(leaf.is_deleted() for leaf in before)


def test_medians_and_ratios(monkeypatch):
    """Round by round: 2/1, 6/3 and 10/2."""
    values = {"ours": iter([2.0, 6.0, 10.0]), "theirs": iter([1.0, 3.0, 2.0])}
    benchmark = types.SimpleNamespace(SIDES=dict.fromkeys(values), REFERENCE="theirs")
    monkeypatch.setattr(harness.importlib, "import_module", lambda name: benchmark)
    monkeypatch.setattr(harness, "measure", lambda module, side: {"time": next(values[side])})
    harness.run("benchmarks.fake", 3, rows := [], lambda what: None, pytest.fail)
    ours, theirs = rows
    assert (ours["median"], ours["ratio"], ours["lowest"], ours["highest"]) == (6, 2, 2, 5)
    assert theirs["ratio"] == 1
    assert "| fake | time | ours | 6 | 2 (2 to 5) |" in command.table([ours, theirs])


def test_a_side_that_fails_costs_only_itself(monkeypatch, capsys):
    def measure(module, side):
        if side == "equinox":
            raise RuntimeError(f"{side}: no memory")
        return {"call": 1.0}

    monkeypatch.setattr(harness, "installed", lambda side: True)
    monkeypatch.setattr(harness, "measure", measure)
    monkeypatch.setattr(sys, "argv", ["benchmarks", "--only", "dispatch", "--rounds", "2"])
    with pytest.raises(SystemExit, match="left out, since they failed:\nequinox: no memory"):
        command.main()
    out = capsys.readouterr().out
    assert "| dispatch | call | hkx | 1 | 1 (1 to 1) |" in out and "| equinox |" not in out


def test_a_side_whose_library_is_missing_is_left_out(monkeypatch):
    monkeypatch.setattr(harness.importlib.util, "find_spec", lambda name: None)
    assert not harness.installed("haiku")
    assert harness.installed("hkx")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--rounds", "0"], "at least 1"),
        (["--only", "speed"], "invalid choice: 'speed'"),
        (["--json", "no/such/folder/all.json"], "in a folder that exists"),
        (["--gpu", "--only", "tracing"], "--gpu measures what depends on the device: --only takes dispatch"),
    ],
)
def test_a_mistake_is_named_before_anything_runs(monkeypatch, capsys, options, said):
    monkeypatch.setattr(harness, "measure", lambda module, side: pytest.fail("ran"))
    monkeypatch.setattr(sys, "argv", ["benchmarks", *options])
    with pytest.raises(SystemExit):
        command.main()
    assert said in capsys.readouterr().err


def test_what_is_left_out_is_said(monkeypatch, capsys):
    monkeypatch.setattr(harness, "installed", lambda side: side != "equinox")
    monkeypatch.setattr(harness, "measure", lambda module, side: {"call": 1.0})
    monkeypatch.setattr(sys, "argv", ["benchmarks", "--only", "dispatch", "--rounds", "2"])
    command.main()
    out, err = capsys.readouterr()
    assert "equinox is left out: equinox is not installed." in err
    assert "10/10" in err and "| dispatch | call | hkx | 1 | 1 (1 to 1) |" in out and "| equinox |" not in out


@pytest.fixture
def signals():
    """SIGINT interrupts, which a shell's background process ignores; all is as it was afterwards."""
    before = {one: signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM)}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    for one, handler in before.items():
        signal.signal(one, handler)


@pytest.mark.parametrize("by", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_shows_what_it_has_measured(monkeypatch, capsys, signals, by):
    """Of the benchmark that is interrupted in its second round, too, after 1 and 3 for one side and 4 for the other."""
    times = iter([1.0, 4.0, 3.0])

    def measure(module, side):
        if module == "benchmarks.transposed":
            return {"call": 1.0}
        if (value := next(times, None)) is None:
            signal.raise_signal(by)
        return {"call": value}

    monkeypatch.setattr(harness, "installed", lambda side: side != "haiku")
    monkeypatch.setattr(harness, "measure", measure)
    monkeypatch.setattr(sys, "argv", ["benchmarks", "--only", "transposed", "unroll", "--rounds", "3"])
    with pytest.raises(SystemExit, match="Interrupted: 1 of 2 benchmarks were measured to the end"):
        command.main()
    printed = capsys.readouterr().out
    assert "| transposed | call | hkx | 1 |" in printed
    assert "| unroll | call | hkx | 2 |" in printed and "| unroll | call | hkx, dynamic_unroll | 4 |" in printed


@pytest.mark.slow
@pytest.mark.peer
@pytest.mark.filterwarnings("ignore")  # of RLax and Haiku
@pytest.mark.parametrize("side", ["ours", "bsuite"])
def test_both_sides_take_the_steps_that_are_counted(side):
    bsuite, _ = pytest.importorskip("bsuite"), pytest.importorskip("haiku")
    name, settings, baseline, _ = bsuite_steps.SETTINGS["actor_critic"]
    environment = bsuite.load_from_id("catch/0")
    taken, step = [], environment.step
    environment.step = lambda action: taken.append(action) or step(action)
    ours, theirs = bsuite_steps.our_run, bsuite_steps.run_of_bsuite
    run = ours(environment, name, settings) if side == "ours" else theirs(environment, baseline)
    run(64)
    run(32)
    assert len(taken) == 96
    assert {int(action) for action in taken} == {0, 1, 2}


@pytest.mark.slow
def test_the_command(tmp_path):
    options = ["--only", "imports", "--rounds", "1", "--json", tmp_path / "all.json", "--png", tmp_path / "all.png"]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", *map(str, options)],
        cwd=harness.__file__.rpartition("/benchmarks/")[0],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "| imports | import, ms | hkx and rlx |" in done.stdout
    assert json.loads((tmp_path / "all.json").read_text())["rows"]
    assert (tmp_path / "all.png").read_bytes().startswith(b"\x89PNG")


def test_without_a_gpu_one_line_says_so(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(gpu, "devices", list)
    monkeypatch.setattr(sys, "argv", ["benchmarks", "--only", "on_device", "--devices", "gpu"])
    with pytest.raises(SystemExit):
        command.main()
    assert capsys.readouterr().err.endswith(gpu.NO_GPU + "\n")
    assert gpu.main(tmp_path / "report.md", 1) == 1
    assert capsys.readouterr() == ("", gpu.NO_GPU + "\n")
    with pytest.raises(SystemExit, match="There is no GPU that JAX can use"):
        gpu_language.model("4B", layers=0)
    assert not (tmp_path / "report.md").exists()


def test_with_a_gpu_a_report_of_tests_and_benchmarks(monkeypatch, tmp_path):
    """Written as soon as a part has run, and the status is that of what failed."""
    monkeypatch.setattr(gpu, "devices", lambda: ["A GPU"])
    ran = []

    def run(command, variables):
        assert not ran or f"last line of {ran[-1][1]}" in (tmp_path / "report.md").read_text()
        ran.append(command)
        return int("pytest" in command), f"last line of {command[1]}", False

    monkeypatch.setattr(gpu, "run", run)
    assert gpu.main(tmp_path / "report.md", 3) == 1
    report = (tmp_path / "report.md").read_text()
    assert [command[1] for command in ran] == ["pytest"] + len(gpu.BENCHMARKS) * ["benchmarks"]
    assert sorted(command[-1] for command in ran[1:]) == sorted(gpu.BENCHMARKS)
    assert all(words in report for words in ("# On A GPU", "last line of pytest", "status 1", "last line of benchm"))


def test_an_interrupted_part_ends_by_itself(monkeypatch, tmp_path, signals):
    """What it prints then is in the report, and the parts after it are left out."""
    program = "import os, signal, time\ntry:\n    os.kill(os.getppid(), signal.SIGINT)\n    time.sleep(60)\n"
    program += "except KeyboardInterrupt:\n    print('what there is')\n"
    run = gpu.run
    monkeypatch.setattr(gpu, "devices", lambda: ["A GPU"])
    monkeypatch.setattr(gpu, "run", lambda command, variables: run(["-c", program], variables))
    assert gpu.main(tmp_path / "report.md", 1) == 130
    report = (tmp_path / "report.md").read_text()
    assert "interrupted" in report and "what there is" in report and "Benchmark" not in report


def test_an_update_ends_sampling_with_its_first_reward(monkeypatch):
    """The first update ends at 10; the next ones take 2 + 5 and 4 + 7; rewards of an update come together."""
    printed = "reward 3.0\nreward 3.1\nupdated 10.0\nreward 12.0\nreward 12.5\nupdated 17.0\nreward 21.0\nupdated 28.0"
    monkeypatch.setattr(grpo_peers, "run", lambda *command: (printed, 30.0, 1.5))
    assert list(grpo_peers.measured("trl", "python", pathlib.Path(), 3).values()) == [10, 9, 3, 6, 1.5]


@pytest.mark.slow
def test_parts_on_a_gpu_end_at_the_limit(monkeypatch, tmp_path, capfd):
    """No part begins after the limit, and one that fails says why."""
    command, run = [sys.executable, "-c", "print('found', flush=True); import time; time.sleep(60)"], gpu_language.run
    monkeypatch.setattr(gpu_language, "run", lambda _, log, limit: run(command, log, 3))
    monkeypatch.setattr(gpu_language.time, "monotonic", iter([0, 0, 3, 97]).__next__)
    gpu_language.main(["--output", str(tmp_path), "--limit", "100", "--only", "bits", "transformers"])
    printed = capfd.readouterr().out.splitlines()
    assert printed[:2] == ["found", "bits: ended after 3 s, 3 s since the beginning"]
    assert printed[2:] == ["transformers is left out: 100 s are over"]
    failed = run([sys.executable, "-c", "raise ValueError('why')"], tmp_path / "log.txt", 60)
    assert failed.startswith("status 1") and failed.endswith("ValueError: why")


@pytest.mark.slow
def test_a_part_on_a_gpu_writes_each_figure(tmp_path):
    gpu_language.main(["--output", str(tmp_path), "--limit", "300", "--only", "throughput", "--small"])
    rows = [json.loads(line) for line in (tmp_path / "figures.jsonl").read_text().splitlines()]
    figures = [row["value"] for row in rows if row["figure"] == "new tokens a second"]
    assert len(figures) == 2 and min(figures) > 0
