"""Settings of an agent or a program as a dataclass, whose annotations say which values are allowed.

The comment beside a field explains it. The limits in its annotation are checked whenever settings are created, and the
error is a single sentence. Pydantic would check them too, but its errors take four lines.
"""

import dataclasses
import math
from typing import Annotated, NamedTuple, get_type_hints

import numpy as np


class BadSetting(ValueError):
    """A setting has an invalid value; the message says which setting, and why."""


class Between(NamedTuple):
    """The limits of a setting: `Annotated[float, Between(0, 10)]`."""

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
    """The base class of settings, which checks their limits."""

    def __post_init__(self) -> None:
        for name, hint in get_type_hints(type(self), include_extras=True).items():
            for limits in getattr(hint, "__metadata__", ()):
                for x in np.ravel(getattr(self, name)):
                    if isinstance(limits, Between) and not limits.low <= x <= limits.high:
                        raise BadSetting(f"{name} must be {limits}, not {x}")


class ReplaySettings(Settings):
    """Settings of an agent that learns from a replay buffer of transitions."""

    capacity: Count
    warmup: Count
    period: Count

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.warmup > self.capacity:
            raise BadSetting(f"warmup must be at most the capacity, {self.capacity}, not {self.warmup}")

    def check_environments(self, environments: int) -> None:
        """Raises BadSetting unless there is room for the transitions that this many environments add at once."""
        at_once = self.period * environments
        if at_once > self.capacity:
            raise BadSetting(f"capacity must be at least {at_once}, the transitions added at once, not {self.capacity}")


class MemorySettings(Settings):
    """Settings of an agent that may have a memory, of the size of its last hidden layer."""

    memory: str
    hidden: Sizes

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.memory != "none" and not self.hidden:
            raise BadSetting(f"hidden must be at least one size, that of the {self.memory} too, not none")
