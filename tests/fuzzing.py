"""How many cases a fuzz test draws: FUZZ=10000 for a full run, always the same cases for the same number."""

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
