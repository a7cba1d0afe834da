"""The programs that run agents: on the host and on the device, stopped and resumed, and with bad flags."""

import csv
import dataclasses
import functools
import json
import pathlib
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

pytest.importorskip("bsuite")
pytest.importorskip("tyro")

import dm_env
import jax
import jax.numpy as jnp
import offline
import run
from agents import FILES, actor_critic, agent, boot_dqn, dqn, players
from children import environment
from dm_env import specs
from environments import UnknownEnvironment, make, on_host
from environments.environment import Environment, after, first
from fuzzing import SEEDS
from program import BadFlag
from settings import BadSetting

pytestmark = pytest.mark.unoptimised

OF_NUMBERS = {"mpo", "sac"}  # agents whose actions are numbers
EXAMPLES = pathlib.Path(__file__).parents[2] / "examples" / "zoo"


def config(folder: pathlib.Path, **settings) -> run.Config:
    return run.Config(output=str(folder), progress=False, evaluation_episodes=4, **settings)


def small(name: str):
    return {
        "dqn": dqn.Config(hidden=(8,), warmup=8, batch_size=4, period=1, capacity=64),
        "actor_critic": actor_critic.Config(hidden=(8,), unroll=5, memory="gru"),
    }[name]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "env"), [("actor_critic", "catch"), ("dqn", "device:catch")])
def test_a_run_that_stops_and_goes_on_learns_the_same(name, env, tmp_path):
    settings = {"agent": name, "env": env, "environments": 2, "parts": 2, "exact": True}
    whole = run.train(config(tmp_path / "whole", steps=140, **settings), small(name))
    run.train(config(tmp_path / "parts", steps=60, **settings), small(name))
    parts = run.train(config(tmp_path / "parts", steps=140, resume=True, **settings), small(name))
    assert whole["steps"] == parts["steps"] == 140
    assert whole["episodes"] == parts["episodes"]
    one, other = (np.load(tmp_path / folder / "parameters.npz") for folder in ("whole", "parts"))
    assert list(one) == list(other)
    for array in one:
        np.testing.assert_array_equal(one[array], other[array])
    with open(tmp_path / "parts" / "metrics.csv") as file:  # after half of what was asked for, and all of it
        assert [int(row["steps"]) for row in csv.DictReader(file)] == [30, 60, 130, 140]
    assert (tmp_path / "parts" / "checkpoints" / "140").is_dir()


def test_what_a_run_leaves_behind(tmp_path):
    metrics = run.train(config(tmp_path, agent="dqn", env="bsuite:catch/0", steps=90, parts=3), small("dqn"))
    with open(tmp_path / "metrics.csv") as file:
        rows = list(csv.DictReader(file))
    assert [int(row["steps"]) for row in rows] == [30, 60, 90]
    assert metrics == json.loads((tmp_path / "metrics.json").read_text())
    assert metrics["episodes"] == 10  # of nine steps each
    assert (tmp_path / "curve.png").read_bytes()[:4] == b"\x89PNG"
    with open(next((tmp_path / "bsuite").glob("*.csv"))) as file:
        assert [int(row["episode"]) for row in csv.DictReader(file)][-1] == 10


