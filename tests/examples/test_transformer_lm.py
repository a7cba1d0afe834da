"""The transformer: one device or many, in one go or resumed, checked for a pod; what it learns, writes and refuses."""

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
from jax.sharding import AbstractMesh, Mesh

pytest.importorskip("orbax.checkpoint", reason="checkpoints are Orbax's: pip install '.[examples]'")
pytest.importorskip("optax", reason="the example learns by optax: pip install '.[examples]'")

import transformer_lm as lm

pytestmark = pytest.mark.unoptimised

ROOT = pathlib.Path(__file__).parents[2]
SHORT = {"size": "tiny", "steps": 6, "precision": "float32", "checkpoint_every": 3, "evaluate_every": 4, "sample": 20}


def short(output, **changes):
    return lm.Config(**(SHORT | changes), output=str(output))


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Six steps on one device, with checkpoints after three and six."""
    output = tmp_path_factory.mktemp("run")
    return output, lm.main(short(output, devices=1))


def resumed(run, output, **changes):
    """The same run, going on from its third step."""
    shutil.copytree(run[0], output)
    shutil.rmtree(output / "checkpoints" / "6")
    return lm.main(short(output, **changes))


@pytest.mark.slow
def test_a_resumed_run_ends_bit_for_bit_as_the_first(run, tmp_path, capsys):
    again = resumed(run, tmp_path / "again", devices=1)
    assert again["first"] == 3
    assert "going on from the checkpoint at step 3 of 6" in capsys.readouterr().out
    assert again["losses"] == run[1]["losses"]
    assert again["sample"] == run[1]["sample"]


@pytest.mark.slow
def test_eight_devices_go_on_with_the_run_of_one_to_the_same_losses(run, tmp_path):
    again = resumed(run, tmp_path / "again", devices=8, mesh="2x4")
    assert again["first"] == 3
    np.testing.assert_allclose(again["losses"], run[1]["losses"], rtol=2e-5)  # float32, summed in another order
    assert again["test_losses"] == pytest.approx(run[1]["test_losses"], rel=2e-5)


@pytest.mark.slow
def test_main_returns_losses_and_evaluations_and_writes_them(run):
    output, metrics = run
    assert metrics["first"] == 0
    assert not metrics["interrupted"]
    assert abs(metrics["losses"][0] - np.log(256)) < 0.6  # at first it knows nothing
    assert metrics["losses"][-1] < metrics["losses"][0] - 0.3
    assert list(metrics["test_losses"]) == [4, 6]  # every fourth step, and the end
    assert (output / "metrics.csv").read_text().startswith("step,loss,test_loss\n1,")
    table = np.loadtxt(output / "metrics.csv", delimiter=",", skiprows=1)
    assert table[:, 0].tolist() == [1, 2, 3, 4, 5, 6]
    np.testing.assert_allclose(table[:, 1], metrics["losses"], rtol=1e-8)
    tests = table[:, 2]
    assert dict(zip([4, 6], tests[~np.isnan(tests)], strict=True)) == pytest.approx(metrics["test_losses"], rel=1e-8)
    assert (output / "loss.png").read_bytes().startswith(b"\x89PNG")
    assert (output / "sample.txt").read_text() == metrics["sample"]
    assert metrics["sample"].startswith("And ")
    assert sorted(path.name for path in (output / "checkpoints").iterdir()) == ["3", "6"]


@pytest.fixture(scope="module")
def shapes():
    """Shapes and shardings of a learner and of a step's examples on 2 x 4 devices."""
    return lm.make_program(short(""), Mesh(np.reshape(jax.devices(), (2, 4)), ("data", "model")))[1]


def test_no_device_holds_what_another_one_holds(shapes):
    learner, _ = shapes
    for module, arrays in learner.params.items():
        for name, x in arrays.items():
            parts = x.size // np.prod(x.sharding.shard_shape(x.shape))
            assert parts == (1 if name == "scale" else 8), f"{module}/{name}"
    adam = learner.opt_state[1][0]
    for moments in (adam.mu, adam.nu):
        assert jax.tree.all(jax.tree.map(lambda x, y: x.sharding == y.sharding, moments, learner.params))


