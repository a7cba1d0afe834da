"""The environment of programs that a test starts: they are compiled in less time, as those of the test itself."""

import os
import pathlib


def environment(cache: pathlib.Path | None = None, unoptimised: bool = True, **variables: object) -> dict[str, str]:
    """The environment of the tests, where a program says itself how many devices it makes out of a CPU.

    `unoptimised` is what the mark of this name is: not for a program that computes for a long time.
    What one program has compiled, those after it read from the folder `cache`. That is not for programs that a test
    kills, unless another one has compiled the same before: half an entry would stay behind.
    """
    flags = [flag for flag in os.environ["XLA_FLAGS"].split() if "device_count" not in flag]
    found = os.environ | {"XLA_FLAGS": " ".join(flags)}
    if unoptimised and not os.environ.get("TESTS_OPTIMISED"):
        found["JAX_DISABLE_MOST_OPTIMIZATIONS"] = "1"
    if cache is not None:
        found["JAX_COMPILATION_CACHE_DIR"] = str(cache)
        found |= {"JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0", "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1"}
    return found | {name: str(value) for name, value in variables.items()}
