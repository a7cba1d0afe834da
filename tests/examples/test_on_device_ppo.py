"""PPO on the device: its updates beside NumPy's, agents beside each other, and that it learns."""

import pathlib
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import program
import pytest
from children import environment

pytest.importorskip("dm_env", reason="the environments speak dm_env: pip install '.[examples]'")

from dm_env import specs
from environments import make
from environments.environment import Environment, after, first
from jax.flatten_util import ravel_pytree
from on_device import ppo, training

PROGRAM = pathlib.Path(__file__).parents[2] / "examples" / "on_device" / "ppo.py"
T, N, HIDDEN = 7, 4, 5
NUMBERS = {"discount": 0.9, "lambda_": 0.8, "clip": 0.02, "value_cost": 0.7, "entropy_cost": 0.3, "learning_rate": 0.03}
CASES = [("none", True), ("gru", True), ("lstm", False)]


def small(output="unused", **changes):
    settings = {"environments": N, "rollout": T, "minibatches": 1, "epochs": 1, "hidden": HIDDEN, "max_gradient": 1e9}
    rest = {"steps": 100 * N * T, "evaluation_episodes": 5, "progress": False, "output": str(output)}
    return ppo.Config(**(settings | rest | changes))


def four_steps(discrete):
    """Episodes of four steps: those that begin with a small number are truncated, the others terminate."""

    def reset(key):
        start = jax.random.uniform(key, [3])
        return (start, start, 0), first(start)

    def step(key, state, action):
        begin, seen, n = state
        seen = jnp.roll(seen, 1) + 0.3 * (action if discrete else jnp.sum(action))
        over = n == 3
        return (begin, seen, n + 1), after(seen[0] - 1, seen, over & (begin[0] > 0.5), over)

    spec = specs.DiscreteArray(3) if discrete else specs.BoundedArray([2], np.float32, [-1, 0], [1, 4])
    return Environment(reset, step, lambda: specs.Array([3], np.float32), lambda: spec)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def forward(params, x, memory, kind):
    """One step of the network for one observation, from the equations."""
    x = np.tanh(x @ params["mlp/~/linear_0"]["w"] + params["mlp/~/linear_0"]["b"])
    if kind == "gru":
        w_i, w_h, b = params["gru"]["w_i"], params["gru"]["w_h"], params["gru"]["b"]
        H = HIDDEN
        z, r = (sigmoid(x @ w_i[:, s] + memory @ w_h[:, s] + b[s]) for s in (slice(H), slice(H, 2 * H)))
        a = np.tanh(x @ w_i[:, 2 * H :] + (r * memory) @ w_h[:, 2 * H :] + b[2 * H :])
        x = memory = (1 - z) * memory + z * a
    if kind == "lstm":
        linear = params["lstm/linear"]
        i, g, f, o = np.split(np.concatenate([x, memory[0]]) @ linear["w"] + linear["b"], 4)
        cell = sigmoid(f + 1) * memory[1] + sigmoid(i) * np.tanh(g)
        x = sigmoid(o) * np.tanh(cell)
        memory = x, cell
    head = x @ params["policy"]["w"] + params["policy"]["b"]
    sigma = np.exp(params["~"]["log_sigma"]) if "~" in params else None
    return head, sigma, (x @ params["value"]["w"] + params["value"]["b"])[0], memory


def log_probability(head, sigma, a):
    if sigma is None:
        return head[a] - np.log(np.sum(np.exp(head)))
    return np.sum(-0.5 * ((a - head) / sigma) ** 2 - np.log(sigma) - 0.5 * np.log(2 * np.pi))


def entropy(head, sigma):
    if sigma is None:
        p = np.exp(head) / np.sum(np.exp(head))
        return -np.sum(p * np.log(p))
    return np.sum(0.5 * np.log(2 * np.pi * np.e * sigma**2))


def no_memory(kind):
    return (np.zeros(HIDDEN), np.zeros(HIDDEN)) if kind == "lstm" else np.zeros(HIDDEN)


