"""Settings that every test runs under: eight CPU devices, no silent rank promotion, no program compiled twice."""

import importlib.metadata
import itertools
import os
import tempfile

flags = ["--xla_force_host_platform_device_count=8"]
# Nearly all of the tests' time went into making small programs fast that run once. TESTS_OPTIMISED=1 has it done.
if not os.environ.get("TESTS_OPTIMISED"):
    os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
    # XLA ends a process that names a flag which it does not know: only where these are known to be.
    if importlib.metadata.version("jaxlib").startswith("0.10."):
        flags += ["--xla_cpu_use_fusion_emitters=false", "--xla_cpu_parallel_codegen_split_count=1"]
os.environ["XLA_FLAGS"] = " ".join([os.environ.get("XLA_FLAGS", ""), *flags])
os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import pytest

jax.config.update("jax_numpy_rank_promotion", "raise")

# The workers of one run share what they compile: a folder that the first process makes and the others inherit. It is no
# variable of JAX's own, which programs that a test starts, and kills, would write to as well.
if "COMPILED_BY_TESTS" not in os.environ:
    _compiled = tempfile.TemporaryDirectory(prefix="compiled-by-tests-")
    os.environ["COMPILED_BY_TESTS"] = _compiled.name
if not jax.config.jax_compilation_cache_dir:
    jax.config.update("jax_compilation_cache_dir", os.environ["COMPILED_BY_TESTS"])
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)

FORGET_AFTER = 300  # tests: by then a process holds gigabytes of compiled programs that no later test runs
_tests_run = itertools.count(1)


@pytest.fixture(autouse=True)
def compiled_programs_are_forgotten():
    yield
    if next(_tests_run) % FORGET_AFTER == 0:
        jax.clear_caches()
