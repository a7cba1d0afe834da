"""A transformer that learns to write, character by character, on one device or on many.

It reads the New Testament (1 MB, examples/data) and predicts each next character from those before. The parameters,
and all that training keeps for them, are divided over a mesh of devices, data x model; the batch is divided over
`data`, and the layers' matrix products over `model`. Ctrl-C, or a loss of power, costs little: the same command again
goes on from the last checkpoint in --output, and ends as if nothing had been.

    python examples/transformer_lm.py                                 # two minutes on two cores
    python examples/transformer_lm.py --devices 8 --mesh 2x4          # the same on 8 devices (of a CPU: virtual ones)
    python examples/transformer_lm.py --size pod --mesh 32x8 --check  # what 256 devices would have to hold and to send
    # two processes of 4 devices each; the other one is --process-id 1
    python examples/transformer_lm.py --devices 4 --mesh 2x4 \\
        --coordinator localhost:1234 --num-processes 2 --process-id 0

It writes 120 characters of its own at the end, and saves them with the checkpoints, the metrics and their curve:

    test loss: 1.465 nats per character after 400 steps
"""

import dataclasses
import math
import pathlib
import sys
import time
from collections.abc import Callable
from typing import Annotated, Any, Literal, NamedTuple

sys.path.append(str(pathlib.Path(__file__).parent / "zoo"))  # for program.py and settings.py

import jax
import jax.numpy as jnp
import long_run
import numpy as np
import optax
import partitioned
from jax.sharding import AbstractMesh, AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from program import BadFlag, noticing_interrupts, output_folder, save_table, start, whole_file
from settings import Between, Count, Seed
from tqdm import tqdm

import hkx

TEXT = pathlib.Path(__file__).parent / "data" / "new_testament.txt"
VOCABULARY = 256  # a character is a byte


class Size(NamedTuple):
    """How large the model is, and what it is given at once."""

    layers: int
    width: int
    hidden: int  # units between the two linear maps of a layer
    heads: int
    kv_heads: int
    length: int  # characters of one example
    batch_size: int  # examples in a batch, over all devices
    steps: int
    learning_rate: float


SIZES = {
    "tiny": Size(2, 32, 96, 8, 4, 32, 8, 200, 3e-3),
    "small": Size(4, 128, 384, 8, 4, 128, 16, 400, 3e-3),
    "base": Size(12, 768, 2048, 12, 4, 1024, 64, 5_000, 6e-4),
    "pod": Size(80, 8192, 28_672, 64, 8, 4096, 128, 100_000, 1.5e-4),
}
PRECISIONS = {"float32": jnp.float32, "bfloat16": jnp.bfloat16}


@dataclasses.dataclass(frozen=True)
class Config(long_run.LongRun):
    """The settings of a run. Every field is a flag of the command line."""

    size: Literal["tiny", "small", "base", "pod"] = "small"  # of the model and its batches
    steps: Annotated[int, Between(0)] = 0  # batches to learn from; 0 takes what suits the size
    seed: Seed = 0  # seed of parameters, dropout and the order of the data
    text: str = ""  # file to learn from, instead of the New Testament
    dropout: Annotated[float, Between(0, 0.9)] = 0.0  # share of each layer's output to leave out
    precision: Literal["float32", "bfloat16"] = "bfloat16"  # dtype to compute in; parameters are kept in float32
    mesh: str = ""  # devices as data x model, as in 2x4; by default all along data
    evaluate_every: Count = 100  # steps between two evaluations
    sample: Annotated[int, Between(0)] = 120
    """characters to write at the end; those beyond the length of an example come out worse"""
    prompt: str = "And "  # text that the sample continues
    temperature: Annotated[float, Between(0.01)] = 0.8
    """temperature of sampling; below 1, likely characters are preferred"""
    check: bool = False  # train nothing: lower for tpu and cuda, compile, and print bytes and collectives
    output: str = "runs/transformer_lm"  # folder for checkpoints, curve, metrics and the sample


OF_NO_WEIGHT = ("mesh", "sample", "prompt", "temperature", "check")  # a run may go on with others of these

