"""Runs an agent of `agents/` on an environment, on the host or on the device.

    python examples/zoo/run.py --agent dqn --env bsuite:catch/0
    python examples/zoo/run.py --agent dqn --env gymnasium:CartPole-v1 --steps 50000 --prioritised
    python examples/zoo/run.py --agent actor_critic --env device:catch --environments 64 --steps 200000
    python examples/zoo/run.py --agent dqn --help                        # all flags, those of the agent among them

On the host, environments with the interface of dm_env or Gymnasium are stepped from Python, `--environments` of them at
a time. With `device:`, one of `environments/` or `device:gymnax:NAME` is compiled into one program with the agent.

It writes metrics.json, metrics.csv, curve.png, parameters.npz and the last two checkpoints to `--output`. After Ctrl-C,
or if the run is killed, the same command with `--resume` continues from the newest checkpoint. On the device the result
is that of a run without the interruption; on the host new episodes begin, unless `--exact` stores all actions in the
checkpoints and replays them (environments need a seed for that; bsuite's catch/0 and cartpole/0 have none).
"""

import contextlib
import dataclasses
import functools
import importlib
import json
import os
import pathlib
import re
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Annotated, Any, ClassVar

try:
    import jax
    import numpy as np
    import orbax.checkpoint as ocp
    import tyro
    from agents import FILES
    from agents.agent import Agent
    from agents.players import OnDevice, OnHost, Played
    from environments import UnknownEnvironment, on_host
    from environments import make as make_pure
    from program import BadFlag, end_at_once, noticing_interrupts, output_folder, save_table, whole_file
    from settings import BadSetting, Between, Count, ReplaySettings, Seed, Settings
    from tqdm import tqdm
except ModuleNotFoundError as error:
    sys.exit(f"{error}: pip install 'hkx[examples]'")


@dataclasses.dataclass(frozen=True)
class Config(Settings):
    """The settings of a run. Every field is a flag, and so is every field of the agent's settings."""

    agent: str = "dqn"
    """a file of examples/zoo/agents, or MODULE:make of your own; the module has a Config, too"""
    env: str = "bsuite:catch/0"
    """bsuite:ID, gymnasium:ID (or gymnasium:MODULE:ID), envpool:ID, ale:GAME, a file of examples/zoo/environments (with
    settings: deep_sea,size=20), or device:FILE, device:gymnax:NAME"""
    seed: Seed = 0
    """seed of the agent and of the environments"""
    steps: Annotated[int, Between(0)] = 0
    """steps in all environments together; 0 stands for bsuite's number of episodes, or else for 100,000 steps"""
    environments: Count = 1
    """environments side by side"""
    parts: Count = 10
    """parts of the training; after each there is an evaluation, and a row of metrics.csv"""
    evaluation_episodes: Count = 20
    """greedy episodes in an evaluation"""
    checkpoint_every: Annotated[int, Between(0)] = 0
    """steps between two checkpoints; 0 writes one after each part"""
    resume: bool = False
    """go on from the newest checkpoint in --output, where there is one"""
    exact: bool = False
    """resume by replaying all actions, which are then stored, instead of with new episodes"""
    output: str = ""
    """folder for all that a run leaves behind; by default runs/AGENT-ENV-SEED"""
    tensorboard: bool = False
    """write events for TensorBoard too"""
    progress: bool = True
    """show a progress bar"""

    of_no_weight: ClassVar = {  # settings that may change when a run is resumed
        "steps",
        "parts",
        "evaluation_episodes",
        "checkpoint_every",
        "resume",
        "output",
        "tensorboard",
        "progress",
    }


class Record:
    """The progress of a run, with the rows of metrics.csv."""

    def __init__(self) -> None:
        self.steps = self.episodes = 0
        self.rows: list[dict[str, Any]] = []
        self.returns: list[float] = []  # since the last row
        self.seconds = self.cpu_seconds = 0.0  # spent on acting and learning
        self.metrics: dict[str, float] = {}

    def add(self, played: Played, seconds: float, cpu_seconds: float) -> None:
        self.steps += played.steps
        self.seconds += seconds
        self.cpu_seconds += cpu_seconds
        self.episodes += len(played.returns) if played.episodes is None else played.episodes
        self.returns += played.returns.tolist()
        self.metrics = played.metrics

    def row(self, evaluation: Sequence[float]) -> dict[str, Any]:
        """Adds a row to the table, and returns it."""
        before = self.rows[-1] if self.rows else {"steps": 0, "seconds": 0.0}
        seconds = max(1e-9, self.seconds - before["seconds"])
        row = {
            "steps": self.steps,
            "episodes": self.episodes,
            "seconds": round(self.seconds, 3),
            "steps_per_second": round((self.steps - before["steps"]) / seconds),
            "training_return": float(np.mean(self.returns)) if self.returns else None,
            "evaluation_return": float(np.mean(evaluation)),
        } | self.metrics
        self.rows.append(row)
        self.returns = []
        return row

    def saved(self) -> dict[str, Any]:
        fields = "steps", "episodes", "rows", "returns", "seconds", "cpu_seconds", "metrics"
        return {name: getattr(self, name) for name in fields}

    def restore(self, saved: dict[str, Any]) -> None:
        vars(self).update(saved)


