"""`python -m hkx.migrate PATH...` converts programs written for Haiku and RLax to hkx and rlx.

It rewrites imports, the names that are read from them, annotations in strings, and strings that are a path in one of
the packages, by means of the syntax tree. Comments, formatting, line endings, encodings and file modes are preserved.
Whatever it cannot decide is listed by path and line, with the reason. It needs `pip install 'hkx[migrate]'`.

    PATH            a file (`.py`, `.pyi`, `.ipynb`, a list of requirements), or a folder that is searched for them
    --check         changes nothing; exits with 1 if something would change
    --diff          changes nothing; prints what would change
    --jax-names     also rewrites names and arguments that JAX, NumPy, optax and chex have removed

It exits with 0 if it succeeds, with 1 if `--check` finds something to change, and with 2 if it could not start, or
could not read or write a file. A file that is not valid Python is listed and left unchanged. In folders, symbolic
links, hidden folders (`.git`, `.venv`), virtual environments and `node_modules` are skipped.
"""
