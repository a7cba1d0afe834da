"""What a run needs that lasts for days or spans machines: several processes, and checkpoints that survive any end.

with long_run.processes(config):  # joins the others, and ends this process within seconds of the death of another
    with long_run.Checkpoints(config, output / "checkpoints") as checkpoints:
        step, tree = checkpoints.restore(tree)  # 0 and `tree` itself, where there is none yet
        ...
        checkpoints.save(step, tree)  # goes on in the background
"""

import dataclasses
import fcntl
import inspect
import itertools
import json
import logging
import os
import pathlib
import select
import socket
import sys
import threading
import time
import zlib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
from jax.experimental import multihost_utils
from program import BadFlag, Settings, as_flag, flag

TRY_AGAIN = os.EX_TEMPFAIL  # 75, the exit status of a process that stops because another one died


@dataclasses.dataclass(frozen=True)
class LongRun(Settings):
    """Flags of a run over many devices, in one process or several. None of them changes what is computed."""

    coordinator: str = flag("", "host:port of process 0 of several; auto asks SLURM, Kubernetes or MPI for all three")
    num_processes: int = flag(1, "how many processes train together", 1)
    process_id: int = flag(0, "which of them this is", 0)
    wait: int = flag(300, "seconds to wait for the other processes to begin", 1)
    heartbeat: int = flag(30, "seconds of silence after which a process counts as dead", 2)
    devices: int = flag(0, "devices of this process to use, made out of its CPU where it has fewer; 0 uses all", 0)
    checkpoint_every: int = flag(100, "steps between two checkpoints; 0 keeps none but the last", 0)
    keep_checkpoints: int = flag(3, "how many of the latest checkpoints to keep", 1)
    output: str = flag("", "folder for checkpoints and results")
    progress: bool = flag(True, "show a progress bar")


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


@contextmanager
def processes(config: LongRun) -> Iterator[list[Any]]:
    """Joins the other processes of the run, where there are any, and gives the devices of all.

    Where one of them is killed, or loses its machine, the others would wait for its part of a sum for ever. Instead
    they exit with status 75 and one line: at once where the connection breaks, else after `--heartbeat` seconds.
    """
    if not config.coordinator:
        if config.num_processes > 1:
            raise BadFlag("argument --coordinator: several processes need the host:port of the first one")
        yield make_devices(config)
        return
    join(config)
    devices = make_devices(config)
    if np.unique(multihost_utils.process_allgather(np.uint32(crc(identity(config))))).size > 1:
        raise BadFlag("the processes of one run need the same settings, and these have different ones")
    watch = Watch(config)
    try:
        yield devices
    except BadFlag:
        watch.leave("fails")
        raise
    except Exception:
        watch.thread.join(timeout=5)  # a broken sum may be all that this process sees of the death of another
        watch.leave("fails")
        raise
    watch.leave("leaves")


def join(config: LongRun) -> None:
    """Connects this process with the others. On CPUs they exchange arrays by Gloo."""
    if jax.distributed.is_initialized():
        return
    host, _, port = config.coordinator.rpartition(":")
    if config.coordinator != "auto" and not (host and port.isdecimal()):
        raise BadFlag(f"argument --coordinator: must be host:port or auto, not {config.coordinator!r}")
    if config.process_id >= config.num_processes:
        limits = f"less than --num-processes, which is {config.num_processes}"
        raise BadFlag(f"argument --process-id: must be {limits}, not {config.process_id}")
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    where: dict[str, Any] = {}
    if config.coordinator != "auto":
        where |= {"coordinator_address": config.coordinator}
        where |= {"num_processes": config.num_processes, "process_id": config.process_id}
    missed = f"not all of its {config.num_processes} processes came" if where else "not all processes came"
    alarm = threading.Timer(config.wait, end, [f"{missed} to {config.coordinator} within {config.wait} s"])
    alarm.start()
    try:
        # JAX's own limits end a process too, but with a stack trace: they come after ours.
        where |= {
            "initialization_timeout": config.wait + 60,
            "heartbeat_timeout_seconds": max(100, 3 * config.heartbeat),
        }
        jax.distributed.initialize(**where)
    except (RuntimeError, ValueError) as error:
        raise BadFlag(f"argument --coordinator: {config.coordinator}: {first_line(error)}") from None
    finally:
        alarm.cancel()


def end(why: str) -> None:
    """Ends this process at once, whatever it waits for."""
    print(f"\nstopped: {why}", file=sys.stderr, flush=True)
    os._exit(TRY_AGAIN)


