"""What breaks off a transform, at whatever line, leaves nothing behind: the next one works as if it had not been."""

import collections
import contextlib
import os
import sys
import threading
import types
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hkx
from hkx.core.frame import local
from hkx.core.settings import current_settings
from hkx.tools.mixed_precision import current_policy

OURS = str(Path(hkx.__file__).parent) + os.sep
X = np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)
KEY = jax.random.PRNGKey(3)


class Block(hkx.Module):
    def __init__(self, name=None):
        super().__init__(name=name)
        self.inner = hkx.Linear(3)

    def __call__(self, x):
        count = hkx.get_state("count", [], jnp.int32, init=jnp.zeros)
        hkx.set_state("count", count + 1)
        return self.inner(x) + jax.random.normal(hkx.next_rng_key(), x.shape) * count


def doubled(next_getter, value, context):
    return next_getter(value) * 2


def modules(x):
    """State, keys, names, hooks, settings and a policy."""
    core = Block()
    with hkx.name_scope("scope"), hkx.custom_getter(doubled), hkx.config.context(check_jax_usage=False):
        x = core(x)
    with hkx.mixed_precision.push_policy(Block, "params=float32,compute=float32"):
        return Block()(x)


def loops(x):
    core = Block()
    x = hkx.scan(lambda x, _: (core(x), None), x, None, length=2)[0]
    return hkx.cond(x.sum() > 0, core, hkx.Linear(3), x)


def stacks(x):
    x = hkx.layer_stack(2)(lambda x: hkx.Linear(3)(x))(x)
    return hkx.remat(Block())(x) + hkx.vmap(hkx.Linear(3), split_rng=False)(x)


def lifted(x):
    inner = hkx.transform(lambda x: hkx.Linear(3)(x))
    return inner.apply(hkx.lift(inner.init, name="lifted")(hkx.next_rng_key(), x), None, x)


PARTS = modules, loops, stacks, lifted


def model(x):
    for part in PARTS:
        x = part(x)
    return x


def actions(function):
    """`init`, and a trace of `apply`, which is not run: hkx does nothing while a compiled program runs."""
    pair = hkx.transform_with_state(function)
    params, state = pair.init(KEY, X)
    return {
        "init": lambda: pair.init(KEY, X),
        "apply": lambda: str(jax.make_jaxpr(lambda p, s: pair.apply(p, s, KEY, X))(params, state)),
    }


class Line(NamedTuple):
    """A line of hkx, or of the model, that runs: the function it is in, its number, and how often it has run before."""

    code: types.CodeType
    number: int
    before: int

    @property
    def place(self):
        return self.code.co_filename, self.number


@contextlib.contextmanager
def calls_seen_by(on_call):
    before = sys.gettrace()
    sys.settrace(on_call)
    try:
        yield
    finally:
        sys.settrace(before)


def lines_of(action):
    lines, times = [], collections.Counter()
    programs = {program.__code__ for program in (model, *PARTS)}

    def on_line(frame, event, _):
        if event == "line":
            place = frame.f_code, frame.f_lineno
            lines.append(Line(*place, times[place]))
            times[place] += 1
        return on_line

    def on_call(frame, event, _):
        code = frame.f_code
        return on_line if code.co_filename.startswith(OURS) or code in programs else None

    action()
    with calls_seen_by(on_call):
        action()
    return lines


def interrupting(line):
    """Raises KeyboardInterrupt at a line. Only the function that it is in is traced line by line, which takes long."""
    code, number, before = line

    def on_line(frame, event, _):
        nonlocal before
        if event == "line" and frame.f_lineno == number:
            before -= 1
            if before < 0:
                raise KeyboardInterrupt
        return on_line

    return calls_seen_by(lambda frame, event, _: on_line if frame.f_code is code else None)


def left_behind():
    """What a transform of this thread could find of those before."""
    hooks = {kind: hooks for kind, hooks in local.hooks.items() if hooks}
    return len(local.frames), hooks, local.lifted_prefix, current_settings(), current_policy()


SMALL = hkx.transform(lambda x: hkx.Linear(1, w_init=hkx.initializers.Constant(1.0))(x))


def works():
    """Whether a transform starts from a clean slate, and gives what it should."""
    params = SMALL.init(None, X)
    return list(params) == ["linear"] and np.array_equal(SMALL.apply(params, None, X), X.sum(1, keepdims=True))


def broken_by(action, lines):
    """Breaks `action` off at each of some lines; those after which something is left, or does not work."""
    # CPython 3.11 counts a call that a trace function ends at a `yield from` as one that goes on, for good.
    sys.setrecursionlimit(sys.getrecursionlimit() + len(lines))
    clean, broken = left_behind(), []
    for line in lines:
        with interrupting(line), contextlib.suppress(KeyboardInterrupt):
            action()
        if left_behind() != clean or not works():
            broken.append(f"{line}: {left_behind()}")
            local.__init__()  # in order that the next one begins as it should
    return broken


