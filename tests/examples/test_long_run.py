"""Long runs: what a checkpoint gives back and what it refuses, kills at any moment, and the death of a process."""

import concurrent.futures
import contextlib
import dataclasses
import os
import pathlib
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
import program
import pytest
from children import environment, free_port, line_of
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from program import BadFlag
from settings import Seed, Share

pytest.importorskip("orbax.checkpoint", reason="checkpoints are Orbax's: pip install '.[examples]'")

import long_run

ROOT = pathlib.Path(__file__).parents[2]


@dataclasses.dataclass(frozen=True)
class Config(long_run.LongRun):
    seed: Seed = 0
    rate: Share = 0.5


def mesh(data, model):
    devices = np.array(jax.devices()[: data * model]).reshape(data, model)
    return Mesh(devices, ("data", "model"), axis_types=(AxisType.Auto,) * 2)


def state(mesh, seed=0):
    """A tree of every kind of leaf, over a mesh."""
    whole, divided = NamedSharding(mesh, P()), NamedSharding(mesh, P("data", "model"))
    values = np.random.default_rng(seed)
    return {
        "params": {"a/~/b": {"w": jax.device_put(values.normal(size=(64, 48)).astype(np.float32), divided)}},
        "opt_state": (jax.device_put(jnp.array(values.normal(size=5), jnp.bfloat16), whole), ()),
        "key": jax.device_put(jax.random.key(seed), whole),
        "position": jax.device_put(jnp.int32(seed + 7), whole),
        "flags": jax.device_put(np.array([True, False]), whole),
    }


def plain(tree):
    def as_numpy(x):
        return np.asarray(jax.random.key_data(x) if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else x)

    return [(x.dtype, x.tobytes()) for x in map(as_numpy, jax.tree.leaves(tree))]