def rollout(environment, state, params, kind, discrete):
    """What each of N environments goes through in T steps, one at a time, and the advantages of it."""
    keys = jax.random.split(state.key, T * (1 + N) + 2)[2:].reshape(T, 1 + N)
    reset, step = jax.jit(environment.reset), jax.jit(environment.step)
    draw = jax.vmap(lambda key: (jax.random.gumbel if discrete else jax.random.normal)(key, [N, 3 if discrete else 2]))
    noise = np.float64(jax.jit(draw)(keys[:, 0]))
    spec = environment.action_spec()
    episodes = []
    for n in range(N):
        at = jax.tree.map(lambda x, n=n: x[n], state.running.state)
        seen, begins, steps = np.float64(state.running.observation[n]), bool(state.begins[n]), []
        memory = memory_before(state, n, kind)
        for t in range(T):
            head, sigma, v, memory = forward(params, seen, no_memory(kind) if begins else memory, kind)
            a = np.argmax(head + noise[t, n]) if discrete else head + sigma * noise[t, n]
            act = a if discrete else spec.minimum + (np.clip(a, -1, 1) + 1) / 2 * (spec.maximum - spec.minimum)
            at, timestep = step(keys[t, 1 + n], at, act)
            last, v_t = bool(timestep.last()), forward(params, np.float64(timestep.observation), memory, kind)[2]
            discount = 0.9 * float(timestep.discount)
            steps.append(
                [seen, begins, a, log_probability(head, sigma, a), v, float(timestep.reward), discount, v_t, last]
            )
            if last:
                at, timestep = reset(keys[t, 1 + n])
            seen, begins = np.float64(timestep.observation), last
        advantage = 0.0
        for one in reversed(steps):
            *_, v, r, discount, v_t, last = one
            advantage = r + discount * v_t - v + (0 if last else discount * 0.8 * advantage)
            one.append(advantage)
        episodes.append(steps)
    return episodes


def memory_before(state, n, kind):
    memory = jax.tree.map(lambda x: np.float64(x[n]), state.memory)
    return tuple(memory) if kind == "lstm" else memory


def loss_of(params, episodes, before, kind):
    """The loss of all steps, and of how many the ratio of probabilities is clipped."""
    advantages = np.array([[step[-1] for step in steps] for steps in episodes])
    total, clipped = 0.0, 0
    for n, steps in enumerate(episodes):
        memory = memory_before(before, n, kind)
        for seen, begins, a, log_prob, v_old, *_, advantage in steps:
            head, sigma, v, memory = forward(params, seen, no_memory(kind) if begins else memory, kind)
            ratio = np.exp(log_probability(head, sigma, a) - log_prob)
            adv = (advantage - advantages.mean()) / (advantages.std() + 1e-8)
            clipped += abs(ratio - 1) > 0.02
            total -= min(ratio * adv, np.clip(ratio, 0.98, 1.02) * adv)
            total += 0.7 * 0.5 * (v - (v_old + advantage)) ** 2 - 0.3 * entropy(head, sigma)
    return total / advantages.size, clipped


