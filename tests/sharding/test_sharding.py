"""hkx.sharding: what rules say, values made in their shards, the optimizer's state, copies and batches."""

import re
import types

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import AbstractMesh, AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import hkx
from hkx import sharding
from hkx.errors import ShardingRuleError, UnevenBatchError

pytestmark = pytest.mark.unoptimised

MESH = AbstractMesh((2, 4), ("data", "model"))


def devices_mesh():
    return jax.make_mesh((2, 4), ("data", "model"), axis_types=(AxisType.Auto,) * 2)


def shapes(**paths):
    """{"a/b": shape} as a tree of shapes; double underscores stand for slashes."""
    tree = {}
    for path, shape in paths.items():
        module, _, name = path.replace("__", "/").rpartition("/")
        tree.setdefault(module, {})[name] = jax.ShapeDtypeStruct(shape, jnp.float32)
    return tree


PARAMS = shapes(mlp__linear_0__w=(8, 16), mlp__linear_0__b=(16,), mlp__norm__scale=(16,), linear__w=(4, 8))


def specs(tree):
    return jax.tree.map(lambda s: s.spec, tree)


def test_the_first_rule_that_matches_the_whole_path_holds():
    rules = [
        (r".*/linear.*/w", P("data", "model")),
        (re.compile(r".*/w"), P(None, "model")),
        ("linear_0/w|scale", P("data")),
    ]
    assert specs(sharding.shardings(PARAMS, MESH, rules[:2])) == {
        "mlp/linear_0": {"w": P("data", "model"), "b": P()},
        "mlp/norm": {"scale": P()},
        "linear": {"w": P(None, "model")},  # nothing stands before its slash, so that only the second rule matches
    }
    with pytest.raises(ShardingRuleError, match=re.escape("('linear_0/w|scale', ")):  # a part of a path is no match
        sharding.shardings(PARAMS, MESH, rules)


def test_where_arrays_have_no_names_an_error_says_how_to_name_them():
    """As in Haiku's FlatMap, in which parameters may be pickled."""
    with pytest.raises(ShardingRuleError, match=r"The paths are: ''\..*FlatMap.*to_mutable_dict"):
        sharding.shardings([jax.ShapeDtypeStruct([4], jnp.float32)], MESH, [("linear/w", P("model"))])


def test_a_rule_that_earlier_ones_leave_nothing_to_is_no_mistake():
    tree = sharding.shardings(PARAMS, MESH, [(".*w", P("model")), ("linear/w", P("data"))])
    assert tree["linear"]["w"].spec == P("model")


def test_any_tree_has_paths_of_module_and_name():
    state = {"mlp/norm": {"average": (jnp.ones(16), {"old": jnp.ones([])})}}
    both = types.SimpleNamespace(params=PARAMS, state=state)
    rules = [("mlp/linear_0/w", P("model")), ("mlp/norm/average/0", P("data")), ("mlp/norm/average/1/old", P())]
    tree = sharding.shardings((both.params, [both.state]), MESH, rules)
    assert tree[0]["mlp/linear_0"]["w"].spec == P("model")
    assert tree[1][0]["mlp/norm"]["average"][0].spec == P("data")
    frozen = sharding.shardings(hkx.data_structures.to_immutable_dict(PARAMS), MESH, rules[:1])
    assert frozen["mlp/linear_0"]["w"].spec == P("model")
    assert sharding.shardings(jnp.ones([8]), MESH, [(".*", P("model"))]).spec == P("model")


def test_several_axes_may_divide_one_dimension():
    tree = sharding.shardings(PARAMS, MESH, [(".*_0/w", P(("data", "model")))])
    assert tree["mlp/linear_0"]["w"].shard_shape((8, 16)) == (1, 16)


@pytest.mark.parametrize(
    ("rule", "says"),
    [
        ((".*/dense/w", P()), ["'.*/dense/w'", "none of the 4 arrays", "'mlp/linear_0/w'"]),
        ((".*/b", P(None, "model")), ["'mlp/linear_0/b'", "(16,)", "2 entries", "1 dimensions"]),
        ((".*/w", P("expert")), ["'expert'", "'data' of size 2", "'model' of size 4"]),
        ((".*/w", P("model", "model")), ["'model' more than once"]),
        (
            (".*w", P(("data", "model"))),
            ["'linear/w'", "(4, 8)", "dimension 0 of size 4", "8 parts", "'data' × 'model'"],
        ),
        ((".*/w", P(P.UNCONSTRAINED)), ["unconstrained"]),
        (("*w", P()), ["'*w' is not a regular expression"]),
        ((".*/w", ("model",)), ["`rules[0]`", "tuple"]),
        ((".*/w", None), ["`rules[0]`", "NoneType", "PartitionSpec()"]),
        ("w", ["`rules[0]`", "pair"]),
    ],
)
def test_a_rule_that_cannot_be_used_is_named(rule, says):
    with pytest.raises(ShardingRuleError) as caught:
        sharding.shardings(PARAMS, MESH, [rule])
    assert [part for part in says if part not in str(caught.value)] == []


