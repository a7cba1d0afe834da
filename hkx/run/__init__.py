"""`python -m hkx.run [--jax-names [--report]] PROGRAM` runs a program for Haiku and RLax on hkx and rlx, unedited.

PROGRAM is what follows `python`: options, `FILE`, `-m MODULE`, `-c CODE`, a folder or zip file, or `-`, and arguments.

    python -m hkx.run train.py --steps 100
    python -m hkx.run -m pytest tests
    python -m hkx.run -W error -c "import haiku as hk; print(hk.Linear)"

`import haiku` and `import rlax`, in the program, in its libraries and in its child processes, import hkx and rlx,
whether or not dm-haiku and rlax are installed. Nothing is written to disk.

    --jax-names     restores names and arguments that JAX has removed and that have an equivalent, for this program
    --report        prints, when the program ends, which of them it used, by file and line, as a list of edits

It exits as the program does, or with 2 if there is no program to run.
"""
