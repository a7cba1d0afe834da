"""Networks of reinforcement learning against NumPy written from the papers' equations, and the names of their values.

The names are a promise: parameters that were saved under them are to be read again.
"""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hkx
import rlx

pytestmark = pytest.mark.unoptimised

KEY = jax.random.key(0)
LINEAR = {"w": (6, 6), "b": (6,)}
NORM = {"scale": (6,), "offset": (6,)}
NETS = {
    "bro_net": (
        lambda x: hkx.nets.BroNet(6, 1)(x),
        {"bro_net/linear_0": {"w": (4, 6), "b": (6,)}, "bro_net/layer_norm_0": NORM}
        | {f"bro_net/block_0/linear_{j}": LINEAR for j in (0, 1)}
        | {f"bro_net/block_0/layer_norm_{j}": NORM for j in (0, 1)},
    ),
    "simba": (
        lambda x: hkx.nets.Simba(6, 1, expansion=2)(x),
        {
            "simba/linear": {"w": (4, 6), "b": (6,)},
            "simba/block_0/layer_norm": NORM,
            "simba/block_0/linear_0": {"w": (6, 12), "b": (12,)},
            "simba/block_0/linear_1": {"w": (12, 6), "b": (6,)},
            "simba/layer_norm": NORM,
        },
    ),
    "simba_v2": (
        lambda x: hkx.nets.SimbaV2(6, 1, expansion=2)(x),
        {
            "simba_v2": {"unit_w": (5, 6), "scaler": (6,)},
            "simba_v2/block_0": {"unit_w_1": (6, 12), "scaler": (12,), "unit_w_2": (12, 6), "alpha": (6,)},
        },
    ),
    "q_mixer": (
        lambda x: hkx.nets.QMixer(6, [5])(x[..., :3], x),
        {
            "q_mixer/hyper_w_1/~/linear_0": {"w": (4, 5), "b": (5,)},
            "q_mixer/hyper_w_1/~/linear_1": {"w": (5, 18), "b": (18,)},
            "q_mixer/hyper_b_1": {"w": (4, 6), "b": (6,)},
            "q_mixer/hyper_w_2/~/linear_0": {"w": (4, 5), "b": (5,)},
            "q_mixer/hyper_w_2/~/linear_1": {"w": (5, 6), "b": (6,)},
            "q_mixer/hyper_b_2/~/linear_0": {"w": (4, 6), "b": (6,)},
            "q_mixer/hyper_b_2/~/linear_1": {"w": (6, 1), "b": (1,)},
        },
    ),
}


def linear(x, layer):
    return x @ layer["w"] + layer["b"]


def norm(x, layer):
    centered = x - x.mean(-1, keepdims=True)
    return centered / np.sqrt((centered**2).mean(-1, keepdims=True) + 1e-5) * layer["scale"] + layer["offset"]


def relu(x):
    return np.maximum(x, 0)


def unit(x):
    return x / np.sqrt((x**2).sum(-1, keepdims=True))


def bro_net(x, p):
    """Nauman et al. (2024), figure 3."""
    x = relu(norm(linear(x, p["bro_net/linear_0"]), p["bro_net/layer_norm_0"]))
    at = "bro_net/block_0/"
    inside = relu(norm(linear(x, p[at + "linear_0"]), p[at + "layer_norm_0"]))
    return x + norm(linear(inside, p[at + "linear_1"]), p[at + "layer_norm_1"])


def simba(x, p):
    """Lee et al. (2024), section 4."""
    x = linear(x, p["simba/linear"])
    inside = linear(norm(x, p["simba/block_0/layer_norm"]), p["simba/block_0/linear_0"])
    return norm(x + linear(relu(inside), p["simba/block_0/linear_1"]), p["simba/layer_norm"])


def simba_v2(x, p):
    """Lee et al. (2025), section 4, with its s_init = s_scale, α_init = 1 / (L + 1) and α_scale = 1 / √d."""
    net, block = p["simba_v2"], p["simba_v2/block_0"]
    x = unit(np.concatenate([x, 3 * np.ones([len(x), 1])], -1))
    x = unit(net["scaler"] * (x @ net["unit_w"]))
    other = unit(relu(block["scaler"] * (x @ block["unit_w_1"])) @ block["unit_w_2"])
    alpha = block["alpha"] * (1 / 2) / (1 / math.sqrt(6))
    return unit((1 - alpha) * x + alpha * other)


def q_mixer(x, p):
    """Rashid et al. (2018), section 4 and figure 2."""

    def hyper(name, state):
        first = relu(linear(state, p[f"q_mixer/{name}/~/linear_0"]))
        return linear(first, p[f"q_mixer/{name}/~/linear_1"])

    joint = []
    for state in x:
        w_1, w_2 = np.abs(hyper("hyper_w_1", state)).reshape(3, 6), np.abs(hyper("hyper_w_2", state))
        hidden = state[:3] @ w_1 + linear(state, p["q_mixer/hyper_b_1"])
        hidden = np.where(hidden > 0, hidden, np.expm1(np.minimum(hidden, 0)))
        joint.append(hidden @ w_2 + hyper("hyper_b_2", state)[0])
    return np.array(joint)


@pytest.mark.parametrize("name", NETS)
def test_names_and_equations(name):
    net, names = NETS[name]
    model = hkx.without_apply_rng(hkx.transform(net))
    random = np.random.default_rng(3)
    x = random.normal(size=(5, 4)).astype(np.float32)
    params = jax.jit(model.init)(KEY, x)
    assert jax.tree.map(jnp.shape, params) == names
    params = jax.tree.map(lambda w: np.asarray(w) + 0.3 * random.normal(size=w.shape).astype(np.float32), params)
    expected = globals()[name](x.astype(np.float64), jax.tree.map(np.float64, params))
    np.testing.assert_allclose(jax.jit(model.apply)(params, x), expected, rtol=1e-4, atol=1e-5)


