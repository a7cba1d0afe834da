"""LoRA as a transformation of parameters, against the layer that computes the same."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hkx


def test_merged_parameters_compute_what_the_layer_computes():
    rng = np.random.default_rng(0)
    x = jnp.asarray(rng.normal(size=[5, 3]), jnp.float32)
    plain = hkx.without_apply_rng(hkx.transform(lambda x: hkx.Linear(4, name="linear")(x)))
    layer = hkx.without_apply_rng(hkx.transform(lambda x: hkx.LoRALinear(4, rank=2, alpha=3.0, name="linear")(x)))
    params = plain.init(0, x)
    lora = hkx.lora_params(1, params, 2)
    np.testing.assert_array_equal(plain.apply(hkx.merge_lora(params, lora), x), plain.apply(params, x))
    lora["linear"]["lora_b"] = jnp.asarray(rng.normal(size=[2, 4]), jnp.float32)
    both = hkx.data_structures.merge(params, lora)
    expected = layer.apply(both, x)
    np.testing.assert_allclose(plain.apply(hkx.merge_lora(params, lora, 1.5), x), expected, rtol=2e-5, atol=1e-6)


def test_stacks_are_adapted_layer_by_layer_from_the_same_distribution():
    params = {"stack/linear": {"w": jnp.zeros([2, 300, 5]), "b": jnp.zeros([2, 5])}, "norm": {"scale": jnp.ones(3)}}
    lora = hkx.lora_params(3, params, 7)
    assert jax.tree.map(jnp.shape, lora) == {"stack/linear": {"lora_a": (2, 300, 7), "lora_b": (2, 7, 5)}}
    a = lora["stack/linear"]["lora_a"]
    assert abs(np.var(a) * 300 * 3 - 1) < 0.1 and np.max(np.abs(a)) <= 1 / np.sqrt(300)
    lora["stack/linear"]["lora_b"] = jax.random.normal(jax.random.key(0), [2, 7, 5])
    merged = hkx.merge_lora(params, lora)["stack/linear"]["w"]
    for layer in range(2):
        b = np.asarray(lora["stack/linear"]["lora_b"][layer])
        np.testing.assert_allclose(merged[layer], np.asarray(a[layer]) @ b, rtol=1e-4, atol=1e-6)


def test_mistakes_are_named():
    params = {"linear": {"w": jnp.ones([2, 3])}}
    with pytest.raises(ValueError, match="no weight to adapt"):
        hkx.lora_params(0, {"norm": {"scale": jnp.ones(3)}}, 1)
    with pytest.raises(ValueError, match="linear/b of shape"):
        hkx.lora_params(0, {"linear": {"b": jnp.ones(3)}}, 1, where=lambda module, name, value: True)
    with pytest.raises(hkx.errors.InvalidSizeError, match="rank"):
        hkx.lora_params(0, params, 0)
    lora = hkx.lora_params(0, params, 1)
    with pytest.raises(ValueError, match="no such weight"):
        hkx.merge_lora({"other": params["linear"]}, lora)
    with pytest.raises(ValueError, match=r"a weight of shape \(2, 4\)"):
        hkx.merge_lora({"linear": {"w": jnp.ones([2, 4])}}, lora)