# The parameters are divided as `hkx.nets.decoder_sharding_rules` says. Between the layers every device holds some
# characters of some examples, so that no value is held twice; within one it has all characters of its examples, and its
# part of the heads or hidden units.
BETWEEN_LAYERS = P("data", "model", None)
WITHIN_LAYERS = P("data", None, None)


def model_config(size: Size) -> hkx.nets.DecoderConfig:
    return hkx.nets.DecoderConfig(
        vocab_size=VOCABULARY,
        hidden_size=size.width,
        num_layers=size.layers,
        num_heads=size.heads,
        num_kv_heads=size.kv_heads,
        intermediate_size=size.hidden,
        max_positions=size.length,
    )


def placing(mesh: Mesh | AbstractMesh, dropout: float) -> Callable[..., Any]:
    """An interceptor of methods: divides values between and within layers over the mesh, and drops some of them out."""

    def place(x: jax.Array, spec: P) -> jax.Array:
        return jax.lax.with_sharding_constraint(x, NamedSharding(mesh, spec))

    def intercept(method: Callable[..., Any], args: Any, kwargs: Any, context: hkx.MethodContext) -> Any:
        y, module = method(*args, **kwargs), context.module
        if context.method_name != "__call__":
            return y
        if isinstance(module, (hkx.CausalAttention, hkx.GatedMLP)):
            y = hkx.dropout(hkx.next_rng_key(), dropout, y) if dropout else y
            return place(y, WITHIN_LAYERS)
        if isinstance(module, hkx.RMSNorm):
            return place(y, WITHIN_LAYERS)
        if isinstance(module, hkx.nets.DecoderLayer):
            return place(y[0], BETWEEN_LAYERS), y[1]
        return place(y, BETWEEN_LAYERS) if isinstance(module, hkx.Embed) else y

    return intercept


class Training(NamedTuple):
    """All that training changes, and a checkpoint holds."""

    params: hkx.Params
    opt_state: optax.OptState
    key: jax.Array  # a typed key, [], from which each step's dropout is drawn
    position: jax.Array  # int32[], examples read so far
    history: jax.Array  # [2, steps]: the loss of every step, and the validation loss where it was evaluated, else nan


class Program:
    """What is compiled: creating `Training`, a step of it, an evaluation, and writing."""

    def __init__(self, config: Config, size: Size, mesh: Mesh | AbstractMesh):
        self.size, self.mesh, steps = size, mesh, config.steps or size.steps

        def predict(characters: jax.Array, dropout: float) -> jax.Array:
            with hkx.intercept_methods(placing(mesh, dropout)):
                return hkx.nets.Decoder(model_config(size), remat=True, dtype=PRECISIONS[config.precision])(characters)

        model, warm_up = hkx.transform(predict), max(1, steps // 10)
        schedule = optax.warmup_cosine_decay_schedule(0.0, size.learning_rate, warm_up, max(steps, warm_up + 1))
        optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(schedule, b2=0.95, weight_decay=0.1))

        def loss(params: hkx.Params, key: jax.Array | None, examples: jax.Array, dropout: float) -> jax.Array:
            logits = model.apply(params, key, examples[:, :-1], dropout)
            return jnp.mean(optax.softmax_cross_entropy_with_integer_labels(logits, examples[:, 1:]))

        def create(key: jax.Array) -> Training:
            params = model.init(key, jnp.zeros([1, size.length], int), config.dropout)
            history = jnp.full([2, steps], jnp.nan)
            return Training(params, optimizer.init(params), jax.random.fold_in(key, 0), jnp.int32(0), history)

        def step(training: Training, examples: jax.Array) -> Training:
            key, dropout_key = jax.random.split(training.key)
            value, gradients = jax.value_and_grad(loss)(training.params, dropout_key, examples, config.dropout)
            updates, opt_state = optimizer.update(gradients, training.opt_state, training.params)
            number = training.position // size.batch_size
            params: Any = optax.apply_updates(training.params, updates)
            return Training(
                params,
                opt_state,
                key,
                training.position + size.batch_size,
                training.history.at[0, number].set(value),
            )

        def evaluate(training: Training, batches: jax.Array) -> Training:
            value = jnp.mean(jax.lax.map(lambda examples: loss(training.params, None, examples, 0.0), batches))
            number = training.position // size.batch_size - 1
            return training._replace(history=training.history.at[1, number].set(value))

        self.key = jax.random.key(config.seed)
        shapes = jax.eval_shape(create, self.key)
        shardings = self.shardings(shapes)
        self.create = hkx.sharding.sharded_init(create, shardings)
        self.step = jax.jit(step, donate_argnums=0, out_shardings=shardings)
        self.evaluate = jax.jit(evaluate, donate_argnums=0, out_shardings=shardings)
        self.shapes = jax.tree.map(lambda x, s: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=s), shapes, shardings)
        self.examples = jax.ShapeDtypeStruct(
            (size.batch_size, size.length + 1), jnp.int32, sharding=NamedSharding(mesh, P("data"))
        )

    def shardings(self, shapes: Training) -> Any:
        rules, whole = hkx.nets.decoder_sharding_rules(model_config(self.size)), NamedSharding(self.mesh, P())
        params = hkx.sharding.shardings(shapes.params, self.mesh, rules)
        opt_state = hkx.sharding.optimizer_shardings(shapes.opt_state, shapes.params, params)
        return shapes._replace(
            params=params, opt_state=opt_state, **dict.fromkeys(("key", "position", "history"), whole)
        )


