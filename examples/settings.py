"""Settings as a dataclass, each within its limits: of an agent, and of a program, whose flags its fields are.

The comment beside a field says what it is. What it may be stands in its annotation, and is checked wherever settings
are made, in one sentence. Pydantic would check it too, but takes four lines to say what is wrong.
"""

import dataclasses
import math
from typing import Annotated, NamedTuple, get_type_hints

import numpy as np


class BadSetting(ValueError):
    """A setting that cannot be used; the message says which, and why."""


class Between(NamedTuple):
    """What a setting may be: `Annotated[float, Between(0, 10)]`."""

    low: float
    high: float = math.inf

    def __str__(self) -> str:
        return f"{self.low} or more" if self.high == math.inf else f"between {self.low} and {self.high}"


Seed = Annotated[int, Between(0, 2**31 - 1)]
Count = Annotated[int, Between(1)]
Sizes = Annotated[tuple[int, ...], Between(1)]
Share = Annotated[float, Between(0, 1)]
NotNegative = Annotated[float, Between(0)]


@dataclasses.dataclass(frozen=True)
class Settings:
    """Settings, which are checked however they are given."""

    def __post_init__(self) -> None:
        for name, hint in get_type_hints(type(self), include_extras=True).items():
            for limits in getattr(hint, "__metadata__", ()):
                for x in np.ravel(getattr(self, name)):
                    if isinstance(limits, Between) and not limits.low <= x <= limits.high:
                        raise BadSetting(f"{name} must be {limits}, not {x}")


class ReplaySettings(Settings):
    """Those of an agent that learns from a replay of transitions."""

    capacity: Count
    warmup: Count

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.warmup > self.capacity:
            raise BadSetting(f"warmup must be at most the capacity, {self.capacity}, not {self.warmup}")
