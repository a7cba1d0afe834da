"""The laws of the house: who may import whom, which names may be used, and how long a file and a function may be."""

import ast
import functools
import importlib
import pathlib
import subprocess
import sys
import warnings

import pytest

import hkx
import rlx
from benchmarks.rlx_lines import code_lines

ROOT = pathlib.Path(__file__).parents[1]
MAX_FILE_LINES = 450
MAX_FUNCTION_LINES = 60  # without the docstring
MAX_HEART_LINES = 1660  # of code, in hkx/core and hkx/base: what a reader of the core needs
MAX_HEART_FILE_LINES = 150
RUNTIME = {"jax", "jaxlib", "numpy"}
OPTIONAL_FOLDERS = ("hkx.interop", "hkx.migrate")  # these alone may import other libraries
NEED_THEM = (*OPTIONAL_FOLDERS, "hkx.experimental.flax")  # and these cannot be imported where those are missing
FOR_PYTHON_ALONE = "hkx.run.start.sitecustomize"  # Python imports it when it starts

# A file imports from its own floor and those below. The longest matching name counts; a package's own __init__.py is
# its face and stands above all.
FLOORS = {
    "hkx.base.types": 0,
    "hkx.base": 0,
    "hkx.core.settings": 0,
    "hkx.errors": 0,
    "hkx.arguments": 0,
    "hkx.pad": 0,
    "hkx.jaxprs": 0,
    "hkx.core.shapes": 1,
    "hkx.core.reprs": 1,
    "hkx.core.reloaded": 1,
    "hkx.core.guard": 1,
    "hkx.tracing": 1,
    "hkx.core.making": 1,
    "hkx.core.frame": 1,
    "hkx.core.naming": 2,
    "hkx.core.hooks": 2,
    "hkx.core.rng": 3,
    "hkx.core.store": 3,
    "hkx.core.module": 4,
    "hkx.core.transform": 5,
    "hkx.initializers": 5,
    "hkx.adapters": 6,
    "hkx.context": 6,
    "hkx.init": 6,
    "hkx.multi": 7,
    "hkx.lift.captured": 7,
    "hkx.lift.checks": 7,
    "hkx.lift.probe": 7,
    "hkx.lift.crossing": 7,
    "hkx.lift": 8,
    "hkx.nn": 9,
    "hkx.nets": 10,
    "hkx.unroll": 10,
    "hkx.tools": 10,
    "hkx.sharding": 10,
    "hkx.interop": 10,
    "hkx.config": 11,
    "hkx.testing": 11,
    "hkx.experimental": 11,
    "hkx.data_structures": 11,
    "hkx.mixed_precision": 11,
    "hkx.jaxpr_info": 11,
    "hkx.migrate": 11,
    "hkx.run.jax_rows": 0,
    "hkx.run.numpy_rows": 0,
    "hkx.run.table": 1,
    "hkx.run": 12,
    "rlx.core.types": 0,
    "rlx.core.errors": 0,
    "rlx.core": 1,
    "rlx.batching": 2,
    "rlx.divergences": 2,
    "rlx.distributions": 2,
    "rlx.gaussians": 2,
    "rlx.truncated_softmax": 3,
    "rlx.value_transforms": 2,
    "rlx.losses": 2,
    "rlx.two_hot": 2,
    "rlx.policy_gradient": 3,
    "rlx.ppo": 3,
    "rlx.mpo": 3,
    "rlx.muesli": 3,
    "rlx.dpo": 3,
    "rlx.kl": 3,
    "rlx.group_advantages": 3,
    "rlx.token_log_probs": 3,
    "rlx.batch_advantages": 4,
    "rlx.gmpo": 4,
    "rlx.clip_cov": 5,
    "rlx.importance_weights": 3,
    "rlx.preference_variants": 4,
    "rlx.token_rewards": 3,
    "rlx.grpo": 4,
    "rlx.simple_policy_optimization": 3,
    "rlx.sequential_monte_carlo": 3,
    "rlx.value_decomposition": 3,
    "rlx.spr": 3,
    "rlx.tdmpc2": 3,
    "rlx.rnd": 3,
    "rlx.streaming": 3,
    "rlx.td3": 3,
    "rlx.sac": 3,
    "rlx.categorical": 4,
    "rlx.classification": 4,
    "rlx.quantile": 4,
    "rlx.successor_features": 4,
    "rlx.returns": 3,
    "rlx.q_learning": 4,
    "rlx.offline": 5,
    "rlx.retrace": 4,
    "rlx.td": 4,
    "rlx.transformed": 4,
    "rlx.vtrace": 3,
    "rlx.normalisation": 4,
    "rlx.contrastive": 3,
    "rlx.d4pg": 5,
    "rlx.discovered_policy": 3,
    "rlx.fast_td3": 5,
    "rlx.orpo": 3,
    "rlx.redq": 4,
    "rlx.sapo": 3,
    "rlx.sequence_rewards": 3,
    "rlx.simpo": 3,
    "rlx.truncated_importance_sampling": 3,
    "rlx.tqc": 5,
    "rlx.running_statistics": 3,
    "rlx.evaluation": 3,
    "rlx.return_scaling": 4,
    "rlx.exploration": 4,
    "rlx.agent_loop": 4,
    "rlx.replay": 4,
}


