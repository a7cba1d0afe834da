"""Functions on parameters and state: filter, split, merge, count."""

from hkx.tools.dicts import to_haiku_dict as to_haiku_dict
from hkx.tools.dicts import to_immutable_dict as to_immutable_dict
from hkx.tools.dicts import to_mutable_dict as to_mutable_dict
from hkx.tools.filtering import filter as filter
from hkx.tools.filtering import is_subset as is_subset
from hkx.tools.filtering import map as map
from hkx.tools.filtering import merge as merge
from hkx.tools.filtering import partition as partition
from hkx.tools.filtering import partition_n as partition_n
from hkx.tools.filtering import traverse as traverse
from hkx.tools.filtering import tree_bytes as tree_bytes
from hkx.tools.filtering import tree_size as tree_size

__all__ = [
    "filter",
    "is_subset",
    "map",
    "merge",
    "partition",
    "partition_n",
    "to_haiku_dict",
    "to_immutable_dict",
    "to_mutable_dict",
    "traverse",
    "tree_bytes",
    "tree_size",
]
