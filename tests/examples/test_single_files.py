"""Programs of one file: they import libraries only, have at most 200 lines, and run when copied elsewhere."""

import ast
import errno
import importlib.machinery
import json
import pathlib
import re
import runpy
import shutil
import subprocess
import sys
import tomllib
import types

import jax
import numpy as np
import pytest
from children import environment

import rlx

EXAMPLES = pathlib.Path(__file__).parents[2] / "examples"
EXTRAS = set(tomllib.loads((EXAMPLES.parent / "pyproject.toml").read_text())["project"]["optional-dependencies"])
SINGLE = sorted(path.stem for path in EXAMPLES.glob("*.py"))
LINES = {
    "brax_adapter": 25,
    "craftax_adapter": 25,
    "catch_q_learning": 250,
    "grpo": 250,
    "transformer_lm": 250,
}
ALLOWED = {"hkx", "rlx", "jax", "numpy", "optax", "tyro", "tqdm", "matplotlib", "PIL", "cv2", "wandb"}
ALLOWED |= {
    "ray",
    "reasoning_gym",
    "gymnax",
    "gymnasium",
    "dm_env",
    "bsuite",
    "brax",
    "craftax",
    "mctx",
    "minari",
    "orbax",
    "sklearn",
    "tokenizers",
    "jinja2",
}


@pytest.mark.parametrize("name", SINGLE)
def test_a_file_stands_alone_and_is_short(name):
    text = (EXAMPLES / f"{name}.py").read_text()
    assert len(text.splitlines()) <= LINES.get(name, 200)
    nodes = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Import | ast.ImportFrom)]
    names = {a.name for n in nodes if isinstance(n, ast.Import) for a in n.names} | {
        getattr(n, "module", None) for n in nodes
    }
    roots = {name.split(".")[0] for name in names - {None}}
    assert roots - sys.stdlib_module_names <= ALLOWED
    assert "pip install " in ast.get_docstring(ast.parse(text))


@pytest.mark.parametrize("name", sorted({*SINGLE} - {"brax_adapter", "craftax_adapter"}))
def test_a_missing_package_is_named_with_its_extra_in_one_line(name, monkeypatch):
    package = "jinja2" if name == "chat" else "tyro"
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(SystemExit) as error:
        runpy.run_path(str(EXAMPLES / f"{name}.py"))
    (extras,) = re.fullmatch(r".+: pip install 'hkx\[(.*)\]'", str(error.value)).groups()
    assert set(extras.split(",")) <= EXTRAS


def run(folder, name, *flags):
    shutil.copy(EXAMPLES / f"{name}.py", folder)
    command = [sys.executable, f"{name}.py", *flags]
    root = str(EXAMPLES.parent)
    return subprocess.run(command, cwd=folder, env=environment() | {"PYTHONPATH": root}, capture_output=True, text=True)


@pytest.mark.peer
@pytest.mark.slow
def test_ppo_learns_cart_pole_from_a_folder_of_its_own(tmp_path):
    pytest.importorskip("gymnax")
    done = run(tmp_path, "ppo", "--seeds", "2", "--learning-rate", "0.005", "0.001", "--steps", "65536")
    assert done.returncode == 0, done.stderr
    first, second = done.stdout.splitlines()[-2:]
    assert first.startswith("final return: ") and ", IQM " in first and first.endswith(" 2 seeds learning_rate=0.005")
    assert second.endswith("learning_rate=0.001")
    metrics = json.loads((tmp_path / "runs/ppo/metrics.json").read_text())
    assert np.mean(metrics["final_return"]) > 150  # 20 at random, 500 at most; of the four, one alone may reach 130
    assert np.shape(metrics["curve"]["return"])[1] == metrics["agents"] == 4
    with np.load(tmp_path / "runs/ppo/parameters.npz") as params:
        assert params["policy/w"].shape == (4, 64, 2)
    assert (tmp_path / "runs/ppo/curve.png").stat().st_size > 10_000


@pytest.mark.peer
@pytest.mark.slow
def test_ppo_with_a_memory_learns_cart_pole(tmp_path):
    metrics, _ = trained("ppo", tmp_path, memory="lstm", seeds=2)
    assert np.mean(metrics["final_return"]) > 200  # 20 at random; 67 where policy and value share all but their heads


