"""`python -m hkx.run`: programs start as `python` starts them, and their `haiku` and `rlax` are hkx and rlx."""

import os
import pathlib
import pickle
import re
import signal
import subprocess
import sys
import textwrap
import zipfile

import pytest

ROOT = pathlib.Path(__file__).parents[2]
RUN = ["-m", "hkx.run"]
PURE = "hkx.purify(f), a function of the parameters, the state and the keys as well"


def python(*words, cwd, stdin=None, path=(), check=True, **variables):
    """Runs Python, which finds hkx on PYTHONPATH; returns the exit code, standard output and standard error."""
    folders = os.pathsep.join([*map(str, path), str(ROOT)])
    environment = os.environ | {"PYTHONPATH": folders} | variables
    done = subprocess.run(
        [sys.executable, *words], cwd=cwd, env=environment, input=stdin, capture_output=True, text=True
    )
    assert not check or done.returncode == 0, done.stderr
    return done.returncode, done.stdout, done.stderr


def run(code, cwd, *words, **kwargs):
    """What a program prints that runs under `hkx.run` as a script, line by line."""
    (cwd / "program.py").write_text(textwrap.dedent(code), encoding="utf-8")
    return python(*RUN, *words, "program.py", cwd=cwd, **kwargs)[1].splitlines()


STARTED = """
import os, sys
main = sys.modules["__main__"]
print(sys.argv, __name__, main.__dict__ is globals(), globals().get("__file__"), __spec__ and __spec__.name)
print(__package__, __doc__, sys.path, os.getcwd(), sys.flags, sys.warnoptions, sys._xoptions, sys.excepthook.__module__)
"""


@pytest.fixture
def program(tmp_path):
    """A folder with one program in all forms in which `python` takes it."""
    for folder in ("package", "folder"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "__main__.py").write_text(STARTED, encoding="utf-8")
    (tmp_path / "package" / "__init__.py").touch()
    (tmp_path / "package" / "module.py").write_text(STARTED, encoding="utf-8")
    with zipfile.ZipFile(tmp_path / "program.zip", "w") as file:
        file.writestr("__main__.py", STARTED)
    return tmp_path


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ([], ["package/module.py", "--flag", "two words", "-c"]),
        ([], ["folder", "1"]),
        ([], ["program.zip"]),
        (["-O"], ["-m", "package.module", "-m", "x"]),
        (["-Werror", "-X", "utf8=1"], ["-m", "package"]),
        (["-W", "ignore:a b"], ["-c", STARTED, "1"]),
        (["-Bs"], ["-"]),
        (["-P"], ["package/module.py"]),
    ],
)
def test_a_program_starts_as_python_starts_it(program, options, words):
    stdin = STARTED if words == ["-"] else None
    expected = python(*options, *words, cwd=program, stdin=stdin)
    expected = (0, expected[1].replace("sys\n", "hkx_finder\n"), "")  # the one difference: it adds hints to errors
    assert python(*options, *RUN, *words, cwd=program, stdin=stdin) == expected
    assert python(*RUN, *options, *words, cwd=program, stdin=stdin) == expected


def test_python_is_found_in_front_of_all_spellings_of_the_module(program):
    expected = python(*RUN, "-B", "-O", "-c", STARTED, cwd=program)
    for words in (["-BOmhkx.run"], ["-B", "-Om", "hkx.run"], ["-BO", "-mhkx.run"]):
        assert python(*words, "-c", STARTED, cwd=program) == expected


@pytest.mark.parametrize(
    "code",
    [
        "import sys; sys.exit(3)",
        "raise SystemExit('a text')",
        "def f():\n    raise ValueError('wrong')\nf()",
        "import os; os._exit(5)",
        "this is no Python",
        "import signal; signal.raise_signal(signal.SIGTERM)",
        "raise KeyboardInterrupt",
        "import nothing_of_this_name",
    ],
)
def test_a_program_ends_as_python_ends_it(code, tmp_path):
    (tmp_path / "program.py").write_text(code, encoding="utf-8")
    code, out, err = python("program.py", cwd=tmp_path, check=False)
    assert code != 0
    assert python(*RUN, "program.py", cwd=tmp_path, check=False) == (code, out, err)


@pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
def test_signals_reach_the_program(tmp_path):
    command = [sys.executable, *RUN, "-c", "print('began', flush=True); import time; time.sleep(60)"]
    process = subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, env=os.environ | {"PYTHONPATH": str(ROOT)}
    )
    assert process.stdout.readline() == b"began\n"
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == -signal.SIGTERM
    process.stdout.close()


