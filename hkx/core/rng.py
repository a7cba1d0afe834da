"""Random keys: the sequence that returns them, and the functions that draw from the running one."""

from __future__ import annotations

import collections
import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from hkx.arguments import checked_integer
from hkx.base.key_arrays import for_another_use
from hkx.base.keys import as_key, has_custom_implementation
from hkx.base.types import Array, PRNGKey
from hkx.core.frame import current_frame, effectful_frame, local
from hkx.core.guard import TraceMark
from hkx.core.making import split_key
from hkx.core.settings import current_settings
from hkx.errors.core import InvalidRNGError, KeyInInnerTraceError, MissingRNGError, described


class PRNGSequence:
    """An iterator over random keys that are all different.

    The n-th key is the n-th `subkey` of repeated `key, subkey = jax.random.split(key)`.

    Args:
      key_or_seed: a typed key, a raw key, an int seed, or the `internal_state` of another sequence.

    Raises:
      InvalidRNGError: if it is none of these.
      InvalidSizeError: in `take` and `reserve`, if the number of keys is negative, or not a whole number.
      KeyInInnerTraceError: when a key is drawn inside a JAX transform, but the sequence was created outside of it:
        every iteration would get the same key.

    Example:

      >>> import hkx
      >>> keys = hkx.PRNGSequence(42)
      >>> a, b = next(keys), next(keys)
      >>> bool((a == b).all())
      False
    """

    def __init__(self, key_or_seed: PRNGKey | tuple[Array, Sequence[Array]]):
        state = key_or_seed if isinstance(key_or_seed, tuple) else (key_or_seed, ())
        self._key, self._subkeys = _checked_state(state, "`hkx.PRNGSequence`")
        self._mark, self._outer = TraceMark(), None
        self._split: Callable[[Array, int], Sequence[Array]] = split_key

    @property
    def internal_state(self) -> tuple[Array, tuple[Array, ...]]:
        """The key from which the next ones are split, and the keys already split off but not yet returned."""
        return self._key, tuple(self._subkeys)

    def replace_internal_state(self, state: tuple[Array, Sequence[Array]]) -> None:
        """Continues from a state that `internal_state` returned, as seen from where this is called."""
        self._key, self._subkeys = _checked_state(state, "`PRNGSequence.replace_internal_state`")
        self._outer = self._mark if self._mark.is_inner(state) else None
        if self._mark.records or self._outer:  # else the keys are valid where the sequence was created
            self._mark = TraceMark()

    def split_with(self, split: Callable[[Array, int], Sequence[Array]]) -> PRNGSequence:
        """Uses `split(key, num)` instead of `jax.random.split`; returns the sequence itself."""
        self._split = split
        return self

    @property
    def drawable(self) -> bool:
        """True if keys may be drawn here: for example, not inside a JAX loop if the sequence was created outside.

        Nor after a raw `jax.vmap` in which a branch or a loop left keys that are valid only in there.
        """
        return not (self._mark.records or (self._outer and self._outer.current))

    def _check(self) -> None:
        if not self.drawable:
            raise KeyInInnerTraceError()

    def reserve(self, num: int) -> None:
        """Splits off `num` keys in one operation, for later use."""
        if num := checked_integer(num, "num"):
            self._check()
            self._key, *new = self._split(self._key, num + 1)
            self._subkeys.extend(new)

    def reserve_up_to_full(self) -> None:
        """Reserves exactly as many keys as `hkx.config` says."""
        missing = current_settings().rng_reserve_size - len(self._subkeys)
        self.reserve(max(missing, 0))
        for _ in range(-missing):
            self._subkeys.pop()

    def next(self) -> Array:
        """The next key."""
        self._check()
        if not self._subkeys:
            self.reserve(current_settings().rng_reserve_size)
        return self._subkeys.popleft()

    def take(self, num: int) -> tuple[Array, ...]:
        """The next `num` keys."""
        num = checked_integer(num, "num")
        self.reserve(max(num - len(self._subkeys), 0))
        if num:
            self._check()
        return tuple(self._subkeys.popleft() for _ in range(num))

    def take_stacked(self, num: int) -> Array:
        """The next `num` keys as one array, of size 0 if `num` is 0."""
        num = checked_integer(num, "num")
        if num > 1 and not self._subkeys and not has_custom_implementation(self._key):  # the same keys, but faster
            self._check()
            keys = jax.random.split(self._key, num + 1)
            self._key = keys[0]
            return keys[1:]
        keys = self.take(num)
        return for_another_use(jnp.stack(keys)) if keys else jnp.asarray(self._key)[None][:0]

    def __iter__(self) -> Iterator[Array]:
        return self

    __next__ = next


def _checked_state(state: Any, where: str) -> tuple[Array, collections.deque[Array]]:
    """The key, and the keys already split off, of an `internal_state`."""
    try:
        key, subkeys = state
        subkeys = tuple(subkeys)
    except (TypeError, ValueError):
        raise InvalidRNGError(
            f"{where}: {described(state)} is not the state of a sequence of keys. That is a pair, a key and the keys "
            "that are already split off, as `PRNGSequence.internal_state` is."
        ) from None
    return as_key(key, where), collections.deque(as_key(subkey, where) for subkey in subkeys)


