"""How `init` creates values without running the forward pass."""
