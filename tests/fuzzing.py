"""How much is tried: FUZZ=10000 draws so many cases, always the same ones for one number; SEEDS=3 learns so often."""

import os

from hypothesis import HealthCheck, settings

SEEDS = range(int(os.environ.get("SEEDS", "1")))


def count(number):
    """How many cases a fuzz test draws: `number` where FUZZ does not say."""
    return int(os.environ.get("FUZZ", number))


def cases(number):
    """The settings of a fuzz test that draws `count(number)` cases."""
    return settings(
        max_examples=count(number),
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )


def outcome(function):
    """What a function returns and None, or None and the error that it raises."""
    try:
        return function(), None
    except Exception as error:
        return None, error
