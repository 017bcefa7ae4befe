"""Cupo registers devices per user under a limit, and never lets a user pass it."""

__version__ = "0.1.0"
