"""The core: frames, names, random keys, parameters, state, modules and `transform`.

Read the files in this order: settings, frame, guard, naming, hooks, rng, making, store, module, transform.
"""