@pytest.mark.parametrize("platform", ["tpu", "cuda"])
def test_it_lowers_without_the_hardware_and_multiplies_in_bfloat16(platform):
    mesh = AbstractMesh((2, 4), ("data", "model"))
    (_, step, *_), shapes = lm.make_program(short("", precision="bfloat16"), mesh)
    assert {x.dtype for x in jax.tree.leaves(shapes[0].params)} == {jnp.dtype("float32")}
    text = step.trace(*shapes).lower(lowering_platforms=(platform,)).as_text()
    assert "sdy.sharding_constraint" in text
    products = [line for line in text.splitlines() if "stablehlo.dot_general" in line]
    assert len(products) > 20
    for line in products:  # the gradient of a softmax is in float32, and what it is multiplied with is not
        assert re.search(r"tensor<[\dx]+xbf16>", line.split(" : ")[-1]), line


def test_each_epoch_reads_every_example_once_and_in_a_new_order(shapes):
    size, text = lm.SIZES["tiny"], np.frombuffer(lm.Config().text.read_bytes(), np.uint8)
    batch, test = lm.read(short(""), shapes[1].sharding.mesh)
    training = text[: text.size * 9 // 10]
    pieces = training[: (training.size - 1) // size.length * size.length].reshape(-1, size.length)
    number = len(pieces)
    steps = -(-2 * number // size.batch_size)
    read = np.concatenate([np.asarray(batch(step)) for step in range(steps)])
    first, second = read[:number], read[number : 2 * number]
    expected = sorted(x.tobytes() for x in pieces)
    for epoch in (first, second):
        assert sorted(x.tobytes() for x in epoch[:, :-1].astype(np.uint8)) == expected
    assert not np.array_equal(first, second)
    following = {training[i : i + size.length + 1].tobytes() for i in range(0, number * size.length, size.length)}
    assert {x.tobytes() for x in first.astype(np.uint8)} == following
    assert batch(0).sharding == shapes[1].sharding
    held_out = text[training.size :].tobytes()
    assert test.shape == (4, size.batch_size, size.length + 1)
    assert all(x.astype(np.uint8).tobytes() in held_out for x in np.asarray(test).reshape(-1, size.length + 1))


@pytest.mark.slow
def test_a_check_lowers_for_both_accelerators_and_counts_bytes(shapes, capsys):
    found = lm.main(short("", mesh="2x4", precision="bfloat16", check=True))
    assert set(found["lowered"]) == {"tpu", "cuda"}
    assert all("stablehlo.while" in text for text in found["lowered"].values())
    shards = [np.prod(x.sharding.shard_shape(x.shape)) * x.dtype.itemsize for x in jax.tree.leaves(shapes)]
    held = found["bytes"]["held between steps"]
    assert abs(held - sum(shards)) < 600  # an array is a multiple of so many bytes long
    assert found["bytes"]["all-gather"] > 0 and found["bytes"]["all-reduce"] > 0
    assert f"{held:,}" in capsys.readouterr().out


@pytest.mark.slow
def test_a_model_of_70_billion_parameters_is_lowered_for_256_devices_without_one():
    mesh = AbstractMesh((32, 8), ("data", "model"))
    (_, step, *_), shapes = lm.make_program(lm.Config(size="pod"), mesh)
    assert sum(x.size for x in jax.tree.leaves(shapes[0].params)) == 70_553_706_496  # as Llama 3 70B
    text = step.trace(*shapes).lower(lowering_platforms=("tpu",)).as_text()
    assert "mhlo.num_partitions = 256" in text


HLO = """\
%body (state: (s32[], bf16[4,8])) -> (s32[], bf16[4,8]) {
  %gathered = bf16[32,8]{1,0} all-gather(%part), dimensions={0}, metadata={op_name="jit(step)/while/body/mul"}
  %reduced = (f32[3]{0}, f32[2,2]{1,0}) all-reduce-start(%a, %b), metadata={op_name="jit(step)/while/body/dot"}
}

ENTRY %main (p: f32[]) -> f32[] {
  %loop = (s32[], bf16[4,8]) while(%start), condition=%condition, body=%body
  ROOT %total = f32[] all-reduce(%p), to_apply=%add, metadata={op_name="jit(step)/add"}
}
"""


def test_a_collective_in_the_loop_over_layers_counts_once_for_each():
    assert lm.received(HLO, 5) == {"all-gather": 5 * 32 * 8 * 2, "all-reduce": 5 * (3 + 4) * 4 + 4}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"mesh": "two"}, "--mesh: must be two numbers, as in 2x4, not 'two'"),
        ({"mesh": "2x2"}, "--mesh: 2x2 needs 4 devices, and there are 8: see --devices"),
        ({"devices": 9}, "--mesh: 9x1 needs 9 devices, and there are 8: see --devices"),
        ({"devices": 3}, "--mesh: 8 examples in a batch of --size tiny are not divisible by 3 devices"),
        ({"text": pathlib.Path("/no/file")}, "--text: cannot read /no/file: No such file or directory"),
        ({"text": ROOT / "LICENSE", "size": "base"}, "characters, and 20500 are needed"),
    ],
)
def test_a_setting_that_does_not_fit_is_one_line(tmp_path, changes, message):
    with pytest.raises(SystemExit, match=re.escape(message)) as ended:
        lm.main(short(tmp_path, **changes))
    assert "\n" not in ended.value.code