@pytest.mark.slow
def test_a_run_goes_on_with_new_episodes(tmp_path):
    settings = {"agent": "actor_critic", "env": "catch", "environments": 2, "parts": 1}
    run.train(config(tmp_path, steps=60, **settings), small("actor_critic"))
    again = run.train(config(tmp_path, steps=120, resume=True, **settings), small("actor_critic"))
    assert again["steps"] == 120
    assert again["episodes"] == 2 * (30 // 9) * 2  # the two that each environment had begun do not count


def test_an_agent_of_ones_own_is_found(tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text("from agents.c51 import Config, make as create")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path[:])
    assert run.find_agent("mine:create") == (FILES["c51"].Config, FILES["c51"].make)
    with pytest.raises(BadFlag, match="argument --agent: mine:nothing: module 'mine' has no attribute 'nothing'"):
        run.find_agent("mine:nothing")


@pytest.mark.slow
def test_a_long_run_keeps_no_array_of_jax_for_each_step():
    environments = on_host.make("catch", 0, 1)
    made = dqn.make(small("dqn"), environments.observation_spec, environments.action_spec)
    player = players.OnHost(made, environments, environments, 0, exact=True)
    player.advance(20)
    before = len(jax.live_arrays())
    player.advance(1500)
    assert len(jax.live_arrays()) < before + 20
    steps = len(jax.tree.leaves(player.saved()["actions"])[0])
    assert steps == 1520 * player.per_update == jax.tree.leaves(player.like(steps)["actions"])[0].shape[0]


@pytest.mark.slow
def test_a_resumed_run_needs_the_same_settings(tmp_path):
    run.train(config(tmp_path, agent="dqn", env="device:catch", steps=20, parts=1), small("dqn"))
    other = dqn.Config(hidden=(8,), warmup=8, batch_size=5, capacity=64)
    with pytest.raises(BadFlag, match="batch_size 4, not 5"):
        run.train(config(tmp_path, agent="dqn", env="device:catch", steps=40, parts=1, resume=True), other)


def test_a_run_changes_nothing_of_another(tmp_path, monkeypatch):
    """Neither one that begins where another was, nor one that cannot go on from it, or lacks what it needs."""
    run.train(config(tmp_path, agent="dqn", env="bsuite:catch/0", steps=20, parts=1), small("dqn"))
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    settings = {"agent": "dqn", "env": "bsuite:catch/0", "steps": 40, "parts": 1}
    with pytest.raises(BadFlag, match=r"argument --output: .* holds a run of 20 steps; --resume goes on with it"):
        run.train(config(tmp_path, **settings), small("dqn"))
    with pytest.raises(BadFlag, match="seed 0, not 1"):
        run.train(config(tmp_path, seed=1, resume=True, **settings), small("dqn"))
    monkeypatch.setitem(sys.modules, "tensorboardX", None)
    with pytest.raises(BadFlag, match="argument --tensorboard: needs `pip install tensorboardX`"):
        run.train(config(tmp_path, tensorboard=True, resume=True, **settings), small("dqn"))
    assert before == {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}


@pytest.mark.parametrize("name", [*FILES, "cql"])
def test_settings_of_agents_have_limits(name):
    made = {**FILES, **offline.FILES}[name].Config
    of_any_sign = {"c51": {"least", "greatest"}, "sac": {"entropy"}}.get(name, set())
    for field in dataclasses.fields(made):
        if isinstance(field.default, bool | str) or field.name in of_any_sign:
            continue
        wrong = (-1,) if isinstance(field.default, tuple) else -1
        with pytest.raises(BadSetting, match=rf"^{field.name} must be .*, not -1$"):
            made(**{field.name: wrong})


def test_what_would_fail_in_the_first_update_or_in_another_program_is_refused():
    with pytest.raises(BadSetting, match=r"^teacher_steps must be 128 or more, not 100$"):
        offline.Config(teacher_steps=100)


def test_a_replay_that_is_never_warm_is_refused():
    with pytest.raises(BadSetting, match="warmup must be at most the capacity, 100, not 128"):
        dqn.Config(capacity=100)


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("c51", {"least": 1.0, "greatest": -1.0}, "least must be less than greatest, -1.0, not 1.0"),
        ("sac", {"subset": 3}, "subset must be at most the number of critics, 2, not 3"),
        ("sac", {"quantiles": 3, "dropped": 3}, "dropped must be less than the number of quantiles, 3, not 3"),
        ("r2d2", {"overlap": 20}, "overlap must be less than the 20 steps of a sequence, not 20"),
        (
            "actor_critic",
            {"memory": "lstm", "hidden": ()},
            "hidden must be at least one size, that of the lstm too, not none",
        ),
        ("impala", {"memory": "gru", "hidden": ()}, "hidden must be at least one size, that of the gru too, not none"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(name, settings, message):
    with pytest.raises(BadSetting, match=f"^{message}$"):
        FILES[name].Config(**settings)


@pytest.mark.slow
def test_levels_of_quantiles_are_seen_without_hidden_layers():
    pure, made = make("catch"), FILES["quantile"]
    linear = made.make(made.Config(implicit=True, hidden=()), pure.observation_spec(), pure.action_spec())
    state = jax.eval_shape(functools.partial(linear.init, environments=1), jax.random.key(0))
    assert {name: each["w"].shape for name, each in state.params.items()} == {"levels": (32, 50), "linear": (50, 3)}


def test_a_replay_that_never_holds_enough_sequences_is_refused():
    name, most = "r2d2", (100 - 20 + 1) // 10
    pure = make("catch")
    made = FILES[name].make(
        FILES[name].Config(capacity=100, warmup=most + 1), pure.observation_spec(), pure.action_spec()
    )
    with pytest.raises(ValueError, match=f"^warmup: the replay never holds {most + 1} sequences, but at most {most};"):
        jax.eval_shape(functools.partial(made.init, environments=1), jax.random.key(0))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--agent", "dqm"], "there is no agent 'dqm'; there are "),
        (["--env", "bsuite:catch"], "bsuite has no experiment 'catch'"),
        (["--env", "device:chess"], "there is no environment 'chess'"),
        (["--env", "gymnasium:CartPole-v7"], "gymnasium:CartPole-v7: "),  # or that Gymnasium is not there
        (["--env", "gymnasium:no_such_module:Own-v0"], "gymnasium:no_such_module:Own-v0: "),
        (["--env", "CartPole-v1"], "bsuite:ID, gymnasium:ID, envpool:ID and ale:GAME"),
        (["--environments", "65", "--capacity", "129", "--period", "2"], "capacity must be at least 130, the trans"),
        (["--env", "device:pendulum"], "argument --agent: dqn on device:pendulum: this agent needs discrete actions"),
    ],
)
def test_a_bad_flag_is_one_line(arguments, message, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["run.py", "--output", str(tmp_path), *arguments])
    assert run.main() == 2
    printed = capsys.readouterr().err
    assert message in printed
    assert printed.count("\n") == 1


