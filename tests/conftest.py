"""Settings for all tests: eight CPU devices, no implicit rank promotion, and a shared compilation cache."""

import gc
import importlib.metadata
import os
import tempfile

os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=8"
os.environ.setdefault("JAX_PLATFORMS", "cpu")
# Workers that run side by side divide the processors: with more threads of XLA, learning takes a tenth longer.
if (workers := int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))) > 1:
    os.environ.setdefault("PJRT_NPROC", str(max(1, (os.cpu_count() or 1) // workers)))
# The tests spend most of their time compiling small programs that run only once. These flags take a third to a half off
# that, and do not change results. XLA aborts on unknown flags, so they are set only for versions known to have them.
# TESTS_OPTIMISED=1 compiles with XLA's default settings.
if not os.environ.get("TESTS_OPTIMISED"):
    version = ".".join(importlib.metadata.version("jaxlib").split(".")[:2])
    if version in {"0.10", "0.12"}:
        os.environ["XLA_FLAGS"] += " --xla_backend_optimization_level=1 --xla_cpu_parallel_codegen_split_count=1"
    if version == "0.10":
        os.environ["XLA_FLAGS"] += " --xla_cpu_use_fusion_emitters=false"

import jax
import pytest

jax.config.update("jax_numpy_rank_promotion", "raise")
# Source locations of operations are not needed, and recording them takes a twentieth of the compilation time.
jax.config.update("jax_traceback_in_locations_limit", 0)

# The workers of a run share a compilation cache, in a folder that the first process creates and the others inherit. It
# is not passed in one of JAX's own variables, because programs that tests start, and kill, would write to it too.
if "COMPILED_BY_TESTS" not in os.environ:
    _compiled = tempfile.TemporaryDirectory(prefix="compiled-by-tests-")
    os.environ["COMPILED_BY_TESTS"] = _compiled.name
if not jax.config.jax_compilation_cache_dir:
    jax.config.update("jax_compilation_cache_dir", os.environ["COMPILED_BY_TESTS"])
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)


def compiled_without_optimisation(item):
    """Whether the test or its file is marked `unoptimised`; a test that computes for long is `unoptimised(False)`."""
    marker = item.get_closest_marker("unoptimised")
    return marker is not None and marker.args != (False,) and not os.environ.get("TESTS_OPTIMISED")


def pytest_ignore_collect(collection_path, config):
    """Reads the one file of `-m smoke` and no other, which would take most of the time."""
    return (
        True if config.option.markexpr == "smoke" and collection_path.name not in ("tests", "test_smoke.py") else None
    )


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items):
    """Runs all unoptimised tests first, so that the setting changes only once."""
    items.sort(key=lambda item: not compiled_without_optimisation(item))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    """Skips what needs more devices, and compiles tests marked `unoptimised` without optimisation (half the time)."""
    if item.get_closest_marker("eight_devices") and jax.device_count() < 8:
        pytest.skip(f"needs eight devices, and there are {jax.device_count()} ({jax.default_backend()})")
    plain = compiled_without_optimisation(item)
    if plain != jax.config.read("jax_disable_most_optimizations"):
        jax.clear_caches()  # exact comparisons need programs compiled in the same way
        jax.config.update("jax_disable_most_optimizations", plain)


FORGET_AFTER = 1400  # compiled programs, which take gigabytes, and are hardly used again
_compiled_since = []
jax.monitoring.register_event_duration_secs_listener(
    lambda event, seconds, **about: _compiled_since.append(1) if event.endswith("/backend_compile_duration") else None
)


@pytest.fixture(autouse=True)
def nothing_is_left_of_earlier_tests():
    """Freezes existing objects, so that garbage collection, and `init`'s search for leaked tracers, skip them."""
    if len(_compiled_since) > FORGET_AFTER:
        _compiled_since.clear()
        jax.clear_caches()
        gc.unfreeze()
        gc.collect()
    gc.freeze()


@pytest.fixture
def compiled():
    """A function that counts the programs compiled while another function runs."""

    def count(run):
        before = len(_compiled_since)
        jax.block_until_ready(run())
        return len(_compiled_since) - before

    return count
