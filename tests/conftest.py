"""Settings that every test runs under: eight CPU devices, no silent rank promotion, no program compiled twice."""

import gc
import importlib.metadata
import os
import sys
import tempfile
import threading

os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=8"
os.environ.setdefault("JAX_PLATFORMS", "cpu")
# Nearly all of the tests' time goes into compiling small programs that then run once, and with these flags that takes
# half as long; the bits stay. XLA ends a process that names a flag which it lacks: only where it is known to have them.
# TESTS_OPTIMISED=1 compiles as users do.
if importlib.metadata.version("jaxlib").startswith("0.10.") and not os.environ.get("TESTS_OPTIMISED"):
    os.environ["XLA_FLAGS"] += " --xla_backend_optimization_level=1 --xla_cpu_use_fusion_emitters=false"
    os.environ["XLA_FLAGS"] += " --xla_cpu_parallel_codegen_split_count=1"

import jax
import pytest

jax.config.update("jax_numpy_rank_promotion", "raise")
# Which line each operation comes from: nobody reads it, and writing it down is a twentieth of what compiling takes.
jax.config.update("jax_traceback_in_locations_limit", 0)

# The workers of one run share what they compile: a folder that the first process makes and the others inherit. It is no
# variable of JAX's own, which programs that a test starts, and kills, would write to as well.
if "COMPILED_BY_TESTS" not in os.environ:
    _compiled = tempfile.TemporaryDirectory(prefix="compiled-by-tests-")
    os.environ["COMPILED_BY_TESTS"] = _compiled.name
if not jax.config.jax_compilation_cache_dir:
    jax.config.update("jax_compilation_cache_dir", os.environ["COMPILED_BY_TESTS"])
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)

# To lower a program JAX makes an MLIR context, which takes 3 ms: as long as the rest of what a small program takes that
# is in the cache. A context holds nothing of the programs but their constants, so a thread uses one for many.
CONTEXT_SERVES = 200  # programs
_contexts = threading.local()


def _context_for_many(make):
    def context():
        if getattr(_contexts, "left", 0) == 0:
            _contexts.made, _contexts.left = make(), CONTEXT_SERVES
        _contexts.left -= 1
        return _contexts.made

    return context


_mlir = sys.modules.get("jax._src.interpreters.mlir")  # where a JAX has it elsewhere, this is left out
if hasattr(_mlir, "make_ir_context") and not os.environ.get("TESTS_OPTIMISED"):
    _mlir.make_ir_context = _context_for_many(_mlir.make_ir_context)


def compiled_without_optimisation(item):
    """Whether the test, or else its file, is marked `unoptimised`; `unoptimised(False)` says that it runs for long."""
    marker = item.get_closest_marker("unoptimised")
    return marker is not None and marker.args != (False,) and not os.environ.get("TESTS_OPTIMISED")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items):
    """Those whose programs are compiled alike follow each other."""
    items.sort(key=lambda item: not compiled_without_optimisation(item))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    """Those marked `unoptimised` have their programs compiled without optimisation, in half the time again."""
    plain = compiled_without_optimisation(item)
    if plain != jax.config.read("jax_disable_most_optimizations"):
        jax.clear_caches()  # bits are compared among programs that were compiled alike
        jax.config.update("jax_disable_most_optimizations", plain)


FORGET_AFTER = 1500  # programs: they take a gigabyte by then, and hardly any of them runs again
_compiled_since = []
jax.monitoring.register_event_duration_secs_listener(
    lambda event, seconds, **about: _compiled_since.append(1) if event.endswith("/backend_compile_duration") else None
)


@pytest.fixture(autouse=True)
def nothing_is_left_of_earlier_tests():
    """The collector, and with it init's search for tracers that stayed behind, walks what this test makes alone."""
    if len(_compiled_since) > FORGET_AFTER:
        _compiled_since.clear()
        jax.clear_caches()
        gc.unfreeze()
        gc.collect()
    gc.freeze()


@pytest.fixture
def compiled():
    """A function that says how many programs are compiled while another runs."""

    def count(run):
        before = len(_compiled_since)
        jax.block_until_ready(run())
        return len(_compiled_since) - before

    return count