def _sequence(name: str) -> PRNGSequence:
    rng = effectful_frame(f"hkx.{name}").rngs[-1]
    if rng is None:
        raise MissingRNGError(name)
    return rng


def next_rng_key() -> Array:
    """Returns a new random key, split from the key that was passed to `init` or `apply`.

    Each call returns a different key. The same first key gives the same sequence of keys.

    Returns:
      A key, of the same kind as the one that was passed.

    Raises:
      NotInTransformError: outside of a transformed function.
      MissingRNGError: if None was passed to `init` or `apply`.
      KeyInInnerTraceError: inside a raw `jax.lax.scan`, `jax.jit` and the like.

    Example:

      >>> import hkx, jax
      >>> f = hkx.transform(lambda: jax.random.uniform(hkx.next_rng_key(), [2]))
      >>> f.apply({}, jax.random.key(0)).shape
      (2,)
    """
    local.draws += 1
    return _sequence("next_rng_key").next()


def next_rng_keys(num: int) -> Array:
    """Returns the next `num` keys, stacked: shape `[num]` for typed keys, `[num, 2]` for raw ones.

    Args:
      num: the number of keys, at least 0.

    Raises:
      InvalidSizeError: if `num` is negative, or not a whole number.
      and the same as `next_rng_key`.

    Example:

      >>> import hkx, jax
      >>> hkx.transform(lambda: hkx.next_rng_keys(3)).apply({}, jax.random.key(0)).shape
      (3,)
    """
    return _sequence("next_rng_keys").take_stacked(num)


def maybe_next_rng_key() -> Array | None:
    """Returns the next key, or None if no key was passed to `init` or `apply`.

    Raises:
      NotInTransformError: outside of a transformed function.

    Example:

      >>> import hkx
      >>> print(hkx.transform(hkx.maybe_next_rng_key).apply({}, None))
      None
    """
    rng = effectful_frame("hkx.maybe_next_rng_key").rngs[-1]
    return None if rng is None else rng.next()


def reserve_rng_keys(num: int) -> None:
    """Splits off `num` keys in one operation; later draws use these keys.

    Args:
      num: the number of keys, at least 0. One split into many keys compiles to less code than many splits into two.
        The keys differ from those that would be drawn without this call.

    Raises:
      InvalidSizeError: if `num` is negative, or not a whole number.
      and the same as `next_rng_key`.

    Example:

      >>> import hkx
      >>> def f():
      ...     hkx.reserve_rng_keys(2)
      ...     return hkx.next_rng_key(), hkx.next_rng_key()
      >>> a, b = hkx.transform(f).apply({}, 42)
    """
    _sequence("reserve_rng_keys").reserve(num)


@contextlib.contextmanager
def _rng_pushed(key: Any) -> Iterator[None]:
    rngs = current_frame("hkx.with_rng").rngs  # looked up on entry: a lifted function may be running by then
    rngs.append(PRNGSequence(key))
    try:
        yield
    finally:
        rngs.pop()


def with_rng(key: PRNGKey) -> contextlib.AbstractContextManager[None]:
    """Draws keys from another key until the `with` block ends; the outer sequence does not advance.

    Args:
      key: a typed key, a raw key or an int seed.

    Returns:
      A context manager.

    Raises:
      NotInTransformError: outside of a transformed function.
      InvalidRNGError: if `key` is not a key.

    Example:

      >>> import hkx, jax
      >>> def f():
      ...     with hkx.with_rng(jax.random.key(7)):
      ...         return jax.random.bernoulli(hkx.next_rng_key())
      >>> drawn = hkx.transform(f).apply({}, None)
    """
    effectful_frame("hkx.with_rng")
    return _rng_pushed(as_key(key, "`hkx.PRNGSequence`"))


def maybe_get_rng_sequence_state() -> tuple[Array, tuple[Array, ...]] | None:
    """Returns the state of the running key sequence, or None if there is none; see `replace_rng_sequence_state`.

    Raises:
      NotInTransformError: outside of a transformed function.

    Example:

      >>> import hkx
      >>> print(hkx.transform(hkx.maybe_get_rng_sequence_state).apply({}, None))
      None
    """
    rng = current_frame("hkx.maybe_get_rng_sequence_state").rngs[-1]
    return None if rng is None else rng.internal_state


def replace_rng_sequence_state(state: tuple[Array, Sequence[Array]]) -> None:
    """Makes the running key sequence continue from a state that `maybe_get_rng_sequence_state` returned.

    Args:
      state: the state.

    Raises:
      NotInTransformError: outside of a transformed function.
      MissingRNGError: if there is no running sequence.
      InvalidRNGError: if `state` is not such a state.

    Example:

      >>> import hkx
      >>> def f():
      ...     before = hkx.maybe_get_rng_sequence_state()
      ...     a = hkx.next_rng_key()
      ...     hkx.replace_rng_sequence_state(before)
      ...     return (a == hkx.next_rng_key()).all()
      >>> print(hkx.transform(f).apply({}, 42))
      True
    """
    _sequence("replace_rng_sequence_state").replace_internal_state(state)