class Watch:
    """Every process keeps a connection to process 0, over which each says twice a second that it is alive."""

    def __init__(self, config: LongRun):
        self.patience, self.output = config.heartbeat, config.output
        self.peers: dict[socket.socket, int] = {}
        self.leaving = threading.Event()
        if jax.process_index() == 0:
            with socket.create_server(("", 0), backlog=jax.process_count()) as server:
                host = config.coordinator.rpartition(":")[0] or socket.gethostname()
                tell_all(f"{host}:{server.getsockname()[1]}")
                server.settimeout(60)
                for _ in range(jax.process_count() - 1):
                    peer, _ = server.accept()
                    self.peers[peer] = int.from_bytes(peer.recv(4), "big")
        else:
            host, _, port = tell_all("").rpartition(":")
            peer = socket.create_connection((host, int(port)), timeout=60)
            peer.sendall(jax.process_index().to_bytes(4, "big"))
            self.peers[peer] = 0
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self) -> None:
        heard = dict.fromkeys(self.peers, time.monotonic())
        while self.peers and not self.leaving.is_set():
            for peer in select.select(list(self.peers), [], [], 0.5)[0]:
                words, number = self.hear(peer), self.peers[peer]
                heard[peer] = time.monotonic()
                if "leaves" in words:
                    del self.peers[peer]
                    peer.close()
                elif "fails" in words:
                    self.leaving.wait(3)  # this process may be about to fail as well, and to say why
                    self.stop(number)
                elif "lost" in words:
                    self.stop(int(words[words.index("lost") + 1]))
                elif not words:
                    self.stop(number)
            self.tell("lives\n")
            for peer, number in self.peers.items():
                if time.monotonic() - heard[peer] > self.patience:
                    self.stop(number)

    def hear(self, peer: socket.socket) -> list[str]:
        try:
            return peer.recv(4096).decode().split()
        except OSError:
            return []

    def tell(self, line: str) -> None:
        for peer in self.peers:
            with suppress(OSError):  # the next look at it will tell
                peer.sendall(line.encode())

    def stop(self, number: int) -> None:
        """Says that a process is lost, and ends this one; unless it is ending anyway."""
        self.tell(f"lost {number}\n")
        if not self.leaving.is_set():
            who = f"process {number} of {jax.process_count()} ended, or was silent for {self.patience} s"
            then = f"start them all again to go on from the last checkpoint in {self.output}"
            end(f"{who}, and process {jax.process_index()} needs it; {then}")

    def leave(self, word: str) -> None:
        """Ends the watch. The others go on without this process only if it leaves in good order."""
        self.leaving.set()
        self.tell(f"{word}\n")
        self.thread.join(timeout=5)
        for peer in self.peers:
            peer.close()


def tell_all(line: str) -> str:
    """The line of process 0, in every process."""
    letters = np.frombuffer(line.encode().ljust(300), np.uint8)
    return np.asarray(multihost_utils.broadcast_one_to_all(letters)).astype(np.uint8).tobytes().decode().strip()


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
        self.options = ocp.CheckpointManagerOptions(max_to_keep=config.keep_checkpoints, cleanup_tmp_directories=True)
        for name in ("absl", "asyncio"):
            logging.getLogger(name).setLevel(logging.CRITICAL)  # what Orbax logs, it raises too
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

    def ignore_late_answers(self, event: Any) -> None:
        """Where one array cannot be read, Orbax gives up the others; what comes of those then finds nobody."""
        if not (inspect.iscoroutine(event.object) or "Event loop is closed" in str(event.exc_value)):
            self.usual_hook(event)

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
                    (self.folder / str(step)).rename(free_name(self.folder, f"damaged-{step}"))
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


def free_name(folder: pathlib.Path, name: str) -> pathlib.Path:
    """`name`, or `name-2`, `name-3` and so on: the first that nothing has, be it a folder, a file or a broken link."""
    names = itertools.chain([name], (f"{name}-{i}" for i in itertools.count(2)))
    return next(folder / name for name in names if not os.path.lexists(folder / name))


def crc(values: dict[str, Any]) -> int:
    return zlib.crc32(json.dumps(values, sort_keys=True).encode())


def first_line(error: Exception) -> str:
    text = str(error.args[0] if isinstance(error, KeyError) and error.args else error).strip()
    return (text or type(error).__name__).splitlines()[0][:200]