def module_name(path: pathlib.Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


FILES = {module_name(path): path for package in ("hkx", "rlx") for path in sorted((ROOT / package).rglob("*.py"))}
FACES = {"hkx", "rlx", "hkx.core"}  # hkx.core: its files have floors, the folder has none


# What the packages export: where each public name lives.
HOMES = {
    f"{face.__name__}.{public}": f"{home}.{public}" if home == face.__name__ else home
    for face in (hkx, rlx)
    for home, names in vars(face)["_EXPORTS"].items()
    for public in names.split()
}


@functools.cache
def tree_of(name: str) -> ast.Module:
    return ast.parse(FILES[name].read_text(encoding="utf-8"), filename=str(FILES[name]))


def where(name: str, node: ast.AST | None = None) -> str:
    return f"{FILES[name].relative_to(ROOT)}" + (f":{node.lineno}" if node is not None else "")


def imported_from(name: str, node: ast.Import | ast.ImportFrom) -> list[str]:
    """The modules that an import statement reads from, each by its full name."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    base = node.module or ""
    if node.level:
        package = name if FILES[name].name == "__init__.py" else name.rpartition(".")[0]
        for _ in range(node.level - 1):
            package = package.rpartition(".")[0]
        base = f"{package}.{base}".rstrip(".")
    inside = [f"{base}.{alias.name}" for alias in node.names]
    return [full if full in FILES else HOMES.get(full, base) for full in inside]


def imports_of(name: str) -> list[tuple[ast.Import | ast.ImportFrom, str]]:
    nodes = [node for node in ast.walk(tree_of(name)) if isinstance(node, ast.Import | ast.ImportFrom)]
    return [(node, target) for node in nodes for target in dict.fromkeys(imported_from(name, node))]


def floor_of(name: str) -> int | None:
    if name in FACES:
        return 99
    parts = name.split(".")
    return next((FLOORS[k] for n in range(len(parts), 0, -1) if (k := ".".join(parts[:n])) in FLOORS), None)


def check(violations: list[str], advice: str) -> None:
    assert not violations, "\n".join([advice, *violations])


def test_every_file_has_a_floor():
    check(
        [where(name) for name in FILES if floor_of(name) is None],
        "These files stand on no floor: put them into a folder that has one, or give them one in FLOORS of this test.",
    )


def test_imports_go_down():
    check(
        [
            f"{where(name, node)} (floor {floor_of(name)}) imports {target} (floor {floor_of(target)})"
            for name in FILES
            for node, target in imports_of(name)
            if target in FILES and floor_of(target) > floor_of(name)
        ],
        "A file imports only from its own floor and lower ones: move what is shared down, "
        "or import the file that defines the name instead of the package that exports it.",
    )


def test_imports_have_no_cycles():
    graph = {name: {target for _, target in imports_of(name) if target in FILES} - {name} for name in FILES}
    while free := [name for name, targets in graph.items() if not targets]:
        graph = {name: targets - set(free) for name, targets in graph.items() if name not in free}
    cycles = {name: sorted(targets) for name, targets in graph.items()}
    check(
        [f"{where(name)} waits for {', '.join(targets)}" for name, targets in cycles.items()],
        "These files import each other in a circle: move what they share into a file below both.",
    )


def public_names() -> set[str]:
    """Everything that a program can write after `import hkx`, classes of errors and functions of `hkx.pad` too."""
    modules = {n: getattr(hkx, n) for n in ("arguments", "errors", "initializers", "pad")}
    exported = {n: getattr(m, "__all__", [x for x in vars(m) if not x.startswith("_")]) for n, m in modules.items()}
    return {*HOMES, *(f"hkx.{module}.{name}" for module, names in exported.items() for name in names)}


def test_layers_use_only_what_a_user_can():
    """A layer can be copied out of hkx, and goes on working: what it needs of hkx is what `import hkx` shows."""
    public = public_names()
    layers = [name for name in FILES if name.startswith(("hkx.nn", "hkx.nets.")) and name != "hkx.nn"]
    full_names = {
        (name, node, alias.name if isinstance(node, ast.Import) else f"{node.module}.{alias.name}")
        for name in layers
        for node in ast.walk(tree_of(name))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }
    assert any(full == "hkx.Module" for _, _, full in full_names)  # the search finds what is imported
    check(
        [
            f"{where(name, node)} imports {full}"
            for name, node, full in full_names
            if full.startswith("hkx") and full not in public and not full.startswith(("hkx.nn.", "hkx.nets."))
        ],
        "Layers import public names, as `from hkx import Module`, and files of hkx/nn and nets: what they need beside "
        "is to be made public, with its documentation, or is no business of a layer.",
    )


def test_the_packages_do_not_import_each_other():
    other = {"hkx": "rlx", "rlx": "hkx"}
    check(
        [
            f"{where(name, node)} imports {target}"
            for name in FILES
            if not name.startswith("hkx.run.")  # it serves both
            for node, target in imports_of(name)
            if target.split(".")[0] == other[name.split(".")[0]]
        ],
        "hkx and rlx do not know each other: pass what is needed as an argument.",
    )


def test_only_jax_numpy_and_the_standard_library_are_imported():
    check(
        [
            f"{where(name, node)} imports {target}"
            for name in FILES
            if not name.startswith(OPTIONAL_FOLDERS)
            for node, target in imports_of(name)
            if target.split(".")[0] not in RUNTIME | sys.stdlib_module_names | {"hkx", "rlx"}
        ],
        "hkx and rlx need JAX, NumPy and nothing else; an exchange with another library belongs in hkx/interop.",
    )


def test_imports_stand_at_the_top_of_their_file():
    def inside_functions(name: str):
        functions = [n for n in ast.walk(tree_of(name)) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
        nodes = {node for f in functions for node in ast.walk(f) if isinstance(node, ast.Import | ast.ImportFrom)}
        return [(node, target) for node in nodes for target in imported_from(name, node)]

    check(
        [
            f"{where(name, node)} imports {target}"
            for name in FILES
            for node, target in inside_functions(name)
            if target.split(".")[0] in RUNTIME | sys.stdlib_module_names | {"hkx", "rlx"}
        ],
        "An import inside a function hides a dependency: move it to the top; where that makes a circle, move the code.",
    )


def attribute_chain(node: ast.AST) -> list[str]:
    """`a.b.c` as ["a", "b", "c"]; empty for anything else."""
    if isinstance(node, ast.Name):
        return [node.id]
    if isinstance(node, ast.Attribute) and (before := attribute_chain(node.value)):
        return [*before, node.attr]
    return []


def bindings_of(name: str) -> dict[str, str]:
    """What each name that an import statement binds stands for, as a full dotted name."""
    bound = {}
    for node in ast.walk(tree_of(name)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                bound[alias.asname or alias.name.split(".")[0]] = (
                    alias.name if alias.asname else alias.name.split(".")[0]
                )
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                bound[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    return bound


def dotted_uses(name: str) -> list[tuple[ast.AST, str]]:
    """Every imported name and every attribute read from one, as (node, full dotted name)."""
    bound = bindings_of(name)
    uses = [
        (node, f"{node.module}.{alias.name}")
        for node in ast.walk(tree_of(name))
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    ]
    for node in ast.walk(tree_of(name)):
        if isinstance(node, ast.Import):
            uses += [(node, alias.name) for alias in node.names]
        if isinstance(node, ast.Attribute) and (chain := attribute_chain(node)) and chain[0] in bound:
            uses.append((node, ".".join([bound[chain[0]], *chain[1:]])))
    return uses


def test_no_file_reads_a_private_name_of_another():
    def private(full: str) -> bool:
        return any(part.startswith("_") and not part.startswith("__") for part in full.split("."))

    check(
        [
            f"{where(name, node)} uses {full}"
            for name in FILES
            for node, full in dotted_uses(name)
            if full.split(".")[0] in RUNTIME | {"hkx", "rlx"} and private(full)
        ],
        "A name that begins with an underscore belongs to its file (and jax._src to JAX): use or make a public one.",
    )


def deprecation(full: str) -> str | None:
    """The warning that reading this dotted JAX name gives, if any."""
    parts = full.split(".")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            value = importlib.import_module(parts[0])
            for i, part in enumerate(parts[1:], start=1):
                if not hasattr(value, part):
                    importlib.import_module(".".join(parts[: i + 1]))
                value = getattr(value, part)
        except Warning as warning:
            return str(warning)
        except ImportError:
            return "there is no such name"
    return None


def test_no_jax_name_is_deprecated():
    used = {
        full: where(name, node) for name in FILES for node, full in dotted_uses(name) if full.split(".")[0] in RUNTIME
    }
    assert len(used) > 20  # the search finds what is used
    check(
        [f"{place} uses {full}: {why}" for full, place in used.items() if (why := deprecation(full))],
        "JAX is about to remove these names: use what the warning says.",
    )


@pytest.mark.slow
def test_everything_can_be_imported_with_warnings_as_errors():
    modules = [name for name in FILES if not name.startswith(NEED_THEM) and name != FOR_PYTHON_ALONE]
    code = "import importlib, sys; [importlib.import_module(name) for name in sys.argv[1:]]"
    # -W error reaches JAX and NumPy too, and so they are imported before it counts.
    code = f"import jax.numpy, warnings; warnings.simplefilter('error'); {code}"
    done = subprocess.run([sys.executable, "-c", code, *modules], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_files_are_short():
    lengths = {name: len(path.read_text(encoding="utf-8").splitlines()) for name, path in FILES.items()}
    check(
        [f"{where(name)} has {n} lines" for name, n in lengths.items() if n > MAX_FILE_LINES],
        f"A file has at most {MAX_FILE_LINES} lines: split it by what its parts are for.",
    )


def test_the_heart_is_read_in_one_sitting():
    lines = {
        name: len(code_lines(FILES[name].read_text(encoding="utf-8")))
        for name in FILES
        if name.startswith(("hkx.base.", "hkx.core."))
    }
    long = [f"{where(name)} has {n} lines of code" for name, n in lines.items() if n > MAX_HEART_FILE_LINES]
    total = sum(lines.values())
    check(
        long + ([f"hkx/base and hkx/core have {total} lines of code"] if total > MAX_HEART_LINES else []),
        f"The heart has at most {MAX_HEART_LINES} lines of code and a file of it at most {MAX_HEART_FILE_LINES}: what "
        "a reader who asks what a transform is need not know belongs in another folder.",
    )


def own_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    total = function.end_lineno - function.lineno + 1
    if ast.get_docstring(function) is not None:
        docstring = function.body[0]
        total -= docstring.end_lineno - docstring.lineno + 1
    return total


def test_functions_are_short():
    functions = [
        (name, node)
        for name in FILES
        for node in ast.walk(tree_of(name))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    check(
        [
            f"{where(name, f)} {f.name} has {own_lines(f)} lines"
            for name, f in functions
            if own_lines(f) > MAX_FUNCTION_LINES
        ],
        f"A function has at most {MAX_FUNCTION_LINES} lines beside its docstring: give its parts names.",
    )


@pytest.mark.parametrize("package", ["hkx", "rlx"])
def test_every_folder_is_a_package(package):
    folders = {path.parent for path in (ROOT / package).rglob("*.py")}
    check(
        [str(folder.relative_to(ROOT)) for folder in sorted(folders) if not (folder / "__init__.py").exists()],
        "These folders have no __init__.py and would be missing from the wheel: add one.",
    )