def checkpoints(folder, **settings):
    return long_run.Checkpoints(Config(**settings), pathlib.Path(folder))


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A folder with the checkpoints of steps 1 to 4, of which the last three are kept."""
    folder = tmp_path_factory.mktemp("saved") / "checkpoints"
    with checkpoints(folder) as of_run:
        for step in range(1, 5):
            of_run.save(step, state(mesh(2, 4), step))
    return folder


@pytest.fixture
def copy(saved, tmp_path):
    return shutil.copytree(saved, tmp_path / "checkpoints")


@pytest.mark.parametrize("shape", [(2, 4), (4, 2), (1, 2), (1, 1)])
def test_the_newest_state_comes_back_bit_for_bit_onto_any_devices(saved, shape):
    like = state(mesh(*shape), 0)
    with checkpoints(saved) as of_run:
        step, found = of_run.restore(like)
    assert step == 4
    assert plain(found) == plain(state(mesh(2, 4), 4))
    for x, y in zip(jax.tree.leaves(found), jax.tree.leaves(like), strict=True):
        assert x.sharding.is_equivalent_to(y.sharding, x.ndim)
        assert x.sharding.device_set == y.sharding.device_set


def test_shapes_are_enough_to_restore_to(saved):
    like = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding), state(mesh(1, 2)))
    with checkpoints(saved) as of_run:
        assert plain(of_run.restore(like)[1]) == plain(state(mesh(1, 1), 4))


def test_the_last_few_are_kept(saved):
    assert sorted(path.name for path in saved.iterdir()) == ["2", "3", "4"]


def test_without_a_checkpoint_the_run_begins(tmp_path):
    like = state(mesh(1, 1))
    with checkpoints(tmp_path / "new") as of_run:
        step, found = of_run.restore(like)
    assert step == 0
    assert found is like


def test_a_half_written_checkpoint_is_passed_over_and_removed(copy):
    unfinished = copy / "9.orbax-checkpoint-tmp"
    shutil.copytree(copy / "4", unfinished)
    shutil.rmtree(unfinished / "state" / "d")
    with checkpoints(copy) as of_run:
        assert of_run.restore(state(mesh(1, 1)))[0] == 4
    for _ in range(100):  # it is removed in the background
        if not unfinished.exists():
            return
        time.sleep(0.1)
    raise AssertionError(f"{unfinished} is still there")


def truncate(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def change(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 4
    path.write_bytes(content)


# Where one array cannot be read, Orbax gives up the others, and what comes of those then finds nobody.
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("damage", [truncate, change, pathlib.Path.unlink])
def test_whatever_is_damaged_no_wrong_state_comes_back(copy, capsys, damage):
    """Every file in turn: the state is as it was saved, or the one before is read and a line says so."""
    like, right = state(mesh(1, 1)), {step: plain(state(mesh(1, 1), step)) for step in (3, 4)}
    found = []
    for name in sorted(str(path.relative_to(copy / "4")) for path in (copy / "4").rglob("*") if path.is_file()):
        folder = shutil.copytree(copy, copy.parent / "damaged")
        damage(folder / "4" / name)
        with checkpoints(folder) as of_run:
            step, restored = of_run.restore(like)
            assert plain(restored) == right[step], name
            if step == 3:  # the damaged one is out of the way of what is saved from now on
                of_run.save(4, state(mesh(1, 1), 4))
        lines = capsys.readouterr().out.splitlines()
        assert len(lines) == (step == 3), name
        assert all("checkpoint 4 in" in line and "is damaged" in line for line in lines)
        assert sorted(path.name for path in folder.iterdir() if path.name.isdigit()) == ["2", "3", "4"]
        found.append(step)
        shutil.rmtree(folder)
    assert 3 in found


def test_a_damaged_checkpoint_is_set_aside_and_what_is_there_stays(copy, capsys):
    (copy / "damaged-4").write_text("kept")
    for times in (1, 2):
        truncate(copy / "4" / "check" / "metadata")
        content = (copy / "4" / "check" / "metadata").read_bytes()
        with checkpoints(copy, keep_checkpoints=2) as of_run:
            assert of_run.restore(state(mesh(1, 1)))[0] == 3
            of_run.save(4, state(mesh(1, 1), 4))
        aside = [path for path in copy.iterdir() if path.name.startswith("damaged-4-")]
        assert len(aside) == times
        assert all((path / "check" / "metadata").read_bytes() == content for path in aside)
        assert {path.name for path in copy.iterdir()} == {"3", "4", "damaged-4", *(path.name for path in aside)}
    assert (copy / "damaged-4").read_text() == "kept"
    assert capsys.readouterr().out.count("checkpoint 4 in") == 2


def test_a_second_run_in_the_same_folder_is_refused(copy):
    before = sorted(copy.rglob("*"))
    with checkpoints(copy, keep_checkpoints=2) as of_run:
        for _ in range(2):  # a refusal is no reason to take the next one in
            with pytest.raises(BadFlag, match=f"^argument --output: another run goes on in {copy}, .*$") as raised:
                checkpoints(copy, keep_checkpoints=2)
            assert "\n" not in str(raised.value)
        assert sorted(copy.rglob("*")) == before
        of_run.save(5, state(mesh(1, 1), 5))
    with checkpoints(copy, keep_checkpoints=2) as of_run:
        assert of_run.restore(state(mesh(1, 1)))[0] == 5
    assert sorted(path.name for path in copy.iterdir()) == ["4", "5"]


def test_another_number_of_layers_is_not_read_into_these(copy):
    like = state(mesh(1, 1)) | {"more": jnp.zeros(3)}
    with checkpoints(copy) as of_run, pytest.raises(BadFlag, match=r"no checkpoint in .* can be read"):
        of_run.restore(like)


@pytest.mark.parametrize("content", ["nothing of Orbax's", "another library's"])
def test_a_foreign_folder_is_one_line_and_stays_as_it_is(tmp_path, content):
    foreign = tmp_path / "checkpoints"
    if content == "nothing of Orbax's":
        (foreign / "100").mkdir(parents=True)
        (foreign / "100" / "model.bin").write_text("weights")
    else:
        import orbax.checkpoint as ocp

        with ocp.StandardCheckpointer() as checkpointer:
            checkpointer.save(foreign / "100", {"w": np.zeros(3)})
    before = sorted(foreign.rglob("*"))
    with checkpoints(foreign) as of_run, pytest.raises(BadFlag) as raised:
        of_run.restore(state(mesh(1, 1)))
    assert "\n" not in str(raised.value)
    assert str(foreign) in str(raised.value)
    assert "choose another --output" in str(raised.value)
    assert sorted(foreign.rglob("*")) == before


def test_a_file_in_place_of_the_folder_is_one_line(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(BadFlag, match=r"cannot hold checkpoints: .* choose another --output"):
        checkpoints(tmp_path / "file")


@contextlib.contextmanager
def files_of_at_most(size):
    """As on a full disk, what goes beyond cannot be written."""
    usual = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, usual[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, usual)


def test_a_full_disk_is_one_line_and_what_is_complete_stays(copy):
    with pytest.raises(BadFlag, match=r"argument --output: cannot write a checkpoint in .* go") as raised:  # noqa: SIM117
        with checkpoints(copy) as of_run, files_of_at_most(2000):
            of_run.save(5, state(mesh(1, 1), 5))
            of_run.save(6, state(mesh(1, 1), 6))
    assert "\n" not in str(raised.value)
    with checkpoints(copy) as of_run:
        step, found = of_run.restore(state(mesh(1, 1)))
    assert step == 4
    assert plain(found) == plain(state(mesh(2, 4), 4))


def test_results_that_cannot_be_written_are_one_line_and_the_old_ones_stay(tmp_path):
    path = tmp_path / "parameters.npz"
    path.write_text("old")
    with pytest.raises(BadFlag, match=re.escape(f"argument --output: cannot write {path}: File too large")):  # noqa: SIM117
        with files_of_at_most(2000):
            program.save_parameters(path, {"linear": {"w": np.zeros(1000)}})
    assert [(file.name, file.read_text()) for file in tmp_path.iterdir()] == [("parameters.npz", "old")]


@pytest.mark.skipif(not pathlib.Path("/proc/self").exists(), reason="needs a folder that nobody can write into")
def test_a_folder_that_cannot_be_written_into_is_told_at_once():
    with pytest.raises(BadFlag, match="argument --output: cannot write into the folder /proc: "):
        program.output_folder("/proc")


def test_other_settings_do_not_go_on_with_a_run(copy):
    with (
        checkpoints(copy, rate=0.25) as of_run,
        pytest.raises(BadFlag, match=re.escape("(--rate 0.5, now --rate 0.25)")),
    ):
        of_run.restore(state(mesh(1, 1)))


def test_where_a_run_takes_place_is_no_part_of_what_it_is(copy):
    free = {"devices": 2, "checkpoint_every": 5, "keep_checkpoints": 9, "progress": False, "output": "elsewhere"}
    assert long_run.identity(Config(**free)) == {"seed": 0, "rate": 0.5}
    with checkpoints(copy, **free) as of_run:
        assert of_run.restore(state(mesh(1, 1)))[0] == 4


def test_the_checksum_is_a_sum_over_bits_however_they_lie():
    tree = state(mesh(2, 4), 3)
    flags, key, opt_state, w, position = (np.frombuffer(content, np.uint8) for _, content in plain(tree))
    parts = [flags, key.view(np.uint32), opt_state.view(np.uint16), w.view(np.uint32), position.view(np.uint32)]
    expected = sum((2 * i + 1) * int(part.astype(np.uint64).sum()) for i, part in enumerate(parts)) % 2**32
    assert int(long_run.checksum(tree)) == int(long_run.checksum(state(mesh(1, 1), 3))) == expected


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_processes": 2}, "argument --coordinator: several processes need the host:port of the first one"),
        ({"coordinator": "here"}, "argument --coordinator: must be host:port or auto, not 'here'"),
        ({"coordinator": "here:port"}, "argument --coordinator: must be host:port or auto, not 'here:port'"),
        (
            {"coordinator": "localhost:1", "num_processes": 2, "process_id": 2},
            "argument --process-id: must be less than --num-processes, which is 2, not 2",
        ),
        ({"devices": 9}, "argument --devices: there are 8, not 9"),
    ],
)
def test_a_flag_that_does_not_fit_is_named(settings, message):
    with pytest.raises(BadFlag, match=re.escape(message)):
        long_run.join(Config(**settings))


def test_one_process_is_given_the_devices_that_it_asks_for():
    assert long_run.join(Config(devices=3)) == jax.devices()[:3]
    assert long_run.join(Config()) == jax.devices()


# A run that could not be simpler: its state is a matrix over all devices and a key, each step adds noise and a mean.
WALK = """
import dataclasses, os, pathlib, sys, time
import jax, jax.numpy as jnp, numpy as np
import long_run
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec as P
from program import start
from settings import Count

