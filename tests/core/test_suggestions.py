"""What a user of PyTorch or Flax tries first: it is answered with what to write here."""

import copy
import dataclasses
import operator
import pickle
import re
import traceback
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import hkx
import rlx
from hkx.errors.glossary import OF_HKX
from rlx.core.glossary import OF_RLX

X = jnp.ones([2, 5])


class Net(hkx.Module):
    def __init__(self, hidden=8, name=None):
        super().__init__(name=name)
        self.first = hkx.Linear(hidden)
        self.blocks = [hkx.Linear(3), hkx.LayerNorm(-1, True, True)]
        self.heads = {"value": hkx.nets.MLP([4, 1])}
        self.sizes = [hidden, 3]

    def __call__(self, x):
        return self.first(x)


def within(f):
    """What `f` returns inside of a transformed function."""
    return hkx.transform(f).apply({}, None)


def test_repr_is_the_constructor_call_and_a_line_for_each_child():
    assert within(lambda: repr(Net(16))).splitlines() == [
        "Net(hidden=16)",  # all that Haiku prints
        "  first: Linear(output_size=16)",
        "  blocks[0]: Linear(output_size=3)",
        "  blocks[1]: LayerNorm(axis=-1, create_scale=True, create_offset=True)",
        "  heads['value']: MLP(output_sizes=[4, 1])",
    ]


def test_repr_of_layers_is_their_constructor_call_alone():
    layers = within(lambda: repr(hkx.Sequential([hkx.Linear(3), jax.nn.relu, Net()])))
    assert layers == "Sequential(layers=[Linear(output_size=3), relu, Net()])"
    assert within(lambda: repr(hkx.BatchNorm(True, False, 0.9))) == (
        "BatchNorm(create_scale=True, create_offset=False, decay_rate=0.9)"
    )


def test_repr_of_a_dataclass_is_its_constructor_call_too():
    @dataclasses.dataclass
    class Wide(hkx.Module):
        size: int = 2
        act: Callable[[Any], Any] = jnp.tanh

        def __call__(self, x):
            return self.act(hkx.Linear(self.size)(x))

    @dataclasses.dataclass
    class Wider(Wide):
        depth: int = 1

        def __repr__(self):
            return f"Wider × {self.depth}"

    assert within(lambda: repr(Wide(5))) == "Wide(size=5)"  # as in Haiku; dataclass's own has the function's address
    assert within(lambda: repr(Wide())) == "Wide()"
    assert within(lambda: repr(Wider(depth=3))) == "Wider × 3"


def test_repr_indents_grandchildren_and_ends_where_modules_hold_each_other():
    class Parent(hkx.Module):
        def __init__(self):
            super().__init__()
            self.net = Net(2)
            self.net.parent = self

    lines = within(lambda: repr(Parent())).splitlines()
    assert lines[:3] == ["Parent()", "  net: Net(hidden=2)", "    first: Linear(output_size=2)"]
    assert lines[-1] == "    parent: ..."


def test_repr_shows_a_module_given_to_the_constructor_once():
    class Residual(hkx.Module):
        def __init__(self, inner, others):
            super().__init__()
            self.inner, self.others = inner, others

    assert within(lambda: repr(Residual(hkx.Linear(3), others=(Net(),)))) == (
        "Residual(inner=Linear(output_size=3), others=(Net(),))"
    )


@pytest.mark.parametrize(
    ("use", "advice"),
    [
        (lambda net: net.parameters(), "`init` returns them"),
        (lambda net: net.first.weight, "params['linear']['w']"),
        (lambda net: net.to("cpu"), "jax.device_put"),
        (lambda net: net.train(), "an argument `is_training`"),
        (lambda net: net.eval(), "an argument `is_training`"),
        (lambda net: net.forward(X), "name the method that computes `__call__`"),
        (lambda net: net.zero_grad(), "`jax.grad(loss)(params)` returns new gradients"),
        (lambda net: net.load_state_dict({}), "hkx.interop.torch.from_state_dict"),
        (lambda net: net.register_buffer("mean", X), "hkx.get_state"),
        (lambda net: net.init(jax.random.key(0), X), "model = hkx.transform(f)"),
    ],
)
def test_attributes_of_other_libraries_are_answered(use, advice):
    with pytest.raises(AttributeError, match=r"'(Net|Linear)' object has no attribute") as error:
        within(lambda: use(Net()))
    assert advice in str(error.value)