def test_a_joint_value_grows_with_each_agent():
    model = hkx.without_apply_rng(hkx.transform(lambda q, state: hkx.nets.QMixer(4)(q, state)))
    q, state = np.random.default_rng(0).normal(size=(2, 20, 3)).astype(np.float32)
    params = jax.jit(model.init)(KEY, q, state)
    slopes = jax.jit(jax.grad(lambda q: model.apply(params, q, state).sum()))(q)
    assert np.all(slopes >= 0) and np.any(slopes > 0.01)
    with pytest.raises(ValueError, match=r"leading dimensions \(3,\) and `state` \(20,\)"):
        model.init(KEY, q[:3], state)


def test_weights_on_the_sphere():
    """The columns of matrices are of length 1 at first, wide ones too, and after a projection; nothing else changes."""
    model = hkx.transform(lambda x: hkx.Linear(2)(hkx.nets.SimbaV2(6, 1)(x)))
    params = jax.tree.map(np.asarray, jax.jit(model.init)(KEY, jnp.ones([1, 4])))
    units = [w for entries in params.values() for name, w in entries.items() if name.startswith("unit_w")]
    assert [w.shape for w in units] == [(5, 6), (6, 24), (24, 6)]
    for w in units:
        np.testing.assert_allclose(np.sum(w**2, axis=0), 1, rtol=1e-5)
    projected = jax.jit(hkx.nets.project_to_sphere)(jax.tree.map(lambda w: 3 * w, params))
    assert jax.tree.structure(projected) == jax.tree.structure(params)
    for module, entries in params.items():
        for name, w in entries.items():
            factor = 1 if name.startswith("unit_w") else 3
            np.testing.assert_allclose(projected[module][name], factor * w, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(params["simba_v2"]["scaler"], math.sqrt(2 / 6), rtol=1e-6)
    np.testing.assert_allclose(params["simba_v2/block_0"]["scaler"], math.sqrt(2 / 24), rtol=1e-6)


@pytest.mark.slow
def test_matrices_of_an_ensemble_are_projected_one_by_one():
    def f(x):
        return hkx.vmap(lambda x: hkx.nets.SimbaV2(6, 1)(x), in_axes=None, axis_size=3, split_rng=True, param_axes=0)(x)

    params = hkx.transform(f).init(KEY, jnp.ones([1, 4]))
    projected = hkx.nets.project_to_sphere(jax.tree.map(lambda w: 3 * w, params))["simba_v2"]["unit_w"]
    np.testing.assert_allclose(projected, params["simba_v2"]["unit_w"], rtol=1e-5, atol=1e-7)


def test_nothing_on_the_sphere_has_no_slope_that_is_no_number():
    """Inputs of which all units are off: the block's other point is the zero vector."""
    model = hkx.without_apply_rng(hkx.transform(lambda x: hkx.nets.SimbaV2Block(0.5)(x)))
    x = jnp.array([[1.0, 0.0]])
    params = jax.tree.map(np.asarray, jax.jit(model.init)(KEY, x))
    params["simba_v2_block"]["unit_w_1"] = -np.abs(params["simba_v2_block"]["unit_w_1"])
    value, slopes = jax.jit(jax.value_and_grad(lambda p, x: model.apply(p, x)[0, 0], (0, 1)))(params, x)
    assert np.isfinite(value) and all(np.all(np.isfinite(s)) for s in jax.tree.leaves(slopes))


@pytest.mark.slow
def test_a_game_in_which_mixing_learns_what_a_sum_cannot():
    """The second state B of the two-step game in the QMIX paper: both agents choose 0 or 1 and get [[0, 1], [1, 8]].

    A sum learns its least squares, [[-1.5, 2.5], [2.5, 6.5]], so that the team prefers a state that is worth 7; what is
    mixed learns the payoffs, which grow with each agent's choice.
    """
    payoffs, joint = jnp.array([[0.0, 1.0], [1.0, 8.0]]), jnp.array([[0, 0], [0, 1], [1, 0], [1, 1]])
    mixer = hkx.without_apply_rng(hkx.transform(lambda q, state: hkx.nets.QMixer(8)(q, state)))

    def mixed(params, taken):
        return mixer.apply(params["mixer"], taken, jnp.ones([1]))

    def summed(params, taken):
        return rlx.vdn_joint_value(taken)

    def learnt(mix):
        def joint_value(params, actions):
            return mix(params, rlx.batched_index(params["q"], actions))

        def loss(params):
            errors = jax.vmap(lambda a: rlx.td_learning(joint_value(params, a), payoffs[a[0], a[1]], 0.0, 0.0))(joint)
            return jnp.mean(errors**2)

        def step(params, _):
            return jax.tree.map(lambda w, g: w - 0.03 * g, params, jax.grad(loss)(params)), None

        params = {"q": jnp.array([[0.1, -0.1], [0.2, 0.0]]), "mixer": mixer.init(KEY, jnp.ones([2]), jnp.ones([1]))}
        params, _ = jax.lax.scan(step, params, length=5000)
        return jax.vmap(lambda a: joint_value(params, a))(joint).reshape(2, 2)

    np.testing.assert_allclose(jax.jit(lambda: learnt(summed))(), [[-1.5, 2.5], [2.5, 6.5]], atol=1e-3)
    np.testing.assert_allclose(jax.jit(lambda: learnt(mixed))(), payoffs, atol=0.05)