def test_an_array_without_a_rule_is_an_error_where_that_is_asked_for():
    rules = [(".*w", P("model")), (".*/b", P())]
    with pytest.raises(ShardingRuleError, match=r"'mlp/norm/scale' of shape \(16,\)"):
        sharding.shardings(PARAMS, MESH, rules, unmatched="error")
    sharding.shardings(PARAMS, MESH, [*rules, (".*/scale", P())], unmatched="error")
    with pytest.raises(ShardingRuleError, match=r"`unmatched`.*'raise'"):
        sharding.shardings(PARAMS, MESH, rules, unmatched="raise")
    with pytest.raises(ShardingRuleError, match="`mesh`"):
        sharding.shardings(PARAMS, jax.devices(), rules)


def test_an_empty_shape_and_a_scalar_can_be_divided_as_far_as_they_go():
    tree = sharding.shardings(shapes(a__w=(0, 8), a__n=()), MESH, [("a/w", P("data", "model")), ("a/n", P())])
    assert tree["a"]["n"].is_fully_replicated


# Values made in their shards


UNIFORM = hkx.initializers.RandomUniform(-1, 1)  # compiles faster than the default


def network(x, is_training):
    x = hkx.Linear(256, w_init=UNIFORM)(x)
    x = hkx.BatchNorm(True, True, 0.9)(x, is_training)
    x = hkx.layer_stack(3)(lambda x: jax.nn.relu(hkx.Linear(256, name="inner")(x)))(x)
    scale = hkx.get_parameter(
        "scale", [1, 256], init=lambda s, d: jax.random.bernoulli(hkx.next_rng_key(), 0.5, s) * 2.0
    )
    return hkx.Linear(64, w_init=UNIFORM, name="out")(x * scale)


RULES = [
    (r"linear/w", P("data", "model")),
    (r".*/inner/w", P(None, "model", "data")),
    (r"out/w", P(("data", "model"))),
    (r"~/scale|batch_norm/.*|linear/b", P()),
    (r"batch_norm/~/mean_ema/average", P(None, "model")),
]
X = jax.ShapeDtypeStruct((4, 256), jnp.float32)
MODEL = hkx.transform_with_state(network)


def sharded(mesh):
    created = jax.eval_shape(lambda key: MODEL.init(key, X, True), jax.random.key(0))
    rules = [*RULES[:3], RULES[4], RULES[3]]
    return sharding.sharded_init(MODEL.init, tree := sharding.shardings(created, mesh, rules)), tree


def largest_array(program):
    """The most elements that any array of a compiled program has on one device."""
    found = re.findall(r"\b[a-z]+\d+\[([\d,]+)\]", program)
    return max(int(np.prod([int(n) for n in dimensions.split(",")])) for dimensions in found)


@pytest.mark.eight_devices
@pytest.mark.unoptimised(False)
def test_sharded_values_are_the_unsharded_ones_bit_for_bit_and_never_whole():
    init, tree = sharded(devices_mesh())
    compiled = init.lower(jax.random.key(3), X, is_training=True).compile()
    made = init(jax.random.key(3), X, is_training=True)
    expected = MODEL.init(jax.random.key(3), X, True)
    assert jax.tree.structure(made) == jax.tree.structure(expected)
    pairs = zip(jax.tree.leaves_with_path(made), jax.tree.leaves(expected), jax.tree.leaves(tree), strict=True)
    for (path, x), y, s in pairs:
        np.testing.assert_array_equal(x, y, err_msg=jax.tree_util.keystr(path))
        assert x.sharding.is_equivalent_to(s, x.ndim), path
        assert {part.data.shape for part in x.addressable_shards} == {s.shard_shape(x.shape)}
    inner = expected[0]["__layer_stack_no_per_layer/inner"]["w"]
    assert largest_array(compiled.as_text()) == inner.size // 8  # the largest shard
    whole, memory = sum(x.nbytes for x in jax.tree.leaves(expected)), compiled.memory_analysis()
    assert memory.output_size_in_bytes < whole / 8 + 10_000  # what no rule divides is small
    assert memory.temp_size_in_bytes < whole / 2  # random bits and counters, of the shards


