"""Settings that every test runs under: eight CPU devices, no silent rank promotion."""

import itertools
import os

os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=8"
os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import pytest

jax.config.update("jax_numpy_rank_promotion", "raise")

FORGET_AFTER = 300  # tests: by then a process holds gigabytes of compiled programs that no later test runs
_tests_run = itertools.count(1)


@pytest.fixture(autouse=True)
def compiled_programs_are_forgotten():
    yield
    if next(_tests_run) % FORGET_AFTER == 0:
        jax.clear_caches()