class Checkpoints:
    """The last two complete states of a run, in folders written by Orbax, together with the settings of the run."""

    def __init__(self, folder: pathlib.Path, settings: dict[str, Any]):
        self.folder = folder.absolute()
        self.open(cleanup_tmp_directories=False)
        self.settings, self.newest = json.loads(json.dumps(settings)), self.manager.latest_step()

    def open(self, cleanup_tmp_directories: bool) -> None:
        options = ocp.CheckpointManagerOptions(
            max_to_keep=2, cleanup_tmp_directories=cleanup_tmp_directories, lightweight_initialize=True
        )
        self.manager = ocp.CheckpointManager(self.folder, options=options)

    def close(self) -> None:
        self.manager.close()

    def remove_unfinished(self) -> None:
        """Removes incomplete checkpoints that a killed run has left.

        Orbax does this in a thread, which prints a traceback if the program ends immediately afterwards. So this is
        called only once it is certain that the run will start.
        """
        self.close()
        self.open(cleanup_tmp_directories=True)

    def read_record(self, resume: bool) -> None:
        """Reads the newest checkpoint's record. Raises BadFlag if this run may not, or cannot, continue from it."""
        if self.newest is not None and not resume:
            there = f"{self.manager.directory.parent} holds a run of {self.newest} steps"
            raise BadFlag(f"argument --output: {there}; --resume goes on with it, and another folder begins anew")
        if self.newest is not None:
            self.record = self.read("record", ocp.args.JsonRestore())
            for name, like in (Record().saved() | {"settings": {}}).items():
                if not isinstance(self.record, dict) or not isinstance(self.record.get(name), type(like)):
                    raise self.unreadable(f"its record has no {name}")
            self.compare(self.record.pop("settings"))

    def compare(self, settings: dict[str, Any]) -> None:
        """Raises BadFlag if the settings of the checkpoint differ."""
        for name in sorted(self.settings.keys() | settings.keys()):
            if self.settings.get(name) != settings.get(name):
                was = f"the checkpoint was made with {name} {settings.get(name)}, not {self.settings.get(name)}"
                raise BadFlag(f"argument --resume: {was}; give the same, or another --output")

    def save(self, player: Any, record: Record) -> None:
        leaves = [x for x in jax.tree.leaves(player.saved()) if np.size(x)]  # Orbax does not accept empty arrays
        parts = {"state": ocp.args.StandardSave(leaves)}
        parts["record"] = ocp.args.JsonSave({"settings": self.settings, **record.saved()})
        try:
            self.manager.save(record.steps, args=ocp.args.Composite(**parts))
            self.manager.wait_until_finished()
        except (OSError, ValueError) as error:
            raise BadFlag(f"argument --output: cannot write a checkpoint: {str(error).splitlines()[0]}") from None

    def restore(self, player: Any, record: Record) -> None:
        """Restores the newest checkpoint, if there is one."""
        if self.newest is None:
            return
        like, structure = jax.tree.flatten(player.like(self.newest))
        wanted = [x for x in like if x.size]
        leaves = iter(self.read("state", ocp.args.StandardRestore(wanted)))
        player.restore(jax.tree.unflatten(structure, [next(leaves) if x.size else x for x in like]))
        record.restore(self.record)

    def read(self, part: str, how: Any) -> Any:
        try:
            return self.manager.restore(self.newest, args=ocp.args.Composite(**{part: how}))[part]
        except Exception as error:  # Orbax and its storage raise errors of many kinds
            raise self.unreadable((str(error).splitlines() or [repr(error)])[0]) from None

    def unreadable(self, problem: str) -> BadFlag:
        folder = self.manager.directory / str(self.newest)
        return BadFlag(f"argument --resume: cannot read {folder}: {problem}; remove it to go on from the one before")


