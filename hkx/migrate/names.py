"""The names that hkx and rlx have, read from their sources, because importing JAX would take long."""

from __future__ import annotations

import ast
import functools
import importlib.util
import pathlib

NEW = {"haiku": "hkx", "rlax": "rlx"}
# Private names without a public equivalent, and what to write instead.
_PURE = "hkx.purify(f), a function of the parameters, the state and the keys as well"
_INSTEAD: dict[str, str] = {
    **dict.fromkeys(
        ("FlatMapping", "FlatMap", "frozendict"),
        "hkx.Params in an annotation, collections.abc.Mapping in isinstance: parameters are plain dicts",
    ),
    **dict.fromkeys(("internal_state", "temporary_internal_state", "update_internal_state", "InternalState"), _PURE),
    **dict.fromkeys(("current_frame", "frame_stack", "Frame", "current_context", "HaikuContext"), _PURE),
    **dict.fromkeys(("current_bundle_name", "current_module", "current_module_state"), "hkx.current_name()"),
    **dict.fromkeys(("wrap_method", "ModuleMetaclass", "intercept_methods_global"), "hkx.intercept_methods"),
    **dict.fromkeys(("run_creators", "custom_creator_unsafe", "Creator", "NextCreator"), "hkx.custom_creator"),
    **dict.fromkeys(("run_getters", "Getter", "NextGetter"), "hkx.custom_getter"),
    **dict.fromkeys(("run_setters", "Setter", "NextSetter"), "hkx.custom_setter"),
    "next_rng_key_internal": "hkx.next_rng_key()",
    "rng_seq_or_fail": "hkx.next_rng_key()",
    "PRNGSequenceState": "hkx.maybe_get_rng_sequence_state",
    "ThreadLocalStack": "a list in threading.local",
    "merge_leading_dims": "x.reshape(-1, *x.shape[n:]), or hkx.BatchApply",
    "split_leading_dim": "x.reshape(*shape, *x.shape[1:]), or hkx.BatchApply",
    "to_dict": "hkx.data_structures.to_mutable_dict",
    "LiftingModule": "hkx.lift",
    "DepthwiseConvND": "hkx.DepthwiseConv1D, hkx.DepthwiseConv2D or hkx.DepthwiseConv3D",
    "ConvNDLSTM": "hkx.Conv1DLSTM, hkx.Conv2DLSTM or hkx.Conv3DLSTM",
}

# Modules of Haiku of which some names stand for something else in `hkx` itself.
_HOMES = {
    "config": "hkx.config",
    "filtering": "hkx.data_structures",
    "jaxpr_info": "hkx.experimental.jaxpr_info",
    "mixed_precision": "hkx.mixed_precision",
    "pad": "hkx.pad",
    "test_utils": "hkx.testing",
}


@functools.cache
def _names_of(module: str) -> frozenset[str] | None:
    """The public names of a module, if it lists them; None if there is no such module."""
    root, *parts = module.split(".")
    spec = importlib.util.find_spec(root)
    if spec is None or spec.origin is None:
        return None
    path = pathlib.Path(spec.origin).parent.joinpath(*parts)
    source = next((file for file in (path / "__init__.py", path.with_suffix(".py")) if file.is_file()), None)
    body = ast.parse(source.read_text(encoding="utf-8")).body if source else []
    names: set[str] = set()
    for node in body:
        targets = node.targets if isinstance(node, ast.Assign) else []
        written = {target.id for target in targets if isinstance(target, ast.Name)}
        if isinstance(node, ast.Assign) and "_EXPORTS" in written:
            names.update(*(value.split() for value in ast.literal_eval(node.value).values()))
        elif isinstance(node, ast.Assign) and "__all__" in written and isinstance(node.value, ast.List):
            names.update(ast.literal_eval(node.value))
    return frozenset(names) or None


def translated(path: str) -> str:
    """Translates `haiku.nets.MLP` to `hkx.nets.MLP`."""
    root, dot, rest = path.partition(".")
    return NEW[root] + dot + rest


def is_private(path: str) -> bool:
    return any(part.startswith("_") and not part.startswith("__") for part in path.split("."))


def missing(path: str) -> str | None:
    """The shortest prefix of a dotted path in Haiku or RLax that hkx or rlx does not have, translated."""
    module, *parts = translated(path).split(".")
    for part in parts:
        if part.startswith("__"):
            return None
        if part not in (_names_of(module) or ()):
            return f"{module}.{part}"
        module = f"{module}.{part}"
        if _names_of(module) is None:  # a class or a function, whose attributes are not known here
            return None
    return None


def public_name(path: str) -> str | None:
    """The path in hkx or rlx of what has another path in Haiku or RLax, if it is public here."""
    root, *inner, name = path.split(".")
    package = NEW[root]
    folders = [package]
    if package == "hkx":
        folders = [*(_HOMES[module] for module in inner if module in _HOMES), "hkx"]
        folders += [f"hkx.{folder}" for folder in ("nets", "initializers", "data_structures", "experimental")]
    return next((f"{folder}.{name}" for folder in folders if name in (_names_of(folder) or ())), None)


def public_home(paths: list[str]) -> str | None:
    """The module of hkx or rlx from which all of these private names, which are no modules, can be imported."""
    found = [None if path.rpartition(".")[2] in _INSTEAD else public_name(path) for path in paths]
    homes = {path.rpartition(".")[0] if path and _names_of(path) is None else None for path in found}
    return homes.pop() if len(homes) == 1 else None


def why_left(path: str) -> str:
    """Why a path in Haiku or RLax cannot be translated, and what to write instead."""
    here = _INSTEAD.get(path.rpartition(".")[2]) or public_name(path)
    advice = f"; write {here}" if here else ""
    if is_private(path):
        return f"{path} is private to {path.partition('.')[0]}{advice}"
    return f"{missing(path)} does not exist{advice}"
