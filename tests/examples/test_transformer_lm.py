"""The transformer: one device or many, in one go or resumed, checked for a pod; what it learns, writes and refuses."""

import dataclasses
import math
import pathlib
import re
import shutil
import signal
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tyro
from children import environment, free_port
from jax.sharding import AbstractMesh, AxisType
from program import BadFlag

pytest.importorskip("orbax.checkpoint", reason="checkpoints are Orbax's: pip install '.[examples]'")
pytest.importorskip("optax", reason="the example learns by optax: pip install '.[examples]'")

import partitioned
import transformer_lm as lm

pytestmark = pytest.mark.unoptimised

ROOT = pathlib.Path(__file__).parents[2]
SHORT = {
    "size": "tiny",
    "steps": 6,
    "precision": "float32",
    "checkpoint_every": 3,
    "evaluate_every": 4,
    "sample": 20,
    "progress": False,
}


def short(output, **changes):
    return lm.Config(**(SHORT | changes), output=str(output))


@pytest.fixture(scope="module", autouse=True)
def programs_are_compiled_once():
    """For the same settings on the same devices."""
    compiled, make = {}, lm.Program

    def once(config, size, mesh):
        settings = (*dataclasses.replace(config, **OF_NO_WEIGHT).__dict__.items(), size, mesh)
        if settings not in compiled:
            compiled[settings] = make(config, size, mesh)
        return compiled[settings]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lm, "Program", once)
        yield


OF_NO_WEIGHT = {"output": "", "mesh": "", "devices": 0, "sample": 0}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Six steps on one device, with checkpoints after three and six."""
    output = tmp_path_factory.mktemp("run")
    return output, lm.main(short(output, devices=1))


def resumed(run, output, **changes):
    """The same run, going on from its third step."""
    shutil.copytree(run[0], output)
    shutil.rmtree(output / "checkpoints" / "6")
    return lm.main(short(output, sample=0, **changes))


@pytest.mark.slow
def test_a_resumed_run_ends_bit_for_bit_as_the_first(run, tmp_path):
    again = resumed(run, tmp_path / "again", devices=1)
    assert again["begun"] == 3
    np.testing.assert_array_equal(again["losses"], run[1]["losses"])
    check = "checkpoints/6/check/metadata"  # holds a checksum over all bits of the state
    assert (tmp_path / "again" / check).read_text() == (run[0] / check).read_text()


@pytest.mark.slow
def test_eight_devices_go_on_with_the_run_of_one_to_the_same_losses(run, tmp_path):
    again = resumed(run, tmp_path / "again", devices=8, mesh="2x4")
    assert again["begun"] == 3
    np.testing.assert_allclose(again["losses"], run[1]["losses"], rtol=2e-5)  # float32, summed in another order
    assert again["validation"] == pytest.approx(run[1]["validation"], rel=2e-5)


@pytest.mark.slow
def test_main_returns_losses_and_evaluations_and_writes_them(run):
    output, metrics = run
    assert metrics["begun"] == 0
    assert not metrics["interrupted"]
    assert abs(metrics["losses"][0] - np.log(lm.VOCABULARY)) < 0.6  # at first it knows nothing
    assert metrics["losses"][-1] < metrics["losses"][0] - 0.3
    assert list(metrics["validation"]) == [4, 6]  # every fourth step, and the end
    header, *rows = [line.split(",") for line in (output / "metrics.csv").read_text().splitlines()]
    assert header == ["step", "loss", "validation_loss"]
    assert [int(step) for step, _, _ in rows] == [1, 2, 3, 4, 5, 6]
    np.testing.assert_array_equal(np.float32([loss for _, loss, _ in rows]), metrics["losses"])
    assert {int(step): float(value) for step, _, value in rows if value} == pytest.approx(metrics["validation"])
    assert (output / "loss.png").read_bytes().startswith(b"\x89PNG")
    assert (output / "sample.txt").read_text() == metrics["sample"]
    assert metrics["sample"].startswith("And ")
    assert sorted(path.name for path in (output / "checkpoints").iterdir()) == ["3", "6"]


@pytest.fixture(scope="module")
def program():
    """What is compiled for a mesh of 2 x 4 devices, in bfloat16."""
    config = short("", precision="bfloat16")
    return lm.Program(config, lm.SIZES["tiny"], lm.make_mesh((2, 4), jax.devices()))


def test_no_device_holds_what_another_one_holds(program):
    shapes = program.shapes
    for module, arrays in shapes.params.items():
        for name, x in arrays.items():
            parts = math.prod(x.shape) // math.prod(x.sharding.shard_shape(x.shape))
            assert parts == (1 if name == "scale" else 8), f"{module}/{name}"
    adam = shapes.opt_state[1][0]
    for moments in (adam.mu, adam.nu):
        assert jax.tree.all(jax.tree.map(lambda x, y: x.sharding == y.sharding, moments, shapes.params))


@pytest.mark.parametrize("platform", ["tpu", "cuda"])
def test_it_lowers_without_the_hardware_and_multiplies_in_bfloat16(platform):
    mesh = AbstractMesh((2, 4), ("data", "model"), axis_types=(AxisType.Auto,) * 2)
    program = lm.Program(short("", precision="bfloat16"), lm.SIZES["tiny"], mesh)
    assert {x.dtype for x in jax.tree.leaves(program.shapes.params)} == {jnp.dtype("float32")}
    text = program.step.trace(program.shapes, program.examples).lower(lowering_platforms=(platform,)).as_text()
    assert "sdy.sharding_constraint" in text
    products = [line for line in text.splitlines() if "stablehlo.dot_general" in line]
    assert len(products) > 20
    for line in products:  # the gradient of a softmax is in float32, and what it is multiplied with is not
        assert re.search(r"tensor<[\dx]+xbf16>", line.split(" : ")[-1]), line


def test_each_epoch_reads_every_example_once_and_in_a_new_order():
    size = lm.SIZES["tiny"]
    text = lm.Text(short(""), size)
    epochs = [[text.example(epoch * text.examples + i) for i in range(text.examples)] for epoch in range(2)]
    read = {example[:-1].tobytes() for example in epochs[0]}
    pieces = text.training[: text.examples * size.length].astype(np.int32).reshape(-1, size.length)
    assert read == {piece.tobytes() for piece in pieces}
    assert sorted(x.tobytes() for x in epochs[0]) == sorted(x.tobytes() for x in epochs[1])
    assert any((x != y).any() for x, y in zip(*epochs, strict=True))
    assert text.training.size + text.test.size == lm.TEXT.stat().st_size > 900_000


def test_a_batch_goes_on_over_the_end_of_an_epoch_and_is_divided_along_data(program):
    text = lm.Text(short(""), lm.SIZES["tiny"])
    batch = text.batch(text.examples - 3, program.examples)
    assert batch.sharding == program.examples.sharding
    expected = np.stack([text.example(text.examples - 3 + i) for i in range(8)])
    np.testing.assert_array_equal(batch, expected)


@pytest.mark.slow
def test_a_check_lowers_for_both_accelerators_and_counts_bytes(program, capsys):
    found = lm.main(short("", mesh="2x4", precision="bfloat16", check=True))
    assert set(found["lowered"]) == {"tpu", "cuda"}
    assert all("stablehlo.while" in text for text in found["lowered"].values())
    mine = [*jax.tree.leaves(program.shapes), program.examples]
    shards = [math.prod(x.sharding.shard_shape(x.shape)) * min(x.dtype.itemsize, 4) for x in mine]
    held = found["full"]["held between steps, bytes"]
    assert abs(held - sum(shards)) < 600  # an array is a multiple of so many bytes long, and a key is two numbers
    assert found["full"]["all-gather, times"] > 0
    assert found["full"]["all-reduce, bytes received"] > 0
    assert f"{held:,.0f}" in capsys.readouterr().out


HLO = """\
%add (x: f32[], y: f32[]) -> f32[] {
  ROOT %sum = f32[] add(%x, %y)
}