SMALL = {
    "dqn": {"steps": 48, "environments": 8, "capacity": 64, "warmup": 32, "batch_size": 6, "prioritised": True},
    "muzero": {"steps": 80, "environments": 4, "batch_size": 6, "simulations": 2, "hidden": 8},
    "pqn": {"steps": 144, "environments": 8, "minibatches": 4, "epochs": 2},
}


def trained(name, output, **settings):
    """The contents of metrics.json and parameters.npz after a run in this process."""
    program = pytest.importorskip("gymnax") and importlib.import_module(name)
    program.main(program.Config(**settings, output=str(output)))
    with np.load(output / "parameters.npz") as params:
        return json.loads((output / "metrics.json").read_text()), dict(params)


@pytest.mark.peer
@pytest.mark.slow
@pytest.mark.parametrize("name", SMALL)
def test_seeds_and_settings_are_learned_in_one_program(name, tmp_path, capsys):
    rates = {"learning_rate": (0.0, 0.01), "discount": (0.9,)}
    metrics, params = trained(name, tmp_path, env="Catch-bsuite", seeds=2, **rates, **SMALL[name])
    assert np.shape(metrics["final_return"]) == (4,)
    assert np.shape(metrics["curve"]["loss"])[1] == 4 and np.isfinite(metrics["curve"]["loss"]).all()
    first, second = capsys.readouterr().out.splitlines()[-2:]
    assert first.endswith(" 2 seeds learning_rate=0") and second.endswith(" 2 seeds learning_rate=0.01")
    for x in params.values():  # at a rate of 0, an agent stays as its seed made it; others with this seed began alike
        moved = np.abs(x[2:] - x[:2])
        assert np.max(moved) <= 0.01 * 50
    assert any(np.abs(x[2:] - x[:2]).max() > 1e-3 for x in params.values())
    assert (tmp_path / "curve.png").stat().st_size > 10_000


@pytest.mark.peer
@pytest.mark.slow
def test_dqn_learns_from_the_transitions_that_it_remembers():
    """The first update, beside the same made by NumPy from the replay's own transitions."""
    gymnax = pytest.importorskip("gymnax")
    dqn = importlib.import_module("dqn")
    config = dqn.Config(environments=4, capacity=64, warmup=32, batch_size=6, layers=1, double=False)
    init, train, _ = dqn.make_agent(config, gymnax.make("Catch-bsuite")[0])
    settings = {"learning_rate": 0.01, "discount": 0.9, "epsilon": 0.1, "exploration": 0.5}
    before = jax.jit(init)(0)
    after, (_, loss) = jax.jit(train)(settings, before, np.ones(1, np.float32))
    params, held, key = before[0], after[3], before[-1]
    assert int(held.size) == 32 + 4
    batch = rlx.replay.uniform(64).sample(held, jax.random.split(key, 2 + 1 + 4)[2], 6).items

    def values(screens):
        first, second = params["mlp/~/linear_0"], params["mlp/~/linear_1"]
        hidden = np.maximum(0, np.float64(screens).reshape(6, 50) @ np.float64(first["w"]) + np.float64(first["b"]))
        return hidden @ np.float64(second["w"]) + np.float64(second["b"])

    target = batch.r_t + 0.9 * batch.discount_t * values(batch.observation_t).max(axis=1)
    error = target - values(batch.observation_tm1)[np.arange(6), np.int32(batch.a_tm1)]
    np.testing.assert_allclose(loss, np.mean(error**2) / 2, rtol=1e-5)
    moved = jax.tree.map(lambda a, b: np.abs(a - b).max(), params, after[0])
    assert max(jax.tree.leaves(moved)) == pytest.approx(0.01, rel=1e-3)  # Adam's first step


@pytest.mark.peer
@pytest.mark.slow
def test_catch_is_learned_by_every_one_of_twenty(tmp_path):
    metrics, _ = trained("pqn", tmp_path, seed=100, seeds=20)
    assert min(metrics["final_return"]) >= 0.95


