"""A user as a whole: erase all that is held."""
