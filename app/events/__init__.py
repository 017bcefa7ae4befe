"""What happened, written in the transaction in which it happened: the audit trail, and the outbox."""