@pytest.mark.peer
@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize(("name", "least"), [("dqn", 150), ("muzero", 0.5)])  # at random: 20 of 500, and -0.6 of 1
def test_a_compiled_agent_learns(name, least, tmp_path):
    assert np.mean(trained(name, tmp_path)[0]["final_return"]) >= least


@pytest.mark.peer
@pytest.mark.slow
@pytest.mark.parametrize("flags", [("--env", "Tetris"), ("--minibatches", "5")])
def test_a_bad_flag_is_one_line(tmp_path, flags):
    pytest.importorskip("gymnax")
    done = run(tmp_path, "ppo", *flags)
    assert done.returncode == 1
    assert done.stderr.startswith(flags[0]) and done.stderr.count("\n") == 1


@pytest.mark.peer
@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["ppo_mujoco", "sac", "td3", "dqn", "pqn", "muzero", "impala", "dqn_atari", "ppo_atari"]
)
def test_an_environment_of_another_kind_is_refused_in_one_line(name, tmp_path):
    pytest.importorskip({"impala": "ray", "dqn_atari": "ale_py", "ppo_atari": "ale_py"}.get(name, "gymnax"))
    program = importlib.import_module(name)
    env = "Pendulum-v1" if name in ("dqn", "pqn", "muzero", "impala") else "CartPole-v1"
    with pytest.raises(SystemExit, match=r"^--env: ") as error:
        program.main(program.Config(env=env, output=str(tmp_path)))
    assert "\n" not in str(error.value)


@pytest.mark.peer
@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "flag", "package"), [("iql", "--video", "moviepy"), ("sac", "--track", "tensorboardX")]
)
def test_a_package_that_a_flag_needs_is_asked_for_before_training(name, flag, package, tmp_path, monkeypatch):
    pytest.importorskip("gymnasium")
    program = importlib.import_module(name)
    monkeypatch.setitem(sys.modules, "wandb", None)  # an import fails
    monkeypatch.setitem(sys.modules, package, None)
    settings = {"data": "none.npz"} if name == "iql" else {"env": "Pendulum-v1"}
    with pytest.raises(SystemExit, match=f"{package}.*pip install|pip install {package}") as error:
        program.main(program.Config(**settings, **{flag[2:]: True}, output=str(tmp_path)))
    assert "\n" not in str(error.value)


@pytest.mark.peer
@pytest.mark.slow
@pytest.mark.parametrize("tracker", ["wandb", "tensorboardX"])
@pytest.mark.parametrize("name", ["sac", "td3", "ppo_mujoco"])
def test_returns_are_tracked_in_wandb_and_without_it_in_tensorboard(name, tracker, tmp_path, monkeypatch):
    pytest.importorskip("gymnasium")
    logged = []
    module = types.ModuleType(tracker)
    module.__spec__ = importlib.machinery.ModuleSpec(tracker, None)
    if tracker == "wandb":
        module.login, module.init = lambda prompt: False, lambda **settings: logged.append(settings["mode"])
        module.log = lambda values, step: logged.append((step, values["return"]))
    else:
        monkeypatch.setitem(sys.modules, "wandb", None)
        module.SummaryWriter = lambda folder, max_queue: logged.append(folder) or module
        module.add_scalar = lambda tag, value, step: logged.append((step, value))
    monkeypatch.setitem(sys.modules, tracker, module)
    small = {"rollout": 64} if name == "ppo_mujoco" else {"warmup": 100, "hidden": 8}
    program = importlib.import_module(name)
    program.main(
        program.Config(env="Pendulum-v1", steps=448, evaluation_episodes=1, track=True, output=str(tmp_path), **small)
    )
    first, *rows = logged
    assert first == {"wandb": "offline", "tensorboardX": str(tmp_path)}[tracker]
    written = np.loadtxt(tmp_path / "metrics.csv", delimiter=",", skiprows=1)[:, :2]
    written = written[np.isfinite(written[:, 1])]  # from the end of the first episode on
    assert len(written)
    np.testing.assert_allclose(rows, written, rtol=1e-8)