def test_other_attributes_behave_as_ever():
    class Odd(hkx.Module):
        weight = 3  # a name on the list, used for something else

        def __init__(self):
            super().__init__()
            self.bias = 4

        @property
        def broken(self):
            return self.train_it

    def look():
        odd = Odd()
        assert (odd.weight, odd.bias) == (3, 4)
        assert getattr(odd, "forward", None) is None
        assert not hasattr(odd, "parameters")
        with pytest.raises(AttributeError, match=r"'Odd' object has no attribute 'train_it'$"):
            _ = odd.broken
        assert copy.copy(odd).bias == 4

    within(look)


def test_a_module_with_forward_is_told_to_call_it_otherwise():
    class Forward(hkx.Module):
        def forward(self, x):
            return hkx.Linear(3)(x)

    class Mixin:
        def __call__(self, x):
            return x + 1

    class Mixed(Forward, Mixin):
        pass

    class Both(Forward):
        def __call__(self, x):
            return self.forward(x)

    with pytest.raises(TypeError, match="'Forward' object is not callable: name the method that computes `__call__`"):
        within(lambda: Forward()(X))
    assert within(lambda: Mixed()(1)) == 2
    assert list(hkx.transform(lambda x: Both()(x)).init(0, X)) == ["both/~forward/linear"]
    assert list(hkx.transform(lambda x: Forward().forward(x)).init(0, X)) == ["forward/~forward/linear"]
    assert not callable(within(lambda: hkx.Module(name="plain")))


def test_a_transformed_function_is_no_model_with_parameters():
    model = hkx.transform(lambda x: hkx.Linear(3)(x))
    stateful = hkx.transform_with_state(lambda x: x)
    for pair in (model, stateful):
        assert not callable(pair)  # WAX-ML and others ask that to tell a function from what became of it
        with pytest.raises(AttributeError, match=r"`y = model\.apply\(params, key, x\)`"):
            pair.forward(X)
        with pytest.raises(AttributeError, match=r"'Transformed.*: `params = model\.init\(key, x\)`"):
            pair.parameters()
        with pytest.raises(AttributeError, match=r"has no attribute 'shape'$"):
            _ = pair.shape
        with pytest.raises(TypeError, match="not a callable object"):
            hkx.transform(pair)
    init, apply = model
    assert (init, apply) == (model.init, model.apply) == tuple(model)
    assert pickle.loads(pickle.dumps(hkx.Transformed(int, float))) == (int, float)


def test_flags_that_are_numbers():
    class Mine(hkx.Linear):
        def __init__(self, units, copies):
            super().__init__(units * copies, with_bias=1)

    assert hkx.transform(lambda x: Mine(2, 3)(x)).init(0, X)["mine"]["b"].shape == (6,)
    assert list(hkx.transform(lambda x: hkx.Linear(2, False)(x)).init(0, X)["linear"]) == ["w"]


def test_what_is_taken_for_a_name():
    with pytest.raises(
        ValueError, match=r"4 is not a valid module name.* `name` of `LSTM` is of type int: .* too many"
    ):
        within(lambda: hkx.LSTM(3, 4))


def test_a_class_is_not_transformed():
    with pytest.raises(ValueError, match=r"`lambda x: Net2\(…\)\(x\)`"):

        class Net2(hkx.Module):
            pass

        hkx.transform(Net2).init(0, X)


@pytest.mark.parametrize(
    ("make", "what", "arguments"),
    [
        (lambda: hkx.Linear(3, bias=False), "unexpected keyword argument 'bias'", "Linear(output_size, with_bias=True"),
        (lambda: hkx.LayerNorm(32), "2 required positional", "LayerNorm(axis, create_scale, create_offset, eps=1e-05"),
        (lambda: Net(8, size=3), "unexpected keyword argument 'size'", "Net(hidden=8, name=None)"),
    ],
)
def test_wrong_arguments_of_a_constructor_are_answered_with_the_right_ones(make, what, arguments):
    with pytest.raises(TypeError, match=what) as error:
        within(make)
    assert error.value.__notes__[0].startswith(f"The arguments are `{arguments}")


