"""The same answer to the same call: Idempotency-Key."""