def first_and_last(runs):
    """The lines to break off in each of several runs: where a line of the sources runs first, and where it runs last.

    With INTERRUPTIONS=all, every line of every run.
    """
    if os.environ.get("INTERRUPTIONS") == "all":
        return runs
    every = [(line.place, (run, line)) for run, lines in enumerate(runs) for line in lines]
    ends = {*dict(reversed(every)).values(), *dict(every).values()}
    return [[line for line in lines if (run, line) in ends] for run, lines in enumerate(runs)]


def check(action, chosen):
    expected = action()
    assert broken_by(action, chosen) == []
    again = action()
    assert jax.tree.structure(again) == jax.tree.structure(expected)
    assert all(jax.tree.leaves(jax.tree.map(np.array_equal, again, expected)))


# Where the interrupt comes while the collector ends a generator that an earlier one has left, Python itself reports it.
ends_in_the_collector = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.mark.slow
@ends_in_the_collector
@pytest.mark.parametrize("name", ["init", "apply"])
def test_an_interrupt_at_any_line_leaves_nothing(name):
    """In the parts of the model one by one: each run of one takes a fraction of the time of a run of all."""
    runs = [actions(part)[name] for part in PARTS]
    for action, chosen in zip(runs, first_and_last([lines_of(action) for action in runs]), strict=True):
        check(action, chosen)


def test_an_error_in_the_function_leaves_nothing():
    class UsersError(Exception):
        pass

    def fails(x):
        with hkx.custom_getter(doubled), hkx.name_scope("scope"), hkx.config.context(init="eager"):
            hkx.scan(lambda x, _: (Failing()(x), None), x, None, length=2)

    class Failing(hkx.Module):
        def __call__(self, x):
            hkx.Linear(3)(x)
            raise UsersError

    clean, pair = left_behind(), hkx.transform_with_state(fails)
    with pytest.raises(UsersError):
        pair.init(KEY, X)
    with pytest.raises(UsersError):
        pair.apply({"scope/failing/linear": {"w": np.eye(3), "b": np.zeros(3)}}, {}, KEY, X)
    assert left_behind() == clean
    assert works()


@pytest.mark.parametrize("init", ["traced", "eager"])
def test_an_error_in_a_branch_is_the_users_own(init):
    class UsersError(Exception):
        pass

    def fails(x):
        raise UsersError

    with pytest.raises(UsersError):
        hkx.transform(lambda x: hkx.cond(x.sum() > 0, fails, hkx.Linear(3), x), init=init).init(KEY, X)
    assert works()


@pytest.mark.parametrize("ends", ["during the function", "after the function"])
def test_a_generator_left_half_way_leaves_nothing(ends):
    """What it has entered and not left is not in force in what comes next, whenever it ends."""
    kept, clean = [], left_behind()

    def halfway():
        interceptor = hkx.intercept_methods(lambda f, a, k, _: f(*a, **k))
        with hkx.custom_getter(doubled), interceptor, hkx.new_context(rng=0), hkx.name_scope("scope"):
            yield hkx.Linear(1)(X)

    def f(x):
        generator = halfway()
        next(generator)
        if ends == "after the function":
            kept.append(generator)
        return x

    hkx.transform(f).apply({}, None, X)
    assert left_behind() == clean
    assert works()
    for generator in kept:
        generator.close()
    assert left_behind() == clean
    assert works()


def test_the_same_hook_entered_twice_is_left_once():
    with hkx.new_context(params={"~": {"w": np.float32(1)}}):
        with hkx.custom_getter(doubled):
            with hkx.custom_getter(doubled):
                assert hkx.get_parameter("w", []) == 4
            assert hkx.get_parameter("w", []) == 2
        assert hkx.get_parameter("w", []) == 1


def test_a_thread_that_dies_leaves_nothing():
    died = []

    def dies():
        try:
            hkx.transform(lambda: hkx.get_parameter("w", [], init=lambda *_: 1 / 0)).init(None)
        except ZeroDivisionError as error:
            died.append(error)

    clean = left_behind()
    with calls_seen_by(lambda *_: None):  # a tracer of this thread is none of the other's
        thread = threading.Thread(target=dies)
        thread.start()
        thread.join()
    assert len(died) == 1
    assert left_behind() == clean
    assert works()


def test_a_transform_inside_of_what_a_transform_calls():
    """In a hook, an initializer and a callback of JAX's: each has a frame of its own, and the outer one goes on."""
    inside = []

    def again(*_):
        inside.append(works())
        return np.float32(1)

    def intercept(next_function, args, kwargs, context):
        if len(local.frames) == 1:  # it is in force in the transform that it starts, too
            again()
        return next_function(*args, **kwargs)

    def f(x):
        with hkx.intercept_methods(intercept):
            x = hkx.Linear(3, w_init=lambda *_: jnp.eye(3) * again())(x)
        return hkx.Linear(3)(x) * jax.pure_callback(again, jax.ShapeDtypeStruct([], np.float32))

    pair = hkx.transform(f, init="eager")  # `works` compares values
    params = pair.init(KEY, X)
    assert list(params) == ["linear", "linear_1"]
    np.testing.assert_allclose(pair.apply(params, None, X), X @ params["linear_1"]["w"], rtol=1e-6)
    assert len(inside) >= 3
    assert False not in inside
