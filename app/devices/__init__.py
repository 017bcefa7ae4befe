"""A user's devices: register, list, read, revoke."""