@pytest.mark.unoptimised
@pytest.mark.slow
@pytest.mark.parametrize(("kind", "discrete"), CASES)
def test_an_update_is_that_of_the_equations(monkeypatch, kind, discrete):
    environment = four_steps(discrete)
    monkeypatch.setattr(ppo, "find_environment", lambda config: environment)
    learner = ppo.make_learner(small(memory=kind))
    numbers = {name: np.float32(x) for name, x in NUMBERS.items()}
    update = jax.jit(learner.update)
    # The second update, which begins in the midst of episodes.
    before, _ = update(jax.jit(learner.init)(jax.random.key(3), numbers), None)
    assert not np.any(before.begins)
    after, metrics = update(before, None)
    params = jax.tree.map(np.float64, before.params)
    episodes = rollout(environment, before, params, kind, discrete)
    ends = [step for steps in episodes for step in steps if step[-2]]
    assert len(ends) == 2 * N
    assert {step[6] for step in ends} == {0.0, 0.9}  # some terminate, others are truncated
    assert metrics["episodes"] == 2 * N
    np.testing.assert_allclose(metrics["loss"], loss_of(params, episodes, before, kind)[0], rtol=1e-4)
    # Adam's average of gradients is a tenth of this one and nine of what it was.
    averages = [np.float64(state.opt_state[1].mu) for state in (before, after)]
    gradient = ravel_pytree(params)[1](10 * averages[1] - 9 * averages[0])
    rng = np.random.default_rng(0)
    for module, arrays in params.items():
        for name, x in arrays.items():
            index = tuple(rng.integers(size) for size in x.shape)
            value, losses = x[index], []
            for moved in (value + 1e-5, value - 1e-5):
                x[index] = moved
                losses.append(loss_of(params, episodes, before, kind)[0])
            x[index] = value
            numerical = (losses[0] - losses[1]) / 2e-5
            said = f"{module}/{name}{list(index)}"
            np.testing.assert_allclose(gradient[module][name][index], numerical, rtol=2e-3, atol=2e-5, err_msg=said)
    if kind != "none":
        return
    # The next epoch looks at the same steps, with what the first one has learned: there the ratios are clipped.
    twice = jax.jit(ppo.make_learner(small(memory=kind, epochs=2)).update)(before, None)[1]
    second, clipped = loss_of(jax.tree.map(np.float64, after.params), episodes, before, kind)
    assert clipped > T * N / 4
    np.testing.assert_allclose(2 * twice["loss"] - metrics["loss"], second, rtol=2e-3, atol=1e-4)


def test_minibatches_are_of_other_environments_in_each_epoch():
    parts = np.asarray(ppo.minibatches(small(epochs=50, minibatches=2), jax.random.key(0)))
    assert parts.shape == (100, N // 2)
    np.testing.assert_array_equal(np.sort(parts.reshape(50, N)), np.tile(np.arange(N), [50, 1]))
    assert len({tuple(order) for order in parts.reshape(50, N)}) > 15  # of the 24 that there are


@pytest.mark.unoptimised
@pytest.mark.slow
@pytest.mark.parametrize(("env", "kind"), [("cartpole", "none"), ("memory_chain", "gru")])
def test_agents_learn_as_each_would_alone(env, kind):
    learner = ppo.make_learner(small(env=env, memory=kind, steps=3 * N * T, epochs=2, minibatches=2, max_gradient=0.5))
    numbers = {name: np.float32([x, x / 2]) for name, x in NUMBERS.items()}

    def learned(seed, numbers):
        state = learner.init(jax.random.key(seed), numbers)
        return jax.lax.scan(learner.update, state, length=learner.updates)[0].params

    seeds = np.uint32([4, 9])
    together, alone = jax.jit(jax.vmap(learned))(seeds, numbers), jax.jit(learned)
    for agent, seed in enumerate(seeds):
        expected = alone(seed, {name: x[agent] for name, x in numbers.items()})
        for (path, a), b in zip(jax.tree.leaves_with_path(together), jax.tree.leaves(expected), strict=True):
            # Sums in another order differ by rounding, and Adam divides by small numbers.
            np.testing.assert_allclose(a[agent], b, rtol=1e-3, atol=1e-5, err_msg=jax.tree_util.keystr(path))


@pytest.mark.unoptimised
@pytest.mark.slow
def test_a_run_ends_with_the_greedy_policy_in_games_of_its_own(tmp_path, monkeypatch):
    monkeypatch.setattr(ppo, "LITTLE_EFFORT", training.LEAST_EFFORT)
    metrics = ppo.main(small(tmp_path, steps=2 * N * T, seed=7))
    assert metrics["environment_steps"] == 2 * N * T
    assert {"loss", "return", "environment_steps"} == set(metrics["curve"])
    with np.load(tmp_path / "parameters.npz") as file:
        params = {}
        for name, x in file.items():
            params.setdefault(name.rpartition("/")[0], {})[name.rpartition("/")[2]] = np.float64(x)
    environment = make("cartpole")
    key = jax.random.split(jax.random.key(np.uint32(7 + 2**31)))[0]
    state, timestep = jax.vmap(environment.reset)(jax.random.split(key, 5))
    step = jax.jit(jax.vmap(environment.step))
    total, goes_on = np.zeros(5), np.ones(5)
    while goes_on.any():
        actions = [int(np.argmax(forward(params, np.float64(x), None, "none")[0])) for x in timestep.observation]
        state, timestep = step(jax.random.split(key, 5), state, np.int32(actions))
        total += goes_on * np.asarray(timestep.reward)
        goes_on *= 1 - np.asarray(timestep.last())
    assert metrics["final_return"] == pytest.approx(total.mean())
    assert metrics["final_return"] > 5


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"minibatches": 3}, "argument --minibatches: 4 environments cannot be divided into 3 minibatches; give a div"),
        ({"env": "tetris"}, "argument --env: there is no environment 'tetris'"),
    ],
)
def test_a_bad_flag_is_said_in_one_line(tmp_path, changes, said):
    with pytest.raises(program.BadFlag) as error:
        ppo.main(small(tmp_path, **changes))
    assert str(error.value).startswith(said)
    assert "\n" not in str(error.value)


