"""The names of `haiku.experimental`, for programs written for Haiku; most of them are also in `hkx` itself."""

# ruff: noqa: I001
from typing import TYPE_CHECKING

from hkx.base.lazy import lazy_exports

if TYPE_CHECKING:
    # Looking into a model
    from hkx.tools.trace import ArraySpec as ArraySpec
    from hkx.tools.trace import MethodInvocation as MethodInvocation
    from hkx.tools.trace import ModuleDetails as ModuleDetails
    from hkx.tools.graph import abstract_to_dot as abstract_to_dot
    from hkx.tools.graph import to_dot as to_dot
    from hkx.tools.summary import eval_summary as eval_summary
    from hkx.experimental.settings import tabulate as tabulate
    from hkx.experimental.settings import fast_eval_shape as fast_eval_shape

    # Hooks
    from hkx.core.hooks import DO_NOT_STORE as DO_NOT_STORE
    from hkx.core.hooks import GetterContext as GetterContext
    from hkx.core.hooks import MethodContext as MethodContext
    from hkx.core.hooks import custom_creator as custom_creator
    from hkx.core.hooks import custom_getter as custom_getter
    from hkx.core.hooks import intercept_methods as intercept_methods
    from hkx.experimental.settings import ParamContext as ParamContext

    # Names
    from hkx.core.naming import current_name as current_name
    from hkx.core.naming import force_name as force_name
    from hkx.core.naming import name_like as name_like
    from hkx.core.naming import name_scope as name_scope

    # Parameters, state and keys
    from hkx.core.store import get_current_state as get_current_state
    from hkx.core.store import get_initial_state as get_initial_state
    from hkx.core.store import get_params as get_params
    from hkx.core.rng import maybe_get_rng_sequence_state as maybe_get_rng_sequence_state
    from hkx.core.rng import replace_rng_sequence_state as replace_rng_sequence_state
    from hkx.tools.rng_use import optimize_rng_use as optimize_rng_use

    # Lifting
    from hkx.lift.lift import LiftWithStateUpdater as LiftWithStateUpdater
    from hkx.lift.lift import lift as lift
    from hkx.lift.lift import lift_with_state as lift_with_state
    from hkx.lift.lift import transparent_lift as transparent_lift
    from hkx.lift.lift import transparent_lift_with_state as transparent_lift_with_state
    from hkx.lift.layer_stack import LayerStackTransparencyMapping as LayerStackTransparencyMapping
    from hkx.lift.layer_stack import layer_stack as layer_stack

    # Settings
    from hkx.experimental.settings import check_jax_usage as check_jax_usage
    from hkx.experimental.settings import module_auto_repr as module_auto_repr
    from hkx.experimental.settings import rng_reserve_size as rng_reserve_size

    # Submodules
    from hkx.experimental import flax as flax
    from hkx.experimental import jaxpr_info as jaxpr_info

# The same by module: what is imported when its name is first asked for.
_EXPORTS = {
    # Looking into a model
    "hkx.tools.trace": "ArraySpec MethodInvocation ModuleDetails",
    "hkx.tools.graph": "abstract_to_dot to_dot",
    "hkx.tools.summary": "eval_summary",
    "hkx.experimental.settings": (
        "tabulate fast_eval_shape ParamContext check_jax_usage module_auto_repr rng_reserve_size"
    ),
    # Hooks
    "hkx.core.hooks": "DO_NOT_STORE GetterContext MethodContext custom_creator custom_getter intercept_methods",
    # Names
    "hkx.core.naming": "current_name force_name name_like name_scope",
    # Parameters, state and keys
    "hkx.core.store": "get_current_state get_initial_state get_params",
    "hkx.core.rng": "maybe_get_rng_sequence_state replace_rng_sequence_state",
    "hkx.tools.rng_use": "optimize_rng_use",
    # Lifting
    "hkx.lift.lift": "LiftWithStateUpdater lift lift_with_state transparent_lift transparent_lift_with_state",
    "hkx.lift.layer_stack": "LayerStackTransparencyMapping layer_stack",
    # Submodules
    "hkx.experimental": "flax jaxpr_info",
}
__getattr__, __dir__, __all__ = lazy_exports(__name__, _EXPORTS)  # pyright: ignore[reportUnsupportedDunderAll]
__all__.remove("flax")  # pyright: ignore[reportUnsupportedDunderAll]  # it needs Flax, and a star import has to do without
