"""Trains an agent of Stable-Baselines3 or sbx with the settings of the program of examples/ that has its algorithm.

    pip install stable-baselines3 sbx-rl 'gymnasium[mujoco]'
    python benchmarks/results/contenders.py --library sbx --algorithm sac --env Hopper-v5 --output runs/sbx

It writes metrics.csv and prints the lines that those programs print. `--library random` plays an environment of gymnax
at random instead; `--library brax --env brax_adapter:hopper` trains Brax's own PPO on one of its environments.
"""

import argparse
import csv
import importlib
import pathlib
import time

import numpy as np


def settings_of(algorithm: str, warmup: int, actions: tuple[int, ...]) -> dict:
    """Settings that differ from the libraries' defaults, equal to those of the programs in examples/."""
    if algorithm == "ppo":
        return {"learning_rate": lambda left: 3e-4 * left}
    if algorithm == "dqn":  # a replay of 1,000,000 would take 56 GB
        return {"learning_starts": warmup, "buffer_size": 100_000, "exploration_final_eps": 0.01}
    # Equal by default: replay of 1,000,000, discount 0.99, tau 0.005, an update a step, delay 2, smoothing 0.2 to 0.5.
    settings: dict = {"learning_starts": warmup, "batch_size": 256, "policy_kwargs": {"net_arch": [256, 256]}}
    if algorithm == "td3":
        noise = importlib.import_module("stable_baselines3.common.noise")
        settings["action_noise"] = noise.NormalActionNoise(np.zeros(actions), np.full(actions, 0.1))
    return settings | {"learning_rate": 3e-4}


