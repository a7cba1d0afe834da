"""Environments as pure functions in JAX: `make` creates one by its name."""

import ast
import math
from functools import partial
from numbers import Integral, Real
from typing import Any

from . import bandit, bsuite_cartpole, catch, deep_sea, discounting_chain, memory_chain, mountain_car
from .as_dm_env import DmEnv
from .environment import Environment, Running, UnknownEnvironment, auto_reset
from .from_gymnax import from_gymnax

FILES = {
    "bandit": bandit,
    "bsuite_cartpole": bsuite_cartpole,
    "catch": catch,
    "deep_sea": deep_sea,
    "discounting_chain": discounting_chain,
    "memory_chain": memory_chain,
    "mountain_car": mountain_car,
}
GYMNAX = {"cartpole": "CartPole-v1", "pendulum": "Pendulum-v1"}
NAMES = [*FILES, *GYMNAX]


def _expected(default: Any, least: int, value: Any) -> str | None:
    """A description of the values that a setting accepts, if its value is not one of these."""
    if isinstance(default, bool):
        return None if value in (0, 1) else "True or False"
    if not isinstance(value, Real):  # including a seed of None, with which bsuite chooses a random mapping
        return "a number"
    if isinstance(default, int):
        return None if isinstance(value, Integral) and value >= least else f"a whole number, at least {least}"
    return None if 0 <= value < math.inf else "a finite number, at least 0"


def _setting(text: str) -> tuple[str, Any]:
    name, _, value = text.partition("=")
    try:
        return name, ast.literal_eval(value)
    except (SyntaxError, ValueError):
        raise UnknownEnvironment(f"a setting is written NAME=NUMBER, and this is {text!r}") from None


def make(name: str, **settings: Any) -> Environment:
    """The environment of that name, for a single episode; see `auto_reset` for several.

    The settings are those of its file, such as `columns=7`, and may be part of the name: `"catch,columns=7"`.
    `gymnax:NAME` is an environment of gymnax, whose settings are its parameters; `cartpole` and `pendulum` are two of
    these. Raises UnknownEnvironment, with a message of one line, if there is no such environment or setting, or if a
    value is not valid.
    """
    name, *behind = name.split(",")
    settings |= dict(map(_setting, behind))
    library, _, rest = name.rpartition(":")
    if library == "gymnax" or name in GYMNAX:
        return from_gymnax(GYMNAX.get(name, rest), **settings)
    if name not in FILES:
        raise UnknownEnvironment(f"there is no environment {name!r}; there are {', '.join(NAMES)}, and gymnax:NAME")
    file = FILES[name]
    if unknown := sorted(settings.keys() - set(file.Settings._fields)):
        known = ", ".join(file.Settings._fields)
        raise UnknownEnvironment(f"{name} has no setting {unknown[0]!r}; it has {known}")
    for setting, value in settings.items():
        least = getattr(file, "LEAST", {}).get(setting, 0 if setting.endswith("seed") else 1)
        if expected := _expected(getattr(file.DEFAULT, setting), least, value):
            raise UnknownEnvironment(f"{name}: {setting} must be {expected}, and is {value!r}")
    chosen = file.Settings(**settings)
    return Environment(
        partial(file.reset, settings=chosen),
        partial(file.step, settings=chosen),
        partial(file.observation_spec, settings=chosen),
        partial(file.action_spec, settings=chosen),
    )