@dataclasses.dataclass(frozen=True)
class Config(long_run.LongRun):
    steps: Count = 20

def main(config):
    devices = long_run.join(config)
    mesh = Mesh(np.array(devices), ("data",), axis_types=(AxisType.Auto,))
    lie = {"w": NamedSharding(mesh, P("data")), "key": NamedSharding(mesh, P())}
    @jax.jit
    def step(state):
        key, noise = jax.random.split(state["key"])
        w = state["w"]
        return {"w": 0.9 * w + 0.1 * jnp.mean(w, 0) + jax.random.normal(noise, w.shape), "key": key}
    create = jax.jit(lambda: {"w": jnp.ones([8, 5]), "key": jax.random.key(0)}, out_shardings=lie)
    with long_run.Checkpoints(config, pathlib.Path(config.output)) as checkpoints:
        at, state = checkpoints.restore(create())
        print("begins at", at, flush=True)
        while at < config.steps:
            state, at = jax.block_until_ready(step(state)), at + 1  # XLA waits for ever where 100 steps queue up
            print("at", at, flush=True)
            if at == 5 and os.environ.get("FAILS_IN_PROCESS") == str(jax.process_index()):
                raise ValueError("this process fails")
            if at % config.checkpoint_every == 0:
                checkpoints.save(at, state)
        print("ends with", int(long_run.checksum(state)), flush=True)
    return {}

