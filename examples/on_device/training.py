"""Shared code of the programs in this folder: runs a compiled learner in chunks, saves, resumes and evaluates it.

A learner is a pair of pure functions for one agent, `init(key, numbers) -> state` and `update(state, _) -> (state,
metrics)`. Here they become one compiled program: a `scan` of updates, under `vmap` for several agents and `shard_map`
for several devices, with donated buffers. Between two calls of it, Python checks for Ctrl-C, saves a checkpoint if it
is time, and updates the progress bar.
"""

import dataclasses
import json
import pathlib
import sys
import time
import zipfile
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Annotated, Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from dm_env import specs
from environments import Environment, UnknownEnvironment, make
from jax.sharding import AxisType, NamedSharding, PartitionSpec
from program import BadFlag, as_flag, noticing_interrupts, output_folder, save_parameters, whole_file
from settings import Between, Count, Seed, Settings
from tqdm import tqdm
from tyro.constructors import PrimitiveConstructorSpec

EVALUATION_LIMIT = 10_000  # steps; for an episode that never ends, the return up to here counts
CHUNK_LIMIT = 2**22  # environment steps per agent and chunk
# For CPUs: with XLA's default options, compiling takes longer than learning Catch. Less effort gives slower programs.
LITTLE_EFFORT = {"xla_cpu_use_fusion_emitters": False, "xla_cpu_parallel_codegen_split_count": 1}
LEAST_EFFORT = LITTLE_EFFORT | {"xla_backend_optimization_level": 0}
UNREADABLE = OSError, EOFError, KeyError, TypeError, ValueError, zipfile.BadZipFile  # from a damaged checkpoint


# One number for all agents, or several that the agents use in turn: on the command line, `0.001` or `0.001,0.0003`.
Each = Annotated[
    tuple[float, ...],
    PrimitiveConstructorSpec(
        nargs=1,
        metavar="FLOAT,...",
        instance_from_str=lambda texts: tuple(map(float, texts[0].split(","))),
        is_instance=lambda value: isinstance(value, tuple),
        str_from_instance=lambda value: [",".join(map(str, value))],
    ),
]
Shares = Annotated[Each, Between(0, 1)]


@dataclasses.dataclass(frozen=True)
class RunSettings(Settings):
    """The settings that all programs here have. Every field is a flag of the command line."""

    env: str = "catch"  # environment: a file of examples/environments, or gymnax:NAME
    seed: Seed = 0  # seed of the first agent; the others have the following seeds
    steps: Count = 43_200  # environment steps per agent, in all its environments
    environments: Count = 32  # parallel environments per agent
    agents: Count = 1  # independent agents that learn in parallel
    devices: Count = 1  # devices among which the agents are divided
    evaluation_episodes: Count = 128  # greedy episodes in the final evaluation
    output: str = "runs/on_device"  # folder for the metrics, the curve, the parameters and the checkpoint
    resume: bool = False  # continue from the checkpoint in --output, if there is one
    progress: bool = True  # show a progress bar

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.agents % self.devices:
            wrong = f"{self.agents} agents cannot be divided among {self.devices} devices"
            raise BadFlag(f"argument --devices: {wrong}; give a multiple of {self.devices} as --agents")


def find_environment(config: RunSettings) -> Environment:
    """The environment that `--env` names."""
    try:
        return make(config.env)
    except UnknownEnvironment as error:
        raise BadFlag(f"argument --env: {error}") from None


def number_of_actions(config: RunSettings, environment: Environment) -> int:
    """The number of actions, for a learner with discrete actions."""
    spec = environment.action_spec()
    if not hasattr(spec, "num_values"):
        raise BadFlag(f"argument --env: the actions of {config.env} are continuous, not discrete; use sac.py")
    return spec.num_values


def bounds_of_actions(config: RunSettings, environment: Environment) -> specs.BoundedArray:
    """The spec of actions [D] with finite bounds, for a learner with continuous actions."""
    spec = environment.action_spec()
    if hasattr(spec, "num_values"):
        raise BadFlag(f"argument --env: the actions of {config.env} are discrete, not continuous; use ppo.py")
    bounds = getattr(spec, "minimum", -np.inf), getattr(spec, "maximum", np.inf)
    if len(spec.shape) != 1 or not np.all(np.isfinite(bounds)):
        raise BadFlag(f"argument --env: actions must be vectors of bounded numbers; those of {config.env} are {spec}")
    return spec


