"""Tools to inspect models, and to change them without editing their code."""