start(Config, main, "Walks.")
"""


STARTED = []


@pytest.fixture(autouse=True)
def no_process_is_left():
    yield
    while STARTED:
        process = STARTED.pop()
        process.kill()
        process.communicate(timeout=60)


def walk(folder, *arguments, **variables):
    program = folder / "walk.py"
    program.write_text(WALK)
    found = environment(
        PYTHONPATH=f"{ROOT / 'examples' / 'zoo'}{os.pathsep}{ROOT}", PYTHONWARNINGS="error", **variables
    )
    flags = ["--output", folder / "checkpoints", "--devices", 2, "--checkpoint-every", 1, *arguments]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    STARTED.append(subprocess.Popen([sys.executable, program, *map(str, flags)], env=found, **pipes))
    return STARTED[-1]


def ends_with(process):
    output, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    return int(re.search(r"^ends with (\d+)$", output, re.MULTILINE)[1])


def killed_until_it_ends(folder, rounds, seed, *arguments):
    """What a run ends with that is killed `rounds` times, a few steps after it began; where it began each time, and how
    many of the kills left a checkpoint half-written."""
    chance, begun, half_written = random.Random(seed), [], 0
    for _ in range(rounds):
        process = walk(folder, *arguments)
        begun.append(int(line_of(process, "begins at ").removeprefix("begins at ")))
        for _ in range(chance.randint(0, 4)):
            line_of(process)
        time.sleep(chance.uniform(0, 0.2))
        process.kill()
        process.communicate(timeout=60)
        half_written += any("tmp" in path.name for path in (folder / "checkpoints").iterdir())
    return ends_with(walk(folder, *arguments)), begun, half_written


@pytest.mark.slow
def test_thirty_kills_lose_nothing(tmp_path):
    never, often = tmp_path / "never", tmp_path / "often"
    never.mkdir()
    often.mkdir()
    expected = ends_with(walk(never, "--steps", 200, "--checkpoint-every", 1000))
    found, begun, half_written = killed_until_it_ends(often, 30, 1, "--steps", 200)
    assert found == expected
    assert begun == sorted(begun)
    assert len(set(begun)) > 10  # most rounds got on
    assert half_written > 5
    print(f"30 of 30: {half_written} kills left a checkpoint half-written; begun at {begun}")


def walk_as_two(folder, *arguments, **variables):
    port = free_port()
    several = ["--coordinator", f"localhost:{port}", "--num-processes", 2]
    return [walk(folder, *several, "--process-id", i, *arguments, **variables) for i in range(2)]


def check_that_jax_ended(process, seconds):
    """It ends by itself, within a time, and says that it did not do its work, and why."""
    began = time.monotonic()
    _, errors = process.communicate(timeout=60)
    assert time.monotonic() - began < seconds
    assert process.returncode == -signal.SIGABRT
    assert "Terminating process because the JAX distributed service detected fatal errors" in errors
    return errors


@pytest.mark.slow
@pytest.mark.parametrize("victim", [0, 1])
def test_a_third_process_is_refused_and_when_one_of_two_dies_the_other_ends_and_a_restart_goes_on(tmp_path, victim):
    both = walk_as_two(tmp_path, "--steps", 100_000, "--checkpoint-every", 5, "--heartbeat", 4)
    for process in both:
        line_of(process, "begins at")
    wait_for_a_checkpoint(tmp_path)
    _, errors = walk(tmp_path, "--steps", 100_000).communicate(timeout=60)
    refused = f"walk.py: argument --output: another run goes on in {tmp_path / 'checkpoints'}, "
    assert errors.startswith(refused)
    assert errors.count("\n") == 1
    both[victim].kill()
    check_that_jax_ended(both[1 - victim], seconds=20)
    again = walk(tmp_path, "--steps", 100_000)  # one process goes on with the run of two
    assert int(line_of(again, "begins at ").removeprefix("begins at ")) >= 5


@pytest.mark.slow
def test_kills_of_one_of_two_lose_nothing(tmp_path):
    """Two runs of two processes each, side by side, because they wait for heartbeats most of the time."""
    settings = ["--steps", 100, "--heartbeat", 3]

    def to_the_end(folder, *arguments):
        (found,) = {ends_with(process) for process in walk_as_two(folder, *settings, *arguments)}
        return found

    def killed_four_times(folder, seed):
        chance, begun = random.Random(seed), []
        for _ in range(4):
            both = walk_as_two(folder, *settings)
            line = line_of(both[0], "begins at ")  # Gloo writes a few lines too
            begun.append(int(line.removeprefix("begins at ")))
            wait_for_a_checkpoint(folder, after=begun[-1])
            time.sleep(chance.uniform(0, 1))
            victim = chance.randint(0, 1)
            both[victim].kill()
            check_that_jax_ended(both[1 - victim], seconds=20)
        return to_the_end(folder), begun

    folders = never, *often = [tmp_path / name for name in ("never", "often", "as often")]
    for folder in folders:
        folder.mkdir()
    with concurrent.futures.ThreadPoolExecutor() as pool:
        runs = list(pool.map(killed_four_times, often, (2, 3)))
    expected = to_the_end(never, "--checkpoint-every", 1000)
    for found, begun in runs:
        assert found == expected
        assert begun == sorted(set(begun))  # every round got on
        print(f"4 of 4: begun at {begun}")


def wait_for_a_checkpoint(folder, after=0):
    for _ in range(600):
        if any(path.name.isdigit() and int(path.name) > after for path in (folder / "checkpoints").iterdir()):
            return
        time.sleep(0.1)
    raise TimeoutError(folder)


@pytest.mark.slow
@pytest.mark.parametrize("victim", [0, 1])
def test_a_silent_process_counts_as_dead_after_the_heartbeat(tmp_path, victim):
    both = walk_as_two(tmp_path, "--steps", 100_000, "--heartbeat", 3)
    for process in both:
        line_of(process, "begins at")
    both[victim].send_signal(signal.SIGSTOP)
    check_that_jax_ended(both[1 - victim], seconds=20)


@pytest.mark.slow
def test_where_one_process_fails_the_others_end_too(tmp_path):
    both = walk_as_two(tmp_path, "--steps", 100_000, "--heartbeat", 3, FAILS_IN_PROCESS="1")
    errors = [check_that_jax_ended(process, seconds=60) for process in both]
    assert "ValueError: this process fails" in errors[1]


@pytest.mark.slow
def test_processes_with_different_settings_do_not_begin(tmp_path):
    port = free_port()
    several = ["--coordinator", f"localhost:{port}", "--num-processes", 2]
    both = [walk(tmp_path, *several, "--process-id", i, "--steps", 10 + i) for i in range(2)]
    for process in both:
        _, errors = process.communicate(timeout=120)
        assert process.returncode == 2
        assert "the processes of one run need the same settings" in errors


@pytest.mark.slow
def test_processes_find_each_other_where_slurm_has_started_them(tmp_path):
    slurm = {"SLURM_JOB_ID": str(free_port()), "SLURM_STEP_NODELIST": "localhost", "SLURM_NTASKS": "2"}
    both = [
        walk(tmp_path, "--coordinator", "auto", SLURM_PROCID=str(i), SLURM_LOCALID=str(i), **slurm) for i in range(2)
    ]
    assert len({ends_with(process) for process in both}) == 1


@pytest.mark.slow
def test_where_the_others_do_not_come_it_says_so(tmp_path):
    address = f"localhost:{free_port()}"
    alone = walk(tmp_path, "--coordinator", address, "--num-processes", 2, "--process-id", 1, "--wait", 3)
    _, errors = alone.communicate(timeout=60)
    assert alone.returncode == -signal.SIGABRT
    assert "DEADLINE_EXCEEDED" in errors
