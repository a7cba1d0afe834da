"""Recurrent cores and the functions that unroll them."""
