"""What a program sees of the packages: the public names, what can be pickled, and an install without sources."""

import ast
import copy
import importlib
import importlib.metadata
import importlib.util
import inspect
import json
import pathlib
import pickle
import py_compile
import pydoc
import re
import shutil
import subprocess
import sys

import jax
import jax.numpy as jnp
import pytest

import hkx
import rlx

ROOT = pathlib.Path(__file__).parents[1]
FACES = {"hkx": hkx, "rlx": rlx, "hkx.experimental": hkx.experimental, "hkx.nets": hkx.nets}
NEEDS_ANOTHER_LIBRARY = {"flax", "torch"}


@pytest.mark.parametrize("name", [n for n in FACES if n != "rlx"])  # its stub: tests/rlx/test_face_stub.py
def test_the_table_of_names_is_what_type_checkers_read(name):
    tree = ast.parse(pathlib.Path(FACES[name].__file__).read_text(encoding="utf-8"))
    (block,) = (node for node in tree.body if isinstance(node, ast.If))
    assert ast.unparse(block.test) == "TYPE_CHECKING"
    imported = {(node.module, alias.name) for node in block.body for alias in node.names}
    assert all(alias.asname == alias.name for node in block.body for alias in node.names)
    table = vars(FACES[name])["_EXPORTS"]
    exported = [(module, n) for module, names in table.items() for n in names.split()]
    assert set(exported) == imported
    assert len(exported) == len({n for _, n in exported}), "a name is in the table twice"


@pytest.mark.parametrize("name", FACES)
def test_every_name_comes_from_where_the_table_says(name):
    for home, names in vars(FACES[name])["_EXPORTS"].items():
        for public in names.split():
            if public in NEEDS_ANOTHER_LIBRARY:
                continue
            value = importlib.import_module(f"{name}.{public}") if home == name else None
            assert getattr(FACES[name], public) is (value or getattr(importlib.import_module(home), public))


def test_both_packages_have_the_same_lazy_imports():
    assert (ROOT / "hkx/base/lazy.py").read_bytes() == (ROOT / "rlx/core/lazy.py").read_bytes()


def test_importing_the_packages_does_not_import_jax():
    """So that a program can still set JAX's environment, and `import` costs milliseconds."""
    code = "import sys, hkx, rlx; sys.exit(' '.join({'jax', 'numpy'} & {*sys.modules}))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.stderr.strip() == ""


@pytest.mark.parametrize("name", FACES)
def test_dir_shows_the_public_names_alone(name):
    loaded = {"hkx.experimental": f"{name}.settings", "hkx": "hkx.errors.core", "hkx.nets": "hkx.nets.mlp"}
    importlib.import_module(loaded.get(name, f"{name}.core.errors"))
    assert sorted({*FACES[name].__all__, *NEEDS_ANOTHER_LIBRARY} & set(dir(FACES[name]))) == dir(FACES[name])
    assert set(FACES[name].__all__) <= set(dir(FACES[name]))


def test_a_folder_of_the_same_name_does_not_hide_a_function():
    importlib.import_module("hkx.lift.purify")
    assert callable(hkx.lift) and hkx.lift.__module__ == "hkx.lift.lift"


@pytest.mark.parametrize("package", [hkx, rlx])
def test_a_name_that_is_none_is_an_attribute_error(package):
    with pytest.raises(AttributeError, match=f"module '{package.__name__}' has no attribute 'no_such_name'") as caught:
        _ = package.no_such_name
    assert caught.value.name == "no_such_name" and caught.value.obj is package