class Events:
    """Writes metrics for TensorBoard."""

    def __init__(self, folder: pathlib.Path):
        try:
            from tensorboardX import SummaryWriter
        except ImportError:
            raise BadFlag("argument --tensorboard: needs `pip install tensorboardX`") from None
        self.writer = SummaryWriter(str(folder / "tensorboard"))

    def write(self, row: dict[str, Any]) -> None:
        for name, value in row.items():
            if value is not None and name != "steps":
                self.writer.add_scalar(name, value, row["steps"])
        self.writer.flush()


def find_agent(name: str, agents: Mapping[str, ModuleType] = FILES) -> tuple[type[Any], Callable[..., Agent]]:
    """The settings of an agent and the function that makes it: a file of agents/, or MODULE:FUNCTION."""
    if name in agents:
        return agents[name].Config, agents[name].make
    module, colon, function = name.partition(":")
    if not colon:
        raise BadFlag(f"argument --agent: there is no agent {name!r}; there are {', '.join(agents)}, or MODULE:make")
    sys.path[:] = dict.fromkeys([*sys.path, os.getcwd()])
    try:
        found = importlib.import_module(module)
        return found.Config, getattr(found, function)
    except (ImportError, AttributeError) as error:
        raise BadFlag(f"argument --agent: {name}: {error}") from None


def make_player(config: Config, agent_config: Any, output: pathlib.Path) -> tuple[OnHost | OnDevice, int | None]:
    """The player, and the number of episodes of the experiment, if it defines one."""
    make_agent = functools.partial(find_agent(config.agent)[1], agent_config)
    where, _, name = config.env.partition(":")
    if where == "device":
        environment = make_pure(name)
        agent = make_agent(environment.observation_spec(), environment.action_spec())
        return OnDevice(agent, environment, config.environments, config.seed), None
    environments = on_host.make(config.env, config.seed, config.environments, record=str(output / "bsuite"))
    apart = on_host.make(config.env, config.seed + 10**6, min(config.environments, config.evaluation_episodes))
    agent = make_agent(environments.observation_spec, environments.action_spec)
    return OnHost(agent, environments, apart, config.seed, config.exact), environments.episodes


def save_arrays(path: pathlib.Path, tree: Any) -> None:
    """Writes a tree of arrays as a NumPy .npz file, with the path of each array as its name."""
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    arrays = {jax.tree_util.keystr(where, simple=True, separator="/"): np.asarray(leaf) for where, leaf in leaves}
    with whole_file(path) as unfinished:
        np.savez(unfinished, **arrays)


def save_curve(path: pathlib.Path, config: Config, rows: list[dict[str, Any]]) -> None:
    from matplotlib.figure import Figure  # imported here because nothing before the end of training needs it

    figure = Figure(figsize=(7.5, 4), layout="constrained")
    axes = figure.subplots()
    for name, color in ("training_return", "tab:blue"), ("evaluation_return", "tab:orange"):
        points = [(row["steps"], row[name]) for row in rows if row[name] is not None]
        axes.plot(*zip(*points, strict=True), "o-", color=color, label=name.replace("_", " "), markersize=4)
    axes.set(title=f"{config.agent} on {config.env}", xlabel="steps", ylabel="return")
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    with whole_file(path) as unfinished:
        figure.savefig(unfinished, dpi=120)


def train(config: Config, agent_config: Any, make_player: Callable[..., Any] = make_player) -> dict[str, Any]:
    """Trains, evaluates and saves. Returns the contents of metrics.json."""
    run_name = f"{config.agent}-{config.env}-{config.seed}".replace(":", "-").replace("/", "-")
    output = output_folder(config.output or f"runs/{run_name}")
    settings = {name: value for name, value in dataclasses.asdict(config).items() if name not in config.of_no_weight}
    settings |= dataclasses.asdict(agent_config)
    if isinstance(agent_config, ReplaySettings):
        agent_config.check_environments(config.environments)
    with contextlib.ExitStack() as open_until_the_end:
        checkpoints = Checkpoints(output / "checkpoints", settings)
        open_until_the_end.callback(checkpoints.close)
        checkpoints.read_record(config.resume)  # before anything in the folder is changed
        events = Events(output) if config.tensorboard else None
        try:
            player, experiment = make_player(config, agent_config, output)
        except BadFlag:
            raise
        except UnknownEnvironment as error:
            raise BadFlag(f"argument --env: {config.env}: {error}") from None
        except ValueError as error:  # from an agent, about its settings or an environment that it does not support
            raise BadFlag(f"argument --agent: {config.agent} on {config.env}: {error}") from None
        open_until_the_end.callback(player.close)
        checkpoints.remove_unfinished()
        return train_player(config, output, checkpoints, events, player, experiment)