def generate(config: Config, size: Size) -> Callable[[hkx.Params, jax.Array, jax.Array], jax.Array]:
    """A function of parameters, key and prompt `int[T]`, which gives the characters that follow, `int[sample]`."""

    def sample(key: jax.Array, logits: jax.Array) -> tuple[jax.Array, jax.Array]:
        logits = jax.nn.log_softmax(logits / config.temperature)
        character = jax.random.categorical(key, logits)
        return character, jnp.take_along_axis(logits, character[:, None], axis=-1)[:, 0]

    def write(prompt: jax.Array) -> jax.Array:
        model = hkx.nets.Decoder(model_config(size), stacked=False, dtype=PRECISIONS[config.precision])
        return hkx.nets.generate(model, prompt[None], jnp.zeros(1, int), config.sample, sample=sample).tokens[0]

    def unstacked(params: hkx.Params, key: jax.Array, prompt: jax.Array) -> jax.Array:
        return hkx.transform(write).apply(hkx.unstack_params(params, "decoder/layers"), key, prompt)

    return unstacked


class Text:
    """The characters of a file: a part to learn from, in examples in a new order each time through, and one to test."""

    def __init__(self, config: Config, size: Size):
        try:
            characters = np.frombuffer(pathlib.Path(config.text or TEXT).read_bytes(), np.uint8)
        except OSError as error:
            raise BadFlag(f"argument --text: cannot read {config.text}: {error.strerror}") from None
        needed = 20 * (size.length + 1)
        if characters.size < needed:
            raise BadFlag(f"argument --text: {config.text} has {characters.size} characters, and {needed} are needed")
        split = characters.size * 9 // 10
        self.seed, self.length = config.seed, size.length
        self.training, self.test = characters[:split], characters[split:]
        self.examples = (split - 1) // size.length
        self.epoch, self.order = -1, np.arange(0)

    def example(self, position: int) -> np.ndarray:
        """The example `int32[length + 1]` that is read at a position; each epoch has an order of its own."""
        epoch, place = divmod(position, self.examples)
        if epoch != self.epoch:
            self.epoch, self.order = epoch, np.random.default_rng([self.seed, epoch]).permutation(self.examples)
        start = self.order[place] * self.length
        return self.training[start : start + self.length + 1].astype(np.int32)

    def batch(self, position: int, like: jax.ShapeDtypeStruct) -> jax.Array:
        """The examples from a position on, laid out as `like`: each process reads those of its own devices."""

        def rows(index: Any) -> np.ndarray:
            return np.stack([self.example(position + row) for row in range(*index[0].indices(like.shape[0]))])

        return jax.make_array_from_callback(like.shape, like.sharding, rows)

    def test_batches(self, number: int, like: jax.ShapeDtypeStruct) -> jax.Array:
        """Test examples, evenly spread, `int32[number, B, length + 1]`."""
        starts = np.linspace(0, self.test.size - self.length - 1, number * like.shape[0]).astype(int)
        examples = self.test[starts[:, None] + np.arange(self.length + 1)].astype(np.int32)
        batches = examples.reshape(number, *like.shape)
        sharding = NamedSharding(like.sharding.mesh, P(None, *like.sharding.spec))
        return jax.make_array_from_callback(batches.shape, sharding, lambda index: batches[index])


