"""Helpers of the core that know nothing of frames, modules or transforms, and that its readers can skip."""