def train_player(
    config: Config,
    output: pathlib.Path,
    checkpoints: Checkpoints,
    events: Events | None,
    player: Any,
    experiment: int | None,
) -> dict[str, Any]:
    episodes = None if config.steps else experiment
    by_episodes, goal = episodes is not None, episodes or config.steps or 100_000
    a_part = -(-goal // (config.parts * player.per_update))  # updates
    updates = -(-a_part // -(-a_part * player.per_update // player.look))  # between two checks for Ctrl-C
    last_step = -(-goal // (updates * player.per_update)) * updates * player.per_update
    record = Record()
    checkpoints.restore(player, record)
    key = jax.random.key(config.seed + 1)

    def done() -> int:
        return min(goal, record.episodes if by_episodes else record.steps)

    def part() -> int:
        return done() * config.parts // goal

    saved_at, row_at = record.steps, part()
    unit = " episodes" if by_episodes else " steps"
    bar = tqdm(total=goal, initial=done(), unit=unit, disable=not config.progress)
    with noticing_interrupts() as interrupted, bar:
        while done() < goal and not interrupted.is_set():
            began, worked = time.perf_counter(), time.process_time()
            left = updates if by_episodes else min(updates, (last_step - record.steps) // player.per_update)
            played = player.advance(left)
            record.add(played, time.perf_counter() - began, time.process_time() - worked)
            bar.update(done() - bar.n)
            due = config.checkpoint_every and record.steps - saved_at >= config.checkpoint_every
            if part() > row_at:
                row_at = part()
                row = record.row(player.evaluate(config.evaluation_episodes, key))
                save_table(output / "metrics.csv", {name: [row.get(name) for row in record.rows] for name in row})
                if events:
                    events.write(row)
                bar.set_postfix_str(f"return {row['evaluation_return']:.2f}, {row['steps_per_second']:,} steps/s")
                due = due or not config.checkpoint_every
            if due or interrupted.is_set() or done() == goal:
                checkpoints.save(player, record)
                saved_at = record.steps
    return save_results(config, output, player, record, interrupted.is_set())


def save_results(
    config: Config, output: pathlib.Path, player: Any, record: Record, interrupted: bool
) -> dict[str, Any]:
    """Writes the curve, the parameters and metrics.json. Returns the contents of metrics.json."""
    if record.rows:
        save_curve(output / "curve.png", config, record.rows)
    save_arrays(output / "parameters.npz", player.state.params)
    metrics = {
        "agent": config.agent,
        "env": config.env,
        "final_return": record.rows[-1]["evaluation_return"] if record.rows else None,
        "steps": record.steps,
        "episodes": record.episodes,
        "seconds": record.seconds,
        "cpu_seconds": record.cpu_seconds,
        "interrupted": interrupted,
    }
    with whole_file(output / "metrics.json") as unfinished:
        unfinished.write_text(json.dumps(metrics, indent=1) + "\n")
    final = "no evaluation yet" if not record.rows else f"final return {metrics['final_return']:.4g}"
    print(f"{final}, after {record.steps:,} steps and {record.episodes:,} episodes; everything is in {output}")
    return metrics


def read_flags(settings: type[Config], agents: Mapping[str, ModuleType]) -> tuple[Any, Any]:
    """The settings of the run and of the agent that `--agent` names."""
    arguments = sys.argv[1:]
    named = re.findall(r"--agent[= ](\S+)", " ".join(arguments))
    agent_settings, _ = find_agent(named[-1] if named else settings.agent, agents)
    fields = [("run", tyro.conf.OmitArgPrefixes[settings]), ("agent_config", tyro.conf.OmitArgPrefixes[agent_settings])]
    description = (sys.modules[settings.__module__].__doc__ or "").partition("\n")[0]
    both = tyro.cli(dataclasses.make_dataclass("Flags", fields), args=arguments, description=description)
    return both.run, both.agent_config


def main(
    settings: type[Config] = Config,
    agents: Mapping[str, ModuleType] = FILES,
    make_player: Callable[..., Any] = make_player,
) -> int:
    # Each step waits for its action, so dispatching to another thread only costs time.
    jax.config.update("jax_cpu_enable_async_dispatch", False)
    program = pathlib.Path(sys.argv[0]).name
    try:
        metrics = train(*read_flags(settings, agents), make_player)
    except BadSetting as error:
        print(f"{program}: {error} (--help lists every flag)", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        end_at_once()
    return 130 if metrics["interrupted"] else 0


if __name__ == "__main__":
    sys.exit(main())
