"""Losses for policies."""