@pytest.mark.slow
def test_what_a_killed_run_left_is_removed_when_a_run_begins_and_not_by_a_bad_flag(tmp_path, monkeypatch, capsys):
    """Orbax removes it in a thread, which prints a traceback where the program ends at once."""
    original, removes = run.ocp.CheckpointManager, []

    def manager(folder, options):
        removes.append(options.cleanup_tmp_directories)
        return original(folder, options=options)

    monkeypatch.setattr(run.ocp, "CheckpointManager", manager)
    monkeypatch.setattr(sys, "argv", ["run.py", "--output", str(tmp_path), "--env", "device:pendulum"])
    assert run.main() == 2
    assert removes == [False]
    run.train(config(tmp_path, agent="dqn", env="device:catch", steps=10), small("dqn"))
    assert removes == [False, False, True]


class Countdown(dm_env.Environment):
    """Episodes of `length` steps with rewards 1, which end by a limit of time or for good."""

    def __init__(self, length: int, discount: float):
        self.length, self.discount, self.left = length, discount, 0

    def reset(self) -> dm_env.TimeStep:
        self.left = self.length
        return dm_env.restart(np.ones(1, np.float32))

    def step(self, action: int) -> dm_env.TimeStep:
        self.left -= 1
        observation = np.full(1, 1.0, np.float32)
        if self.left:
            return dm_env.transition(1.0, observation)
        return dm_env.TimeStep(dm_env.StepType.LAST, 1.0, self.discount, observation)

    def observation_spec(self) -> specs.Array:
        return specs.Array((1,), np.float32)

    def action_spec(self) -> specs.DiscreteArray:
        return specs.DiscreteArray(2)


def test_what_is_seen_is_of_the_right_episode():
    environments = on_host.of_dm_env([Countdown(2, 1.0), Countdown(3, 0.0)])
    environments.reset()
    outcomes = [environments.step(np.zeros(2, int)) for _ in range(6)]
    np.testing.assert_array_equal([o.last for o in outcomes], [[0, 0], [1, 0], [0, 1], [1, 0], [0, 0], [1, 1]])
    np.testing.assert_array_equal([o.discount for o in outcomes], [[1, 1], [1, 1], [1, 0], [1, 1], [1, 1], [1, 0]])


@pytest.mark.parametrize("name", ["catch", "gymnasium:CartPole-v1", "envpool:CartPole-v1"])
def test_episodes_begin_again_as_before(name):
    """So an evaluation does not depend on how many there were, and a run that goes on finds the same."""
    if ":" in name:
        pytest.importorskip(name.partition(":")[0])
    environments = on_host.make(name, seed=3, count=2)
    played = []
    for _ in range(2):
        seen, actions = [environments.reset()], np.random.default_rng(0).integers(2, size=(40, 2))
        seen += [environments.step(each).observation for each in actions]
        played.append(np.stack(seen))
    np.testing.assert_array_equal(*played)
    environments.close()


