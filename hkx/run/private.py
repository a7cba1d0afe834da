"""Modules such as `haiku._src.base`, which hkx and rlx do not have: their public names are served, and no others."""

from __future__ import annotations

import functools
import importlib
import types
from typing import Any

from hkx.migrate.names import public_name, why_left
from hkx.run.start.hkx_finder import OF_OLD_ARRAYS

RELEASES = {"haiku": "0.0.17", "rlax": "0.1.9"}  # those whose names hkx and rlx have

# All modules of Haiku and RLax, in any release, whose names are public elsewhere.
_BY_PACKAGE = {
    "haiku": (
        "typing _src _src.analytics _src.attention _src.base _src.basic _src.batch_norm _src.bias _src.config "
        "_src.conv _src.data_structures _src.deferred _src.depthwise_conv _src.dot _src.embed _src.eval_shape "
        "_src.filtering _src.flax _src.flax.flax_module _src.flax.transform_flax _src.group_norm _src.initializers "
        "_src.jaxpr_info _src.layer_norm _src.layer_stack _src.lift _src.mixed_precision _src.module "
        "_src.moving_averages _src.multi_transform _src.named_call _src.nets _src.nets.mlp _src.nets.mobilenetv1 "
        "_src.nets.resnet _src.nets.vqvae _src.pad _src.pool _src.random _src.recurrent _src.reshape _src.rms_norm "
        "_src.spectral_norm _src.stateful _src.summarise _src.test_utils _src.transform _src.typing _src.utils"
    ),
    "rlax": (
        "_src _src.base _src.clipping _src.distributions _src.embedding _src.episodic_memory _src.exploration "
        "_src.general_value_functions _src.interruptions _src.losses _src.model_learning _src.moving_averages "
        "_src.mpo_ops _src.multistep _src.nested_updates _src.nonlinear_bellman _src.policy_gradients "
        "_src.policy_targets _src.pop_art _src.transforms _src.tree_util _src.value_learning _src.vtrace"
    ),
}
_MODULES = frozenset(f"{root}.{module}" for root, modules in _BY_PACKAGE.items() for module in modules.split())

# Names that programs still use and that Haiku and RLax have removed, by the module that had them in public.
REMOVED = {
    "haiku.experimental": ("named_call", "profiler_name_scopes"),
    "rlax": ("epsilon_softmax", "incremental_update", "safe_epsilon_softmax"),
}

# Names whose equivalent is no public name of hkx or rlx. Parameters, in a pickle too, are a plain dict here.
_ELSEWHERE = {
    **dict.fromkeys(("FlatMapping", "FlatMap", "frozendict"), ("builtins", "dict")),
    **{name: ("hkx.nets.resnet", name) for name in ("BlockGroup", "BlockV1", "BlockV2")},
    "to_dict": ("hkx.data_structures", "to_mutable_dict"),
    "Array": ("jax", "Array"),
    **dict.fromkeys(("Numeric", "Scalar"), ("jax.typing", "ArrayLike")),
    **{name: ("hkx.run.removed", name) for names in REMOVED.values() for name in names},
}


def is_served(name: str) -> bool:
    """True if this is such a module; an ImportError says so if it is a private name that hkx and rlx do not have."""
    if name in _MODULES or name == OF_OLD_ARRAYS:
        return True
    if name.rpartition(".")[0] in _MODULES:
        raise ImportError(why_left(name), name=name)
    return False


def module_of(name: str) -> types.ModuleType:
    """Returns the module `name`, whose attributes are found on first use."""
    module = types.ModuleType(name, f"Serves the names of `{name}` that hkx and rlx have in public.")
    if name == OF_OLD_ARRAYS:
        vars(module)["reconstruct_device_array"] = importlib.import_module("hkx.run.removed").reconstruct_device_array
    else:
        vars(module)["__getattr__"] = functools.partial(_attribute, name)
    return module


def _attribute(module: str, name: str) -> Any:
    path = f"{module}.{name}"
    if path in _MODULES:
        return importlib.import_module(path)
    if name.startswith("__"):
        raise AttributeError(f"module {module!r} has no attribute {name!r}", name=name)
    public = public_name(path)
    home, name = _ELSEWHERE.get(name) or (public.rpartition(".")[::2] if public else ("", name))
    if not home:
        raise AttributeError(why_left(path), name=name)
    return getattr(importlib.import_module(home), name)