def check_minibatches(config: Any) -> None:
    """Raises BadFlag unless the environments can be divided equally into minibatches."""
    if config.environments % config.minibatches:
        wrong = f"{config.environments} environments cannot be divided into {config.minibatches} minibatches"
        raise BadFlag(f"argument --minibatches: {wrong}; give a divisor of {config.environments}")


def check_capacity(config: Any) -> None:
    """Raises BadFlag unless the replay buffer has room for a step of all environments."""
    if config.capacity < config.environments:
        least = f"at least the number of environments, {config.environments}"
        raise BadFlag(f"argument --capacity: must be {least}, not {config.capacity}")


AnySettings = TypeVar("AnySettings", bound=RunSettings)


class Learner(NamedTuple):
    """One agent as pure functions. Its state has a field `params`, a two-level dict as from `hkx.transform`."""

    init: Callable[[jax.Array, dict[str, jax.Array]], Any]  # (key, numbers) -> state
    update: Callable[[Any, None], tuple[Any, dict[str, jax.Array]]]  # (state, _) -> (state, metrics)
    act: Callable[[Any, Any, Any], tuple[Any, Any]]  # (params, observations [B], memory) -> (greedy actions, memory)
    memory: Callable[[int], Any]  # the initial memory of `act`, for a number of episodes; () without memory
    updates: int  # the total number of updates
    steps_per_update: int
    compiler_options: dict[str, Any] | None = None  # for the updates on a CPU; None for XLA's defaults


def exploration(numbers: dict[str, jax.Array], trained: jax.Array) -> jax.Array:
    """The probability of a random action after this share of the training: from 1 linearly to `epsilon_end`."""
    over = numbers["exploration"]
    left = jnp.where(over > 0, 1 - trained / jnp.where(over > 0, over, 1), 0)
    return jnp.maximum(numbers["epsilon_end"], left)


def episodes(returns: jax.Array, ended: jax.Array) -> dict[str, jax.Array]:
    """The metrics of the episodes that ended in an update."""
    return {"returns": jnp.sum(jnp.where(ended, returns, 0)), "episodes": jnp.sum(ended, dtype=jnp.float32)}


def over_agents(config: RunSettings, function: Callable[..., Any]) -> Callable[..., Any]:
    """Converts a function of one agent to one of arrays with an axis of agents, divided among the devices."""

    def of_one(*arrays: Any) -> Any:
        return jax.tree.map(
            lambda x: jnp.expand_dims(x, 0), function(*jax.tree.map(partial(jnp.squeeze, axis=0), arrays))
        )

    on_each = jax.vmap(function) if config.agents > config.devices else of_one
    if config.devices == 1:
        return on_each
    by_agent = PartitionSpec("agents")
    return jax.shard_map(on_each, mesh=mesh(config), in_specs=by_agent, out_specs=by_agent, check_vma=False)


def mesh(config: RunSettings) -> jax.sharding.Mesh:
    with suppress(RuntimeError):  # the devices exist already
        jax.config.update("jax_num_cpu_devices", config.devices)  # only affects CPUs
    found = jax.devices()
    if len(found) < config.devices:
        raise BadFlag(f"argument --devices: {config.devices} are asked for, and there are {len(found)}")
    return jax.make_mesh([config.devices], ["agents"], (AxisType.Auto,), devices=found[: config.devices])


def divide(config: RunSettings, arrays: Any) -> Any:
    """Places arrays with an axis of agents on the devices of these agents."""
    return jax.device_put(arrays, NamedSharding(mesh(config), PartitionSpec("agents")))


def seeds_of(config: RunSettings) -> np.ndarray:
    return np.arange(config.agents, dtype=np.uint32) + np.uint32(config.seed)


class Compiler:
    """Compiles programs, and adds up the wall-clock and CPU seconds that this takes."""

    def __init__(self) -> None:
        self.seconds = self.cpu_seconds = 0.0

    def __call__(
        self, function: Callable[..., Any], *arguments: Any, options: dict[str, Any] | None, donate: bool = False
    ) -> Any:
        """Compiles a program for arguments like these; the options only apply on a CPU."""
        begin, cpu_begin = time.perf_counter(), time.process_time()
        lowered = jax.jit(function, donate_argnums=range(len(arguments)) if donate else ()).lower(*arguments)
        options = options if jax.default_backend() == "cpu" else None
        try:
            program = lowered.compile(compiler_options=options)
        except jax.errors.JaxRuntimeError:  # XLA's options change between versions; without them, it only takes longer
            program = lowered.compile()
        self.seconds += time.perf_counter() - begin
        self.cpu_seconds += time.process_time() - cpu_begin
        return program


