"""A transformer that learns to write, character by character, on one device or on many machines.

It reads the New Testament (1 MB) and predicts each next character. Parameters and optimiser state are divided over a
mesh of devices, data x model: FSDP and tensor parallelism, by the rules of `hkx.nets.decoder_sharding_rules`.

    pip install hkx optax tyro matplotlib orbax-checkpoint && python transformer_lm.py  # two minutes on two cores
    python transformer_lm.py --devices 8 --mesh 2x4  # the same on 8 devices, of a CPU too
    python transformer_lm.py --size pod --check  # 70 billion parameters on 32x8 devices: bytes and collectives

Several processes train together with `--coordinator`: see docs/parallel.md. After Ctrl-C, or anything worse, the same
command continues from the last checkpoint. It ends with "test loss: 1.465 nats per character after 400 steps".
"""

import dataclasses
import math
import os
import pathlib
import re
import signal
import sys
import time
from collections import Counter, namedtuple
from functools import cache
from typing import Any, Literal

try:
    import jax
    import jax.numpy as jnp
    import numpy as np
    import optax
    import orbax.checkpoint as ocp
    import tyro
    from jax.sharding import AbstractMesh, Mesh, NamedSharding, PartitionSpec
    from matplotlib.figure import Figure

    import hkx
    import rlx
except ModuleNotFoundError as error:
    sys.exit(f"{error}: pip install 'hkx[examples]'")

Size = namedtuple("Size", "model length batch_size steps learning_rate")  # of an example, of a batch on all devices
SIZES = {  # of the model: vocabulary (a character is a byte), width, layers, heads, heads of keys and values
    "tiny": Size(hkx.nets.DecoderConfig(256, 32, 2, 8, 4, intermediate_size=96), 32, 8, 200, 3e-3),
    "small": Size(hkx.nets.DecoderConfig(256, 128, 4, 8, 4, intermediate_size=384), 128, 16, 400, 3e-3),
    "base": Size(hkx.nets.DecoderConfig(256, 768, 12, 12, 4, intermediate_size=2048), 1024, 64, 5_000, 6e-4),
    "pod": Size(hkx.nets.DecoderConfig(128_256, 8192, 80, 64, 8, intermediate_size=28_672), 4096, 128, 50_000, 1.5e-4),
}


@dataclasses.dataclass(frozen=True)
class Config:
    size: Literal["tiny", "small", "base", "pod"] = "small"  # size of the model and its batches
    steps: int = 0  # batches to learn from; 0 takes what suits the size
    seed: int = 0  # seed of the parameters, the order of the data and the sample
    text: pathlib.Path = pathlib.Path(__file__).parent / "data/new_testament.txt"  # file to learn from
    precision: Literal["float32", "bfloat16"] = "bfloat16"  # dtype to compute in; parameters are in float32
    mesh: str = ""  # devices as data x model, as in 2x4; by default all along data, and 32x8 to check
    evaluate_every: int = 100  # steps between two evaluations
    sample: int = 120  # characters to write at the end, at least one
    prompt: str = "And "  # text that the sample continues
    temperature: float = 0.8  # temperature of sampling; below 1, likely characters are preferred
    check: bool = False  # train nothing: lower for TPUs and GPUs, compile, and print bytes and collectives
    coordinator: str = ""  # host:port of process 0 of several; auto asks SLURM, Kubernetes or MPI for all three
    num_processes: int = 1  # processes that train together
    process_id: int = 0  # index of this process
    devices: int = 0  # devices of this process; its CPU is split where it has fewer; 0 uses all
    checkpoint_every: int = 100  # steps between two checkpoints
    output: str = "runs/transformer_lm"  # folder for checkpoints, metrics.csv, loss.png and sample.txt


# All that a checkpoint holds; losses of every step, and on the test where it was evaluated, else nan: float32[steps].
Learner = namedtuple("Learner", "params opt_state step losses test_losses")


