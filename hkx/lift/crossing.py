"""The only way into JAX's transforms: makes a function that uses parameters, state and keys a pure function of a carry.

A function that JAX runs once (`vmap`, `grad`, `jit` …) returns its changes as an additional output: `call`, then
`finish`. A function that JAX runs in a loop passes state and keys on to the next iteration: see `loops.py`.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, Generic, NamedTuple, ParamSpec, TypeVar

import jax
import jax.core

from hkx.arguments import checked_function
from hkx.base.entries import Tree, add, add_absent, changed, has_new_names, merged, snapshot_of, walk
from hkx.base.key_arrays import for_another_use
from hkx.base.trees import own_tree
from hkx.core.frame import ROOT, Frame, Phase, Scope, current_frame, leave, local
from hkx.core.making import Eager, Maker
from hkx.core.rng import PRNGSequence
from hkx.core.settings import current_settings
from hkx.core.store import check_outward
from hkx.errors.core import ParameterInInnerTraceError, StateInInnerTraceError
from hkx.errors.lift import StateNotAnArrayError
from hkx.lift.captured import Captured
from hkx.lift.checks import as_arrays, check_flags, explain_traced_flag, flags_among, is_value
from hkx.lift.probe import Program

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


class Carry(NamedTuple):
    """The entries that a purified function reads and writes, as one tree of arrays.

    Attributes:
      params: the parameters, by module and by name.
      state: the current state, by module and by name.
      initial_state: the state as it was first set.
      rng: the position of the key sequence (a key, and those split off from it but not yet drawn), or None.
      captured: the values that `hkx.capture_intermediates` records in this call; empty in carries of `hkx.purify`.

    Example:

      >>> import hkx, jax
      >>> def f():
      ...     def count():
      ...         n = hkx.get_state("n", [], init=jax.numpy.zeros)
      ...         hkx.set_state("n", n + 1)
      ...     pure = hkx.purify(count)
      ...     before = pure.start()
      ...     _, after = pure(before)
      ...     return before.state["~"]["n"], after.state["~"]["n"]
      >>> model = hkx.without_apply_rng(hkx.transform_with_state(f))
      >>> params, state = model.init(None)
      >>> before, after = model.apply(params, state)[0]
      >>> print(before, after)
      0.0 1.0
    """

    params: Tree
    state: Tree
    initial_state: Tree
    rng: tuple[Any, tuple[Any, ...]] | None
    captured: Captured = Captured()


NOTHING = Carry({}, {}, {}, None)


def each(change: Callable[..., Any], *carries: Carry) -> Carry:
    """Applies `change` to the parameters, the states and the initial states of carries; the result has no keys."""
    return Carry(*map(change, *(carry[:3] for carry in carries)), rng=None)


def draws_keys(frame: Frame) -> bool:
    """True if there is a key sequence from which keys may be drawn here."""
    rng = frame.rngs[-1]
    return rng is not None and rng.drawable


def fill_keys(frame: Frame) -> None:
    """Splits off keys until there are as many in reserve as a loop carries, which must be a fixed number."""
    if draws_keys(frame):
        frame.rngs[-1].reserve_up_to_full()


def snapshot(frame: Frame) -> Carry:
    """The current contents of a frame; without keys if none may be drawn here."""
    keys = frame.rngs[-1].internal_state if draws_keys(frame) else None
    frame.unshared.clear()
    return Carry(snapshot_of(frame.params), snapshot_of(frame.state), snapshot_of(frame.initial_state), keys)


def _same_keys(a: Any, b: Any) -> bool:
    return a[0] is b[0] and len(a[1]) == len(b[1]) and all(x is y for x, y in zip(a[1], b[1], strict=True))


def changes(before: Carry, after: Carry) -> Carry:
    """The entries that are new or different in `after`. The keys are None if they are the same."""
    moved = before.rng is not None and after.rng is not None and not _same_keys(before.rng, after.rng)
    return each(changed, before, after)._replace(rng=after.rng if moved else None, captured=after.captured)


def changes_of_transform(before: Carry, moving: tuple[Tree, Any]) -> Carry:
    """The changes that a JAX transform made, given the state and keys that it returned."""
    return changes(before, before._replace(state=merged(before.state, moving[0]), rng=moving[1]))


def check_carried(state: Tree) -> None:
    """Raises an error if a state is not an array, so that JAX cannot carry it."""
    for bundle, name, value in walk(state):
        for leaf in jax.tree.leaves(value):
            if not is_value(leaf):
                raise StateNotAnArrayError(f"{bundle}/{name}", leaf)


def created_between(before: Carry, after: Carry) -> bool:
    """True if `after` contains a parameter or a state that `before` does not."""
    return any(has_new_names(b, a) for b, a in zip(before[:3], after[:3], strict=True))


def both(a: Carry, b: Carry) -> Carry:
    """The entries of two carries, with the keys of the first."""
    return a if b is NOTHING else each(merged, a, b)._replace(rng=a.rng)


def absorb(frame: Frame, new: Carry) -> None:
    """Writes the result of `changes` into a frame."""
    for tree, error in ((new.params, ParameterInInnerTraceError), (new.state, StateInInnerTraceError)):
        for bundle, name, value in walk(tree):
            check_outward(frame, f"{bundle}/{name}", value, error)
    add(frame.params, new.params)
    add(frame.state, new.state)
    add_absent(frame.initial_state, new.initial_state)
    draw_from(frame, new.rng)
    new.captured.hand_on()


def draw_from(frame: Frame, keys: Any) -> None:
    """Makes the frame's key sequence continue from `keys`, unless they are None."""
    if keys is not None:
        frame.rngs[-1].replace_internal_state(for_another_use(keys))


