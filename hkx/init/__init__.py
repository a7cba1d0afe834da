"""How `init` makes values without a forward pass."""