FULL = OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.peer
@pytest.mark.slow
@pytest.mark.parametrize("name", ["pqn", "td3"])
def test_a_disk_that_fills_up_ends_a_run_which_keeps_what_it_has(name, tmp_path, monkeypatch, capsys):
    pytest.importorskip("gymnax" if name == "pqn" else "gymnasium")
    program = importlib.import_module(name)
    small = SMALL.get(name, {"env": "Pendulum-v1", "steps": 400, "warmup": 100, "hidden": 8, "evaluation_episodes": 1})
    config = program.Config(**small, output=str(tmp_path))

    def log(*words, **flags):  # to a file on the same disk
        if (tmp_path / "room").exists():
            raise FULL
        print(*words, **flags)

    monkeypatch.setattr(program, "print", log, raising=False)
    program.main(config)
    first, *_, last = capsys.readouterr().out.splitlines()
    assert first == f"interrupted: {FULL!r}" and last.startswith("final return: ")
    table = "metrics.json" if name == "pqn" else "metrics.csv"
    assert {x.name for x in tmp_path.iterdir()} == {table, "curve.png", "parameters.npz"}
    with np.load(tmp_path / "parameters.npz") as params:
        assert all(np.isfinite(params[x]).all() for x in params)

    def nowhere(path, contents):
        raise FULL

    monkeypatch.setattr(pathlib.Path, "write_bytes", nowhere)
    with pytest.raises(SystemExit, match=r"^interrupted before the first steps: .*No space left on device"):
        program.main(config)


@pytest.mark.peer
@pytest.mark.slow
def test_ppo_on_mujoco_keeps_its_statistics_with_its_parameters(tmp_path):
    pytest.importorskip("mujoco")
    small = ["--rollout", "256", "--minibatches", "4", "--epochs", "2", "--environments", "2"]
    done = run(
        tmp_path, "ppo_mujoco", "--env", "InvertedPendulum-v5", "--steps", "4096", "--evaluation-episodes", "2", *small
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].endswith(" over 2 episodes")
    rows = (tmp_path / "runs/ppo_mujoco/metrics.csv").read_text().splitlines()
    assert len(rows) == 1 + 4096 // 256
    assert float(rows[-1].split(",")[1]) > float(rows[2].split(",")[1])  # it learns: from 6 steps to about 20
    with np.load(tmp_path / "runs/ppo_mujoco/parameters.npz") as params:
        assert params["observations/number"] == 4096
        assert params["observations/mean"].shape == (4,)
        hidden = params["mlp/~/linear_0/w"]
    assert hidden.shape == (4, 64)


@pytest.mark.peer
@pytest.mark.slow
def test_sac_and_td3_learn_to_balance_and_iql_reads_what_sac_saved(tmp_path):
    pytest.importorskip("mujoco")
    flags = ["--hidden", "64", "--evaluation-episodes", "2"]
    online = ["--env", "InvertedPendulum-v5", "--steps", "2500", "--warmup", "500", *flags]
    returns = {}
    for name, more in {
        "sac": [*online, "--environments", "2", "--save-data", "data.npz"],
        "td3": [*online, "--environments", "2"],
        "iql": ["--data", "data.npz", "--updates", "200", "--log-every", "100", *flags],
    }.items():
        done = run(tmp_path, name, *more)
        assert done.returncode == 0, done.stderr
        final = done.stdout.splitlines()[-1]
        assert final.startswith("final return: ") and final.endswith(" over 2 episodes")
        returns[name] = float(final.split()[2])
        assert (tmp_path / f"runs/{name}/curve.png").stat().st_size > 10_000
        with np.load(tmp_path / f"runs/{name}/parameters.npz") as params:
            assert params["critic_2/~/linear_0/w"].shape == (5, 64)
    assert returns["sac"] > 20 and returns["td3"] > 20  # 6 at random
    with np.load(tmp_path / "data.npz") as data:
        added = len(data["a_tm1"])
        inside = data["discount_t"][:-2, 0] > 0
        begun = {x.tobytes() for x in data["observation_tm1"]}
        assert all(x.tobytes() in begun for x in data["observation_t"][:-2][inside])  # within an episode
    assert 2300 < added < 2500  # without the steps that only begin an episode
