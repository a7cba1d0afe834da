"""What a run needs that lasts for days or spans machines: several processes, and checkpoints that survive any end.

devices = long_run.join(config)  # of this process and all others
with long_run.Checkpoints(config, output / "checkpoints") as checkpoints:
    step, tree = checkpoints.restore(tree)  # 0 and `tree` itself, where there is none yet
    ...
    checkpoints.save(step, tree)  # goes on in the background

Where a process dies, the others would wait for its part of a sum for ever. JAX ends them: at once where process 0 died,
which coordinates them, else after `--heartbeat` seconds. They abort (status 134 in a shell), and log which process it
was and "Terminating process because the JAX distributed service detected fatal errors". Where one ends of itself, after
an error, the others follow after twice that time. Starting all of them again goes on from the last checkpoint.

The checkpoints are Orbax's. Here is what it does not do: notice that a file holds other numbers than were saved, keep
two runs from removing each other's checkpoints, refuse to go on under other settings than a run began with.
"""

import dataclasses
import fcntl
import inspect
import json
import os
import pathlib
import sys
import tempfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import Annotated, Any

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
from jax.experimental import multihost_utils
from program import BadFlag, as_flag
from settings import Between, Count, Settings


@dataclasses.dataclass(frozen=True)
class LongRun(Settings):
    """Flags of a run over many devices, in one process or several. None of them changes what is computed."""

    coordinator: str = ""  # host:port of process 0 of several; auto asks SLURM, Kubernetes or MPI for all three
    num_processes: Count = 1  # how many processes train together
    process_id: Annotated[int, Between(0)] = 0  # which of them this is
    wait: Count = 300  # seconds to wait for the other processes to begin
    heartbeat: Annotated[int, Between(2)] = 30  # seconds of silence after which a process counts as dead
    devices: Annotated[int, Between(0)] = 0
    """devices of this process to use, made out of its CPU where it has fewer; 0 uses all"""
    checkpoint_every: Annotated[int, Between(0)] = 100  # steps between two checkpoints; 0 keeps none but the last
    keep_checkpoints: Count = 3  # how many of the latest checkpoints to keep
    output: str = ""  # folder for checkpoints and results
    progress: bool = True  # show a progress bar


def identity(config: LongRun, free: Sequence[str] = ()) -> dict[str, Any]:
    """The settings that decide what is computed: all but those of `LongRun`, and those named in `free`."""
    free = [*free, *(field.name for field in dataclasses.fields(LongRun))]
    return {name: value for name, value in dataclasses.asdict(config).items() if name not in free}


def divide_cpu(devices: int) -> None:
    """Makes a CPU several devices. It has to be told so before JAX first looks for devices."""
    if "xla_force_host_platform_device_count" not in os.environ.get("XLA_FLAGS", ""):
        with suppress(RuntimeError):  # it has looked already
            jax.config.update("jax_num_cpu_devices", devices)


def make_devices(config: LongRun) -> list[Any]:
    """The devices to use, of all processes: `--devices` of each."""
    if config.devices:
        divide_cpu(config.devices)
    used = config.devices or jax.local_device_count()
    if used > jax.local_device_count():
        raise BadFlag(f"argument --devices: there are {jax.local_device_count()}, not {used}")
    by_process = [[d for d in jax.devices() if d.process_index == i] for i in range(jax.process_count())]
    if {len(devices) for devices in by_process} != {jax.local_device_count()}:
        raise BadFlag(f"argument --devices: processes have {[len(d) for d in by_process]}, and need the same number")
    return [device for devices in by_process for device in devices[:used]]