@pytest.mark.parametrize("library", ["gymnasium", "envpool"])
def test_an_episode_is_followed_by_the_next(library):
    """A pole begins near the middle, and has fallen where an episode terminated."""
    pytest.importorskip(library)
    environments = on_host.make(f"{library}:CartPole-v1", seed=1, count=3)
    seen = environments.reset()
    ends, random = np.zeros(3, int), np.random.default_rng(0)
    for _ in range(200):
        outcome = environments.step(random.integers(2, size=3))
        fallen = (np.abs(outcome.next_observation[:, 0]) > 2.4) | (np.abs(outcome.next_observation[:, 2]) > 0.2094)
        np.testing.assert_array_equal(outcome.last, fallen)
        np.testing.assert_array_equal(outcome.discount, 1 - fallen)
        np.testing.assert_array_equal(outcome.reward, np.ones(3))
        assert (np.abs(outcome.observation[fallen]) <= 0.05).all()
        np.testing.assert_array_equal(outcome.observation[~fallen], outcome.next_observation[~fallen])
        assert (outcome.next_observation != seen).any(axis=1).all()  # each has moved
        seen, ends = outcome.observation, ends + fallen
    assert (ends > 2).all()
    environments.close()


def test_spaces_of_gymnasium_that_count_from_one():
    spaces = pytest.importorskip("gymnasium").spaces
    from_one, from_zero = spaces.Discrete(5, start=1), spaces.Discrete(3)
    seen, done = on_host.specs_of(spaces.Dict(a=from_one, b=from_zero), from_zero)
    assert (seen["a"].minimum, seen["a"].maximum, seen["b"].num_values, done.num_values) == (1, 5, 3, 3)
    assert seen["a"].validate(np.int64(5)) == 5
    with pytest.raises(UnknownEnvironment, match="actions are counted from 1, but must be counted from 0"):
        on_host.specs_of(from_zero, from_one)


def test_environments_in_jax_go_on_side_by_side():
    """In catch the paddle follows the actions, and an episode takes nine of them; each environment has its own ball."""
    environments = on_host.make("catch", seed=3, count=8)
    seen = environments.reset()
    assert len({int(np.argmax(screen[0])) for screen in seen}) > 1  # the columns where the balls begin
    paddle, ball = np.full(8, 2), np.argmax(seen[:, 0], axis=1)
    for t in range(1, 28):
        actions = np.random.default_rng(t).integers(3, size=8)
        paddle, outcome = np.clip(paddle + actions - 1, 0, 4), environments.step(actions)
        last = t % 9 == 0
        caught = np.where(paddle == ball, 1, -1) if last else np.zeros(8)
        np.testing.assert_array_equal(outcome.last, np.full(8, last))
        np.testing.assert_array_equal(outcome.reward, caught)
        np.testing.assert_array_equal(outcome.discount, np.full(8, 1 - last))
        assert (outcome.next_observation[np.arange(8), 9, paddle] == 1).all()
        if last:
            paddle, ball = np.full(8, 2), np.argmax(outcome.observation[:, 0], axis=1)
        else:
            np.testing.assert_array_equal(outcome.observation, outcome.next_observation)


@pytest.mark.slow
@pytest.mark.parametrize("part", ["record", "state"])
def test_a_checkpoint_that_cannot_be_read_is_one_line(part, tmp_path):
    run.train(config(tmp_path, agent="dqn", env="device:catch", steps=20, parts=1), small("dqn"))
    for path in (tmp_path / "checkpoints" / "20" / part).rglob("*"):
        if path.is_file():
            path.write_bytes(b"{")
    with pytest.raises(BadFlag, match=r"argument --resume: cannot read .*checkpoints/20: .") as caught:
        run.train(config(tmp_path, agent="dqn", env="device:catch", steps=40, parts=1, resume=True), small("dqn"))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "text, missing",
    [
        ("[1]", "steps"),
        pytest.param('{"steps": 20}', "episodes", marks=pytest.mark.slow),
        pytest.param('{"steps": "20"}', "steps", marks=pytest.mark.slow),
    ],
)
def test_a_record_of_something_else_is_one_line(text, missing, tmp_path):
    run.train(config(tmp_path, agent="dqn", env="device:catch", steps=20, parts=1), small("dqn"))
    (tmp_path / "checkpoints" / "20" / "record" / "metadata").write_text(text)
    with pytest.raises(BadFlag, match=rf"cannot read .*checkpoints/20: its record has no {missing}; remove it to go"):
        run.train(config(tmp_path, agent="dqn", env="device:catch", steps=40, parts=1, resume=True), small("dqn"))


