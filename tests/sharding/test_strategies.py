"""The same training step on one device and on eight, by jax.pmap, a mesh and shard_map: the same numbers."""

import functools

import jax
import numpy as np
import optax
import pytest
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import hkx
from hkx import sharding

pytestmark = pytest.mark.unoptimised

BATCH = 16
OPTIMIZER = optax.sgd(0.5, momentum=0.9)


def forward(axis):
    def network(x, is_training):
        x = hkx.Conv2D(8, 3, with_bias=False)(x)
        x = hkx.BatchNorm(True, True, 0.9, cross_replica_axis=axis)(x, is_training)
        return hkx.Linear(8)(jax.nn.relu(x).mean((1, 2)))

    return hkx.transform_with_state(network)


def step_of(model, average_loss=lambda value: value, average_grads=lambda grads: grads):
    """A training step. Returns all that it made."""

    def loss(params, state, batch):
        logits, state = model.apply(params, state, None, batch["image"], is_training=True)
        value = optax.softmax_cross_entropy_with_integer_labels(logits, batch["label"]).mean()
        return average_loss(value), (logits, state)

    def step(params, state, opt_state, batch):
        (value, (logits, state)), grads = jax.value_and_grad(loss, has_aux=True)(params, state, batch)
        grads = average_grads(grads)
        updates, opt_state = OPTIMIZER.update(grads, opt_state)
        params = optax.apply_updates(params, updates)
        shared = {"loss": value, "grads": grads, "updates": updates}
        return params, state, opt_state, {"logits": logits}, shared

    return step


def batches():
    random = np.random.default_rng(0)
    for scale in (1.0, 3.0):  # the rows differ so much that a part of a batch does not have the statistics of all
        image = random.normal(size=[BATCH, 6, 6, 2]) * scale * np.linspace(0.1, 2, BATCH)[:, None, None, None]
        yield {"image": image.astype(np.float32), "label": random.integers(8, size=BATCH).astype(np.int32)}


def two_steps(run, start, place=lambda batch: batch, gather=lambda tree: tree, whole=lambda tree: tree):
    """What two steps made, as NumPy arrays of the whole batch; the second starts from what the first left."""
    kept, made = start, []
    for batch in batches():
        *kept, logits, shared = run(*kept, place(batch))
        made.append({"kept": gather(tuple(kept)), "shared": gather(shared), "logits": whole(logits)})
    return jax.tree.map(np.asarray, made)


@functools.cache
def beginning():
    params, state = forward(None).init(jax.random.key(0), next(batches())["image"], True)
    return params, state, OPTIMIZER.init(params)


@functools.cache
def on_one_device():
    return two_steps(jax.jit(step_of(forward(None))), beginning())


def by_pmap():
    average = functools.partial(jax.lax.pmean, axis_name="replica")
    run = jax.pmap(step_of(forward("replica"), average, average), axis_name="replica")
    start = sharding.replicate(beginning())
    whole = functools.partial(jax.tree.map, lambda x: np.reshape(x, [BATCH, *x.shape[2:]]))
    return two_steps(run, start, sharding.shard_batch, sharding.unreplicate, whole)


def mesh_of(**axes):
    return jax.make_mesh(tuple(axes.values()), tuple(axes), axis_types=(AxisType.Auto,) * len(axes))


RULES = [
    (r"conv2_d/w", P(None, None, None, "model")),
    (r"batch_norm/(scale|offset)|.*(average|hidden)", P(None, None, None, "model")),
    (r"linear/w", P("model")),
]


def by_mesh():
    """Data and model parallel at once: nothing in the step says so."""
    mesh = mesh_of(data=2, model=4)
    params, state, opt_state = beginning()
    of_params, of_state = sharding.shardings((params, state), mesh, RULES)
    of_optimizer = sharding.optimizer_shardings(opt_state, params, of_params)
    kept = (of_params, of_state, of_optimizer)
    run = jax.jit(step_of(forward(None)), out_shardings=(*kept, NamedSharding(mesh, P("data")), None))
    return two_steps(run, jax.device_put(beginning(), kept), lambda batch: sharding.global_batch(batch, mesh))


def by_shard_map():
    mesh = mesh_of(data=8)
    # Parameters are the same on all devices, and so shard_map itself adds up what the devices find for their gradients.
    run = jax.shard_map(
        step_of(forward("data"), functools.partial(jax.lax.pmean, axis_name="data")),
        mesh=mesh,
        in_specs=(P(), P(), P(), P("data")),
        out_specs=(P(), P(), P(), P("data"), P()),
    )
    start = jax.device_put(beginning(), NamedSharding(mesh, P()))
    return two_steps(jax.jit(run), start, lambda batch: sharding.global_batch(batch, mesh))


@pytest.mark.eight_devices
@pytest.mark.parametrize("strategy", [pytest.param(by_pmap, marks=pytest.mark.slow), by_mesh, by_shard_map])
def test_eight_devices_do_what_one_does(strategy):
    for made, expected in zip(strategy(), on_one_device(), strict=True):
        jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=1e-4, atol=2e-6), made, expected)
    _, state, _ = made["kept"]
    assert state["batch_norm/~/mean_ema"]["counter"] == 2


@pytest.mark.eight_devices
def test_statistics_of_each_device_alone_would_be_noticed():
    run = jax.pmap(step_of(forward(None)))
    made = run(*sharding.replicate(beginning()), sharding.shard_batch(next(batches())))
    state = sharding.unreplicate(made[1])
    expected = on_one_device()[0]["kept"][1]
    name = "batch_norm/~/var_ema"
    assert not np.allclose(state[name]["average"], expected[name]["average"], rtol=0.05)