def make_program(config: Config, mesh: Mesh | AbstractMesh) -> Any:
    size, steps = SIZES[config.size], config.steps or SIZES[config.size].steps
    schedule = optax.warmup_cosine_decay_schedule(0.0, size.learning_rate, max(1, steps // 10), max(2, steps))
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(schedule, b2=0.95, weight_decay=0.1))
    within, between = (NamedSharding(mesh, PartitionSpec("data", axis, None)) for axis in (None, "model"))

    def divide(method, args, kwargs, context):  # an interceptor of methods
        y, module = method(*args, **kwargs), context.module
        if context.method_name == "__call__" and isinstance(module, (hkx.CausalAttention, hkx.GatedMLP, hkx.RMSNorm)):
            return jax.lax.with_sharding_constraint(y, within)  # all characters of a device's examples
        if context.method_name == "__call__" and isinstance(module, (hkx.Embed, hkx.nets.DecoderLayer)):
            return jax.tree.map(lambda x: jax.lax.with_sharding_constraint(x, between), y)  # some characters of them
        return y

    def loss(examples):
        with hkx.intercept_methods(divide):
            logits = hkx.nets.Decoder(size.model, remat=True, dtype=config.precision)(examples[:, :-1])
        return jnp.mean(optax.softmax_cross_entropy_with_integer_labels(logits, examples[:, 1:]))

    def sample(key, logits):
        policy = rlx.softmax(config.temperature, logits)
        return (character := policy.sample(key)), policy.logprob(character)

    def go_on(prompt):
        lm = hkx.nets.Decoder(size.model, stacked=False, dtype=config.precision)
        return hkx.nets.generate(lm, prompt[None], jnp.zeros(1, int), max(1, config.sample), sample=sample).tokens[0]

    model, writer = hkx.without_apply_rng(hkx.transform(loss)), hkx.transform(go_on)

    def create():
        params = model.init(jax.random.key(config.seed), jnp.zeros([1, size.length + 1], int))
        return Learner(params, optimizer.init(params), jnp.int32(0), *jnp.full([2, steps], jnp.nan))

    def step(learner, examples):
        value, gradients = jax.value_and_grad(model.apply)(learner.params, examples)
        updates, opt_state = optimizer.update(gradients, learner.opt_state, learner.params)
        params, losses = optax.apply_updates(learner.params, updates), learner.losses.at[learner.step].set(value)
        return Learner(params, opt_state, learner.step + 1, losses, learner.test_losses)

    def evaluate(learner, batches):
        value = jnp.mean(jax.lax.map(lambda examples: model.apply(learner.params, examples), batches))
        return learner._replace(test_losses=learner.test_losses.at[learner.step - 1].set(value))

    def write(params, prompt):  # decoding is fastest without a stack
        return writer.apply(hkx.unstack_params(params, "decoder/layers"), jax.random.key(config.seed), prompt)

    shapes = jax.eval_shape(create)
    params = hkx.sharding.shardings(shapes.params, mesh, hkx.nets.decoder_sharding_rules(size.model))
    opt_state = hkx.sharding.optimizer_shardings(shapes.opt_state, shapes.params, params)
    shardings = Learner(params, opt_state, *[everywhere := NamedSharding(mesh, PartitionSpec())] * 3)
    step, evaluate = (jax.jit(f, donate_argnums=0, out_shardings=shardings) for f in (step, evaluate))
    create, write = hkx.sharding.sharded_init(create, shardings), jax.jit(write, out_shardings=everywhere)
    learner = jax.tree.map(lambda x, s: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=s), shapes, shardings)
    shape, rows = (size.batch_size, size.length + 1), NamedSharding(mesh, PartitionSpec("data"))
    return (create, step, evaluate, write), (learner, jax.ShapeDtypeStruct(shape, jnp.int32, sharding=rows))