def test_actions_without_bounds_are_refused(monkeypatch):
    unbounded = specs.BoundedArray([2], np.float32, -np.inf, np.inf)
    environment = four_steps(discrete=False)._replace(action_spec=lambda: unbounded)
    monkeypatch.setattr(ppo, "find_environment", lambda config: environment)
    with pytest.raises(program.BadFlag, match=r"^argument --env: actions must be vectors of bounded numbers;"):
        ppo.make_learner(small())


@pytest.mark.slow
def test_cart_pole_is_solved_by_every_seed(tmp_path):
    metrics = ppo.main(ppo.Config(agents=3, seed=50, progress=False, output=str(tmp_path)))
    assert min(metrics["final_return"]) >= 475


@pytest.mark.parametrize(
    ("kind", "low", "high"),
    [
        pytest.param("none", -0.4, 0.4, marks=pytest.mark.long),
        pytest.param("lstm", 0.99, 1, marks=pytest.mark.long),
        pytest.param("gru", 0.99, 1, marks=pytest.mark.slow),
    ],
)
def test_what_was_shown_long_ago_is_known_with_a_memory_alone(tmp_path, kind, low, high):
    settings = {"env": "memory_chain", "memory": kind, "steps": 32_768, "progress": False}
    assert low <= ppo.main(ppo.Config(**settings, output=str(tmp_path)))["final_return"] <= high


@pytest.mark.long
def test_numbers_are_chosen_too(tmp_path):
    settings = {"env": "pendulum", "steps": 1_500_000, "rollout": 128, "layers": 2, "discount": (0.9,)}
    rates = {"learning_rate": (0.001,), "value_cost": (0.02,)}
    config = ppo.Config(**settings, **rates, seed=90, progress=False, output=str(tmp_path))
    assert ppo.main(config)["final_return"] >= -250


@pytest.mark.slow
def test_devices_learn_the_same_as_one(tmp_path):
    flags = ["--agents", "8", "--steps", "4096", "--no-progress", "--learning-rate", "0.005,0.001,0.002"]
    for devices in "18":
        output = ["--output", tmp_path / devices]
        command = [sys.executable, PROGRAM, *flags, "--devices", devices, *output]
        subprocess.run(command, env=environment(), check=True)
    with np.load(tmp_path / "1/parameters.npz") as one, np.load(tmp_path / "8/parameters.npz") as eight:
        assert one.keys() == eight.keys()
        for name in one:
            assert len(one[name]) == 8
            np.testing.assert_allclose(one[name], eight[name], rtol=1e-3, atol=1e-5, err_msg=name)
