"""Losses of sequence policies: group-relative advantages, token and sequence ratios, and preferences."""
