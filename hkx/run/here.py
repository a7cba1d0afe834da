"""Runs a program in this process, which a debugger, a profiler or coverage watches, or which ignores PYTHONPATH."""

from __future__ import annotations

import os
import runpy
import sys
import types


def is_needed() -> bool:
    """True if a new process would not be watched, or would not import our `sitecustomize`."""
    tools = getattr(sys, "monitoring", None)
    watched = sys.gettrace() or sys.getprofile() or (tools and any(map(tools.get_tool, range(6))))
    return bool(watched or sys.flags.ignore_environment or sys.flags.no_site)


def run(words: list[str]) -> None:
    """Runs `FILE`, `-m MODULE`, `-c CODE` or `-`, followed by its arguments."""
    kind, *rest = words
    if kind == "-m":
        sys.argv[:] = rest
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    elif kind in ("-c", "-"):
        source, name = (rest.pop(0), "<string>") if kind == "-c" else (sys.stdin.read(), "<stdin>")
        sys.argv[:] = [kind, *rest]
        sys.modules["__main__"] = main = types.ModuleType("__main__")
        exec(compile(source, name, "exec"), vars(main))
    elif kind.startswith("-"):
        sys.exit(
            f"python -m hkx.run: under a debugger, a profiler, coverage, -I, -E or -S, write {kind} before -m hkx.run"
        )
    else:
        sys.argv[:] = words
        if not sys.flags.safe_path:
            sys.path[0] = os.path.dirname(os.path.realpath(kind))
        runpy.run_path(kind, run_name="__main__")