def chunks_of(updates: int, steps_per_update: int) -> tuple[int, int]:
    """The number of chunks, and of updates in each: at least 20 chunks if possible, none of more than a few seconds."""
    fewest = max(20, updates * steps_per_update // CHUNK_LIMIT)
    count = min(range(fewest, 2 * fewest), key=lambda n: -(-updates // n) * n - updates)
    each = -(-updates // count)
    return -(-updates // each), each


@dataclasses.dataclass
class Run:
    """The state of a run, and its files."""

    config: RunSettings
    learner: Learner
    folder: pathlib.Path
    state: Any  # the learner's state, for all agents
    history: list[dict[str, list[float]]]  # the metrics of each chunk, with a number for each agent
    finished: bool = False
    seconds: float = 0.0  # wall-clock time in the compiled program
    cpu_seconds: float = 0.0  # and CPU time
    saved_at: float = 0.0
    saving_took: float = 0.0

    @property
    def checkpoint(self) -> pathlib.Path:
        return self.folder / "checkpoint.npz"

    def settings(self) -> dict[str, Any]:
        """The settings that determine the results: all flags except those for devices, output and evaluation."""
        apart = {"output", "resume", "progress", "devices", "evaluation_episodes"}
        return {name: value for name, value in vars(self.config).items() if name not in apart}

    def spent(self) -> dict[str, float]:
        return {"seconds_to_run": self.seconds, "cpu_seconds_to_run": self.cpu_seconds}

    def save(self) -> None:
        """Writes the checkpoint: the state, the settings and the history."""
        begin = time.perf_counter()
        run = {"settings": self.settings(), "history": self.history, "finished": self.finished}
        about = json.dumps(run | self.spent())
        arrays = {name: np.asarray(x) for name, x in named_arrays(self.state).items()}
        with whole_file(self.checkpoint) as unfinished:
            np.savez(unfinished, about=about, **arrays)
        self.saved_at = time.perf_counter()
        self.saving_took = self.saved_at - begin

    def try_to_save(self) -> BadFlag | None:
        """Saves if possible, so that learning continues if the disk is full for a while."""
        try:
            self.save()
        except BadFlag as error:
            self.saved_at, self.saving_took = time.perf_counter(), 0.1
            tqdm.write(f"{error}; the previous checkpoint is intact", file=sys.stderr)
            return error
        return None

    def save_now_and_then(self) -> None:
        """Saves if it is time: saving may take up to a hundredth of the time."""
        if time.perf_counter() - self.saved_at > 100 * self.saving_took:
            self.try_to_save()

    def check_that_nothing_is_lost(self) -> None:
        """Raises BadFlag if the folder holds a run that was interrupted, and would be overwritten."""
        finished = True
        with suppress(*UNREADABLE), open(self.checkpoint, "rb") as opened, np.load(opened) as file:
            finished = json.loads(str(file["about"]))["finished"]
        if not finished:
            there = f"{self.folder} holds a run that was interrupted"
            raise BadFlag(f"argument --output: {there}; --resume continues it, and another folder begins anew")

    def load(self, shapes: Any) -> None:
        """Reads the checkpoint, which must be from a run with the same settings."""
        try:
            with open(self.checkpoint, "rb") as opened, np.load(opened) as file:
                arrays = dict(file)
            about = json.loads(str(arrays.pop("about")))
            settings, self.history = about["settings"], about["history"]
            self.seconds, self.cpu_seconds = about["seconds_to_run"], about["cpu_seconds_to_run"]
        except UNREADABLE:
            raise BadFlag(f"argument --resume: {self.checkpoint} does not hold a checkpoint") from None
        for name, value in json.loads(json.dumps(self.settings())).items():
            if settings.get(name) != value:
                was = f"{as_flag(name)} was {settings.get(name)} there, and is {value} now"
                raise BadFlag(f"argument --resume: {self.checkpoint} is of another run: {was}")
        like = jax.eval_shape(named_arrays, shapes)
        if {name: (x.shape, x.dtype) for name, x in arrays.items()} != {n: (x.shape, x.dtype) for n, x in like.items()}:
            raise BadFlag(f"argument --resume: {self.checkpoint} holds the arrays of another learner")

        def saved(path: Any, shape: Any) -> Any:
            array = arrays[jax.tree_util.keystr(path)]
            return jax.random.wrap_key_data(array) if is_key(shape) else array

        self.state = divide(self.config, jax.tree.map_with_path(saved, shapes))

    def evaluate(self, compiled: Compiler) -> list[float]:
        """The mean return of each agent's greedy episodes."""
        play = over_agents(self.config, partial(greedy_return, self.config, self.learner))
        arguments = self.state.params, divide(self.config, seeds_of(self.config))
        return np.asarray(compiled(play, *arguments, options=LEAST_EFFORT)(*arguments)).tolist()

    def write(self, metrics: dict[str, Any]) -> None:
        """Writes the results of a run: metrics, curve and parameters."""
        params = jax.tree.map(np.asarray, self.state.params)
        params = params if self.config.agents > 1 else jax.tree.map(lambda x: x[0], params)
        text = json.dumps(metrics, indent=1)
        save_parameters(self.folder / "parameters.npz", params)
        with whole_file(self.folder / "metrics.json") as unfinished:
            unfinished.write_text(text + "\n")
        save_curve(self.folder / "curve.png", self.config, metrics)
        print(f"saved metrics.json, curve.png, parameters.npz and checkpoint.npz in {self.folder}")


def named_arrays(tree: Any) -> dict[str, Any]:
    """The arrays of a tree, by path; typed keys as raw data."""
    leaves = jax.tree.leaves_with_path(tree)
    return {jax.tree_util.keystr(path): jax.random.key_data(x) if is_key(x) else x for path, x in leaves}


def is_key(x: Any) -> bool:
    return jnp.issubdtype(x.dtype, jax.dtypes.prng_key)


def greedy_return(config: RunSettings, learner: Learner, params: Any, seed: jax.Array) -> jax.Array:
    """The mean return of one agent over episodes that are played in parallel."""
    environment, count = find_environment(config), config.evaluation_episodes
    reset_key, key = jax.random.split(jax.random.key(seed + np.uint32(2**31)))  # different from the keys of training
    state, timestep = jax.vmap(environment.reset)(jax.random.split(reset_key, count))

    def play(carry: Any) -> Any:
        n, state, observation, memory, ended, total = carry
        action, memory = learner.act(params, observation, memory)
        keys = jax.random.split(jax.random.fold_in(key, n), count)
        state, timestep = jax.vmap(environment.step)(keys, state, action)
        total += jnp.where(ended, 0, timestep.reward)
        return n + 1, state, timestep.observation, memory, ended | timestep.last(), total

    def goes_on(carry: Any) -> jax.Array:
        return (carry[0] < EVALUATION_LIMIT) & ~jnp.all(carry[4])

    start = (0, state, timestep.observation, learner.memory(count), jnp.zeros(count, bool), jnp.zeros(count))
    return jnp.mean(jax.lax.while_loop(goes_on, play, start)[-1])


def mean_returns(history: list[dict[str, list[float]]]) -> np.ndarray:
    """The mean return of the episodes that ended in each chunk, [chunks, agents]; NaN where none did."""
    total = np.array([chunk["returns"] for chunk in history])
    ended = np.array([chunk["episodes"] for chunk in history])
    return np.divide(total, ended, out=np.full(total.shape, np.nan), where=ended > 0)


def curve(history: list[dict[str, list[float]]], chunk_steps: int) -> dict[str, list[Any]]:
    """The data of the curve, as columns: for each chunk, a list with a number for each agent, or None for NaN."""
    columns = {name: np.array([chunk[name] for chunk in history]) for name in (history or [{}])[0]}
    returns = {"return": mean_returns(history)} if history else {"return": np.zeros([0, 1])}
    rest = {name: column for name, column in columns.items() if name not in ("returns", "episodes")}
    steps = [chunk_steps * (n + 1) for n in range(len(history))]
    numbers = {name: np.where(np.isfinite(x), x, None).tolist() for name, x in (returns | rest).items()}
    return {"environment_steps": steps, **numbers}


def save_curve(path: pathlib.Path, config: RunSettings, metrics: dict[str, Any]) -> None:
    """Plots the returns during training: the mean and the spread over agents."""
    from matplotlib.figure import Figure  # imported here, because it is only needed at the end of training

    figure = Figure(figsize=(7.5, 4.5))
    axes = figure.subplots()
    figure.subplots_adjust(left=0.1, right=0.97, top=0.93, bottom=0.2)  # faster than automatic layout
    steps, returns = metrics["curve"]["environment_steps"], np.array(metrics["curve"]["return"], float)
    shown = ~np.isnan(returns).all(axis=1) if steps else []
    steps, returns = np.array(steps)[shown], returns.reshape(-1, config.agents)[shown]
    of_agents = f"mean of {config.agents} agents" if config.agents > 1 else "training"
    axes.plot(steps, np.nanmean(returns, axis=1), color="tab:blue", label=f"{of_agents}, as it explores")
    if config.agents > 1 and len(returns):
        spread = np.nanquantile(returns, [0, 0.25, 0.75, 1], axis=1)
        axes.fill_between(steps, spread[0], spread[3], color="tab:blue", alpha=0.15, lw=0, label="all agents")
        axes.fill_between(steps, spread[1], spread[2], color="tab:blue", alpha=0.3, lw=0, label="the middle half")
    final = np.atleast_1d(metrics["final_return"])
    axes.plot([metrics["environment_steps"]] * len(final), final, "o", color="tab:orange", label="greedy, at the end")
    axes.set(title=f"{pathlib.Path(sys.argv[0]).stem} on {config.env}", xlabel="environment steps", ylabel="return")
    axes.grid(alpha=0.3)
    figure.legend(loc="lower center", ncols=4, frameon=False, fontsize="small")
    with whole_file(path) as unfinished:
        figure.savefig(unfinished, dpi=120)


def train(config: AnySettings, make_learner: Callable[[AnySettings], Learner]) -> dict[str, Any]:
    """Trains, evaluates and saves; returns the contents of metrics.json."""
    mesh(config)  # first, because the number of CPU devices cannot change after the first array
    folder, compiled, learner = output_folder(config.output), Compiler(), make_learner(config)
    chunks, each = chunks_of(learner.updates, learner.steps_per_update)
    chunk_steps = each * learner.steps_per_update
    numbers = {
        name: np.resize(np.asarray(values, np.float32), config.agents)
        for name, values in vars(config).items()
        if isinstance(values, tuple)
    }

    def chunk(state: Any) -> tuple[Any, dict[str, jax.Array]]:
        state, metrics = jax.lax.scan(learner.update, state, length=each)
        return state, jax.tree.map(partial(jnp.mean, axis=0), metrics)

    seeds, numbers = divide(config, (seeds_of(config), numbers))
    init = over_agents(config, lambda seed, numbers: learner.init(jax.random.key(seed), numbers))
    run = Run(config, learner, folder, None, [])
    if config.resume and run.checkpoint.exists():
        run.load(jax.eval_shape(init, seeds, numbers))
    else:
        run.check_that_nothing_is_lost()
        run.state = compiled(init, seeds, numbers, options=LEAST_EFFORT)(seeds, numbers)
    run_chunk = compiled(over_agents(config, chunk), run.state, options=learner.compiler_options, donate=True)
    steps, total = len(run.history) * chunk_steps, chunks * chunk_steps
    bar = tqdm(
        desc=config.env,
        initial=steps * config.agents,
        total=total * config.agents,
        unit=" steps",
        unit_scale=True,
        disable=not config.progress,
    )
    with noticing_interrupts() as interrupted:
        while steps < total and not interrupted.is_set():
            begin, cpu_begin = time.perf_counter(), time.process_time()
            run.state, metrics = run_chunk(run.state)
            run.history.append({name: np.asarray(x).tolist() for name, x in metrics.items()})
            run.seconds += time.perf_counter() - begin
            run.cpu_seconds += time.process_time() - cpu_begin
            steps += chunk_steps
            bar.set_postfix_str(f"return {np.mean(mean_returns(run.history[-1:])):.2f}", refresh=False)
            bar.update(chunk_steps * config.agents)
            if steps < total:
                run.save_now_and_then()
        bar.close()
        run.finished = steps == total
        trouble = run.try_to_save()
        final = run.evaluate(compiled)
    metrics = {
        "final_return": final if config.agents > 1 else final[0],
        "environment_steps": steps,
        "seconds_to_compile": compiled.seconds,
        "cpu_seconds_to_compile": compiled.cpu_seconds,
        **run.spent(),
        "steps_per_second": steps * config.agents / run.seconds if run.seconds else 0.0,
        "agents": config.agents,
        "interrupted": interrupted.is_set(),
        "settings": run.settings(),
        "curve": curve(run.history, chunk_steps),
    }
    try:
        run.write(metrics)
    finally:  # print the result even if it cannot be written
        print(f"final return: {np.mean(final):.2f} over {config.evaluation_episodes} episodes", end="")
        print(f" of each of {config.agents} agents, from {min(final):.2f} to {max(final):.2f}" * (config.agents > 1))
        if interrupted.is_set():
            print(f"interrupted after {steps} of {total} steps; the same command with --resume continues")
    if trouble:
        raise trouble
    return metrics