def train(options: argparse.Namespace, rows: list) -> list[float]:
    """Trains, adds rows of metrics, and returns the returns of 10 deterministic episodes."""
    import gymnasium
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.env_util import make_atari_env
    from stable_baselines3.common.evaluation import evaluate_policy
    from stable_baselines3.common.monitor import Monitor
    from stable_baselines3.common.vec_env import DummyVecEnv, VecFrameStack, VecNormalize

    if options.library == "sb3":
        import torch

        torch.set_num_threads(1)  # at these sizes, several take more CPU time
    every = max(1, options.steps // 200)

    class Log(BaseCallback):
        def _on_step(self) -> bool:
            if (taken := self.num_timesteps) % every == 0:
                episodes = [episode["r"] for episode in self.model.ep_info_buffer or []]
                rows.append((taken, np.mean(episodes) if episodes else np.nan, time.process_time() - begin))
                us = rows[-1][2] / taken * 1e6
                print(f"{taken:>9,} steps: return {rows[-1][1]:.1f}, {us:.0f} CPU µs/step", flush=True)
            return True

    if is_atari := options.algorithm == "dqn":
        game = {"frameskip": 1, "repeat_action_probability": 0.0}
        envs = VecFrameStack(make_atari_env(f"ale_py:{options.env}", seed=options.seed, env_kwargs=game), 4)
    else:
        envs = DummyVecEnv([lambda: Monitor(gymnasium.make(options.env))])
    envs = VecNormalize(envs) if options.algorithm == "ppo" else envs
    library = importlib.import_module({"sb3": "stable_baselines3", "sbx": "sbx"}[options.library])
    settings = settings_of(options.algorithm, options.warmup, envs.action_space.shape)
    settings |= {"seed": options.seed, "stats_window_size": 10}
    agent = getattr(library, options.algorithm.upper())("CnnPolicy" if is_atari else "MlpPolicy", envs, **settings)
    begin = time.process_time()
    agent.learn(options.steps, callback=Log())
    if is_atari:
        return evaluate_policy(agent, envs, 5, return_episode_rewards=True)[0]
    env, returns = gymnasium.make(options.env), []
    for episode in range(10):  # as in the programs of examples/
        observation, over = env.reset(seed=options.seed + 10_000 + episode)[0], False
        returns.append(0.0)
        while not over:
            seen = envs.normalize_obs(observation) if isinstance(envs, VecNormalize) else observation
            observation, reward, ends, cut, _ = env.step(agent.predict(seen, deterministic=True)[0])
            returns[-1], over = returns[-1] + float(reward), ends or cut
    return returns


def play_at_random(options: argparse.Namespace, rows: list) -> list[float]:
    """Plays 128 episodes, each of at most 10,000 steps, and returns their returns."""
    import gymnax
    import jax
    import jax.numpy as jnp

    env, begin = gymnax.make(options.env)[0], time.process_time()
    keys = jax.random.split(jax.random.key(options.seed), 128)

    def play(key):
        def step(carry):
            n, env_state, total, _ = carry
            action_key, step_key = jax.random.split(jax.random.fold_in(key, n))
            action = env.action_space(env.default_params).sample(action_key)
            _, env_state, reward, ends, cut, _ = env.step(step_key, env_state, action)
            return n + 1, env_state, total + reward, ends | cut

        first = 0, env.reset(key)[1], jnp.float32(0), jnp.bool_(False)
        return jax.lax.while_loop(lambda carry: (carry[0] < 10_000) & ~carry[3], step, first)[2]

    returns = np.asarray(jax.jit(jax.vmap(play))(keys)).tolist()
    rows.append((options.steps, np.mean(returns), time.process_time() - begin))
    return returns


def train_by_brax(options: argparse.Namespace, rows: list) -> list[float]:
    """Trains Brax's PPO with settings of examples/ppo.py, and returns the returns of 128 episodes at the end."""
    import jax
    from brax import envs
    from brax.training.agents.ppo import networks, train

    def replicated(x, devices):  # Brax 0.14 needs it, and JAX 0.10 has it no more
        return jax.tree.map(lambda leaf: jax.numpy.stack([leaf] * len(devices)), x)

    jax.device_put_replicated = replicated

    def make_networks(*sizes, **settings):
        layers = (64, 64)
        return networks.make_ppo_networks(
            *sizes, **settings, policy_hidden_layer_sizes=layers, value_hidden_layer_sizes=layers
        )

    def progress(taken, metrics):
        rows.append((taken, float(metrics["eval/episode_reward"]), time.process_time() - begin))
        print(f"{taken:>9,} steps: return {rows[-1][1]:.1f}", flush=True)

    begin = time.process_time()
    train.train(
        envs.get_environment(options.env.partition(":")[2]), options.steps, episode_length=1000, seed=options.seed,
        num_envs=64, unroll_length=128, batch_size=4, num_minibatches=16, num_updates_per_batch=4,
        learning_rate=1e-3, entropy_cost=1e-3, discounting=0.99, gae_lambda=0.95, clipping_epsilon=0.2,
        max_grad_norm=0.5, normalize_observations=True, network_factory=make_networks,
        num_evals=2, deterministic_eval=True, progress_fn=progress,
    )  # fmt: skip
    return [rows[-1][1]] * 128  # Brax says their mean


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--library", choices=("sb3", "sbx", "random", "brax"), required=True)
    parser.add_argument("--algorithm", choices=("ppo", "sac", "td3", "dqn"))
    parser.add_argument("--env", default="HalfCheetah-v5")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--warmup", type=int, default=5_000, help="random steps before the first update")
    parser.add_argument("--output", type=pathlib.Path, required=True)
    options = parser.parse_args()
    rows = []
    returns = {"random": play_at_random, "brax": train_by_brax}.get(options.library, train)(options, rows)
    options.output.mkdir(parents=True, exist_ok=True)
    with open(options.output / "metrics.csv", "w", newline="") as file:
        csv.writer(file).writerows([("steps", "return_of_10_episodes", "cpu_seconds"), *rows])
    print(f"final return: {np.mean(returns):.2f} over {len(returns)} episodes")


if __name__ == "__main__":
    main()
