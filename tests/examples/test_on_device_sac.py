"""Soft actor-critic on the device: its updates beside NumPy's, agents beside each other, and that it learns."""

import jax
import numpy as np
import program
import pytest

pytest.importorskip("dm_env", reason="the environments speak dm_env: pip install '.[examples]'")

from dm_env import specs
from environments import make
from environments.environment import Environment, after, first
from jax.flatten_util import ravel_pytree
from on_device import sac, training

N, BATCH = 4, 6
NUMBERS = {"discount": 0.9, "learning_rate": 0.01, "target_step": 0.25, "entropy": -1.5}
LOW, HIGH = np.array([-1.0, 0.0]), np.array([1.0, 4.0])


def small(output="unused", **changes):
    settings = {"environments": N, "warmup": 30, "capacity": 64, "batch_size": BATCH, "hidden": 5, "layers": 1}
    rest = {"steps": 100 * N, "evaluation_episodes": 5, "progress": False, "output": str(output)}
    return sac.Config(**(settings | rest | changes))


def four_steps():
    """Episodes of four steps: those that begin with a small number are truncated, the others terminate."""

    def reset(key):
        start = jax.random.uniform(key, [3])
        return (start, start, 0), first(start)

    def step(key, state, action):
        begin, seen, n = state
        seen = jax.numpy.roll(seen, 1) + 0.3 * jax.numpy.sum(action)
        over = n == 3
        return (begin, seen, n + 1), after(seen[0] - 1, seen, over & (begin[0] > 0.5), over)

    spec = specs.BoundedArray([2], np.float32, LOW, HIGH)
    return Environment(reset, step, lambda: specs.Array([3], np.float32), lambda: spec)


def mlp(params, name, x):
    first, second = params[f"{name}/~/linear_0"], params[f"{name}/~/linear_1"]
    return np.maximum(0, x @ first["w"] + first["b"]) @ second["w"] + second["b"]


def act(params, seen, noise):
    """An action between the bounds, and the logarithm of its density: that of the Gaussian over the slope of tanh."""
    mu, sigma = np.split(mlp(params, "actor", seen), 2, axis=-1)
    sigma = np.exp(-5 + 3.5 * (np.tanh(sigma) + 1))
    u = np.tanh(mu) + sigma * noise
    slope = (HIGH - LOW) / 2 / np.cosh(u) ** 2
    log_prob = np.sum(-0.5 * noise**2 - np.log(sigma) - 0.5 * np.log(2 * np.pi) - np.log(slope), axis=-1)
    return LOW + (HIGH - LOW) / 2 * (np.tanh(u) + 1), log_prob


def values(params, seen, a):
    x = np.concatenate([seen, 2 * (a - LOW) / (HIGH - LOW) - 1], axis=-1)
    critics = [jax.tree.map(lambda p, i=i: p[i], {k: v for k, v in params.items() if "critic" in k}) for i in (0, 1)]
    return np.stack([mlp(critic, "critic", x)[:, 0] for critic in critics], axis=-1)


def losses(params, held, batch, noise_t, noise_tm1):
    """The losses of the critics, the actor and the temperature, of which only `params` counts for gradients."""
    temperature = np.exp(held["temperature"]["log"])
    a_t, log_prob_t = act(held, batch.observation_t, noise_t)
    soft_value_t = values(held, batch.observation_t, a_t).min(axis=1) - temperature * log_prob_t
    target = batch.r_t + 0.9 * batch.discount_t * soft_value_t
    critic = 0.5 * np.sum((values(params, batch.observation_tm1, batch.a_tm1) - target[:, None]) ** 2, axis=1)
    a_tm1, log_prob_tm1 = act(params, batch.observation_tm1, noise_tm1)
    actor = temperature * log_prob_tm1 - values(held, batch.observation_tm1, a_tm1).min(axis=1)
    wanted = -1.5 * 2 + np.sum(np.log((HIGH - LOW) / 2))
    _, log_prob_held = act(held, batch.observation_tm1, noise_tm1)
    dual = -np.exp(params["temperature"]["log"]) * (log_prob_held + wanted)
    return critic.mean(), actor.mean(), dual.mean()