def test_keys_in_order_are_those_of_fold_in():
    key = jax.random.key(3)
    keys = players.KeysInOrder(key)
    for t in 0, 1, 1023, 1024, 5000, 7:
        np.testing.assert_array_equal(keys[t], jax.random.key_data(jax.random.fold_in(key, t)))


@pytest.mark.slow
@pytest.mark.parametrize(("n_step", "discount", "value"), [(1, 1.0, 2.0), (3, 1.0, 2.0), (1, 0.0, 1.6)])
def test_dqn_tells_a_limit_of_time_from_an_end(n_step, discount, value):
    """With γ = 1/2 a reward of 1 for ever is worth 2; where one step of four ends for good, 1 / (1 - 3/4 γ) = 1.6."""
    settings = dqn.Config(hidden=(8,), warmup=16, batch_size=128, discount=0.5, learning_rate=0.003, n_step=n_step)
    environments = on_host.of_dm_env([Countdown(4, discount)])
    made = dqn.make(settings, environments.observation_spec, environments.action_spec)
    player = players.OnHost(made, environments, environments, 0)
    player.advance(1000)
    assert value_of(player.state) == pytest.approx(value, abs=0.1)  # a batch has its own share of ends


def value_of(state: dqn.State) -> float:
    """The value of the one observation there is, read from the parameters."""
    params = state.params
    hidden = jax.nn.relu(jnp.ones(1) @ params["mlp/~/linear_0"]["w"] + params["mlp/~/linear_0"]["b"])
    return float(np.max(hidden @ params["values"]["w"] + params["values"]["b"]))


RAINBOW = {"double": True, "dueling": True, "prioritised": True, "n_step": 3}
MORE = [
    ("sac", {"quantiles": 5}, "pendulum"),
    ("dqn", RAINBOW, "catch"),
    ("dqn", {"munchausen": True}, "catch"),
]


@pytest.mark.parametrize(
    ("name", "settings", "env"),
    [*((name, {}, "pendulum" if name in OF_NUMBERS else "catch") for name in FILES), *MORE],
)
def test_an_agent_learns_from_what_it_did(name, settings, env):
    """Its functions fit together: the state that `learn` returns is like the one it was given, and so is the memory."""
    environment = make(env)
    made = FILES[name].make(FILES[name].Config(**settings), environment.observation_spec(), environment.action_spec())
    state = jax.eval_shape(lambda key: made.init(key, 4), jax.random.key(0))
    observations = jax.tree.map(lambda x: np.zeros((4, *x.shape), x.dtype), agent.blank(environment.observation_spec()))
    choice = jax.eval_shape(made.act, state, made.memory(4), observations, jax.random.key(0))
    greedy = jax.eval_shape(
        functools.partial(made.act, greedy=True), state, made.memory(4), observations, jax.random.key(0)
    )
    like = jax.tree.map(lambda x: (x.shape, x.dtype), (choice.action, choice.memory))
    assert like == jax.tree.map(lambda x: (x.shape, x.dtype), (greedy.action, greedy.memory))
    assert like[1] == jax.tree.map(lambda x: (x.shape, x.dtype), made.memory(4))
    numbers, last = np.zeros(4, np.float32), np.zeros(4, bool)
    step = agent.Step(observations, choice.action, numbers, numbers, last, observations, choice.extras)
    steps = jax.tree.map(lambda x: jax.ShapeDtypeStruct((made.unroll, *x.shape), x.dtype), step)
    learned, metrics = jax.eval_shape(made.learn, state, steps)
    assert jax.tree.map(lambda x: (x.shape, x.dtype), learned) == jax.tree.map(lambda x: (x.shape, x.dtype), state)
    assert all(value.shape == () for value in metrics.values())


