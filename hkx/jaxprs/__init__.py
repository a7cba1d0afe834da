"""Analysis of JAX's traces, and of the programs (jaxprs) that they record."""
