"""What agents need beside values and policies: normalisation, exploration, memory, auxiliary tasks."""