def mesh_shape(text: str, size: Size) -> tuple[int, int]:
    """`--mesh` as two numbers, if the model fits it."""
    data, _, model = text.partition("x")
    if not (data.isdecimal() and model.isdecimal() and int(data) and int(model)):
        raise BadFlag(f"argument --mesh: must be two numbers, as in 2x4, not {text!r}")
    for name, number, parts in (
        ("examples of a batch", size.batch_size, int(data)),
        ("heads of keys and values", size.kv_heads, int(model)),
        ("characters of an example", size.length, int(model)),
        ("units of width", size.width, int(data)),
    ):
        if number % parts:
            raise BadFlag(f"argument --mesh: {parts} devices cannot share the {number} {name} of --size equally")
    return int(data), int(model)


def make_mesh(shape: tuple[int, int], devices: list[Any]) -> Mesh:
    if math.prod(shape) != len(devices):
        needed = f"{shape[0]}x{shape[1]} is {math.prod(shape)} devices"
        raise BadFlag(f"argument --mesh: {needed}, and there are {len(devices)}: see --devices")
    return Mesh(np.array(devices).reshape(shape), ("data", "model"), axis_types=(AxisType.Auto,) * 2)


def save_curve(path: pathlib.Path, losses: np.ndarray, validation: np.ndarray) -> None:
    from matplotlib.figure import Figure  # imported here because nothing before the end of training needs it

    steps, evaluated = np.arange(1, losses.size + 1), np.flatnonzero(~np.isnan(validation))
    figure = Figure(figsize=(7.5, 4.5), layout="constrained")
    axes = figure.subplots()
    axes.plot(steps, losses, color="tab:blue", alpha=0.7, label="training, each batch")
    axes.plot(steps[evaluated], validation[evaluated], "o-", color="tab:orange", label="test part of the text")
    axes.set(title="A transformer reads", xlabel="steps", ylabel="nats per character")
    axes.grid(alpha=0.3)
    axes.legend()
    with whole_file(path) as unfinished:
        figure.savefig(unfinished, dpi=120)


def train(config: Config, devices: list[Any]) -> dict[str, Any]:
    size, output = SIZES[config.size], output_folder(config.output)
    steps = config.steps or size.steps
    mesh = make_mesh(mesh_shape(config.mesh or f"{len(devices)}x1", size), devices)
    program, text = Program(config, size, mesh), Text(config, size)
    test_batches = text.test_batches(4, program.examples)
    first, last_time, speed = jax.process_index() == 0, time.perf_counter(), 0.0
    checkpoints = long_run.Checkpoints(config, output / "checkpoints", free=OF_NO_WEIGHT)
    with noticing_interrupts() as interrupted, checkpoints:
        step, training = checkpoints.restore(program.shapes)
        if step == 0:
            training = program.create(program.key)
        elif first:
            print(f"going on from the checkpoint of step {step}")
        begun, saved, stop = step, step, False
        bar = tqdm(total=steps, initial=step, unit=" steps", disable=not (config.progress and first))
        while step < steps and not stop:
            batch = text.batch(step * size.batch_size, program.examples)  # while the devices are at the step before
            training.position.block_until_ready()  # steps that queue up on a CPU's virtual devices can get stuck
            training = program.step(training, batch)
            step += 1
            if step % config.evaluate_every == 0 or step == steps:
                training = program.evaluate(training, test_batches)
            if config.checkpoint_every and step % config.checkpoint_every == 0:
                checkpoints.save(step, training)
                saved = step
            if step % 10 == 0 or jax.process_count() == 1:
                stop = long_run.any_process(interrupted.is_set())
            bar.update()
            if step % 10 == 0:
                loss, now = np.asarray(training.history)[0, step - 1], time.perf_counter()
                speed = 10 * size.batch_size * size.length / (now - last_time)
                last_time = now
                bar.set_postfix_str(f"loss {loss:.3f}, {speed:,.0f} characters/s", refresh=False)
        bar.close()
        if step > saved:
            checkpoints.save(step, training)
    if stop and first:
        print(f"interrupted after {step} of {steps} steps; the same command goes on from there")
    about = {"interrupted": stop, "begun": begun, "characters_per_second": speed}
    return finish(config, size, training, step, output) | about


