"""What fuzz tests share. FUZZ=10000 draws so many cases, always the same ones for the same number."""

import os

from hypothesis import HealthCheck, settings


def cases(number):
    """The settings of a fuzz test that draws `number` cases where FUZZ does not say how many."""
    return settings(
        max_examples=int(os.environ.get("FUZZ", number)),
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