def small():
    mesh = devices_mesh()
    model = hkx.transform(lambda x, bias=True: hkx.Linear(8, with_bias=bias, w_init=UNIFORM)(x))
    tree = {"linear": {"w": NamedSharding(mesh, P(None, "model")), "b": NamedSharding(mesh, P())}}
    return mesh, model, tree


@pytest.mark.eight_devices
def test_every_kind_of_key_and_argument_is_taken():
    mesh, model, tree = small()
    x = np.ones([2, 4], np.float32)
    everywhere = jax.device_put(jax.random.key(5), NamedSharding(mesh, P()))
    there = jax.device_put(jax.random.key(5), jax.devices()[3])
    expected = model.init(5, x)["linear"]["w"]
    init = sharding.sharded_init(model.init, tree)
    for key in (5, jax.random.PRNGKey(5), everywhere, there):
        w = init(key, x)["linear"]["w"]
        np.testing.assert_array_equal(w, expected)
        assert w.sharding.spec == P(None, "model")
    del tree["linear"]["b"]
    assert set(sharding.sharded_init(model.init, tree)(5, jnp.asarray(x), bias=False)["linear"]) == {"w"}


@pytest.mark.eight_devices
def test_a_function_that_makes_the_whole_training_state_is_taken():
    _, model, tree = small()
    optimizer, x = optax.adam(0.1), jnp.ones([2, 4])

    def create(key):
        params = model.init(key, x)
        return params, optimizer.init(params)

    params, state = jax.eval_shape(create, jax.random.key(0))
    both = tree, sharding.optimizer_shardings(state, params, tree)
    params, state = sharding.sharded_init(create, both)(jax.random.key(0))
    assert state[0].mu["linear"]["w"].sharding.spec == params["linear"]["w"].sharding.spec == P(None, "model")
    assert not np.any(state[0].mu["linear"]["w"])


@pytest.mark.eight_devices
def test_a_compiled_init_is_refused():
    _, model, tree = small()
    with pytest.raises(TypeError, match="compiled already"):
        sharding.sharded_init(jax.jit(model.init), tree)


@pytest.mark.eight_devices
def test_an_init_in_shards_is_compiled_once_for_one_function_and_settings(compiled):
    model = hkx.transform(lambda x, bias: hkx.Linear(8, with_bias=bias)(x))
    key, x = jax.random.PRNGKey(0), np.ones([1, 4], np.float32)
    tree = {"linear": {"w": NamedSharding(devices_mesh(), P(None, "model"))}}
    init = sharding.sharded_init(model.init, tree)
    assert compiled(lambda: init(key, x, bias=False)) >= 1
    assert compiled(lambda: init(key, x, bias=False)) == 0
    assert compiled(lambda: sharding.sharded_init(model.init, tree)(key, x, bias=False)) == 0
    assert compiled(lambda: init(key, x, bias=0)) == 1  # it equals False, and is something else
    with pytest.raises(ValueError, match="structure"):
        init(key, x, bias=True)


@pytest.mark.eight_devices
def test_an_init_that_cannot_be_remembered_is_compiled_each_time():
    class Init(list):  # neither hashed nor referred to weakly
        def __call__(self, key):
            return {"w": jax.random.normal(key, [8])}

    tree = {"w": NamedSharding(devices_mesh(), P("model"))}
    assert sharding.sharded_init(Init(), tree)(jax.random.key(0))["w"].sharding == tree["w"]


@pytest.mark.eight_devices
@pytest.mark.parametrize("sharded", [True])
def test_initial_values_need_no_memory_beside_them(sharded):
    """`jax.random` needs three times an array's share of memory for it, and so does a model without care for it."""
    model = hkx.transform(lambda x: hkx.nets.MLP([512] * 6)(x))
    key, x = jax.random.PRNGKey(0), np.ones([1, 512], np.float32)
    rules = [(".*/w", P(None, ("data", "model")))] if sharded else []
    tree = sharding.shardings(jax.eval_shape(model.init, key, x), devices_mesh(), rules)
    program = jax.jit(model.init, out_shardings=tree)
    assert program.lower(key, x).compile().memory_analysis().temp_size_in_bytes < 4 * 512 * 512 / (8 if sharded else 1)


# The optimizer's state

