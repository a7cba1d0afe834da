"""The one way into JAX's transforms: a function that uses parameters, state and keys becomes pure, of a carry.

One that JAX runs once (`vmap`, `grad`, `jit` …) returns what it changed as one more output: `call`, then `finish`.
One that JAX runs in a loop passes state and keys from one iteration to the next: see `loops.py`.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, Generic, NamedTuple, ParamSpec, TypeVar

import jax

from hkx.arguments import checked_function
from hkx.base.entries import Tree, add, add_absent, changed, has_new_names, kept, merged, walk
from hkx.base.trees import own_tree
from hkx.core.frame import ROOT, Asked, Frame, Phase, Scope, current_frame, leave, local
from hkx.core.making import Eager, Maker
from hkx.core.rng import PRNGSequence
from hkx.core.settings import current_settings
from hkx.core.store import check_outward
from hkx.errors.core import JaxUsageError, ParameterInInnerTraceError, StateInInnerTraceError
from hkx.errors.lift import StateNotAnArrayError
from hkx.init.evaluate import needs_values
from hkx.lift.captured import Captured
from hkx.lift.checks import is_value
from hkx.lift.probe import Program

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


class Carry(NamedTuple):
    """What a purified function reads and writes, as one tree of arrays.

    Attributes:
      params: the parameters, by module and by name.
      state: the current state, by module and by name.
      initial_state: the state as it was first set.
      rng: where the key sequence stands (a key, and those split off from it and not yet drawn), or None.
      captured: what `hkx.capture_intermediates` keeps of this call. It is empty in the carries that `hkx.purify` gives.

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
    """`change` of the parameters, of the states, and of the initial states of some carries; without keys."""
    return Carry(*map(change, *(carry[:3] for carry in carries)), rng=None)


def draws_keys(frame: Frame) -> bool:
    """Whether there is a key sequence, and it may be drawn from here."""
    rng = frame.rngs[-1]
    return rng is not None and rng.drawable


def fill_keys(frame: Frame) -> None:
    """Splits off as many keys as a loop carries from one iteration to the next."""
    if draws_keys(frame):
        frame.rngs[-1].reserve_up_to_full()


def snapshot(frame: Frame) -> Carry:
    """What the running function holds now; keys only where some may be drawn."""
    keys = frame.rngs[-1].internal_state if draws_keys(frame) else None
    frame.unshared.clear()
    return Carry(kept(frame.params), kept(frame.state), kept(frame.initial_state), keys)


def _same_keys(a: Any, b: Any) -> bool:
    return a[0] is b[0] and len(a[1]) == len(b[1]) and all(x is y for x, y in zip(a[1], b[1], strict=True))


def changes(before: Carry, after: Carry) -> Carry:
    """Only what is new or different in `after`; the keys are None where they are the same."""
    moved = before.rng is not None and after.rng is not None and not _same_keys(before.rng, after.rng)
    return each(changed, before, after)._replace(rng=after.rng if moved else None, captured=after.captured)


def moved(before: Carry, moving: tuple[Tree, Any]) -> Carry:
    """The changes, where a run of JAX's has left a state and keys."""
    return changes(before, before._replace(state=merged(before.state, moving[0]), rng=moving[1]))


def check_carried(state: Tree) -> None:
    """Raises where JAX cannot carry a state, since it is no array."""
    for bundle, name, value in walk(state):
        for leaf in jax.tree.leaves(value):
            if not is_value(leaf):
                raise StateNotAnArrayError(f"{bundle}/{name}", leaf)


def created_between(before: Carry, after: Carry) -> bool:
    """Whether there is a parameter or a state in `after` that was not there before."""
    return any(has_new_names(b, a) for b, a in zip(before[:3], after[:3], strict=True))


def both(a: Carry, b: Carry) -> Carry:
    """The entries of two carries; the keys are those of the first."""
    return a if b is NOTHING else each(merged, a, b)._replace(rng=a.rng)