def join(config: LongRun) -> list[Any]:
    """Connects this process with the others of the run, where there are any, and gives the devices of all."""
    if config.coordinator and not jax.distributed.is_initialized():
        host, _, port = config.coordinator.rpartition(":")
        if config.coordinator != "auto" and not (host and port.isdecimal()):
            raise BadFlag(f"argument --coordinator: must be host:port or auto, not {config.coordinator!r}")
        if config.process_id >= config.num_processes:
            limits = f"less than --num-processes, which is {config.num_processes}"
            raise BadFlag(f"argument --process-id: must be {limits}, not {config.process_id}")
        where = (config.coordinator, config.num_processes, config.process_id) if host else ()
        jax.distributed.initialize(
            *where,
            initialization_timeout=config.wait,
            heartbeat_timeout_seconds=config.heartbeat,
            shutdown_timeout_seconds=2 * config.heartbeat,
        )
    if config.num_processes > 1 and not config.coordinator:
        raise BadFlag("argument --coordinator: several processes need the host:port of the first one")
    devices = make_devices(config)
    if jax.process_count() > 1 and np.ptp(multihost_utils.process_allgather(np.uint32(crc(identity(config))))):
        raise BadFlag("the processes of one run need the same settings, and these have different ones")
    return devices


def any_process(flag: bool) -> bool:
    """Whether it is true in any process. All have to ask at the same step."""
    return flag if jax.process_count() == 1 else bool(np.any(multihost_utils.process_allgather(np.array(flag))))


@jax.jit
def checksum(tree: Any) -> jax.Array:
    """A sum over the bits of all arrays, `uint32[]`: the same however they are laid out over devices."""
    total = jnp.uint32(0)
    for i, x in enumerate(jax.tree.leaves(tree)):
        x = jax.random.key_data(x) if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else jnp.asarray(x)
        x = x.astype(jnp.uint8) if x.dtype == bool else x
        bits = jax.lax.bitcast_convert_type(x, f"uint{8 * min(4, x.dtype.itemsize)}")
        total += jnp.uint32(2 * i + 1) * jnp.sum(bits.astype(jnp.uint32))
    return total