TWO = shapes(a__w=(8, 128), a__b=(128,), c__w=(8, 128))
TREE = sharding.shardings(TWO, MESH, [("a/w", P("data", "model")), ("c/w", P(None, "data"))])
A, C, N = P("data", "model"), P(None, "data"), P()
SAME = {"a": {"w": A, "b": N}, "c": {"w": C}}


def of_optimizer(optimizer):
    return specs(sharding.optimizer_shardings(jax.eval_shape(optimizer.init, TWO), TWO, TREE))


def test_moments_are_divided_as_their_parameters_are():
    clip, (adam, _) = of_optimizer(optax.chain(optax.clip_by_global_norm(1.0), optax.adam(0.1)))
    assert clip == optax.EmptyState()
    assert (adam.count, adam.mu, adam.nu) == (N, SAME, SAME)


def test_state_for_some_parameters_only_is_divided_as_those_are():
    chosen = {"a": "adam", "c": "none"}
    labels = {module: dict.fromkeys(names, chosen[module]) for module, names in TWO.items()}
    state = of_optimizer(optax.multi_transform({"adam": optax.adam(0.1), "none": optax.set_to_zero()}, labels))
    mu = state.inner_states["adam"].inner_state[0].mu
    assert mu["a"] == SAME["a"]
    assert mu["c"] == {"w": optax.MaskedNode()}


def test_an_array_of_another_shape_is_replicated_though_it_stands_in_the_parameters_place():
    factored = of_optimizer(optax.scale_by_factored_rms(min_dim_size_to_factor=8))
    assert factored.v_row == {"a": {"w": N, "b": N}, "c": {"w": N}}
    assert factored.v == {"a": {"w": N, "b": N}, "c": {"w": N}}
    wrapped = of_optimizer(optax.MultiSteps(optax.sgd(0.1, momentum=0.9), 2).gradient_transformation())
    assert wrapped.acc_grads == wrapped.inner_opt_state[0].trace == SAME


def test_shardings_of_other_parameters_are_refused():
    with pytest.raises(ValueError, match="one sharding for each"):
        sharding.optimizer_shardings({}, {"a": TWO["a"]}, TREE)


# Copies and batches for jax.pmap, and batches for a mesh


@pytest.mark.eight_devices
def test_copies_go_to_every_device_and_back():
    tree = {"w": np.arange(6.0).reshape(2, 3), "n": 3, "key": jax.random.key(1), "x": jnp.ones([4], jnp.bfloat16)}
    copies = sharding.replicate(tree)
    assert jax.tree.map(jnp.shape, copies) == {"w": (8, 2, 3), "n": (8,), "key": (8,), "x": (8, 4)}
    for shard in copies["w"].addressable_shards:
        np.testing.assert_array_equal(shard.data, tree["w"][None])
    assert {shard.device for shard in copies["key"].addressable_shards} == set(jax.devices())
    back = sharding.unreplicate(jax.pmap(lambda tree: tree)(copies))
    assert back["x"].dtype == jnp.bfloat16
    for name in ("w", "n", "x"):
        np.testing.assert_array_equal(back[name], tree[name])
    assert jax.random.bits(back["key"]) == jax.random.bits(tree["key"])
    assert sharding.unreplicate(np.arange(3)) == 0
    with pytest.raises(ValueError, match="'n' has no leading dimension"):
        sharding.unreplicate({"n": 3.0})


@pytest.mark.eight_devices
def test_a_batch_is_divided_in_its_order():
    batch = {"image": np.arange(24.0).reshape(12, 2), "label": jnp.arange(12)}
    some = jax.devices()[:4]
    out = jax.pmap(lambda batch: batch, devices=some)(divided := sharding.shard_batch(batch, some))
    for name, x in batch.items():
        assert [shard.data.shape[:2] for shard in divided[name].addressable_shards] == [(1, 3)] * 4
        np.testing.assert_array_equal(np.reshape(out[name], x.shape), x)
    mesh = devices_mesh()
    whole = sharding.global_batch(batch, mesh)
    np.testing.assert_array_equal(whole["image"], batch["image"])
    assert {shard.data.shape for shard in whole["image"].addressable_shards} == {(6, 2)}
    both = sharding.global_batch({"x": np.ones([16, 3])}, mesh, ("data", "model"))["x"]
    assert {shard.data.shape for shard in both.addressable_shards} == {(2, 3)}


