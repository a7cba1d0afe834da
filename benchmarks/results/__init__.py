"""Results that docs/results.md shows: each table is a command that anyone can repeat."""