@pytest.mark.slow
@pytest.mark.parametrize("name", FILES)
def test_agents_explore_unless_they_are_greedy(name):
    """In 128 environments that look alike, they do not all do the same; greedily, they do, whatever the key."""
    environment = make("pendulum" if name in OF_NUMBERS else "catch")
    made = FILES[name].make(FILES[name].Config(), environment.observation_spec(), environment.action_spec())
    state, memory = jax.jit(made.init, static_argnums=1)(jax.random.key(0), 128), made.memory(128)
    seen = np.ones((128, *environment.observation_spec().shape), np.float32)
    first, *greedy = (
        np.asarray(jax.jit(functools.partial(made.act, **how))(state, memory, seen, jax.random.key(seed)).action)
        for seed, how in ((1, {}), (1, {"greedy": True}), (2, {"greedy": True}))
    )
    assert len(np.unique(first, axis=0)) > 1
    assert len(np.unique(np.concatenate(greedy), axis=0)) == 1


@pytest.mark.slow
@pytest.mark.parametrize(("share", "least", "most"), [(0.0, 0, 0), (0.5, 8, 24), (1.0, 32, 32)])
def test_a_member_learns_from_its_share_of_the_steps(share, least, most):
    """Of four members, with eight seeds, from the only step in the replay."""
    settings = boot_dqn.Config(members=4, share=share, hidden=(4,), capacity=4, warmup=1, batch_size=2)
    made = boot_dqn.make(settings, specs.Array((2,), np.float32), specs.DiscreteArray(2))
    seen, one = np.ones((1, 1, 2), np.float32), np.ones((1, 1), np.float32)
    step = agent.Step(seen, np.zeros((1, 1), np.int32), 9 * one, 0 * one, one > 0, seen, ())

    @jax.vmap
    def learned(key):
        before = made.init(key, 1)
        after, _ = made.learn(before, step)
        moved = jax.tree.map(lambda x, y: (x != y).reshape(4, -1).any(1), before.params, after.params)
        return jnp.stack(jax.tree.leaves(moved)).any(0)

    assert least <= jnp.sum(jax.jit(learned)(jax.random.split(jax.random.key(0), 8))) <= most


@pytest.mark.parametrize("name", ["actor_critic", "dqn"])  # whose networks see one observation, or all
def test_images_are_seen_by_convolutions(name):
    """84 x 84 of them are 7 x 7 after strides 4, 2 and 1; and bytes are divided by 255."""
    spec = specs.BoundedArray((4, 84, 84), np.uint8, 0, 255)
    made = FILES[name].make(FILES[name].Config(), spec, specs.DiscreteArray(3))
    params = jax.eval_shape(lambda key: made.init(key, 1), jax.random.key(0)).params
    shapes = [x["w"].shape for x in params.values()]
    assert shapes[:4] == [(8, 8, 4, 32), (4, 4, 32, 64), (3, 3, 64, 64), (7 * 7 * 64, 64)]
    assert agent.flat(np.full(3, 255, np.uint8)).tolist() == [1.0, 1.0, 1.0]


def test_actions_between_bounds_come_back():
    spec = specs.BoundedArray((2, 1), np.float32, [[-1.0], [0.0]], [[3.0], [10.0]])
    unit = agent.unit_actions(spec)
    actions = np.array([[-1.0, 1.0], [0.5, 0.0]], np.float32)
    between = unit.to_spec(actions)
    np.testing.assert_allclose(between, [[[-1.0], [10.0]], [[2.0], [5.0]]])
    np.testing.assert_allclose(unit.from_spec(between[None]), actions[None])


def test_actions_stay_within_bounds_that_rounding_would_exceed_or_that_leave_no_choice():
    spec = specs.BoundedArray((3,), np.float64, [-1.4, 2.0, -2.1], [1.5, 2.0, 0.7])
    unit = agent.unit_actions(spec)
    actions = np.array([[1.0, 0.5, 1.0], [-1.0, -0.5, -1.0]], np.float32)
    between = np.asarray(unit.to_spec(actions))
    np.testing.assert_array_equal(between, np.float32([[1.5, 2.0, 0.7], [-1.4, 2.0, -2.1]]))
    found = np.asarray(unit.from_spec(between[None]))[0]
    np.testing.assert_allclose(found[:, [0, 2]], actions[:, [0, 2]], atol=1e-6)
    np.testing.assert_array_equal(np.abs(found[:, 1]) <= 1, [True, True])


@pytest.mark.parametrize(
    "spec",
    [
        specs.BoundedArray((2,), np.int32, 0, 3),
        specs.BoundedArray((2,), np.float32, -3e38, 3e38),
        specs.BoundedArray((2,), np.float32, -np.inf, 1.0),
        specs.Array((2,), np.float32),
    ],
)
def test_what_is_not_between_two_bounds_is_refused(spec):
    with pytest.raises(ValueError, match=r"this agent needs bounded continuous actions, got (Bounded)?Array"):
        agent.unit_actions(spec)


