"""Learning that runs whole on the device, beside rejax and gymnax: whole processes, compile time, steps a second.

On a CPU all seconds are those of the processors, so that other programs disturb them little. Ours are examples/ppo.py,
dqn.py and pqn.py as a user runs them; rejax's runs leave its evaluations out. "PureJaxRL's layout" is rejax with the
numbers of environments, steps and minibatches that PureJaxRL's scripts have.
"""

import importlib.util
import json
import pathlib
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from benchmarks import harness

PROGRAMS = pathlib.Path(__file__).parents[1] / "examples"
SEEDS = 3  # of a process each; the tests learn with more
REFERENCE = "rlx"
# On other devices than a CPU it is only Catch, in more and more environments.
SIZES, CATCH = range(12, 18), "Catch, 2^{} environments, steps a second"


def program(name: str, *flags: str) -> dict[str, Any]:
    """What a program writes into metrics.json, and the seconds of the processors that the whole process took."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with tempfile.TemporaryDirectory() as output:
        command = [sys.executable, str(PROGRAMS / f"{name}.py"), "--output", output, *flags]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        metrics = json.loads((pathlib.Path(output) / "metrics.json").read_text())
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    metrics["cpu_seconds"] = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    metrics["rate"] = metrics["environment_steps"] * metrics["agents"] / metrics["cpu_seconds_to_run"]
    return metrics


def learning_catch(count: int, length: int) -> float:
    """Steps a second of pqn.py's training with `count` environments, `length` steps each."""
    import gymnax

    spec = importlib.util.spec_from_file_location("pqn", PROGRAMS / "pqn.py")
    pqn = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(pqn)
    config = pqn.Config(environments=count)
    init, train, _ = pqn.make_agent(config, gymnax.make(config.env)[0])
    settings = {name: values[0] for name, values in vars(config).items() if isinstance(values, tuple)}
    left = jnp.linspace(1, 0, length // config.rollout)
    agent = jax.jit(init)(0)
    compiled, clock = jax.jit(train).lower(settings, agent, left).compile(), harness.clock()
    begin = clock()
    jax.block_until_ready(compiled(settings, agent, left))
    return count * len(left) * config.rollout / (clock() - begin)


def ours() -> dict[str, float]:
    if jax.default_backend() != "cpu":
        return {CATCH.format(n): learning_catch(2**n, 2**12) for n in SIZES}
    catch = [program("pqn", "--seed", str(seed)) for seed in range(SEEDS)]
    assert all(metrics["final_return"][0] >= 0.95 for metrics in catch)
    cart_pole = [program("ppo", "--seed", str(seed)) for seed in range(SEEDS)]
    assert all(metrics["final_return"][0] >= 475 for metrics in cart_pole)
    many = "--environments", "1024", "--steps", "4000000"
    one_environment = "--environments", "1", "--batch-size", "256", "--capacity", "131072", "--steps", "20000"
    ten_environments = "--environments", "10", "--batch-size", "128", "--capacity", "10000", "--steps", "200000"
    breakout = "--env", "Breakout-MinAtar", "--steps", "1000000"
    return {
        "Catch, a whole process, CPU s": _mean(catch, "cpu_seconds"),
        "Catch, 1,024 environments, steps a CPU s": program("pqn", *many)["rate"],
        "Catch, 64 agents, steps a CPU s": program("pqn", "--seeds", "64")["rate"],
        "cart-pole by PPO, compile CPU s": _mean(cart_pole, "cpu_seconds_to_compile"),
        "cart-pole by PPO, run CPU s": _mean(cart_pole, "cpu_seconds_to_run"),
        "cart-pole by PPO, return": min(metrics["final_return"][0] for metrics in cart_pole),
        "cart-pole by DQN, 1 environment, steps a CPU s": program("dqn", *one_environment)["rate"],
        "cart-pole by DQN, 10 environments, steps a CPU s": program("dqn", *ten_environments)["rate"],
        "Breakout (MinAtar), steps a CPU s": program("pqn", *breakout, "--environments", "64")["rate"],
    }


class AsRejaxTakesIt:
    """A gymnax environment whose step gives one `done`, as it did when rejax 0.1.3 was written."""

    def __init__(self, environment: Any) -> None:
        self.environment = environment

    def __deepcopy__(self, memo: Any) -> "AsRejaxTakesIt":
        return self

    def __getattr__(self, name: str) -> Any:
        return getattr(self.environment, name)

    def step(self, *arguments: Any) -> tuple[Any, ...]:
        observation, state, reward, terminated, truncated, info = self.environment.step(*arguments)
        return observation, state, reward, terminated | truncated, info


def rejax() -> dict[str, float]:
    if jax.default_backend() != "cpu":
        return {}
    import gymnax
    import rejax

    def trained(name: str, environment: str, steps: int, **config: Any) -> tuple[float, float, float]:
        """CPU seconds to compile and to run, and steps of a CPU second; what is not said is rejax's default."""
        env, env_params = gymnax.make(environment)
        config |= {"env": AsRejaxTakesIt(env), "env_params": env_params, "total_timesteps": steps, "eval_freq": steps}
        algorithm = rejax.get_algo(name).create(**config, skip_initial_evaluation=True)
        algorithm = algorithm.replace(eval_callback=lambda *_: ())
        begin = time.process_time()
        train = jax.jit(lambda key: algorithm.train(rng=key)).lower(jax.random.key(0)).compile()
        compiled = time.process_time()
        jax.block_until_ready(train(jax.random.key(0)))
        took = time.process_time() - compiled
        return compiled - begin, took, steps / took

    compile_ppo, run_ppo, _ = trained("ppo", "CartPole-v1", 131_072)
    ten = {"buffer_size": 10_000, "batch_size": 128, "fill_buffer": 2_000, "num_envs": 10}
    breakout = {"num_envs": 64, "num_steps": 128, "num_minibatches": 8, "num_epochs": 4}
    return {
        "cart-pole by PPO, compile CPU s": compile_ppo,
        "cart-pole by PPO, run CPU s": run_ppo,
        "cart-pole by DQN, 1 environment, steps a CPU s": trained("dqn", "CartPole-v1", 20_000)[2],
        "cart-pole by DQN, 10 environments, steps a CPU s": trained("dqn", "CartPole-v1", 50_000, **ten)[2],
        "Breakout (MinAtar), steps a CPU s": trained("ppo", "Breakout-MinAtar", 2**18, **breakout)[2],
    }


def gymnax() -> dict[str, float]:
    """Random actions, and nothing learned from them."""
    if jax.default_backend() != "cpu":
        return {CATCH.format(n): at_random(2**n, 2**12) for n in SIZES}
    return {"Catch, 1,024 environments, steps a CPU s": at_random(1024, 4000)}


def at_random(count: int, length: int) -> float:
    """Steps a second of `count` environments of gymnax's Catch, `length` steps each."""
    import gymnax

    environment, params = gymnax.make("Catch-bsuite")

    def step(carry: Any, key: jax.Array) -> tuple[Any, jax.Array]:
        keys = jax.random.split(key, 1 + count)
        actions = jax.random.randint(keys[0], [count], 0, 3)
        observation, state, reward, *_ = jax.vmap(environment.step, in_axes=(0, 0, 0, None))(
            keys[1:], carry, actions, params
        )
        return state, reward.sum() + observation.sum()  # what is not used would not be computed

    def run(key: jax.Array) -> jax.Array:
        _, state = jax.vmap(environment.reset, in_axes=(0, None))(jax.random.split(key, count), params)
        return jax.lax.scan(step, state, jax.random.split(key, length))[1].sum()

    compiled, clock = jax.jit(run).lower(jax.random.key(0)).compile(), harness.clock()
    begin = clock()
    jax.block_until_ready(compiled(jax.random.key(0)))
    return count * length / (clock() - begin)


def _mean(runs: list[dict[str, Any]], figure: str) -> float:
    return sum(metrics[figure] for metrics in runs) / len(runs)


SIDES: dict[str, Callable[[], dict[str, float]]] = {
    "rlx": ours,
    "rejax": rejax,
    "gymnax, random actions": gymnax,
}