@pytest.mark.eight_devices
@pytest.mark.parametrize(
    ("batch", "says"),
    [
        ({"x": np.ones([12])}, ["12 rows", "8", "Take 8 or 16"]),
        ({"x": np.ones([3])}, ["3 rows", "Take 8 rows"]),
        ({"x": np.ones([8]), "y": np.ones([16])}, ["'x' 8", "'y' 16"]),
        ({"x": np.ones([8]), "n": np.float32(0)}, ["'n' has no leading dimension"]),
    ],
)
def test_a_batch_that_cannot_be_divided_is_refused(batch, says):
    for divide in (sharding.shard_batch, lambda batch: sharding.global_batch(batch, devices_mesh(), ("data", "model"))):
        with pytest.raises(UnevenBatchError) as caught:
            divide(batch)
        assert [part for part in says if part not in str(caught.value)] == []


@pytest.mark.eight_devices
def test_a_batch_for_an_axis_that_is_not_there_is_refused():
    with pytest.raises(ShardingRuleError, match=r"'expert'.*'data' of size 2"):
        sharding.global_batch(np.ones([8]), devices_mesh(), "expert")


def test_no_device_to_replicate_to_is_named():
    with pytest.raises(ValueError, match="`devices` is empty"):
        hkx.sharding.replicate({"w": np.ones(3)}, [])


MISTAKEN = {
    "`rules` must be a list of pairs (pattern, PartitionSpec), got 3": lambda: sharding.shardings(PARAMS, MESH, 3),
    "has the entry 3: give an axis of the mesh": lambda: sharding.shardings(PARAMS, MESH, [(".*", P(3))]),
    "`shapes` must be a tree of arrays, and 'a/w' is 'text'": lambda: sharding.shardings(
        {"a": {"w": "text"}}, MESH, []
    ),
    "Pass the parameters, or their shapes": lambda: sharding.shardings(hkx.transform(lambda: 1), MESH, []),
    "`hkx.sharding.sharded_init` was given None of type NoneType as `init`": lambda: sharding.sharded_init(None, None),
    "must be a tree of shardings, see `hkx.sharding.shardings`, got 'x'": lambda: sharding.sharded_init(
        max, {"a": "x"}
    ),
    "must be a tree of shardings, see `hkx.sharding.shardings`, got Array": (
        lambda: sharding.sharded_init(max, {"a": jnp.ones(2)})
    ),
    "`mesh` must be a jax.sharding.Mesh, got None": lambda: sharding.global_batch(np.ones(2), None),
    "`axes` names the axis None, and the mesh has 'data' of size 1": (
        lambda: sharding.global_batch(np.ones(2), jax.make_mesh((1,), ("data",)), None)
    ),
}


@pytest.mark.parametrize("text", MISTAKEN)
def test_an_argument_that_is_something_else_is_named(text):
    with pytest.raises((ValueError, TypeError), match=re.escape(text)):
        MISTAKEN[text]()


@pytest.mark.eight_devices
@pytest.mark.parametrize("change", ["one too few", "no state"])
def test_shardings_of_another_structure_are_named(change):
    mesh = devices_mesh()
    model = hkx.transform_with_state(lambda x: hkx.BatchNorm(True, True, 0.9)(hkx.Linear(8)(x), True))
    key, x = jax.random.key(0), jnp.ones([2, 4])
    params, state = sharding.shardings(jax.eval_shape(model.init, key, x), mesh, [])
    whole = NamedSharding(mesh, P())
    wrong = {
        "one too few": ({"linear": params["linear"]}, state),
        "no state": params,
    }[change]
    init = sharding.sharded_init(model.init, wrong)
    for call in (init, init.lower):
        with pytest.raises(ShardingRuleError, match="`shardings` does not have the structure of what `init` returns"):
            call(key, x)
    for fitting in (whole, (params, whole), (whole, None)):  # a prefix, as for `jax.jit`
        assert jax.tree.structure(sharding.sharded_init(model.init, fitting)(key, x)) == jax.tree.structure(
            (params, state)
        )


@pytest.mark.eight_devices
def test_devices_axes_and_patterns_of_the_wrong_kind_are_named():
    with pytest.raises(TypeError, match="`devices` must be a list of devices"):
        sharding.replicate({"w": np.ones(2)}, 3)
    with pytest.raises(ShardingRuleError, match="'data' more than once"):
        sharding.global_batch(np.ones([8]), devices_mesh(), ("data", "data"))
    with pytest.raises(ShardingRuleError, match="is of bytes"):
        sharding.shardings(PARAMS, MESH, [(re.compile(b".*"), P())])
