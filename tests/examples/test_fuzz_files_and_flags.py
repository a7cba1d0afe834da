"""Saved parameters of which any bytes change, and flags of any kind: the same, or one error by name."""

import contextlib
import importlib
import io
import pathlib
import tempfile

import jax
import numpy as np
import program
import pytest
import tyro
from fuzzing import cases
from hypothesis import given
from hypothesis import strategies as st
from program import BadFlag

PROGRAMS = ["lstm_lm", "transformer_lm"]


def same(a, b):
    leaves = zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    return all(np.asarray(x).tobytes() == np.asarray(y).tobytes() for x, y in leaves)


# What becomes of one file, of which the place is a share of its length.
SHARES = st.floats(0, 1, exclude_max=True)
DAMAGES = st.one_of(
    st.tuples(st.just("flip"), SHARES, st.integers(1, 255)),
    st.tuples(st.just("cut"), SHARES),
    st.tuples(st.just("insert"), SHARES, st.binary(min_size=1, max_size=20)),
    st.tuples(st.just("overwrite"), SHARES, st.binary(min_size=1, max_size=20)),
    st.tuples(st.just("replace"), st.binary(max_size=60)),
)


def damaged(content, how, *more):
    if how == "replace":
        return more[0]
    place = int(more[0] * len(content))
    if how == "cut":
        return content[:place]
    if how == "flip":
        return content[:place] + bytes([content[place] ^ more[1]]) + content[place + 1 :] if content else content
    return content[:place] + more[1] + content[place + (len(more[1]) if how == "overwrite" else 0) :]


@pytest.mark.slow
@cases(100)
@given(st.lists(DAMAGES, min_size=1, max_size=3))
def test_saved_parameters_of_which_any_bytes_change_are_as_they_were_or_refused(damages):
    params = {"linear": {"w": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.zeros(3, np.float32)}}
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "parameters.npz"
        program.save_parameters(path, params)
        for damage in damages:
            path.write_bytes(damaged(path.read_bytes(), *damage))
        try:
            found = program.load_parameters(str(path), params)
        except BadFlag as refused:
            assert str(path) in str(refused), damages
            assert "\n" not in str(refused), damages
        else:
            assert same(found, params), damages


WORDS = st.one_of(
    st.sampled_from(["", "-1", "0", "1", "nan", "inf", "1e400", "True", "None", "[]", "--", "-", "../..", "/dev/null"]),
    st.integers().map(str),
    st.floats().map(str),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
)


@pytest.mark.slow
@pytest.mark.parametrize("name", PROGRAMS)
def test_flags_of_any_kind_are_settings_or_refused(name):
    """A program is told what is wrong with its flags, and ends with status 2; else it gets settings within limits."""
    settings = importlib.import_module(name).Config
    flags = [program.as_flag(field) for field in settings.__dataclass_fields__]
    arguments = st.lists(st.one_of(st.sampled_from(flags), st.sampled_from(flags), WORDS), min_size=1, max_size=6)

    @cases(15)
    @given(arguments)
    def check(arguments):
        told = io.StringIO()
        with contextlib.redirect_stderr(told), contextlib.redirect_stdout(told):
            try:
                config = tyro.cli(settings, args=arguments)
            except SystemExit as ended:
                assert ended.code == (0 if {"--help", "-h"} & set(arguments) else 2), arguments
                assert told.getvalue(), arguments
            else:
                assert type(config)(**vars(config)) == config or "nan" in str(vars(config)), arguments

    check()