def test_an_error_in_a_constructor_is_not_about_its_arguments():
    class Wrong(hkx.Module):
        def __init__(self):
            super().__init__()
            len(3)

    with pytest.raises(TypeError, match="no len") as error:
        within(Wrong)
    assert not any("The arguments" in note for note in getattr(error.value, "__notes__", []))


@pytest.mark.parametrize(
    ("module", "name", "advice"),
    [
        (hkx, "Conv2d", "`hkx.Conv2D(channels, kernel_shape)`"),
        (hkx, "ConvTranspose2d", "`hkx.Conv2DTranspose(channels, kernel_shape)`"),
        (hkx, "manual_seed", "random numbers take a key"),
        (hkx, "tensor", "`jax.numpy`"),
        (hkx, "TransformerEncoder", "`hkx.GroupedQueryAttention`"),
        (hkx, "lstm_cell", "`hkx.LSTM`"),
        (hkx, "BatchNorm2d", "`hkx.BatchNorm`"),
        (hkx, "conv1d", "'Conv1D'"),
        (hkx.initializers, "glorot_uniform", "VarianceScaling(1.0, 'fan_avg', 'uniform')"),
        (hkx.initializers, "identity", "'Identity'"),
        (hkx.nets, "Transformer", "`hkx.GroupedQueryAttention`"),
        (rlx, "ppo_loss", "`rlx.clipped_surrogate_pg_loss`"),
        (rlx, "mse_loss", "`rlx.l2_loss`"),
        (rlx, "sac_loss", "`rlx.sac_critic_loss`"),
        (rlx, "GAE", "`rlx.truncated_generalized_advantage_estimation`"),
        (rlx, "advantage", "`rlx.truncated_generalized_advantage_estimation`"),
        (rlx, "huber", "`rlx.huber_loss`"),
        (rlx, "ReplayBuffer", "`rlx.replay.uniform(capacity)`"),
        (rlx.replay, "PrioritizedReplayBuffer", "`rlx.replay.prioritised("),
        (rlx, "soft_update", "`optax.incremental_update`"),
        (rlx, "DPOTrainer", "`rlx.dpo_loss`"),
    ],
)
def test_the_fields_names_are_answered(module, name, advice):
    with pytest.raises(AttributeError, match=f"module '{module.__name__}' has no attribute '{name}'") as error:
        getattr(module, name)
    assert advice in str(error.value)
    assert "".join(traceback.format_exception(error.value)).count("Did you mean") == str(error.value).count("Did you")


@pytest.mark.parametrize(("module", "glossary"), [(hkx, OF_HKX), (rlx, OF_RLX)], ids=["hkx", "rlx"])
def test_a_glossary_leads_to_names_that_exist(module, glossary):
    assert not set(glossary) & set(module.__all__)
    needs_torch = {"hkx.interop.torch.from_state_dict"}
    for path in set(re.findall(r"\b(?:hkx|rlx)(?:\.\w+)+", " ".join(glossary.values()))) - needs_torch:
        operator.attrgetter(path.partition(".")[2])({"hkx": hkx, "rlx": rlx}[path[:3]])


@pytest.mark.parametrize("name", ["hkx", "hk"])
def test_an_error_calls_hkx_as_the_program_does(name):
    program = {}
    exec(f"import hkx as {name}\ndef misuse(): {name}.next_rng_key()\ndef unmapped(): {name}.vmap(abs)", program)
    for misuse, text in (("misuse", f"part of an `{name}.transform`"), ("unmapped", f"`{name}.vmap.require_split")):
        with pytest.raises((ValueError, TypeError)) as error:
            within(program[misuse]) if misuse == "unmapped" else program[misuse]()
        assert text in str(error.value) and (name == "hk" or "hk." not in str(error.value))


def test_parameters_in_the_place_of_the_key_are_not_printed_whole():
    params = {"linear": {"w": jnp.zeros([1000, 3])}}
    with pytest.raises(ValueError, match="of type dict is not a JAX PRNGKey") as error:
        hkx.transform(lambda x: x).apply({}, params, X)
    assert len(str(error.value)) < 600