def read(config: Config, mesh: Mesh) -> tuple[Any, jax.Array]:  # a function of the step's number, and the test
    size = SIZES[config.size]
    try:
        text = np.frombuffer(config.text.read_bytes(), np.uint8)
    except OSError as error:
        sys.exit(f"--text: cannot read {config.text}: {error.strerror}")
    if text.size < (needed := 20 * (size.length + 1)):
        sys.exit(f"--text: {config.text} has {text.size} characters, and {needed} are needed")
    training, test = np.split(text, [text.size * 9 // 10])
    number = (training.size - 1) // size.length  # of examples to learn from; each epoch has an order of its own
    order = cache(lambda epoch: np.random.default_rng([config.seed, epoch]).permutation(number))

    def examples(text, starts):  # int32[..., B, length + 1], B divided over the devices
        values = text[starts[..., None] + np.arange(size.length + 1)].astype(np.int32)
        sharding = NamedSharding(mesh, PartitionSpec(*[None] * (starts.ndim - 1), "data"))
        return jax.make_array_from_callback(values.shape, sharding, lambda index: values[index])

    def batch(step):
        places = [divmod(i, number) for i in range(step * size.batch_size, (step + 1) * size.batch_size)]
        return examples(training, np.array([order(epoch)[i] * size.length for epoch, i in places]))

    starts = np.linspace(0, test.size - size.length - 1, 4 * size.batch_size).astype(int)
    return batch, examples(test, starts.reshape(4, size.batch_size))


def make_mesh(config: Config) -> Mesh:  # over the devices of all processes, which find each other first
    wanted = config.mesh or "32x8" * config.check
    if wanted and not re.fullmatch(r"[1-9]\d*x[1-9]\d*", wanted):
        sys.exit(f"--mesh: must be two numbers, as in 2x4, not {wanted!r}")
    shape = tuple(int(number) for number in wanted.split("x")) if wanted else ()
    here = math.prod(shape) if config.check else config.devices
    if here and "device_count" not in os.environ.get("XLA_FLAGS", ""):
        jax.config.update("jax_num_cpu_devices", here)
    if config.coordinator:
        where = () if config.coordinator == "auto" else (config.coordinator, config.num_processes, config.process_id)
        jax.distributed.initialize(*where)
    devices = [d for i in range(jax.process_count()) for d in jax.local_devices(i)[: here or None]]
    data, model = shape = shape or (here * jax.process_count() or len(devices), 1)
    if data * model != len(devices):
        sys.exit(f"--mesh: {data}x{model} needs {data * model} devices, and there are {len(devices)}: see --devices")
    if (examples := SIZES[config.size].batch_size) % data:
        sys.exit(f"--mesh: {examples} examples in a batch of --size {config.size} are not divisible by {data} devices")
    return Mesh(np.array(devices).reshape(shape), ("data", "model"))


def check(config: Config, mesh: Mesh) -> dict:  # lowers a step for accelerators, and compiles it for CPU devices
    begin, ((_, step, *_), shapes) = time.process_time(), make_program(config, mesh.abstract_mesh)
    traced = step.trace(*shapes)
    lowered = {name: traced.lower(lowering_platforms=(name,)).as_text() for name in ("tpu", "cuda")}
    seconds, count = time.process_time() - begin, sum(x.size for x in jax.tree.leaves(shapes[0].params))
    print(f"{count:,} parameters; a step traced and lowered for tpu and cuda in {seconds:.1f} CPU s", flush=True)
    (_, step, *_), shapes = make_program(config, mesh)
    compiled = step.lower(*shapes).compile()
    memory = compiled.memory_analysis()  # a CPU computes bfloat16 in float32, which takes more than an accelerator
    found = {"held between steps": memory.argument_size_in_bytes, "more in a step": memory.temp_size_in_bytes}
    found |= received(compiled.as_text(), SIZES[config.size].model.num_layers)
    print(f"bytes on each of {mesh.size} devices", *(f"{name:20}{n:20,}" for name, n in found.items()), sep="\n")
    return {"parameters": count, "lowered": lowered, "seconds": seconds, "bytes": found}


def received(program: str, layers: int) -> Counter:  # bytes that collectives bring to a device, by their kind
    kinds, found = "all-gather|all-reduce|reduce-scatter|all-to-all|collective-permute", Counter()
    for arrays, kind, rest in re.findall(rf"= (.*?) ({kinds})(?:-start)?\((.*)", program):
        for bits, shape in re.findall(r"[a-z](\d+)\[([\d,]*)\]", arrays):
            times = layers if "while/body" in rest else 1  # in the loop over layers
            found[kind] += times * int(bits) // 8 * math.prod(int(n) for n in shape.split(",") if n)
    return found


def main(config: Config) -> dict:
    mesh, size = make_mesh(config), SIZES[config.size]
    if config.check:
        return check(config, mesh)
    (create, step, evaluate, write), (shapes, _) = make_program(config, mesh)
    (batch, test), steps, stop = read(config, mesh), config.steps or size.steps, []
    report = print if jax.process_index() == 0 else lambda _: None
    (output := pathlib.Path(config.output)).mkdir(parents=True, exist_ok=True)
    handler = ocp.StandardCheckpointHandler()
    with ocp.CheckpointManager((output / "checkpoints").absolute(), item_handlers=handler) as manager:
        if first := manager.latest_step() or 0:
            ours, saved = (jax.tree.leaves(tree) for tree in (shapes, manager.item_metadata(first)))
            if sorted(x.shape for x in ours) != sorted(x.shape for x in saved):
                sys.exit(f"--output: the checkpoints in {output} are of another run")
            report(f"going on from the checkpoint at step {first} of {steps} in {output}")
        learner = manager.restore(first, args=ocp.args.StandardRestore(shapes)) if first else create()
        begin, usual = time.perf_counter(), signal.getsignal(signal.SIGINT)
        signal.signal(signal.SIGINT, usual if jax.process_count() > 1 else lambda *_: stop.append(True))
        for n in range(first + 1, steps + 1):
            learner = jax.block_until_ready(step(learner, batch(n - 1)))
            if n % config.evaluate_every == 0 or n == steps:
                learner = evaluate(learner, test)
                speed = (n - first) * size.batch_size * size.length / (time.perf_counter() - begin)  # with compilation
                report(f"step {n} of {steps}: test loss {learner.test_losses[n - 1]:.3f}, {speed:,.0f} characters/s")
            if stop or n % config.checkpoint_every == 0 or n == steps:
                manager.save(n, args=ocp.args.StandardSave(learner))
            if stop:
                break
    signal.signal(signal.SIGINT, usual)
    written = write(learner.params, np.frombuffer((config.prompt or "\n").encode(), np.uint8).astype(np.int32))
    text = config.prompt + bytes(np.uint8(written)).decode(errors="replace")
    losses, tests = (np.asarray(x)[: int(learner.step)].tolist() for x in (learner.losses, learner.test_losses))
    evaluated = {n: loss for n, loss in enumerate(tests, 1) if not np.isnan(loss)}
    if jax.process_index() == 0:
        (output / "sample.txt").write_text(text, encoding="utf-8")
        table = np.transpose([range(1, len(losses) + 1), losses, tests])
        np.savetxt(output / "metrics.csv", table, "%.9g", ",", header="step,loss,test_loss", comments="")
        axes = (figure := Figure(layout="constrained")).subplots()
        axes.plot(losses, label="training, each batch")
        axes.plot(evaluated.keys(), evaluated.values(), "o-", label="test")
        axes.set(xlabel="step", ylabel="nats per character")
        axes.legend()
        figure.savefig(output / "loss.png", dpi=120)
    report(f"interrupted: the same command goes on from step {len(losses)}" if stop else text)
    report(f"test loss: {[np.nan, *evaluated.values()][-1]:.3f} nats per character after {len(losses)} steps")
    return {"losses": losses, "test_losses": evaluated, "sample": text, "first": first, "interrupted": bool(stop)}


if __name__ == "__main__":
    main(tyro.cli(Config, description=__doc__))