%body (state: (s32[], bf16[4,8])) -> (s32[], bf16[4,8]) {
  %gathered = bf16[32,8]{1,0} all-gather(%part), channel_id=1, dimensions={0}
  %reduced = (f32[3]{0}, f32[2,2]{1,0}) all-reduce(%a, %b), channel_id=2, to_apply=%add
}

%condition (state: (s32[], bf16[4,8])) -> pred[] {
  ROOT %less = pred[] compare(%i, %n), direction=LT
}

ENTRY %main (p: f32[]) -> f32[] {
  %loop = (s32[], bf16[4,8]) while(%start), condition=%condition, body=%body, \
backend_config={"known_trip_count":{"n":"5"}}
  ROOT %total = f32[] all-reduce(%p), channel_id=3, to_apply=%add
}
"""


def test_a_collective_in_a_loop_counts_as_often_as_it_turns():
    class Compiled:
        def as_text(self):
            return HLO

    found = partitioned.collectives(Compiled())
    assert found == {"all-gather": (5, 5 * 32 * 8 * 2), "all-reduce": (5 + 1, 5 * (3 + 4) * 4 + 4)}


def test_three_widths_carry_to_a_fourth():
    def received(width):
        return 7 + 11 * width + 13 * width**2

    assert partitioned.carried({w: received(w) for w in (256, 512, 1024)}, 8192) == pytest.approx(received(8192))
    assert partitioned.carried({128: 5.0}, 128) == 5.0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"mesh": "two"}, "argument --mesh: must be two numbers, as in 2x4, not 'two'"),
        ({"mesh": "2x2"}, "argument --mesh: 2x2 is 4 devices, and there are 8"),
        ({"mesh": "1x8"}, "argument --mesh: 8 devices cannot share the 4 heads of keys and values of --size equally"),
        ({"devices": 3}, "argument --mesh: 3 devices cannot share the 8 examples of a batch of --size equally"),
        ({"text": "/no/such/file"}, "argument --text: cannot read /no/such/file: No such file or directory"),
        ({"text": __file__, "size": "base"}, "characters, and 20500 are needed"),
    ],
)
def test_a_setting_that_does_not_fit_is_named(tmp_path, changes, message):
    with pytest.raises(BadFlag, match=re.escape(message)):
        lm.main(short(tmp_path, **changes))


@pytest.mark.slow
def test_another_seed_does_not_go_on_with_a_run(run):
    with pytest.raises(BadFlag, match=re.escape("are of another run (--seed 0, now --seed 1)")):
        lm.main(short(run[0], devices=1, seed=1))


def test_every_setting_is_a_flag():
    flags = ["--size", "pod", "--mesh", "32x8", "--check", "--coordinator", "a:1", "--process-id", "3"]
    expected = lm.Config(size="pod", mesh="32x8", check=True, coordinator="a:1", process_id=3)
    assert tyro.cli(lm.Config, args=flags) == expected


def start(output, *arguments):
    flags = ["--size", "tiny", "--precision", "float32", "--dropout", "0.1", "--output", output, *arguments]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    program = ROOT / "examples" / "transformer_lm.py"
    variables = environment(PYTHONPATH=ROOT, PYTHONUNBUFFERED=1, PYTHONWARNINGS="error")
    return subprocess.Popen([sys.executable, program, *map(str, flags)], env=variables, **pipes)


def ended(process):
    output, errors = process.communicate(timeout=400)
    assert process.returncode == 0, errors
    return output, errors


def losses(output):
    return np.float32([line.split(",")[1] for line in (output / "metrics.csv").read_text().splitlines()[1:]])


@pytest.mark.slow
def test_ctrl_c_saves_and_the_same_command_goes_on(tmp_path):
    process = start(tmp_path, "--steps", 100_000, "--checkpoint-every", 5, "--no-progress")
    while not any(path.name.isdigit() for path in (tmp_path / "checkpoints").glob("*")):
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=120)
    assert process.returncode == 130
    assert "Traceback" not in errors
    step = int(re.search(r"interrupted after (\d+) of 100000 steps", output)[1])
    assert len(losses(tmp_path)) == step
    assert (tmp_path / "checkpoints" / str(step)).is_dir()


@pytest.mark.long
def test_two_processes_of_four_devices_are_one_of_eight(tmp_path, capsys):
    flags = ["--steps", 6, "--mesh", "2x4", "--checkpoint-every", 3, "--sample", 20]
    settings = {"dropout": 0.1, "evaluate_every": lm.Config().evaluate_every}
    one = lm.main(short(tmp_path / "one", devices=8, mesh="2x4", **settings))["losses"]
    several = ["--coordinator", f"localhost:{free_port()}", "--num-processes", 2, "--devices", 4]
    both = [start(tmp_path / "two", *flags, *several, "--process-id", i) for i in range(2)]
    for process in both:
        ended(process)
    np.testing.assert_allclose(losses(tmp_path / "two"), one, rtol=2e-5)
    # what two processes saved, one reads, on a single device
    shutil.rmtree(tmp_path / "two" / "checkpoints" / "6")
    capsys.readouterr()
    lm.main(short(tmp_path / "two", devices=1, **settings))
    assert "going on from the checkpoint of step 3" in capsys.readouterr().out
    np.testing.assert_allclose(losses(tmp_path / "two"), one, rtol=2e-5)


@pytest.mark.slow
def test_what_is_carried_to_the_width_of_a_pod_is_what_the_compiler_makes_of_it():
    found = lm.check(lm.Config(size="pod", mesh="2x4"))
    size, mesh = lm.SIZES["pod"], lm.make_mesh((2, 4), jax.devices())
    program = lm.Program(lm.Config(size="pod"), size, mesh)
    compiled = program.step.lower(program.shapes, program.examples).compile()
    held = compiled.memory_analysis().argument_size_in_bytes
    assert found["full"]["held between steps, bytes"] == pytest.approx(held, rel=1e-9)
    for kind, (times, received) in partitioned.collectives(compiled).items():
        assert found["full"][f"{kind}, times"] == pytest.approx(times)
        assert found["full"][f"{kind}, bytes received"] == pytest.approx(received, rel=1e-6)


UNIGRAMS = 3.0  # nats per character: the loss of one that knew only how often each occurs


@pytest.mark.slow
def test_a_tiny_model_soon_knows_more_than_how_often_each_character_occurs(tmp_path):
    metrics = lm.main(short(tmp_path, steps=80, evaluate_every=80, checkpoint_every=80, sample=0, devices=1))
    assert metrics["validation"][80] < UNIGRAMS - 0.3


@pytest.mark.long
@pytest.mark.unoptimised(False)
def test_the_default_setting_learns_to_spell(tmp_path):
    """In half of its steps already."""
    config = lm.Config(steps=lm.SIZES["small"].steps // 2, devices=1, output=str(tmp_path), progress=False)
    metrics = lm.main(config)
    assert metrics["validation"][200] < 1.8 < UNIGRAMS
    words = set(re.findall(r"[a-z]+", lm.TEXT.read_text().lower()))
    written = re.findall(r"[a-z]+", metrics["sample"].lower())
    assert np.mean([word in words for word in written]) > 0.5