@pytest.mark.unoptimised
@pytest.mark.slow
def test_an_update_is_that_of_the_equations(monkeypatch):
    monkeypatch.setattr(sac, "find_environment", lambda config: four_steps())
    learner = sac.make_learner(small())
    numbers = {name: np.float32(x) for name, x in NUMBERS.items()}
    before = jax.jit(learner.init)(jax.random.key(2), numbers)
    assert int(before.replay.size) == 32  # whole steps of all environments
    after, metrics = jax.jit(learner.update)(before, None)
    assert int(after.replay.size) == 36
    for x in jax.tree.leaves(sac.critics_of(before.params)):
        assert np.all(x == 0) or not np.any(x[0] == x[1])  # two critics
    remembered = jax.tree.map(lambda x: np.float64(x[:36]), after.replay.items)
    moved = np.roll(remembered.observation_tm1, 1, axis=1) + 0.3 * remembered.a_tm1.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(remembered.observation_t, moved, atol=1e-6)  # at the end of an episode too
    keys = jax.random.split(before.key, 2 + 3 + N)[2:5]
    batch = jax.tree.map(np.float64, sac.rlx.replay.uniform(64).sample(after.replay, keys[0], BATCH).items)
    assert {0.0, 1.0} == set(np.asarray(after.replay.items.discount_t[:36]).tolist())
    noise = [np.float64(jax.random.normal(key, [BATCH, 2])) for key in keys[1:]]
    params = jax.tree.map(np.float64, before.params)
    held = jax.tree.map(np.copy, params)
    critic, actor, _ = losses(params, held, batch, *noise)
    np.testing.assert_allclose(metrics["critic_loss"], critic, rtol=1e-4)
    np.testing.assert_allclose(metrics["actor_loss"], actor, rtol=1e-4)
    assert metrics["temperature"] == 1
    # Adam's average of gradients after one of them holds a tenth of it.
    gradient = ravel_pytree(params)[1](10 * np.float64(jax.tree.leaves(after.opt_state.mu)[0]))
    rng = np.random.default_rng(0)
    for module, arrays in params.items():
        for name, x in arrays.items():
            arrays[name] = x = np.array(x)
            for _ in range(3):
                index = tuple(rng.integers(size) for size in x.shape)
                value, sums = x[index], []
                for moved in (value + 1e-5, value - 1e-5):
                    x[index] = moved
                    sums.append(sum(losses(params, held, batch, *noise)))
                x[index] = value
                numerical = (sums[0] - sums[1]) / 2e-5
                said = f"{module}/{name}{list(index)}"
                np.testing.assert_allclose(gradient[module][name][index], numerical, rtol=2e-3, atol=1e-4, err_msg=said)
    for module, arrays in before.target_params.items():
        for name, x in arrays.items():
            moved = 0.75 * np.float64(x) + 0.25 * np.float64(after.params[module][name])
            np.testing.assert_allclose(after.target_params[module][name], moved, rtol=1e-5, atol=1e-6)
    assert len(before.target_params) == 2


@pytest.mark.unoptimised
@pytest.mark.slow
def test_agents_learn_as_each_would_alone():
    learner = sac.make_learner(small(steps=12 * N, gradient_steps=2))
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
    monkeypatch.setattr(sac, "LITTLE_EFFORT", training.LEAST_EFFORT)
    metrics = sac.main(small(tmp_path, steps=20 * N, seed=7))
    assert metrics["environment_steps"] == 20 * N
    assert set(metrics["curve"]) == {"critic_loss", "actor_loss", "temperature", "return", "environment_steps"}
    with np.load(tmp_path / "parameters.npz") as file:
        params = {}
        for name, x in file.items():
            params.setdefault(name.rpartition("/")[0], {})[name.rpartition("/")[2]] = np.float64(x)
    environment = make("pendulum")
    key = jax.random.split(jax.random.key(np.uint32(7 + 2**31)))[0]
    state, timestep = jax.vmap(environment.reset)(jax.random.split(key, 5))
    step = jax.jit(jax.vmap(environment.step))
    total = np.zeros(5)
    for _ in range(200):
        mu = mlp(params, "actor", np.float64(timestep.observation))[:, :1]
        state, timestep = step(jax.random.split(key, 5), state, np.float32(2 * np.tanh(np.tanh(mu))))
        total += np.asarray(timestep.reward)
    assert np.all(timestep.last())
    assert metrics["final_return"] == pytest.approx(total.mean(), rel=1e-3)


def test_agents_whose_episodes_outlast_the_run_have_a_curve_too(tmp_path):
    history = [{"returns": [0.0, 0.0], "episodes": [0.0, 0.0], "loss": [1.0, 2.0]}] * 3
    metrics = {"curve": training.curve(history, 10), "final_return": [-5.0, -6.0], "environment_steps": 30}
    training.save_curve(tmp_path / "curve.png", small(agents=2), metrics)
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")


def test_choices_are_refused_in_one_line(tmp_path):
    said = "argument --env: the actions of cartpole are discrete, not continuous; use ppo.py"
    with pytest.raises(program.BadFlag, match=f"^{said}$"):
        sac.main(small(tmp_path, env="cartpole"))


@pytest.mark.long
def test_the_pendulum_is_held_up_by_every_seed(tmp_path):
    metrics = sac.main(sac.Config(agents=5, seed=70, progress=False, output=str(tmp_path)))
    assert min(metrics["final_return"]) >= -200


@pytest.mark.unoptimised
@pytest.mark.slow
def test_devices_learn_the_same_as_one(tmp_path):
    for devices in (1, 8):
        settings = {"agents": 8, "steps": 80, "learning_rate": (0.005, 0.001, 0.002), "progress": False}
        sac.main(sac.Config(**settings, devices=devices, output=str(tmp_path / str(devices))))
    with np.load(tmp_path / "1/parameters.npz") as one, np.load(tmp_path / "8/parameters.npz") as eight:
        assert one.keys() == eight.keys()
        for name in one:
            assert len(one[name]) == 8
            # Adam's first steps are as long where a gradient is nothing but rounding as anywhere: up to 0.005, of ten.
            np.testing.assert_allclose(one[name], eight[name], rtol=0, atol=2e-3, err_msg=name)