class Checkpoints:
    """The last few complete states of a run, each a folder that Orbax writes and names by the step.

    A state is any tree of arrays: parameters, optimizer state, key, position in the data. Its folder gets its name only
    when it is complete, so that a program that is killed while it writes leaves the one before as the last. A run goes
    on only under the settings that it began with, but for those of `LongRun` and those named in `free`, and only where
    no other run goes on in the same folder: each would remove what the other one keeps.
    """

    def __init__(self, config: LongRun, folder: pathlib.Path, free: Sequence[str] = ()):
        self.folder, self.settings = folder.absolute(), identity(config, free)
        self.options = ocp.CheckpointManagerOptions(
            max_to_keep=config.keep_checkpoints, cleanup_tmp_directories=True, lightweight_initialize=True
        )
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with ExitStack() as until_this_fails:
                until_this_fails.enter_context(locked(self.folder))
                self.manager = ocp.CheckpointManager(self.folder, options=self.options)
                self.lock = until_this_fails.pop_all()
        except BadFlag:
            raise
        except (OSError, ValueError) as error:
            raise BadFlag(f"{folder} cannot hold checkpoints: {first_line(error)}; choose another --output") from None
        self.gave_up = False
        self.usual_hook, sys.unraisablehook = sys.unraisablehook, self.ignore_late_answers

    def __enter__(self) -> "Checkpoints":
        return self

    def __exit__(self, *_: Any) -> None:
        with self.lock, self.writing():
            self.manager.close()  # waits for what is being written
        if not self.gave_up:
            sys.unraisablehook = self.usual_hook

    def ignore_late_answers(self, event: Any) -> None:
        """Where one array cannot be read or written, Orbax gives up the others; what comes of those finds nobody."""
        if not (inspect.iscoroutine(event.object) or "Event loop is closed" in str(event.exc_value)):
            self.usual_hook(event)

    def save(self, step: int, tree: Any) -> None:
        """Begins to write a state. It is copied before this returns, and written in the background."""
        check = {"settings": self.settings, "checksum": int(checksum(tree))}
        parts = {"state": ocp.args.StandardSave(tree), "check": ocp.args.JsonSave(check | {"crc": crc(check)})}
        with self.writing():
            self.manager.save(step, args=ocp.args.Composite(**parts))

    @contextmanager
    def writing(self) -> Iterator[None]:
        """What cannot be written is said in one line, by the save itself or by the one after, for it goes on behind."""
        try:
            yield
        except (OSError, ValueError) as error:
            self.gave_up = True
            why = f"cannot write a checkpoint in {self.folder}: {first_line(error)}"
            kept = "those that are complete stay, and the same command goes on from the last one"
            raise BadFlag(f"argument --output: {why}; {kept}") from None

    def restore(self, tree: Any) -> tuple[int, Any]:
        """Reads the newest complete state.

        `tree` is the state that a new run would begin with, or only its shapes, dtypes and shardings: the arrays that
        are read come to lie as those of `tree`, whatever devices had them when they were saved. Returns the step with
        the state; 0 with `tree` where there is no checkpoint yet.

        A checkpoint that is damaged is set aside, with one line that says so, and the one before is read. Where none
        can be read, or a run with other settings wrote them, that is a `BadFlag`, and the folder stays as it is.
        """
        damaged: dict[int, str] = {}
        steps = sorted(self.manager.all_steps(), reverse=True)
        for step in steps:
            try:
                found, problem = self.read(step, tree), ""
            except BadFlag:
                raise
            except Exception as error:  # Orbax and its storage raise whatever they stumble over
                found, problem = None, first_line(error)
                self.gave_up = True
            if not any_process(found is None):
                self.set_aside(damaged)
                return step, found
            damaged[step] = problem or "another process cannot read it"
        if not steps:
            return 0, tree
        problems = "; ".join(f"step {step}: {problem}" for step, problem in damaged.items())
        raise BadFlag(f"no checkpoint in {self.folder} can be read ({problems}): remove it, or choose another --output")

    def read(self, step: int, tree: Any) -> Any:
        check = self.manager.restore(step, args=ocp.args.Composite(check=ocp.args.JsonRestore()))["check"]
        if check.pop("crc") != crc(check):
            raise ValueError("its settings are not those that were written")
        self.compare_settings(check["settings"])
        like = jax.tree.map(
            lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=getattr(x, "sharding", None)), tree
        )
        state = self.manager.restore(step, args=ocp.args.Composite(state=ocp.args.StandardRestore(like)))["state"]
        if int(checksum(state)) != check["checksum"]:
            raise ValueError("its arrays are not those that were written")
        return state

    def compare_settings(self, theirs: dict[str, Any]) -> None:
        for name in sorted(theirs.keys() | self.settings.keys()):
            if theirs.get(name) != self.settings.get(name):
                was, now = (
                    f"{as_flag(name)} {values[name]}" if name in values else f"no {as_flag(name)}"
                    for values in (theirs, self.settings)
                )
                raise BadFlag(
                    f"the checkpoints in {self.folder} are of another run ({was}, now {now}): "
                    "give the same settings to go on with it, or choose another --output"
                )

    def set_aside(self, damaged: dict[int, str]) -> None:
        for step, problem in damaged.items():
            if jax.process_index() == 0:
                with self.writing():
                    (self.folder / str(step)).rename(tempfile.mkdtemp(prefix=f"damaged-{step}-", dir=self.folder))
                print(f"checkpoint {step} in {self.folder} is damaged ({problem}): going on from the one before")
        if damaged:
            any_process(False)  # nobody looks at the folder again before all are aside
            self.manager.reload()


@contextmanager
def locked(folder: pathlib.Path) -> Iterator[None]:
    """Refuses a folder that another run has. The lock is this process's, and ends with it, however it ends."""
    with ExitStack() as stack:
        taken = False
        if jax.process_index() == 0:
            descriptor = os.open(folder, os.O_RDONLY)
            stack.callback(os.close, descriptor)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                taken = True
            except OSError as error:  # not every file system has locks
                print(f"{folder} cannot be locked ({first_line(error)}): see to it that no other run uses it")
        if any_process(taken):
            why = "and each would remove checkpoints of the other: wait until it ends, or choose another --output"
            raise BadFlag(f"argument --output: another run goes on in {folder}, {why}")
        yield


def crc(values: dict[str, Any]) -> int:
    return zlib.crc32(json.dumps(values, sort_keys=True).encode())


def first_line(error: Exception) -> str:
    text = str(error.args[0] if isinstance(error, KeyError) and error.args else error).strip()
    return (text or type(error).__name__).splitlines()[0][:200]