def absorb(frame: Frame, new: Carry) -> None:
    """Writes what `changes` gave into a running function."""
    for tree, error in ((new.params, ParameterInInnerTraceError), (new.state, StateInInnerTraceError)):
        for bundle, name, value in walk(tree):
            check_outward(frame, f"{bundle}/{name}", value, error)
    add(frame.params, new.params)
    add(frame.state, new.state)
    add_absent(frame.initial_state, new.initial_state)
    draw_from(frame, new.rng)
    new.captured.hand_on()


def draw_from(frame: Frame, keys: Any) -> None:
    """Has the keys go on from where they stood, if there are any."""
    if keys is not None:
        frame.rngs[-1].replace_internal_state(keys)


def creating(frame: Frame) -> bool:
    """Whether the function is in `init` and may ask for what does not exist yet."""
    return frame.phase is Phase.OPEN


@contextlib.contextmanager
def only_looking() -> Iterator[None]:
    """The keys that are drawn in the `with` block are not counted: what draws them there is still to be called."""
    draws = local.draws
    try:
        yield
    finally:
        local.draws = draws


class Crossing(Generic[P, R]):
    """A function that is run in frames of its own: its names go on from where the running function was.

    Modules made in it have the names that they would have had where it was made, however many times JAX calls it.

    Attributes:
      fun: the function.
      phase: the earliest phase that it is run in.
      asked: is called with the name and the shape of all that the function asks for.
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
        maker: Maker | None = None,
    ):
        """`name` is the public function on whose behalf this is made; names go on from those of `after`.

        `phase` is by default that of the running function. `lifted_name` makes it a transform of its own, with names
        that begin anew; it is the name under which that is lifted, or "". `as_given` are the arguments, by position or
        name, that are no trees of arrays; of the others each call gets its own. `names` says whether the names that it
        takes are taken for what is made afterwards; else they are free again. `maker` makes what is created, by default
        that of the running function.
        """
        frame = current_frame(name)
        self.fun = checked_function(fun, name)
        self._name = name
        self._as_given = as_given
        self._takes_names = names
        self._outer = weakref.ref(frame)
        self._hooks = local.hooks
        self.phase = frame.phase if phase is None else phase
        self._prefix = frame.lifted_prefix
        self._maker = frame.maker if maker is None else maker
        self._exit_checks = frame.exit_checks
        self.asked: Asked | None = frame.asked
        self._scopes: Sequence[Scope] = [s.copy() for s in frame.scopes] if after is None else after._scopes_after
        if lifted_name is not None:
            self._prefix = lifted_name or None
            self._scopes = [Scope(ROOT, ROOT)]
        self._scopes_after: Sequence[Scope] = self._scopes

    @property
    def took_names(self) -> bool:
        """Whether modules were made that are named by where they are made."""
        return any(
            later.counts != scope.counts or later.taken != scope.taken or later.elsewhere
            for scope, later in zip(self._scopes, self._scopes_after, strict=False)
        )

    def _frame(self, carry: Carry, phase: Phase) -> Frame:
        """A frame of the trace that is running now, which holds what is in the carry."""
        outer = self._outer()
        rng = None if outer is None or draws_keys(outer) else outer.rngs[-1]  # on drawing, it says why that is wrong
        if carry.rng is not None:
            rng = PRNGSequence(carry.rng).split_with(self._maker.split)
        frame = Frame(dict(carry.params), {}, rng, phase=max(phase, self.phase), maker=self._maker)
        frame.state, frame.initial_state = dict(carry.state), dict(carry.initial_state)
        frame.lifted_prefix = self._prefix
        frame.exit_checks = self._exit_checks
        frame.captured = []
        return frame

    def _run_in(self, frame: Frame, args: Any, kwargs: Any) -> R:
        args = [a if i in self._as_given else own_tree(a) for i, a in enumerate(args)]
        kwargs = {k: a if k in self._as_given else own_tree(a) for k, a in kwargs.items()}
        frame.asked = self.asked
        frame.scopes = [s.copy() for s in self._scopes]
        hooks = local.hooks
        checks = len(frame.exit_checks)
        try:
            local.hooks = self._hooks
            local.frames.append(frame)
            return self.fun(*args, **kwargs)  # type: ignore[call-arg]
        except BaseException:
            del frame.exit_checks[checks:]  # whoever catches it runs the function again
            raise
        finally:
            leave(frame)
            local.hooks = hooks
            self._scopes_after = frame.scopes

    def run(
        self, carry: Carry, args: Any = (), kwargs: Any = None, *, phase: Phase = Phase.OPEN, full_keys: bool = False
    ) -> tuple[R, Carry]:
        """Calls the function on a carry of the trace that is running.

        The phase is `phase`, or that of the running function, whichever is later; `full_keys` leaves as many keys in
        reserve as a loop carries.
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
        """The same, with what the function changed in place of all that it left.

        With `any_state`, a state may be no array: where no transform of JAX's hands it on.
        """
        out, after = self.run(before, args, kwargs, phase=phase)
        new = changes(before, after)
        if not any_state:
            check_carried(new.state)
        return out, new

    def finish(self, new: Carry) -> None:
        """Makes changes, and the names that the function took, those of the running function."""
        absorb(current_frame(self._name), new)
        outer = self._outer()
        if outer is not None and self._takes_names:
            self._take_names(outer)

    def _take_names(self, frame: Frame) -> None:
        for scope, later in zip(frame.scopes, self._scopes_after, strict=False):
            scope.taken |= later.taken
            for stem, count in later.counts.items():
                scope.counts[stem] = max(scope.counts.get(stem, 0), count)

    def continue_after(self, other: Crossing[..., Any], frame: Frame) -> bool:
        """While this runs in `frame`: has it go on as if it had begun with the names after those of `other`.

        That is possible, and what this returns, where it has taken no name so far that would then be another.
        """
        if frame.names_copied:
            return False
        scopes = zip(self._scopes, frame.scopes, other._scopes_after, strict=False)
        for begin, now, later in scopes:
            theirs = {stem for stem, count in later.counts.items() if count != begin.counts.get(stem, 0)}
            mine = {stem for stem, count in now.counts.items() if count != begin.counts.get(stem, 0)}
            if theirs & mine or later.taken & (now.taken - begin.taken) or later.elsewhere or now.elsewhere:
                return False
        other._take_names(frame)
        return True

    def inline(self, *args: Any, **kwargs: Any) -> R:
        """Calls the function in the trace that is running, and finishes."""
        out, new = self.call(snapshot(current_frame(self._name)), args, kwargs, any_state=True)
        self.finish(new)
        return out

    def visit(self, args: Any, kwargs: Any = None, *, for_result: bool = False) -> R | None:
        """Creates what the function creates when called so; of the rest, nothing is executed.

        States that are new have their initial values afterwards, others those that they had; keys have been drawn.
        With `for_result`, what the result depends on is executed too. Where the code needs values, it is run as it is.
        """
        outer = current_frame(self._name)
        before = snapshot(outer)

        def create() -> tuple[R | None, Carry]:
            out, new = self.call(before, args, kwargs)
            return out if for_result else None, new._replace(state=new.initial_state, captured=Captured())

        with only_looking():
            program = None if current_settings().init == "eager" else self._probed(outer, create)
            out, created = (program or create)()
            absorb(outer, created)
        return out

    def _probed(self, outer: Frame, create: Callable[[], T]) -> Program[T] | None:
        eager = isinstance(outer.maker, Eager)
        try:
            program = Program(create)
        except Exception as error:
            if eager and (isinstance(error, JaxUsageError) or needs_values(error)):
                return None
            raise
        return None if eager and program.reads_what_may_change() else program
