"""The tables of docs/results.md: which programs run with which flags, and the published figures beside them."""

import dataclasses

CONTENDERS = "benchmarks/results/contenders.py"


@dataclasses.dataclass(frozen=True)
class Table:
    """Programs on several environments, with several seeds each."""

    title: str
    programs: dict[str, tuple[str, ...]]
    """
    name: file and flags, ours first; each takes --env, --seed, --steps and --output as well, ends with the line
    `final return: N …`, and writes metrics.csv or metrics.json
    """
    environments: tuple[str, ...]
    steps: int
    remark: str
    reference: dict[str, tuple[float, ...]] = dataclasses.field(default_factory=dict)
    """environment: mean and spread as published, or mean alone"""
    source: str = ""
    column: str = "return_of_10_episodes"
    """the column of metrics.csv with the curve"""
    training_return: bool = False
    """compares the end of that curve instead of the final return"""
    seeds: int = 3


def beside_peers(title: str, algorithm: str, exploration: str) -> Table:
    flags = "--warmup", "1000"
    peers = {"sbx": "sbx", "Stable-Baselines3": "sb3"}
    return Table(
        title=title,
        programs={f"{algorithm}.py": (f"examples/{algorithm}.py", *flags)}
        | {
            name: (CONTENDERS, "--library", library, "--algorithm", algorithm, *flags)
            for name, library in peers.items()
        },
        environments=("InvertedPendulum-v5", "Hopper-v5", "HalfCheetah-v5"),
        steps=200_000,
        remark=(
            "Returns are means of 10 episodes without noise at the end of training. All three have the same settings: "
            "networks of 256 x 256 with ReLU, two critics, batches of 256, one update a step after 1,000 random "
            f"steps, a replay of 1,000,000, Adam with 3e-4, discount 0.99, target networks that move by 0.005, "
            f"{exploration}. Initial weights are each library's own. CPU times are of runs one after another, with "
            "other programs beside; [benchmarks](../benchmarks/README.md#agents-on-mujoco-and-atari) has them measured "
            "in turn."
        ),
    )


def craftax(title: str, reference: float, *flags: str, remark: str = "") -> Table:
    settings = "--environments 256 --rollout 16 --minibatches 8 --epochs 4 --hidden 512 --lambda_ 0.8"
    return Table(
        title=title,
        programs={"ppo.py": ("examples/ppo.py", *settings.split(), "--learning-rate", "2e-4", *flags)},
        environments=("craftax_adapter:Symbolic",),
        steps=983_040,
        seeds=5,
        training_return=True,
        reference={"craftax_adapter:Symbolic": (2.26 * reference,)},
        source=f"[Craftax](https://arxiv.org/abs/2402.16801), {reference} % of the largest return, 226",
        remark=(
            "Needs `pip install craftax`. A million steps, less what is over after 30 times 8 updates. Returns are "
            "means of the last of these 30 parts of training. Settings are those of the paper's programs where ppo.py "
            "has them: as with theirs, 16 environments have one new world between them; theirs clips "
            f"gradients at 1, ours at 0.5.{remark}"
        ),
    )


BRAX = "--environments 64 --rollout 128 --minibatches 16 --epochs 4 --hidden 64 --layers 2 --learning-rate 2e-3"
PQN = ("--environments", "128", "--rollout", "32", "--minibatches", "32", "--epochs", "2", "--hidden", "128")
PQN += ("--learning-rate", "5e-4", "--lambda_", "0.65", "--epsilon", "0.05", "--exploration", "0.1")
DQN_ATARI = "--warmup 10000 --exploration 0.2 --target-period 1000"
MINATAR_PPO = "--environments 64 --rollout 128 --minibatches 8 --epochs 4 --hidden 64 --layers 2 --learning-rate 5e-3"