def test_where_the_packages_are_not_installed_they_have_no_version(monkeypatch):
    def missing(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", missing)  # a copy of the folder in a user's own tree
    assert not hasattr(hkx, "__version__") and not hasattr(rlx, "__version__")


@pytest.mark.parametrize("package", [hkx, rlx])
def test_help_begins_with_what_a_reader_needs(package):
    first = "\n".join(pydoc.getdoc(package).splitlines()[:40])
    assert f"import {package.__name__}" in first and ">>>" in first
    assert len(pydoc.getdoc(package).splitlines()) <= 60  # one page or two


PUBLIC_MODULES = [
    *(f"hkx.{name}" for name in vars(hkx)["_EXPORTS"]["hkx"].split() if name != "interop"),
    "hkx.experimental.jaxpr_info",
    "hkx",
    "rlx",
    "rlx.evaluation",
    "rlx.replay",
    "rlx.running_statistics",
]


def defined_in(path: pathlib.Path) -> set[str]:
    """The public names that a file defines, or imports as themselves in order to hand them on."""
    names = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names |= {target.id for target in targets if isinstance(target, ast.Name)}
        elif isinstance(node, ast.ImportFrom):
            names |= {alias.name for alias in node.names if alias.asname == alias.name}
    return {name for name in names if not name.startswith("_")}


@pytest.mark.parametrize("name", PUBLIC_MODULES)
def test_a_star_import_brings_public_names_alone(name):
    module = importlib.import_module(name)
    defined = None if name in FACES else defined_in(pathlib.Path(module.__file__))
    public = set(getattr(module, "__all__", defined))
    brought: dict[str, object] = {}
    exec(f"from {name} import *", brought)
    assert set(brought) - {"__builtins__"} == public
    if defined is not None:
        left_out = {getattr(module, n) for n in defined - public}
        assert public <= defined and not any(inspect.isroutine(v) or isinstance(v, type) for v in left_out)


@pytest.mark.parametrize(
    "path",
    [
        "interop/huggingface.py",
        "interop/gguf.py",
        "interop/safetensors.py",
        "interop/torch.py",
        "interop/flax.py",
        "experimental/flax.py",
    ],
)
def test_what_needs_another_library_says_what_is_public(path):
    nodes = ast.parse((ROOT / "hkx" / path).read_text(encoding="utf-8")).body
    (public,) = (
        ast.literal_eval(n.value) for n in nodes if isinstance(n, ast.Assign) and ast.unparse(n.targets[0]) == "__all__"
    )
    made_here = {n.name for n in nodes if isinstance(n, ast.FunctionDef | ast.ClassDef) and not n.name.startswith("_")}
    assert made_here <= set(public) <= defined_in(ROOT / "hkx" / path)


def documented():
    modules = [importlib.import_module(name) for name in PUBLIC_MODULES if name != "hkx.errors"]
    values = {f"{m.__name__}.{n}": getattr(m, n) for m in modules for n in getattr(m, "__all__", ()) if n != "flax"}
    for name, value in values.items():
        record = isinstance(value, type) and (
            issubclass(value, tuple | BaseException) or "Record" in str(value.__mro__)
        )
        if callable(value) and not record and getattr(value, "__module__", "").startswith(("hkx", "rlx")):
            yield name, value


ELSEWHERE = {
    "hkx.config.context",  # says that its arguments are those of `set`
    "hkx.Pure",  # made by `purify`, not by users
    "hkx.EmbedLookupStyle",
}


def test_every_argument_is_documented():
    silent = {}
    for name, value in documented():
        given = inspect.signature(value).parameters
        names = {n for n, p in given.items() if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)}
        doc = value.__doc__ or ""
        missing = [n for n in names if not re.search(rf"\b{n}\b", doc)]
        if missing and name not in ELSEWHERE and "*args: the arguments of" not in doc:
            silent[name] = missing
    assert silent == {}


def test_signatures_name_types_as_users_write_them():
    """Not `jax.jaxlib._jax.Array`, where it is defined."""
    faces = {**FACES, "rlx.replay": rlx.replay, "rlx.running_statistics": rlx.running_statistics}
    values = {f"{name}.{n}": getattr(face, n) for name, face in faces.items() for n in face.__all__ if n != "flax"}
    for name, value in tuple(values.items()):
        if inspect.isclass(value):
            public = [n for n in dir(value) if not n.startswith("_") or n == "__call__"]
            values |= {f"{name}.{n}": getattr(value, n) for n in public if callable(getattr(value, n, None))}
    assert [name for name, value in values.items() if callable(value) and "jaxlib" in _signature(value)] == []


def _signature(value):
    try:
        return str(inspect.signature(value))
    except ValueError:  # of a function in C, such as `tuple.count`
        return ""


# What a script or a notebook defines, and hands to worker processes.
SCRIPT = """
import jax, jax.numpy as jnp
import hkx as hk, rlx

class Scaled(hk.Module):
    def __init__(self, size, name=None):
        super().__init__(name)
        self.size = size
    def __call__(self, x):
        return hk.Linear(self.size)(x) * hk.get_parameter("scale", [], init=jnp.ones)

def net(x):
    return jnp.tanh(Scaled(2)(x))

def loss(x):
    return net(x).sum()

def update(r_t, discount_t, v_t):
    return rlx.lambda_returns(r_t, discount_t, v_t, 0.9)

model = hk.transform(net)
with_state = hk.transform_with_state(lambda x: hk.BatchNorm(True, True, 0.9)(x, True))

def shared():
    layer = Scaled(2)
    return layer, {"twice": lambda x: layer(layer(x))}

several = hk.multi_transform(shared)
functions = {
    "grad": hk.grad(loss),
    "value_and_grad": hk.value_and_grad(loss),
    "remat": hk.remat(net),
    "jit": hk.jit(net),
    "vmap": hk.vmap(net, split_rng=False),
    "layer_stack": hk.layer_stack(2)(net),
    "to_module": hk.to_module(net),
}

def run(x):
    key = jax.random.key(0)
    results = {"update": update(x[0], x[0], x[0]), "model": model.apply(model.init(key, x), None, x)}
    results["several"] = several.apply["twice"](several.init(key, x), None, x)
    results["with_state"] = with_state.init(key, x)
    return results

def shapes(x):
    makers = {**functions, "to_module": lambda x: functions["to_module"]()(x)}
    return {name: jax.eval_shape(hk.transform(f).init, jax.random.key(0), x) for name, f in makers.items()}
"""
READ = """
import sys, pickle, json, pathlib
import {pickler}
import hkx, rlx
assert hkx.__file__.endswith(".pyc") and rlx.__file__.endswith(".pyc"), hkx.__file__
for package in (hkx, rlx, hkx.experimental):
    for name in package.__all__:
        if name != "flax":
            getattr(package, name)
import numpy as np, jax
run, shapes, x, keys, initializer = {pickler}.loads(pathlib.Path(sys.argv[1]).read_bytes())
out = jax.tree.map(lambda leaf: np.asarray(leaf).tolist(), run(x))
drawn = np.asarray(jax.random.key_data(next(keys))).tolist()
value = hkx.transform(lambda: initializer([2], np.float32)).apply({{}}, 0).tolist()
print(json.dumps([out, str(shapes(x)), drawn, value]))
"""