def test_trees_of_actions_come_back():
    spec = {"b": specs.BoundedArray((), np.float32, 0.0, 10.0), "a": (specs.BoundedArray((2,), np.float32, -2.0, 2.0),)}
    unit = agent.unit_actions(spec)
    actions = np.array([[-1.0, 1.0, 0.0], [0.5, 0.0, -1.0]], np.float32)
    between = unit.to_spec(actions)
    np.testing.assert_allclose(between["a"][0], [[-2.0, 2.0], [1.0, 0.0]])
    np.testing.assert_allclose(between["b"], [5.0, 0.0])
    found = unit.from_spec(jax.tree.map(lambda x: x[None], between))
    np.testing.assert_allclose(found, actions[None])
    with pytest.raises(ValueError, match=r"bounded continuous actions, got DiscreteArray"):
        agent.unit_actions(spec | {"c": specs.DiscreteArray(3)})


class Nested(dm_env.Environment):
    """Trees of observations and of actions; an episode is cut short after three steps."""

    def observation_spec(self):
        image = specs.BoundedArray((3, 36, 36), np.uint8, 0, 255)
        return {"seen": (specs.Array((2,), np.float64), image), "count": specs.DiscreteArray(5)}

    def action_spec(self):
        return {"push": specs.BoundedArray((2,), np.float32, -1, 1), "turn": specs.BoundedArray((), np.float32, 0, 3)}

    def look(self):
        return {"seen": (np.full(2, self.t, np.float64), np.zeros((3, 36, 36), np.uint8)), "count": np.array(self.t)}

    def reset(self):
        self.t = 0
        return dm_env.restart(self.look())

    def step(self, action):
        for name, spec in self.action_spec().items():
            spec.validate(action[name])
        self.t += 1
        return dm_env.truncation(1.0, self.look()) if self.t == 3 else dm_env.transition(1.0, self.look())


@pytest.mark.slow
def test_trees_of_observations_and_actions_are_played():
    environments = on_host.of_dm_env([Nested(), Nested()])
    settings = FILES["sac"].Config(hidden=(4,), warmup=4, batch_size=4, capacity=64)
    made = FILES["sac"].make(settings, environments.observation_spec, environments.action_spec)
    player = players.OnHost(made, environments, environments, 0)
    played = player.advance(6)
    np.testing.assert_array_equal(played.returns, np.full(4, 3.0))
    remembered = player.state.replay.replay.items
    assert (remembered.s_t["count"] - remembered.s_tm1["count"])[:4].tolist() == [1, 1, 1, 1]
    assert (remembered.discount_t[:6] == np.float32(0.99)).all()  # cut short is no end


@pytest.mark.long
@pytest.mark.unoptimised(False)
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", sorted(FILES.keys() - OF_NUMBERS))
def test_agents_learn_catch(name, seed, tmp_path):
    steps = {"actor_critic": 300_000, "r2d2": 150_000, "boot_dqn": 40_000}
    settings = {"agent": name, "env": "device:catch", "environments": 64, "seed": seed}
    settings["steps"] = steps.get(name, 100_000)
    if name == "stream_q":  # made for one stream
        settings |= {"environments": 1, "steps": 40_000}
    found = run.train(run.Config(output=str(tmp_path), progress=False, parts=2, **settings), FILES[name].Config())
    assert found["final_return"] >= 0.9


