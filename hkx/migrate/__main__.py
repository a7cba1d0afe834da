"""The command line of `python -m hkx.migrate`."""

from __future__ import annotations

import argparse
import difflib
import pathlib
import sys
from collections.abc import Sequence

import hkx.migrate

try:
    from hkx.migrate.files import Migrated, files_in, is_read, migrate_file, write
except ModuleNotFoundError as error:
    if error.name != "libcst" or __name__ != "__main__":
        raise
    sys.exit("python -m hkx.migrate needs libcst: pip install 'hkx[migrate]'")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the tool, and returns its exit code: 0; 1 if `--check` finds something; 2 if a file failed."""
    parser = argparse.ArgumentParser(
        "python -m hkx.migrate", description=hkx.migrate.__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("paths", nargs="+", type=pathlib.Path, metavar="PATH", help="a file, or a folder to search")
    parser.add_argument("--check", action="store_true", help="change nothing; end with 1 where something would change")
    parser.add_argument("--diff", action="store_true", help="change nothing; print what would change")
    parser.add_argument("--jax-names", action="store_true", help="rewrite names that JAX and NumPy have removed, too")
    options = parser.parse_args(arguments)
    for path in options.paths:
        if not path.exists():
            parser.error(f"there is no {path}")
        if path.is_file() and not is_read(path):
            parser.error(f"{path} is no .py, .pyi or .ipynb file, and no list of requirements")
    changed, findings, failed = 0, [], False
    for path in files_in(options.paths):
        try:
            file = migrate_file(path, options.jax_names)
            findings += file.findings
            if file.after == file.before:
                continue
            changed += 1
            if not (options.check or options.diff):
                write(file)
        except OSError as error:
            print(f"{path}: {error}", file=sys.stderr)
            failed = True
            continue
        _show(_diff(file) if options.diff else f"{'would change' if options.check else 'changed'} {path}")
    for place, reason in findings:
        _show(f"{place}: {reason}")
    verb = "would change" if options.check or options.diff else "changed"
    print(f"{changed} file{'s' * (changed != 1)} {verb}, {len(findings)} place{'s' * (len(findings) != 1)} to look at")
    return 2 if failed else int(options.check and changed > 0)


def _show(text: str) -> None:
    """Prints a text, with escapes for what the output cannot represent."""
    encoding = sys.stdout.encoding or "utf-8"
    print(text.encode(encoding, "backslashreplace").decode(encoding))


def _diff(file: Migrated) -> str:
    before, after = (text.splitlines() for text in (file.before, file.after))
    return "\n".join(difflib.unified_diff(before, after, str(file.path), str(file.path), lineterm=""))


if __name__ == "__main__":
    sys.exit(main())
