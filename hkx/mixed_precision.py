"""Mixed precision: policies for the dtypes in which modules store parameters, compute and return results."""

from hkx.tools.mixed_precision import Policy as Policy
from hkx.tools.mixed_precision import SupportsCasts as SupportsCasts
from hkx.tools.mixed_precision import clear_policy as clear_policy
from hkx.tools.mixed_precision import current_policy as current_policy
from hkx.tools.mixed_precision import get_policy as get_policy
from hkx.tools.mixed_precision import push_policy as push_policy
from hkx.tools.mixed_precision import set_policy as set_policy

__all__ = ["Policy", "SupportsCasts", "clear_policy", "current_policy", "get_policy", "push_policy", "set_policy"]