TABLES = {
    "mujoco_ppo": Table(
        title="PPO on MuJoCo",
        programs={"ppo_mujoco.py": ("examples/ppo_mujoco.py",)},
        environments=("HalfCheetah-v5", "Hopper-v5", "Walker2d-v5", "InvertedPendulum-v5"),
        steps=1_000_000,
        column="return_of_100_episodes",
        training_return=True,
        reference={
            "HalfCheetah-v5": (1442.64, 46.03),
            "Hopper-v5": (2382.86, 271.74),
            "Walker2d-v5": (2287.95, 571.78),
            "InvertedPendulum-v5": (963.09, 22.20),
        },
        source="[CleanRL](https://docs.cleanrl.dev/rl-algorithms/ppo/#ppo_continuous_actionpy), 3 seeds",
        remark=(
            "Returns are means of the last 100 training episodes. CleanRL's are of version 4 of the environments; "
            "version 5, here, counts contacts and rewards slightly differently. CPU time is of whole "
            "runs. A step takes 0.28 of Stable-Baselines3's CPU time on HalfCheetah, 0.32 on InvertedPendulum "
            "([benchmarks](../benchmarks/README.md#agents-on-mujoco-and-atari))."
        ),
    ),
    "sac": beside_peers("SAC beside Stable-Baselines3 and sbx", "sac", "a learnt temperature from 1 on"),
    "td3": beside_peers(
        "TD3 beside Stable-Baselines3 and sbx",
        "td3",
        "an update of the actor for two of the critics, noise of 0.1 on actions and 0.2, cut at 0.5, on the target's. "
        "sbx's are not quite the same: its target networks move in each update of the critics, those of the others in "
        "each second one, and its actor learns from the lesser of the critics' values",
    ),
    "craftax_ppo": craftax(
        "PPO on Craftax",
        2.2,
        "--layers",
        "3",
        remark=(
            " The training of their [ppo.py](https://github.com/MichaelTMatthews/Craftax_Baselines), typed anew "
            "without its logging, reaches 4.9 here with one seed."
        ),
    ),
    "craftax_ppo_rnn": craftax(
        "Recurrent PPO on Craftax",
        2.3,
        "--layers",
        "2",
        "--memory",
        "gru",
        remark=(
            " The training of their "
            "[ppo_rnn.py](https://github.com/MichaelTMatthews/Craftax_Baselines), without its logging, reaches 5.1 "
            "here with one seed; a step of ours takes 1.20 of its CPU time (one run each)."
        ),
    ),
    "brax": Table(
        title="PPO on Brax",
        programs={
            "ppo.py": ("examples/ppo.py", *BRAX.split(), "--entropy-cost", "1e-3"),
            "brax": (CONTENDERS, "--library", "brax"),
        },
        environments=("brax_adapter:inverted_pendulum", "brax_adapter:hopper"),
        steps=1_000_000,
        remark=(
            "Needs `pip install brax`. Returns are means of 128 episodes without noise at the end of training. Both "
            "have two layers of 64, 64 environments, 128 steps an update, 16 minibatches, 4 epochs, γ of 0.99, λ of "
            "0.95, ε of 0.2 and Adam with 1e-3: in ours on average, where it falls from 2e-3 to 0. On hopper, three "
            "more seeds of ours reach 3,615, 3,641 and 3,342. Brax's PPO normalises observations, ours takes their "
            "logarithms. CPU time is of compilation and training; Brax's has one evaluation in it."
        ),
    ),
    "atari": Table(
        title="DQN and PPO on Atari",
        programs={
            "dqn_atari.py": ("examples/dqn_atari.py", *DQN_ATARI.split()),
            "ppo_atari.py": ("examples/ppo_atari.py",),
        },
        environments=("ALE/Pong-v5",),
        steps=1_000_000,
        seeds=1,
        reference={"ALE/Pong-v5": (20.36, 0.20)},
        source=(
            "[CleanRL's PPO](https://docs.cleanrl.dev/rl-algorithms/ppo/#ppo_ataripy), 10,000,000 steps, 3 seeds; its "
            "[DQN](https://docs.cleanrl.dev/rl-algorithms/dqn/#dqn_ataripy) reaches 20.2 ± 0.4 in as many"
        ),
        column="score_of_20_games",
        remark=(
            "A step is one action, of four frames. Returns are means of 8 games with actions of the policy "
            "([PPO](../examples/ppo_atari.py)) and of 5 with ε of 0.01 (DQN). Settings are the references' but DQN's "
            "Huber loss, in as few steps as an hour of two cores allows (PPO's took 38 minutes): PPO's rate falls to 0 "
            "within them, and DQN begins to learn after 10,000 and explores for a fifth of them. After two CPU hours "
            "it loses by 6 points, where it lost by 20. A step of dqn_atari.py takes 0.67 of Stable-Baselines3's CPU "
            "time "
            "([benchmarks](../benchmarks/README.md#agents-on-mujoco-and-atari))."
        ),
    ),
    "minatar": Table(
        title="PQN and PPO on MinAtar",
        programs={"pqn.py": ("examples/pqn.py", *PQN), "ppo.py": ("examples/ppo.py", *MINATAR_PPO.split())},
        environments=("Breakout-MinAtar", "SpaceInvaders-MinAtar", "Asterix-MinAtar", "Freeway-MinAtar"),
        steps=10_000_000,
        seeds=10,
        reference={
            "Breakout-MinAtar": (28,),
            "SpaceInvaders-MinAtar": (131,),
            "Asterix-MinAtar": (15,),
            "Freeway-MinAtar": (58,),
        },
        source=(
            "PPO of [gymnax](https://github.com/RobertTLange/gymnax), as in the table of its README; random actions "
            "reach 0.3, 4.7, 0.6 and 0.4 (`python benchmarks/results/contenders.py --library random --env NAME "
            "--output FOLDER`). PureJaxRL and PQN's paper publish their curves as pictures"
        ),
        remark=(
            "MinAtar of gymnax 1.0. Returns are means of 128 greedy episodes; the curves are of training, where PPO, "
            "which learns a random policy, is better in some games. The settings of PQN are "
            "[the paper's](https://arxiv.org/abs/2407.04811), but Adam for RAdam; ε falls over a tenth of the steps, "
            "and the learning rate to 0 over all. Those of PPO are "
            "[PureJaxRL's](https://github.com/luchris429/purejaxrl), whose training, typed anew without wrappers and "
            "logging, reaches 11.2 ± 0.9 on Asterix and 46 ± 23 on Breakout here, with three seeds, in about the CPU "
            "time of ours; gymnax's PPO has networks of 256, a discount of 0.999 and a rate that stays at 5e-4. CPU "
            "µs a step are also the CPU seconds of a game with a million steps."
        ),
    ),
}
