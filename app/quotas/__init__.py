"""How many devices a user may have and has, and the lock that keeps the count true."""
