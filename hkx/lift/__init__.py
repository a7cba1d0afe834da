"""JAX transforms and control flow that may be used inside a transformed function."""
