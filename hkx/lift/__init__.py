"""JAX transforms and control flow for use inside a transformed function."""
