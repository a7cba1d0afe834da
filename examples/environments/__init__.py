"""Environments as pure functions in JAX: `make` finds one by its name, ready to run for ever."""

from functools import partial
from typing import Any

from . import (
    bandit,
    bsuite_cartpole,
    cartpole,
    catch,
    deep_sea,
    discounting_chain,
    memory_chain,
    mountain_car,
    pendulum,
)
from .environment import Environment, Running, auto_reset

FILES = {
    "bandit": bandit,
    "bsuite_cartpole": bsuite_cartpole,
    "cartpole": cartpole,
    "catch": catch,
    "deep_sea": deep_sea,
    "discounting_chain": discounting_chain,
    "memory_chain": memory_chain,
    "mountain_car": mountain_car,
    "pendulum": pendulum,
}


def make(name: str, **settings: Any) -> Environment:
    """The environment of that name with an automatic reset, and with the settings of its file, as `columns=7`."""
    if name not in FILES:
        raise ValueError(f"there is no environment {name!r}; there are {', '.join(FILES)}")
    file = FILES[name]
    chosen = file.Settings(**settings)
    return auto_reset(
        Environment(
            partial(file.reset, settings=chosen),
            partial(file.step, settings=chosen),
            partial(file.observation_spec, settings=chosen),
            partial(file.action_spec, settings=chosen),
        )
    )
