"""Conversion to and from other libraries; each module is imported on first use."""
