"""The folder that `hkx.run` puts on PYTHONPATH: Python imports the `sitecustomize` in it when it starts."""