def on_device(name, environment, count, **settings):
    """A player of an agent in so many environments, in one compiled program."""
    made = FILES[name].make(FILES[name].Config(**settings), environment.observation_spec(), environment.action_spec())
    return players.OnDevice(made, environment, count, seed=0)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "settings"),
    [*((name, {}) for name in sorted(FILES.keys() - OF_NUMBERS)), ("dqn", RAINBOW), ("dqn", {"munchausen": True})],
)
def test_agents_learn_a_small_game_of_catch(name, settings):
    """At random, the return is -1/3 on average."""
    environment = make("catch", rows=5, columns=3)
    player = on_device(name, environment, 1 if name == "stream_q" else 64, **settings)
    steps = {"actor_critic": 80_000, "boot_dqn": 10_000, "stream_q": 10_000}
    player.advance(steps.get(name, 40_000) // player.per_update)
    assert np.mean(player.evaluate(30, jax.random.key(1))) >= 0.9


@pytest.mark.long
@pytest.mark.unoptimised(False)
@pytest.mark.parametrize(("settings", "steps"), [(RAINBOW, 100_000), ({"munchausen": True}, 300_000)])
def test_dqn_learns_catch_with_other_settings(settings, steps, tmp_path):
    asked = {"agent": "dqn", "env": "device:catch", "environments": 64, "steps": steps}
    asked |= {"output": str(tmp_path), "progress": False, "parts": 2}
    assert run.train(run.Config(**asked), FILES["dqn"].Config(**settings))["final_return"] >= 0.9


@pytest.mark.slow
@pytest.mark.parametrize("name", ["actor_critic", "impala"])
def test_what_a_cost_weighs_becomes_better(name):
    """A policy whose entropy counts stays random; of one that has learned to play, the return is known."""
    environment = make("catch", rows=5, columns=3)

    def learned(entropy):
        player = on_device(name, environment, 16, hidden=(16,), learning_rate=1e-2, entropy=entropy)
        return player.advance(150_000 // player.per_update).metrics

    plays, stays_random = learned(0.0), learned(2.0)
    assert plays["entropy"] < 0.5 < 0.95 * np.log(3) < stays_random["entropy"]
    assert plays["value_loss"] < 0.1 < stays_random["value_loss"]


def point_at_what_is_seen():
    """Episodes of one step, whose reward is minus the squared distance of the action to the observation."""

    def reset(key):
        seen = jax.random.uniform(key, [1], minval=-1, maxval=1)
        return seen, first(seen)

    def step(key, seen, action):
        return seen, after(-jnp.sum((action - seen) ** 2), seen, terminated=True)

    at = specs.BoundedArray([1], np.float32, -1, 1)
    return Environment(reset, step, lambda: specs.Array([1], np.float32), lambda: at)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(OF_NUMBERS))
def test_agents_learn_to_point_at_what_they_see(name):
    """At random, the return is -2/3 on average; always in the middle, -1/3."""
    settings = {"hidden": (16,), "warmup": 64, "batch_size": 32, "capacity": 4096}
    player = on_device(name, point_at_what_is_seen(), 8, **settings)
    player.advance(1500)
    assert np.mean(player.evaluate(50, jax.random.key(1))) > -0.02


@pytest.mark.long
@pytest.mark.unoptimised(False)
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", sorted(OF_NUMBERS))
def test_agents_learn_to_swing_a_pendulum_up(name, seed, tmp_path):
    settings = {"env": "device:pendulum", "environments": 4, "steps": 40_000, "seed": seed}
    assert late_return(name, tmp_path, **settings) >= -250


def late_return(name, output, agent_config=None, **settings):
    """The median of the last five of ten evaluations.

    What is learned goes on changing: of one agent's last evaluations on the pendulum one may be -140 and the next -300,
    on cart-pole one 500 and the next 270.
    """
    config = run.Config(agent=name, output=str(output), progress=False, parts=10, **settings)
    run.train(config, agent_config or FILES[name].Config())
    with open(output / "metrics.csv") as file:
        return np.median([float(row["evaluation_return"]) for row in csv.DictReader(file)][-5:])


@pytest.mark.slow
def test_a_killed_run_goes_on(tmp_path):
    command = [sys.executable, str(EXAMPLES / "run.py"), "--agent", "dqn", "--env", "catch", "--steps", "6000"]
    command += ["--checkpoint-every", "500", "--no-progress", "--exact", "--output"]
    variables = environment(tmp_path / "compiled")  # by the first run, which is not killed
    subprocess.run([*command, str(tmp_path / "whole")], env=variables, check=True, timeout=300)
    process = subprocess.Popen([*command, str(tmp_path / "killed")], env=variables)

    def kept():
        return [int(path.name) for path in (tmp_path / "killed" / "checkpoints").glob("*") if path.name.isdigit()]

    while not kept():
        assert process.poll() is None
        time.sleep(0.02)
    process.kill()
    assert process.wait() == -signal.SIGKILL
    assert max(kept()) < 6000  # there is something left to do
    subprocess.run([*command, str(tmp_path / "killed"), "--resume"], env=variables, check=True, timeout=300)
    one, other = (np.load(tmp_path / folder / "parameters.npz") for folder in ("whole", "killed"))
    for array in one:
        np.testing.assert_array_equal(one[array], other[array])