def test_without_a_program_it_says_how_to_use_it(tmp_path):
    assert python(*RUN, "--help", cwd=tmp_path)[1].startswith("`python -m hkx.run")
    for words in ([], ["--jax-names"], ["--report", "-c", "1"]):
        code, out, err = python(*RUN, *words, cwd=tmp_path, check=False)
        assert (code, out) == (2, "")
        assert err.startswith("python -m hkx.run: ")


def packages_that_must_not_be_imported(folder):
    """The entries of PYTHONPATH that have packages of the names of Haiku and RLax."""
    for name in ("haiku", "rlax"):
        (folder / "genuine" / name).mkdir(parents=True)
        (folder / "genuine" / name / "__init__.py").write_text("raise RuntimeError('imported')", encoding="utf-8")
    return [folder / "genuine"]


@pytest.fixture
def genuine(tmp_path):
    return packages_that_must_not_be_imported(tmp_path)


# Parts of one program, because importing JAX takes most of its time; what each prints.
PARTS = {
    "one module object has both names": (
        """
        import copy, importlib, importlib.metadata, importlib.util, pickle, sys
        assert importlib.util.find_spec("haiku.nets") and not importlib.util.find_spec("haiku.nothing")
        import haiku as hk, haiku.experimental.jaxpr_info, haiku.nets as nets, rlax
        from haiku import initializers
        from haiku.data_structures import filter
        import hkx, rlx
        assert hk is hkx and rlax is rlx and nets is hkx.nets and initializers is hkx.initializers
        assert filter is hkx.data_structures.filter and hk.experimental is hkx.experimental
        assert sys.modules["haiku.nets"] is hkx.nets and hk.Linear is hkx.Linear
        state = hkx.LSTMState(1, 2)
        assert copy.deepcopy(hk.Linear) is hkx.Linear and type(copy.deepcopy(state)) is hk.LSTMState
        assert isinstance(state, hk.LSTMState) and type(pickle.loads(pickle.dumps(state))) is hk.LSTMState
        print(hk.__spec__.name, hk.__name__)
        """,
        "hkx hkx",
    ),
    "versions": (
        """
        for name, module in {"dm-haiku": hk, "DM_Haiku": hk, "rlax": rlax}.items():
            assert importlib.metadata.version(name) == module.__version__, name
        print(importlib.metadata.metadata("dm-haiku")["Name"])
        """,
        "dm-haiku",
    ),
    "modules that do not exist": (
        """
        for name in ("haiku.nothing", "rlax.nothing"):
            try:
                importlib.import_module(name)
            except ModuleNotFoundError as error:
                print(error.name)
        """,
        "haiku.nothing\nrlax.nothing",
    ),
    "private modules serve what is public": (
        """
        assert hk._src.data_structures.FlatMap is dict  # without an import of its own
        import haiku._src.base as base
        from haiku._src import data_structures, typing
        from haiku._src.basic import Linear
        from haiku._src.filtering import partition
        from haiku._src.nets.resnet import BlockGroup, ResNet50
        from haiku._src.pad import same
        from haiku._src.stateful import map as stateful_map
        from haiku._src.test_utils import transform_and_run
        from haiku.typing import Params
        from rlax._src import base as rlax_base
        from rlax._src.multistep import discounted_returns
        assert base.get_parameter is hk.get_parameter and typing.PRNGKey is hk.PRNGKey and Linear is hk.Linear
        assert partition is hk.data_structures.partition and stateful_map is hk.map and Params is hk.Params
        assert ResNet50 is hk.nets.ResNet50 and BlockGroup is hk.nets.ResNet.BlockGroup and same is hk.pad.same
        assert transform_and_run is hk.testing.transform_and_run and discounted_returns is rlax.discounted_returns
        assert rlax_base.batched_index is rlax.batched_index
        print(hasattr(base, "current_frame"), hasattr(base, "__wrapped__"))
        """,
        "False False",
    ),
    "other private names": (
        """
        for line in ("from haiku._src.base import current_frame", "from haiku._src.basic import merge_leading_dims",
                     "from rlax._src.base import nothing", "import haiku._src.nothing"):
            try:
                exec(line)
            except ImportError as error:
                print(error)
        try:
            base.frame_stack
        except AttributeError as error:
            print(error)
        """,
        f"haiku._src.base.current_frame is private to haiku; write {PURE}\n"
        "haiku._src.basic.merge_leading_dims is private to haiku; write x.reshape(-1, *x.shape[n:]), or hkx.BatchApply"
        "\nrlax._src.base.nothing is private to rlax\nhaiku._src.nothing is private to haiku\n"
        f"haiku._src.base.frame_stack is private to haiku; write {PURE}",
    ),
    "names that Haiku and RLax have removed": (
        """
        from rlax import epsilon_softmax
        print(rlax.incremental_update(2.0, 4.0, 0.5), hk.experimental.profiler_name_scopes())
        """,
        "3.0 True",
    ),
    "pickles of Haiku": (
        """
        mapping = "chaiku._src.data_structures\\n%s\\n"
        params = mapping + "((dS'linear'\\n" + mapping + "((dS'w'\\nI1\\nstRstR."
        for name in ("FlatMapping", "frozendict"):
            print(pickle.loads((params % (name, name)).encode()))
        print(pickle.loads(b"chaiku._src.recurrent\\nLSTMState\\n(I1\\nI2\\ntR."))
        """,
        "{'linear': {'w': 1}}\n{'linear': {'w': 1}}\nLSTMState(hidden=1, cell=2)",
    ),
    "pickled arrays of JAX 0.4.0": (
        """
        import types, numpy as np
        name = "jax._src.device_array"
        sys.modules[name] = written_by = types.ModuleType(name)
        def reconstruct_device_array(): pass
        reconstruct_device_array.__module__ = name
        written_by.reconstruct_device_array = reconstruct_device_array
        class DeviceArray:
            def __reduce__(self):
                state = *np.array([1.0, 2.0], np.float32).__reduce__(), {"weak_type": False, "named_shape": {}}
                return reconstruct_device_array, state
        written = pickle.dumps(DeviceArray())
        del sys.modules[name]
        import jax
        array = pickle.loads(written)
        print(isinstance(array, jax.Array), array, array.dtype)
        """,
        "True [1. 2.] float32",
    ),
}


