"""The tables of docs/results.md: which program runs with which flags, and the published figures beside it."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Table:
    """A program of examples/ on several environments, with several seeds each."""

    title: str
    program: str
    """file in examples/; takes --env, --seed, --steps and --output, and writes metrics.csv with a row an update"""
    steps: int
    column: str
    """the column of metrics.csv that is compared"""
    reference: dict[str, tuple[float, float]]
    """environment: mean and spread as published"""
    source: str
    remark: str
    seeds: int = 3


TABLES = {
    "mujoco_ppo": Table(
        title="PPO on MuJoCo",
        program="ppo_mujoco.py",
        steps=1_000_000,
        column="return_of_100_episodes",
        reference={
            "HalfCheetah-v5": (1442.64, 46.03),
            "Hopper-v5": (2382.86, 271.74),
            "Walker2d-v5": (2287.95, 571.78),
            "InvertedPendulum-v5": (963.09, 22.20),
        },
        source="[CleanRL](https://docs.cleanrl.dev/rl-algorithms/ppo/#ppo_continuous_actionpy), 3 seeds",
        remark=(
            "Returns are means of the last 100 training episodes. CleanRL's are of version 4 of the environments; "
            "version 5, here, counts contacts and rewards slightly differently. A step takes 0.28 of "
            "Stable-Baselines3's CPU time on HalfCheetah, 0.32 on InvertedPendulum "
            "([benchmarks](../benchmarks/README.md#agents-on-mujoco))."
        ),
    ),
}
