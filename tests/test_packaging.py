"""What is installed: two packages, three dependencies, and nothing written down twice."""

import configparser
import pathlib
import re
import subprocess
import sys
import tomllib

import pytest

ROOT = pathlib.Path(__file__).parents[1]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT = PYPROJECT["project"]
SETUP = configparser.ConfigParser()
SETUP.read(ROOT / "setup.cfg", encoding="utf-8")


def name_of(requirement: str) -> str:
    return re.match(r"[A-Za-z0-9._-]+", requirement).group().lower()


def test_only_jax_and_numpy_are_required():
    assert {name_of(requirement) for requirement in PROJECT["dependencies"]} == {"jax", "jaxlib", "numpy"}
    assert "jax>=0.10" in PROJECT["dependencies"]


def test_the_extras_hold_what_they_are_for():
    extras = {extra: {name_of(r) for r in wanted} for extra, wanted in PROJECT["optional-dependencies"].items()}
    assert {"optax", "dm-env", "dm-tree", "bsuite"} <= extras["rl"]
    assert {"tyro", "tqdm", "matplotlib"} <= extras["examples"]
    assert {"pytest", "pytest-xdist", "hypothesis"} <= extras["test"]
    assert {"dm-haiku", "rlax", "flax", "equinox"} <= extras["peers"]
    assert extras["migrate"] == {"libcst"}
    assert {"ruff", "basedpyright"} <= extras["dev"]


def test_no_requirement_is_held_at_one_version():
    lists = [PROJECT["dependencies"], *PROJECT["optional-dependencies"].values()]
    assert [requirement for wanted in lists for requirement in wanted if "==" in requirement] == []


def test_ci_runs_with_the_oldest_jax_that_is_allowed():
    pins = re.findall(r"^(\w+)==(.*)$", (ROOT / ".ci" / "oldest.txt").read_text(encoding="utf-8"), re.MULTILINE)
    assert {f"{name}>={version.removesuffix('.0')}" for name, version in pins} < set(PROJECT["dependencies"])
    assert len(pins) == 2


def test_nothing_is_said_twice():
    assert "setuptools" not in PYPROJECT["tool"], "package discovery is in setup.cfg"
    assert "pytest" not in PYPROJECT["tool"], "pytest's settings are in setup.cfg"
    assert not SETUP.has_section("metadata"), "metadata is in pyproject.toml"
    assert not SETUP.has_option("options", "install_requires"), "dependencies are in pyproject.toml"
    assert not SETUP.has_option("options", "python_requires"), "dependencies are in pyproject.toml"


def test_the_newest_version_of_the_changelog_is_this_one():
    newest = re.search(r"^## \[(.+?)\] - ", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE).group(1)
    assert newest == PROJECT["version"]


@pytest.mark.parametrize("package", ["hkx", "rlx"])
def test_the_packages_say_that_they_are_typed(package):
    assert (ROOT / package / "py.typed").is_file()
    assert SETUP.get("options.package_data", package) == {"hkx": "py.typed", "rlx": "py.typed, *.pyi"}[package]


def loaded_by(code: str) -> set[str]:
    """The top-level modules, besides the standard library, that a new interpreter holds after running `code`."""
    code += "; import sys; print(*{name.partition('.')[0] for name in sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    return set(done.stdout.split()) - set(sys.stdlib_module_names)


@pytest.mark.slow
def test_using_the_packages_loads_nothing_besides_jax():
    with_jax = loaded_by("import numpy, jax.numpy, jax.extend.core, jax.extend.random")
    every_name = "[getattr(package, name) for package in (hkx, rlx) for name in dir(package)]"
    assert loaded_by(f"import hkx, rlx; {every_name}") - with_jax == {"hkx", "rlx"}
