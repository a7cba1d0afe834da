"""Support for runs that last for days or span machines: several processes, and checkpoints that survive a crash.

devices = long_run.join(config)  # those of all processes
with long_run.Checkpoints(config, output / "checkpoints") as checkpoints:
    step, tree = checkpoints.restore(tree)  # 0 and `tree` itself, if there is no checkpoint yet
    ...
    checkpoints.save(step, tree)  # continues in the background

If a process dies, the others would wait forever for its part of a collective operation. JAX ends them: at once if the
coordinator, process 0, died, otherwise after `--heartbeat` seconds. They abort (status 134 in a shell), and log which
process died and "Terminating process because the JAX distributed service detected fatal errors". If a process exits
after an error, the others follow after twice that time. Starting all of them again continues from the last checkpoint.

The checkpoints are written by Orbax. This file adds what Orbax does not do: it detects files that have changed since
they were saved, keeps two runs from removing each other's checkpoints, and refuses to continue with other settings.
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
    """Flags of a run on many devices, in one process or several. None of them changes the results."""

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
    """The settings that affect the results: all except those of `LongRun` and those named in `free`."""
    free = [*free, *(field.name for field in dataclasses.fields(LongRun))]
    return {name: value for name, value in dataclasses.asdict(config).items() if name not in free}


def divide_cpu(devices: int) -> None:
    """Splits the CPU into several devices. This is possible only before JAX first looks for devices."""
    if "xla_force_host_platform_device_count" not in os.environ.get("XLA_FLAGS", ""):
        with suppress(RuntimeError):  # JAX has already looked for devices
            jax.config.update("jax_num_cpu_devices", devices)


def make_devices(config: LongRun) -> list[Any]:
    """The devices to use: `--devices` of each process."""
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
    """Connects this process to the other processes of the run, if there are any. Returns the devices of all."""
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
    """Whether `flag` is true in any process. All processes must call this at the same step."""
    return flag if jax.process_count() == 1 else bool(np.any(multihost_utils.process_allgather(np.array(flag))))


@jax.jit
def checksum(tree: Any) -> jax.Array:
    """A checksum of the bits of all arrays, `uint32[]`, which does not depend on how they are sharded."""
    total = jnp.uint32(0)
    for i, x in enumerate(jax.tree.leaves(tree)):
        x = jax.random.key_data(x) if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else jnp.asarray(x)
        x = x.astype(jnp.uint8) if x.dtype == bool else x
        bits = jax.lax.bitcast_convert_type(x, f"uint{8 * min(4, x.dtype.itemsize)}")
        total += jnp.uint32(2 * i + 1) * jnp.sum(bits.astype(jnp.uint32))
    return total


class Checkpoints:
    """The last few complete states of a run, each in a folder that Orbax writes and names after the step.

    A state is any tree of arrays: parameters, optimizer state, key, position in the data. Its folder is renamed when it
    is complete, so if the program is killed while writing, the previous one remains the newest. A run can be continued
    only with the same settings, except for those of `LongRun` and those named in `free`, and only if no other run is
    using the same folder, because each would remove the other's checkpoints.
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
            self.manager.close()  # waits until everything has been written
        if not self.gave_up:
            sys.unraisablehook = self.usual_hook

    def ignore_late_answers(self, event: Any) -> None:
        """Drops late errors from reads and writes that Orbax abandoned because those of another array failed."""
        if not (inspect.iscoroutine(event.object) or "Event loop is closed" in str(event.exc_value)):
            self.usual_hook(event)

    def save(self, step: int, tree: Any) -> None:
        """Starts writing a state. The state is copied before this returns, and written in the background."""
        check = {"settings": self.settings, "checksum": int(checksum(tree))}
        parts = {"state": ocp.args.StandardSave(tree), "check": ocp.args.JsonSave(check | {"crc": crc(check)})}
        with self.writing():
            self.manager.save(step, args=ocp.args.Composite(**parts))

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Turns write errors into a one-line BadFlag. One in the background is raised by the next call."""
        try:
            yield
        except (OSError, ValueError) as error:
            self.gave_up = True
            why = f"cannot write a checkpoint in {self.folder}: {first_line(error)}"
            kept = "those that are complete stay, and the same command goes on from the last one"
            raise BadFlag(f"argument --output: {why}; {kept}") from None

    def restore(self, tree: Any) -> tuple[int, Any]:
        """Reads the newest complete state.

        `tree` is the initial state of a new run, or only its shapes, dtypes and shardings. The arrays get the shardings
        of `tree`, whatever they were when saved. Returns the step and the state, or 0 and `tree` if there is no
        checkpoint yet.

        A damaged checkpoint is set aside, with a one-line message, and the previous one is read. If none can be read,
        or they were written with other settings, a `BadFlag` is raised, and the folder is left unchanged.
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
            any_process(False)  # a barrier: no process reads the folder again before all have been moved
            self.manager.reload()


@contextmanager
def locked(folder: pathlib.Path) -> Iterator[None]:
    """Raises BadFlag if another run uses the folder. The lock ends with this process, even if that crashes."""
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
