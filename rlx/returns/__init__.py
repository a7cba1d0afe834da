"""Multi-step returns, advantage estimates and importance-corrected errors."""