@pytest.fixture(scope="module")
def printed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("parts")
    genuine = packages_that_must_not_be_imported(folder)
    start = "import traceback\nfor code in CODES:\n    try: exec(code)\n    except Exception: traceback.print_exc()"
    codes = [f"{textwrap.dedent(code)}\nprint('end')" for code, _ in PARTS.values()]
    (folder / "program.py").write_text(start.replace("CODES", repr(codes)), encoding="utf-8")
    _, out, err = python(*RUN, "program.py", cwd=folder, path=genuine)
    assert not err
    return dict(zip(PARTS, out.split("\nend\n"), strict=False))


@pytest.mark.slow
@pytest.mark.parametrize("part", PARTS)
def test_haiku_and_rlax_are_hkx_and_rlx(part, printed):
    assert printed[part] == PARTS[part][1]


@pytest.mark.peer
@pytest.mark.slow
def test_pickles_that_haiku_itself_writes_load(tmp_path):
    data_structures = pytest.importorskip("haiku._src.data_structures")
    params = data_structures.to_immutable_dict({"linear": {"w": 1.0}})
    assert type(params) is data_structures.FlatMap
    (tmp_path / "params.pickle").write_bytes(pickle.dumps(params))
    code = """
    import pickle
    with open("params.pickle", "rb") as file:
        print(pickle.load(file))
    """
    assert run(code, tmp_path) == ["{'linear': {'w': 1.0}}"]


CHILDREN = """
import multiprocessing, os, subprocess, sys, haiku

def name(queue):
    import rlax
    queue.put((haiku.__name__, rlax.__name__, __name__))

if __name__ == "__main__":
    for method in multiprocessing.get_all_start_methods():
        context = multiprocessing.get_context(method)
        queue = context.Queue()
        process = context.Process(target=name, args=[queue])
        process.start()
        assert queue.get(timeout=60)[:2] == ("hkx", "rlx"), method
        process.join()
    code = "import haiku, os, sys; print(haiku.__name__, os.environ['HKX_RUN'], sys.path[1:2])"
    subprocess.run([sys.executable, "-c", code], cwd=os.sep, check=True)
"""


def test_child_processes_run_the_same_way(tmp_path, genuine):
    assert run(CHILDREN, tmp_path, path=genuine) == [f"hkx  [{str(genuine[0])!r}]"]


