"""Environments as pure functions in JAX: `make` finds one by its name."""

from functools import partial
from typing import Any

from . import catch
from .environment import Environment, Running, auto_reset

FILES = {"catch": catch}


class UnknownEnvironment(ValueError):
    """There is no environment of that name here."""


def make(name: str, **settings: Any) -> Environment:
    """The environment of that name, with the settings of its file, as `columns=7`; one episode: see `auto_reset`."""
    if name not in FILES:
        raise UnknownEnvironment(f"there is no environment {name!r}; there are {', '.join(FILES)}")
    file = FILES[name]
    return Environment(
        partial(file.reset, **settings),
        partial(file.step, **settings),
        partial(file.observation_spec, **settings),
        file.action_spec,
    )