@pytest.mark.parametrize(
    ("layer", "error", "message"),
    [
        (lambda x: hkx.LayerNorm(5, True, True)(x), IndexError, r"out of range: \(5,\), for inputs of shape \(2, 5\)"),
        (lambda x: hkx.RMSNorm(-3)(x), IndexError, r"`axis` of `hkx.RMSNorm` is out of range: \(-3,\)"),
    ],
)
def test_sizes_in_the_place_of_something_else(layer, error, message):
    with pytest.raises(error, match=message):
        hkx.transform(layer).init(0, X)


def test_names_of_other_libraries():
    with pytest.raises(AttributeError, match="'hkx' has no attribute 'ReLU': activations are JAX functions"):
        _ = hkx.ReLU
    with pytest.raises(AttributeError) as error:
        _ = hkx.Conv2d
    assert (error.value.name, error.value.obj) == ("Conv2d", None)  # so that Python does not suggest another name
    assert not hasattr(hkx, "Embedding")


@pytest.mark.parametrize(
    ("initializer", "note"),
    [
        (jax.nn.initializers.lecun_normal(), "`lambda shape, dtype: f(hkx.next_rng_key(), shape, dtype)`"),
        (jax.nn.initializers.zeros, "`lambda shape, dtype: f(hkx.next_rng_key(), shape, dtype)`"),
        (hkx.initializers.VarianceScaling, "pass an instance of it, `VarianceScaling(…)`"),
    ],
)
def test_initializers_of_another_kind(initializer, note):
    with pytest.raises(TypeError) as error:
        hkx.transform(lambda x: hkx.Linear(3, w_init=initializer)(x)).init(0, X)
    assert any(note in line for line in error.value.__notes__)
    if not isinstance(initializer, type):  # what the note says works

        def linear(x):
            return hkx.Linear(3, w_init=lambda shape, dtype: initializer(hkx.next_rng_key(), shape, dtype))(x)

        assert hkx.transform(linear).init(0, X)["linear"]["w"].shape == (5, 3)


def test_the_class_of_an_initializer_in_place_of_an_object():
    class Ones:
        def __init__(self, low=1, high=1):
            pass

        def __call__(self, shape, dtype):
            return jnp.ones(shape, dtype)

    with pytest.raises(ValueError, match=r"pass an instance, `Ones\(\)`, instead of the class"):
        hkx.transform(lambda: hkx.get_parameter("w", [3], init=Ones)).init(0)
    with pytest.raises(TypeError, match=r"pass an instance of it, `RandomNormal\(…\)`"):  # which refuses a shape
        hkx.transform(lambda: hkx.get_parameter("w", [3], init=hkx.initializers.RandomNormal)).init(0)


def test_a_class_in_the_style_of_flax():
    class Fields(hkx.Module):
        features: int = 3

        def setup(self):
            self.layer = hkx.Linear(self.features)

        def __call__(self, x):
            return self.layer(x)

    for make in (lambda: Fields(features=4), lambda: Fields(4)):
        with pytest.raises((TypeError, ValueError)) as error:
            within(make)
        assert "decorate it with `@dataclasses.dataclass`" in error.value.__notes__[0]
    with pytest.raises(AttributeError, match="no attribute 'layer'") as error:
        within(lambda: Fields()(X))
    assert "hkx does not call `setup`" in error.value.__notes__[0]


@pytest.mark.parametrize(
    ("wrong", "advice"),
    [
        (lambda params: {"params": params}, "pass what is stored under 'params'"),
        (lambda params: {"linear/w": params["linear"]["w"]}, r"two: \{'linear': \{'w': …\}\}"),
    ],
)
def test_parameters_in_another_form(wrong, advice):
    model = hkx.transform(lambda x: hkx.Linear(3)(x))
    with pytest.raises(ValueError, match=advice):
        model.apply(wrong(model.init(0, X)), None, X)


def test_layers_are_not_asked_of_nn():
    with pytest.raises(AttributeError, match=r"layers are in `hkx` itself, `hkx\.Linear`"):
        _ = hkx.nn.Dense