@pytest.mark.parametrize(
    "words", [["-m", "cProfile", "-o", "profile", *RUN], [*RUN, "-m", "cProfile", "-o", "profile"]]
)
def test_a_profiler_sees_the_program(words, tmp_path, genuine):
    (tmp_path / "program.py").write_text("def profiled(): import haiku; print(haiku)\nprofiled()", encoding="utf-8")
    assert "'hkx'" in python(*words, "program.py", cwd=tmp_path, path=genuine)[1]
    assert b"profiled" in (tmp_path / "profile").read_bytes()


@pytest.mark.parametrize("words", [["-m", "pdb", *RUN], [*RUN, "-m", "pdb"]])
def test_a_debugger_stops_in_the_program(words, tmp_path, genuine):
    (tmp_path / "program.py").write_text("import haiku as hk\n\nname = hk.__name__\nprint(__name__)", encoding="utf-8")
    commands = "break program.py:4\ncontinue\nprint('at', name)\nquit\n"
    out = python(*words, "program.py", cwd=tmp_path, stdin=commands, path=genuine, check=False)[1]
    assert "at hkx" in out
    assert "__main__\n" not in out


@pytest.mark.parametrize("words", [["-m", "coverage", "run", *RUN], [*RUN, "-m", "coverage", "run"]])
def test_coverage_covers_the_program(words, tmp_path, genuine):
    pytest.importorskip("coverage")
    (tmp_path / "program.py").write_text("import haiku\nif haiku.nothing:\n    x = 1", encoding="utf-8")
    python(*words, "program.py", cwd=tmp_path, path=genuine, check=False)
    report = python("-m", "coverage", "report", "--include=program.py", cwd=tmp_path)[1]
    assert report.splitlines()[2].split() == ["program.py", "3", "1", "67%"]


def test_where_pythonpath_is_ignored_the_program_runs_in_the_same_process(tmp_path):
    start = f"import runpy, sys; sys.path.insert(0, {str(ROOT)!r}); sys.argv = ['hkx.run', *sys.argv[1:]]"
    start = f"{start}; runpy.run_module('hkx.run', run_name='__main__')"
    (tmp_path / "program.py").write_text(
        "import haiku, sys\nprint(haiku.__name__, __name__, sys.argv)", encoding="utf-8"
    )
    for words in (["program.py"], ["-c", "import haiku, sys\nprint(haiku.__name__, __name__, sys.argv)"]):
        out = python("-I", "-c", start, *words, "1", cwd=tmp_path)[1]
        assert out == f"hkx __main__ [{words[0]!r}, '1']\n"


def test_a_sitecustomize_of_the_user_runs_too(tmp_path):
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text("import sys; sys.customized = True", encoding="utf-8")
    code = "import sitecustomize, sys; print(sys.customized, sitecustomize.__file__)"
    file = tmp_path / "site" / "sitecustomize.py"
    assert run(code, tmp_path, path=[tmp_path / "site"]) == [f"True {file}"]


@pytest.mark.parametrize("flags", [[], ["--jax-names"]])
def test_tracebacks_have_the_frames_of_the_program_alone(flags, tmp_path):
    (tmp_path / "program.py").write_text("from haiku._src.base import current_frame", encoding="utf-8")
    code, out, err = python(*RUN, *flags, "program.py", cwd=tmp_path, check=False)
    assert (code, out) == (1, "")
    assert re.findall('File "(.*?)"', err) == [str(tmp_path / "program.py")]
    message = f"ImportError: haiku._src.base.current_frame is private to haiku; write {PURE}"
    assert err.splitlines()[-1] == message


def test_pytest_runs_tests_of_the_program(tmp_path, genuine):
    (tmp_path / "test_it.py").write_text("import haiku\ndef test(): assert haiku.__name__ == 'hkx'", encoding="utf-8")
    few = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    out = python(*RUN, "-m", "pytest", "-q", "-p", "no:cacheprovider", cwd=tmp_path, path=genuine, **few)[1]
    assert "1 passed" in out


def test_an_ordinary_import_leaves_python_as_it_is(tmp_path):
    code = """
    import sys
    before = list(sys.meta_path), sys.excepthook, list(sys.path)
    import hkx, rlx
    assert before == (sys.meta_path, sys.excepthook, sys.path)
    print([name for name in sys.modules if name.startswith("hkx.run")])
    """
    assert python("-c", textwrap.dedent(code), cwd=tmp_path)[1] == "[]\n"
