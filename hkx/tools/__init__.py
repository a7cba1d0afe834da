"""Looking into models, and changing them from outside."""