def finish(config: Config, size: Size, training: Training, step: int, output: pathlib.Path) -> dict[str, Any]:
    """Writes what the model has learned to write, and how it came to that."""
    write = jax.jit(generate(config, size), out_shardings=training.position.sharding)  # whole in every process
    prompt = np.frombuffer((config.prompt or "\n").encode(), np.uint8).astype(np.int32)
    sample = config.prompt
    if config.sample:
        characters = write(training.params, jax.random.key(config.seed), prompt)
        sample += np.asarray(characters).astype(np.uint8).tobytes().decode(errors="replace")
    losses, validation = np.asarray(training.history)[:, :step]
    evaluated = [(number + 1, float(value)) for number, value in enumerate(validation) if not np.isnan(value)]
    if jax.process_index() == 0:
        cells = [None if np.isnan(value) else value for value in validation]
        save_table(output / "metrics.csv", {"step": range(1, step + 1), "loss": losses, "validation_loss": cells})
        save_curve(output / "loss.png", losses, validation)
        with whole_file(output / "sample.txt") as unfinished:
            unfinished.write_text(sample, encoding="utf-8")
        print(sample, end="\n\n")
        print(f"saved loss.png, metrics.csv, sample.txt and checkpoints in {output}")
        if evaluated:
            print(f"test loss: {evaluated[-1][1]:.3f} nats per character after {evaluated[-1][0]} steps")
    return {"losses": losses, "validation": dict(evaluated), "sample": sample}


def check(config: Config) -> dict[str, Any]:
    """Checks a run for which the hardware is not here: lowers a step for it, and compiles it for as many CPU devices.

    To compile takes no array, and the same time for 256 devices as for one. Wide models are compiled at three smaller
    widths, and the bytes of the full width follow from those. A CPU computes bfloat16 in float32 and keeps what a fused
    attention would not, and so the bytes needed in a step and those received are more than an accelerator's.
    """
    size = SIZES[config.size]
    shape = mesh_shape(config.mesh or "32x8", size)
    long_run.divide_cpu(math.prod(shape))
    devices = jax.devices("cpu")[: math.prod(shape)]
    if len(devices) < math.prod(shape):
        raise BadFlag(f"argument --check: needs {math.prod(shape)} CPU devices, and JAX has made {len(devices)}")
    begun = time.process_time()
    abstract = Program(config, size, AbstractMesh(shape, ("data", "model"), axis_types=(AxisType.Auto,) * 2))
    count = sum(math.prod(x.shape) for x in jax.tree.leaves(abstract.shapes.params))
    print(f"size {config.size}: {count:,} parameters, over a mesh of {shape[0]} x {shape[1]} devices, data x model")
    traced = abstract.step.trace(abstract.shapes, abstract.examples)
    lowered = {platform: traced.lower(lowering_platforms=(platform,)).as_text() for platform in ("tpu", "cuda")}
    seconds = time.process_time() - begun
    for platform, text in lowered.items():
        print(f"lowered for {platform}: {len(text):,} characters of StableHLO")
    print(f"traced and lowered in {seconds:.1f} CPU seconds")
    programs = {}
    for fraction in (32, 16, 8) if size.width >= 4096 else (1,):
        narrow = size._replace(width=size.width // fraction, hidden=size.hidden // fraction)
        program = Program(config, narrow, make_mesh(shape, devices))
        programs[narrow.width] = program.step.lower(program.shapes, program.examples).compile()
    print(f"compiled for {len(devices)} CPU devices")
    lines, full = partitioned.report(programs, size.width)
    print("\n".join(lines))
    return {"parameters": count, "lowered": lowered, "full": full, "seconds": seconds}


def main(config: Config) -> dict[str, Any]:
    """Trains, or checks. Returns the loss of every step, the test losses and the sample; or what was found."""
    if config.check:
        return check(config)
    return train(config, long_run.join(config))


if __name__ == "__main__":
    start(Config, main, __doc__ or "")
