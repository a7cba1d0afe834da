"""CPU time of a step of ppo_mujoco.py, sac.py, td3.py and dqn_atari.py beside Stable-Baselines3 and sbx.

    pip install stable-baselines3 sbx-rl ale-py opencv-python-headless
    python -m benchmarks.stable_baselines --algorithm ppo sac td3 --env HalfCheetah-v5
    python -m benchmarks.stable_baselines --algorithm dqn --env ALE/Pong-v5

Settings are equal. Each run is a process of its own, and they take turns. A figure is the CPU time of the second half
of the steps, after compilation; returns at these lengths say nothing. `python -m benchmarks.results sac` compares them.
"""

import argparse
import pathlib
import subprocess
import sys
import tempfile

import numpy as np

from benchmarks.results.runs import cpu_us_a_step

ROOT = pathlib.Path(__file__).parents[1]
PROGRAMS = {"ppo": "ppo_mujoco.py", "sac": "sac.py", "td3": "td3.py", "dqn": "dqn_atari.py"}
STEPS = {"ppo": 61_440, "sac": 10_000, "td3": 10_000, "dqn": 40_000}  # sac.py and td3.py learn from step 5,000 on


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--algorithm", nargs="+", choices=PROGRAMS, default=["ppo", "sac", "td3"])
    parser.add_argument("--env", default="HalfCheetah-v5")
    parser.add_argument("--rounds", type=int, default=1, help="times that all take their turn")
    options = parser.parse_args()
    print("| algorithm, environment | hkx and rlx, CPU µs a step | Stable-Baselines3 | sbx |\n|---|---|---|---|")
    for algorithm in options.algorithm:
        figures = {"ours": [], "sb3": []} | ({} if algorithm == "dqn" else {"sbx": []})
        warmup = ["--warmup", "10000"] if algorithm == "dqn" else []
        for _ in range(options.rounds):
            for side in figures:
                with tempfile.TemporaryDirectory() as folder:
                    program = ["benchmarks/results/contenders.py", "--library", side, "--algorithm", algorithm]
                    if side == "ours":
                        program = [f"examples/{PROGRAMS[algorithm]}"]
                    command = [sys.executable, *program, *warmup, "--env", options.env, "--output", folder]
                    command += ["--steps", str(STEPS[algorithm])]
                    subprocess.run(command, check=True, cwd=ROOT, stdout=subprocess.DEVNULL)
                    figures[side].append(cpu_us_a_step(pathlib.Path(folder, "metrics.csv")))
        ours, *peers = (np.median(x) for x in figures.values())
        cells = [f"{x:,.0f} ({ours / x:.2f})" for x in peers]
        print(f"| {algorithm.upper()}, {options.env} | {ours:,.0f} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