def without_sources(folder: pathlib.Path) -> None:
    """Copies the packages as a frozen or source-less install has them: compiled files alone."""
    for source in (path for package in ("hkx", "rlx") for path in (ROOT / package).rglob("*.py")):
        target = folder / source.relative_to(ROOT).with_suffix(".pyc")
        target.parent.mkdir(parents=True, exist_ok=True)
        compiled = pathlib.Path(importlib.util.cache_from_source(str(source)))
        if compiled.exists() and compiled.stat().st_mtime > source.stat().st_mtime:
            shutil.copy(compiled, target)
        else:
            py_compile.compile(str(source), str(target), doraise=True)


@pytest.mark.slow
def test_what_a_script_defines_runs_in_another_process_without_sources(tmp_path):
    cloudpickle = pytest.importorskip("cloudpickle")
    main = {"__name__": "__main__"}  # cloudpickle writes what it holds by value
    exec(SCRIPT, main)
    x = jnp.array([[0.5, -1.0], [2.0, 0.25]])
    keys = hkx.PRNGSequence(jax.random.key(3))
    keys.reserve(3)
    next(keys)
    initializer = hkx.initializers.VarianceScaling(2.0, "fan_out", "truncated_normal")
    written = cloudpickle.dumps((main["run"], main["shapes"], x, keys, initializer))
    (tmp_path / "written").write_bytes(written)
    without_sources(tmp_path)
    command = [sys.executable, "-c", READ.format(pickler="cloudpickle"), str(tmp_path / "written")]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    there, shapes, key, value = json.loads(done.stdout)
    here = jax.tree.map(lambda leaf: jnp.asarray(leaf).tolist(), main["run"](x))
    assert (there, shapes) == (json.loads(json.dumps(here)), str(main["shapes"](x)))
    assert jax.random.key_data(next(keys)).tolist() == key
    assert hkx.transform(lambda: initializer([2], jnp.float32)).apply({}, 0).tolist() == value


@pytest.mark.parametrize("name", ["cloudpickle", "dill"])
def test_functions_that_mention_the_packages_can_be_pickled(name):
    pickler = pytest.importorskip(name)
    main = {"__name__": "__main__"}
    exec(SCRIPT, main)
    for value in (main["net"], main["update"], main["Scaled"], main["model"], *main["functions"].values()):
        assert callable(pickler.loads(pickler.dumps(value))) or isinstance(value, hkx.Transformed)


@pytest.mark.parametrize("package", [hkx, rlx, hkx.experimental])
def test_a_package_is_pickled_as_its_name(package):
    assert pickle.loads(pickle.dumps(package)) is package
    assert copy.deepcopy({"package": package})["package"] is package


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
def test_do_not_store_stays_one_object(copied):
    """A creator that refers to it by this name, and that another process runs, returns it."""
    assert copied(hkx.DO_NOT_STORE) is hkx.DO_NOT_STORE


@pytest.mark.parametrize("key", [0, jax.random.key(1), jax.random.PRNGKey(2)], ids=["seed", "typed", "raw"])
def test_a_key_sequence_goes_on_where_it_was_pickled(key):
    keys = hkx.PRNGSequence(key)
    keys.reserve(2)
    next(keys)
    again = pickle.loads(pickle.dumps(keys))
    for _ in range(3):
        expected, got = next(keys), next(again)
        assert expected.dtype == got.dtype and bool((expected == got).all())


def test_a_copy_of_a_key_sequence_is_guarded_like_the_original():
    def f(x):
        keys = hkx.PRNGSequence(0)
        return jax.lax.scan(lambda c, x: (c, jax.random.normal(next(copy.deepcopy(keys)))), 0, x)

    with pytest.raises(hkx.errors.KeyInInnerTraceError):
        hkx.transform(f).apply({}, None, jnp.ones(2))


def test_modules_can_be_pickled():
    def f(x):
        layers = hkx.Linear(2), hkx.Sequential([hkx.Linear(3), abs]), hkx.LSTM(2), hkx.LayerNorm(-1, True, True)
        for layer in layers:
            again = pickle.loads(pickle.dumps(layer))
            assert (type(again), again.module_name, repr(again)) == (type(layer), layer.module_name, repr(layer))
        return pickle.loads(pickle.dumps(layers[0]))(x)

    params = hkx.transform(f).init(0, jnp.ones([1, 2]))
    assert jax.tree.map(jnp.shape, params) == {"linear": {"b": (2,), "w": (2, 2)}}
