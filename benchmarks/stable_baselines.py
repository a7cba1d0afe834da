"""CPU time of a step of ppo_mujoco.py, sac.py and td3.py beside Stable-Baselines3 and sbx, with equal settings.

    pip install stable-baselines3 sbx-rl
    python -m benchmarks.stable_baselines --algorithm ppo sac td3 --env HalfCheetah-v5

Each run is a process of its own, and they take turns. A figure is the CPU time of the second half of the steps, after
compilation; returns at these lengths say nothing.
"""

import argparse
import csv
import importlib
import pathlib
import subprocess
import sys
import tempfile
import time

import numpy as np

ROOT = pathlib.Path(__file__).parents[1]
PROGRAMS = {"ppo": "ppo_mujoco.py", "sac": "sac.py", "td3": "td3.py"}
STEPS = {"ppo": 61_440, "sac": 10_000, "td3": 10_000}  # sac.py and td3.py learn from step 5,000 on


def settings_of(algorithm: str, actions: int) -> dict:
    """Settings of the peers that differ from their defaults, equal to those of the programs in examples/."""
    if algorithm == "ppo":
        return {"learning_rate": lambda left: 3e-4 * left}
    settings: dict = {"learning_starts": 5_000, "batch_size": 256, "policy_kwargs": {"net_arch": [256, 256]}}
    if algorithm == "td3":
        noise = importlib.import_module("stable_baselines3.common.noise")
        settings["action_noise"] = noise.NormalActionNoise(np.zeros(actions), np.full(actions, 0.1))
    return settings | {"learning_rate": 3e-4}


def train_peer(library: str, algorithm: str, env: str, steps: int, output: pathlib.Path) -> None:
    """Trains with a peer, and writes metrics.csv as the programs do."""
    import gymnasium
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

    if library == "sb3":
        import torch

        torch.set_num_threads(1)  # at these sizes, several take more CPU time
    rows, begin, every = [], time.process_time(), steps // 20

    class Log(BaseCallback):
        def _on_step(self) -> bool:
            if self.num_timesteps % every == 0:
                rows.append((self.num_timesteps, time.process_time() - begin))
            return True

    envs = DummyVecEnv([lambda: gymnasium.make(env)])
    envs = VecNormalize(envs) if algorithm == "ppo" else envs
    peer = getattr(importlib.import_module({"sb3": "stable_baselines3", "sbx": "sbx"}[library]), algorithm.upper())
    agent = peer("MlpPolicy", envs, seed=1, **settings_of(algorithm, envs.action_space.shape[0]))
    agent.learn(steps, callback=Log())
    output.mkdir(parents=True, exist_ok=True)
    with open(output / "metrics.csv", "w", newline="") as file:
        csv.writer(file).writerows([("steps", "cpu_seconds"), *rows])


def cpu_us_a_step(folder: pathlib.Path) -> float:
    with open(folder / "metrics.csv", newline="") as file:
        points = [(int(row["steps"]), float(row["cpu_seconds"])) for row in csv.DictReader(file)]
    (before, cpu_before), (after, cpu_after) = points[len(points) // 2], points[-1]
    return 1e6 * (cpu_after - cpu_before) / (after - before)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--algorithm", nargs="+", choices=PROGRAMS, default=list(PROGRAMS))
    parser.add_argument("--env", default="HalfCheetah-v5")
    parser.add_argument("--rounds", type=int, default=1, help="times that all take their turn")
    parser.add_argument("--peer", choices=("sb3", "sbx"), help="train with this one alone, into --output")
    parser.add_argument("--output", type=pathlib.Path)
    options = parser.parse_args()
    if options.peer:
        (algorithm,) = options.algorithm
        train_peer(options.peer, algorithm, options.env, STEPS[algorithm], options.output)
        return
    print("| algorithm, environment | hkx and rlx, CPU µs a step | Stable-Baselines3 | sbx |\n|---|---|---|---|")
    for algorithm in options.algorithm:
        figures = {"ours": [], "sb3": [], "sbx": []}
        for _ in range(options.rounds):
            for side in figures:
                with tempfile.TemporaryDirectory() as folder:
                    program = ["-m", "benchmarks.stable_baselines", "--peer", side, "--algorithm", algorithm]
                    if side == "ours":
                        program = [f"examples/{PROGRAMS[algorithm]}", "--steps", str(STEPS[algorithm])]
                    command = [sys.executable, *program, "--env", options.env, "--output", folder]
                    subprocess.run(command, check=True, cwd=ROOT, stdout=subprocess.DEVNULL)
                    figures[side].append(cpu_us_a_step(pathlib.Path(folder)))
        ours, *peers = (np.median(x) for x in figures.values())
        cells = [f"{x:,.0f} ({ours / x:.2f})" for x in peers]
        print(f"| {algorithm.upper()}, {options.env} | {ours:,.0f} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
