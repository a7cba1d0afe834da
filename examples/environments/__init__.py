"""Environments as pure functions in JAX: `make` finds one by its name, ready to run for ever."""

from functools import partial
from typing import Any

from . import catch
from .environment import Environment, Running, auto_reset

FILES = {"catch": catch}


def make(name: str, **settings: Any) -> Environment:
    """The environment of that name with an automatic reset, and with the settings of its file, as `columns=7`."""
    file = FILES[name]
    return auto_reset(
        Environment(
            partial(file.reset, **settings),
            partial(file.step, **settings),
            partial(file.observation_spec, **settings),
            file.action_spec,
        )
    )
