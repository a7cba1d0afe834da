"""Side-by-side timings against the peers: `python -m benchmarks`."""
