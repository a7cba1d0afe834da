"""Checks an environment in which only the wheel is installed: both packages import, and nothing else was installed."""

import importlib.metadata as metadata
import pathlib
import re

import hkx
import rlx

PARTS_OF_THE_ENVIRONMENT = {"pip", "setuptools", "wheel"}


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def needs(name: str) -> set[str]:
    """The requirements of a distribution without any extras."""
    wanted = [requirement for requirement in metadata.requires(name) or [] if "extra ==" not in requirement]
    return {normal(re.match(r"[A-Za-z0-9._-]+", requirement).group()) for requirement in wanted}


for package in (hkx, rlx):
    home = pathlib.Path(package.__file__).parent
    assert "site-packages" in home.parts, f"{package.__name__} was imported from {home}, not from the wheel"
    for name in package.__all__:  # public names are lazy, so this imports everything
        getattr(package, name)
    assert (home / "py.typed").is_file(), f"{package.__name__} ships no py.typed"

assert needs("hkx") == {"jax", "jaxlib", "numpy"}, needs("hkx")
installed = {normal(distribution.name) for distribution in metadata.distributions()}
allowed, waiting = {"hkx"} | PARTS_OF_THE_ENVIRONMENT, {"jax", "jaxlib", "numpy"}
while waiting:
    allowed |= waiting
    waiting = {name for known in waiting & installed for name in needs(known)} - allowed
assert installed <= allowed, f"installed without need: {sorted(installed - allowed)}"
tops = {path.parts[0] for path in metadata.files("hkx") if not path.parts[0].endswith(".dist-info")}
assert tops == {"hkx", "rlx"}, f"the wheel holds more than the two packages: {sorted(tops)}"
print("installed:", *sorted(installed - PARTS_OF_THE_ENVIRONMENT))
