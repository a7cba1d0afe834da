"""Temporal-difference errors and losses for values, action values and their distributions."""