def creating(frame: Frame) -> bool:
    """True if this is `init`, and parameters and state may be created."""
    return frame.phase is Phase.OPEN


@contextlib.contextmanager
def only_looking() -> Iterator[None]:
    """Does not count the keys drawn in the `with` block, because the code in it will be called again."""
    draws = local.draws
    try:
        yield
    finally:
        local.draws = draws


class Crossing(Generic[P, R]):
    """A function that runs in its own frames.

    Its names begin with the scopes at the time when this object is created, so that modules in it have the same names
    in every call by JAX.

    Attributes:
      fun: the function.
      phase: the earliest phase in which it runs.
    """

    def __init__(
        self,
        fun: Callable[P, R],
        name: str,
        *,
        after: Crossing[..., Any] | None = None,
        phase: Phase | None = None,
        lifted_name: str | None = None,
        as_given: Collection[int | str] = (),
        names: bool = True,
        in_loop: bool = False,
        maker: Maker | None = None,
        given: tuple[Any, Any] | None = None,
    ):
        """Remembers the running frame's scopes, hooks and settings.

        Args:
          fun: the function.
          name: the public function that creates this object.
          after: another function, after whose names those of `fun` continue.
          phase: the earliest phase; by default, that of the running frame.
          lifted_name: if not None, the function is a separate transform, whose names begin afresh; this is the name
            under which it is lifted, or "".
          as_given: the arguments, by position or name, that are not trees of arrays. Each call gets copies of the
            containers in the other ones.
          names: whether the names that the function takes stay taken afterwards.
          in_loop: whether the function is the body of a loop or a branch, whose names Haiku does not take in `apply`.
          maker: creates the initial values; by default, the running frame's maker.
          given: the arguments, positional and by name, that the transform may turn from known values into traced ones.
            None if that is unknown.
        """
        frame = current_frame(name)
        self.fun = checked_function(fun, name)
        self._name = name
        self._as_given = as_given
        # A loop that `init` visits has known elements, which `apply` traces.
        known = not (frame.in_loop and frame.running_init)
        self._flags = None if given is None else flags_among(*given, as_given, known)
        self._takes_names = names
        self._in_loop = in_loop
        self._outer = weakref.ref(frame)
        self._hooks = local.hooks
        self.phase = frame.phase if phase is None else phase
        self._prefix = frame.lifted_prefix
        self._maker = frame.maker if maker is None else maker
        self._exit_checks = frame.exit_checks
        self._scopes: Sequence[Scope] = [s.copy() for s in (frame.scopes if after is None else after._scopes)]
        if after is not None:
            after._take_names(self._scopes, frame)
        if lifted_name is not None:
            self._prefix = lifted_name or None
            self._scopes = [Scope(ROOT, ROOT)]
        self._scopes_after: Sequence[Scope] = self._scopes

    def _frame(self, carry: Carry, phase: Phase) -> Frame:
        """A frame in the current trace, with the contents of the carry."""
        outer = self._outer()
        rng = None if outer is None or draws_keys(outer) else outer.rngs[-1]  # drawing from this one raises an error
        if carry.rng is not None:
            rng = PRNGSequence(carry.rng).split_with(self._maker.split)
        frame = Frame(dict(carry.params), {}, rng, phase=max(phase, self.phase), maker=self._maker)
        frame.state, frame.initial_state = dict(carry.state), dict(carry.initial_state)
        frame.lifted_prefix = self._prefix
        frame.exit_checks = self._exit_checks
        frame.in_loop = self._in_loop or (outer is not None and outer.in_loop)
        frame.captured = []
        return frame

    def _run_in(self, frame: Frame, args: Any, kwargs: Any) -> R:
        args = [a if i in self._as_given else own_tree(a) for i, a in enumerate(args)]
        kwargs = {k: a if k in self._as_given else own_tree(a) for k, a in kwargs.items()}
        frame.scopes = [s.copy() for s in self._scopes]
        hooks = local.hooks
        checks = len(frame.exit_checks)
        try:
            local.hooks = self._hooks
            local.frames.append(frame)
            return self.fun(*args, **kwargs)  # type: ignore[call-arg]
        except BaseException as error:
            del frame.exit_checks[checks:]  # a caller that catches this runs the function again
            if isinstance(error, jax.errors.TracerBoolConversionError):
                outer = jax.tree.leaves(local.frames[0].params)
                compiled = not frame.running_init and any(isinstance(x, jax.core.Tracer) for x in outer)
                explain_traced_flag(error, self._name, self.fun, self._flags, compiled)
            raise
        finally:
            leave(frame)
            local.hooks = hooks
            self._scopes_after = frame.scopes

    def run(
        self, carry: Carry, args: Any = (), kwargs: Any = None, *, phase: Phase = Phase.OPEN, full_keys: bool = False
    ) -> tuple[R, Carry]:
        """Calls the function on a carry, in the current trace. Returns the result and the new carry.

        The phase is the later one of `phase` and `self.phase`. With `full_keys`, as many keys are left in reserve as a
        loop carries.
        """
        frame = self._frame(carry, phase)
        out = self._run_in(frame, args, kwargs or {})
        if full_keys:
            fill_keys(frame)
        return out, snapshot(frame)._replace(captured=Captured(frame.captured or ()))

    def call(
        self,
        before: Carry,
        args: Any = (),
        kwargs: Any = None,
        phase: Phase = Phase.OPEN,
        *,
        any_state: bool = False,
    ) -> tuple[R, Carry]:
        """Like `run`, but returns only what the function changed.

        With `any_state`, states need not be arrays, because no JAX transform returns them.
        """
        out, after = self.run(before, args, kwargs, phase=phase)
        new = changes(before, after)
        if not any_state:
            check_carried(new.state)
        return out, new

    def finish(self, new: Carry) -> None:
        """Writes changes, and the names that the function took, into the running frame."""
        absorb(current_frame(self._name), new)
        outer = self._outer()
        if outer is not None and self._takes_names:
            self._take_names(outer.scopes, outer)

    def _take_names(self, scopes: Sequence[Scope], frame: Frame) -> None:
        """Marks the names of the last call as taken; in `apply`, those of a loop or branch as possibly taken."""
        for scope, later in zip(scopes, self._scopes_after, strict=False):
            counts, reached = later.counts, later.ahead
            if self._in_loop and not frame.running_init:
                reached = {**reached, **{stem: max(n, reached.get(stem, 0)) for stem, n in counts.items()}}
                counts = {}
            else:
                scope.taken |= later.taken
            for mine, theirs in ((scope.counts, counts), (scope.ahead, reached)):
                mine.update({stem: n for stem, n in theirs.items() if n > mine.get(stem, 0)})

    def inline(self, *args: Any, **kwargs: Any) -> R:
        """Calls the function in the current trace, and writes its changes into the running frame.

        It gets and returns what it would if JAX traced it, here arrays with their values: JAX replaces numbers by
        arrays, and sorts dicts, those of new parameters and states too. Flags in Python are also tried as traced ones.
        """
        args = tuple(a if i in self._as_given else as_arrays(a) for i, a in enumerate(args))
        kwargs = {k: a if k in self._as_given else as_arrays(a) for k, a in sorted(kwargs.items())}
        out, new = self.call(snapshot(current_frame(self._name)), args, kwargs, any_state=True)
        self.finish(jax.tree.map(lambda x: x, new))
        if self._flags:
            made = snapshot(current_frame(self._name))
            with only_looking():
                check_flags(lambda args, kwargs: self.run(made, args, kwargs), args, kwargs, self._flags)
        return as_arrays(out)

    def visit(self, args: Any, kwargs: Any = None, *, part: Callable[[R], Any] = lambda out: None) -> Any:
        """Creates what the function would create if it was called with these arguments, without executing the rest.

        Afterwards, new states have their initial values, other states are unchanged, and keys have been drawn. Of the
        result, `part` is computed and returned. If the code needs real values, it runs normally.
        """
        outer = current_frame(self._name)
        before = snapshot(outer)

        def create() -> tuple[Any, Carry]:
            out, new = self.call(before, args, kwargs)
            return part(out), new._replace(state=new.initial_state, captured=Captured())

        with only_looking():
            program = None if current_settings().init == "eager" else self._probed(outer, create)
            out, created = (program or create)()
            absorb(outer, created)
        return out

    def _probed(self, outer: Frame, create: Callable[[], T]) -> Program[T] | None:
        try:
            return Program(create)
        except Exception:
            if isinstance(outer.maker, Eager):
                return None  # on real values it may not fail
            raise
