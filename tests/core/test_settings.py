"""Settings: which thread sees which."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

import hkx


def taken(n: int) -> Any:
    """The keys of a sequence, which depend on how many are split off at a time."""
    keys = hkx.PRNGSequence(0)
    return np.stack([next(keys) for _ in range(n)])


def test_a_new_thread_begins_with_the_settings_of_the_main_thread() -> None:
    usual = taken(3)
    with hkx.config.context(rng_reserve_size=3), ThreadPoolExecutor(1) as pool:
        reserved = taken(3)
        assert not np.array_equal(usual, reserved)
        np.testing.assert_array_equal(pool.submit(taken, 3).result(), reserved)
    with ThreadPoolExecutor(1) as pool:
        np.testing.assert_array_equal(pool.submit(taken, 3).result(), usual)


def test_a_thread_changes_its_own_settings_only() -> None:
    usual = taken(3)

    def change() -> Any:
        hkx.config.set(rng_reserve_size=3)
        return taken(3)

    with ThreadPoolExecutor(1) as pool, ThreadPoolExecutor(1) as other:
        changed = pool.submit(change).result()
        assert not np.array_equal(changed, usual)
        np.testing.assert_array_equal(taken(3), usual)
        np.testing.assert_array_equal(other.submit(taken, 3).result(), usual)
        np.testing.assert_array_equal(pool.submit(taken, 3).result(), changed)