@pytest.mark.slow
def test_another_size_does_not_go_on_with_a_run(run):
    with pytest.raises(SystemExit, match=r"--output: the checkpoints in .* are of another run"):
        lm.main(short(run[0], devices=1, size="small"))


def test_every_setting_is_a_flag():
    flags = ["--size", "pod", "--mesh", "32x8", "--check", "--coordinator", "a:1", "--process-id", "3"]
    expected = lm.Config(size="pod", mesh="32x8", check=True, coordinator="a:1", process_id=3)
    assert tyro.cli(lm.Config, args=flags) == expected


def start(output, *arguments):
    flags = ["--size", "tiny", "--precision", "float32", "--output", output, *arguments]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    program = ROOT / "examples" / "transformer_lm.py"
    variables = environment(PYTHONPATH=ROOT, PYTHONUNBUFFERED=1)
    return subprocess.Popen([sys.executable, program, *map(str, flags)], env=variables, **pipes)


def losses(output):
    return np.loadtxt(output / "metrics.csv", delimiter=",", skiprows=1)[:, 1]


@pytest.mark.slow
def test_ctrl_c_saves_and_the_same_command_goes_on(tmp_path):
    process = start(tmp_path, "--steps", 100_000, "--checkpoint-every", 5)
    while not any(path.name.isdigit() for path in (tmp_path / "checkpoints").glob("*")):
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=240)
    assert process.returncode == 0
    assert "Traceback" not in errors
    step = int(re.search(r"interrupted: the same command goes on from step (\d+)\n", output)[1])
    assert len(losses(tmp_path)) == step
    assert (tmp_path / "checkpoints" / str(step)).is_dir()


@pytest.mark.long
def test_two_processes_of_four_devices_are_one_of_eight(tmp_path):
    flags = ["--steps", 6, "--mesh", "2x4", "--checkpoint-every", 3, "--sample", 20]
    settings = {"evaluate_every": lm.Config().evaluate_every}
    one = lm.main(short(tmp_path / "one", devices=8, mesh="2x4", **settings))["losses"]
    several = ["--coordinator", f"localhost:{free_port()}", "--num-processes", 2, "--devices", 4]
    both = [start(tmp_path / "two", *flags, *several, "--process-id", i) for i in range(2)]
    for process in both:
        _, errors = process.communicate(timeout=400)
        assert process.returncode == 0, errors
    np.testing.assert_allclose(losses(tmp_path / "two"), one, rtol=2e-5)
    # what two processes saved, one reads, on a single device
    shutil.rmtree(tmp_path / "two" / "checkpoints" / "6")
    again = lm.main(short(tmp_path / "two", devices=1, **settings))
    assert again["first"] == 3
    np.testing.assert_allclose(again["losses"], one, rtol=2e-5)


UNIGRAMS = 3.0  # nats per character: the loss of one that knew only how often each occurs


@pytest.mark.slow
def test_a_tiny_model_soon_knows_more_than_how_often_each_character_occurs(tmp_path):
    metrics = lm.main(short(tmp_path, steps=80, evaluate_every=80, checkpoint_every=80, devices=1))
    assert metrics["test_losses"][80] < UNIGRAMS - 0.3


@pytest.mark.long
@pytest.mark.unoptimised(False)
def test_the_default_setting_learns_to_spell(tmp_path):
    """In half of its steps already."""
    config = lm.Config(steps=lm.SIZES["small"].steps // 2, devices=1, output=str(tmp_path))
    metrics = lm.main(config)
    assert metrics["test_losses"][200] < 1.8 < UNIGRAMS
    words = set(re.findall(r"[a-z]+", lm.Config().text.read_text().lower()))
    written = re.findall(r"[a-z]+", metrics["sample"].lower())
    assert np.mean([word in words for word in written]) > 0.5
