"""API keys: who else may call, until when, and what for."""
