"""What is told of an error of the database: its number and words of ours, never its own text.

That names hosts and accounts, and `/readyz` answers anybody.
"""

from sqlalchemy.exc import SQLAlchemyError

from app.failures import tls_refusal

_WORDS = {
    1045: "access denied",
    1047: "not in the cluster",
    1049: "unknown database",
    1290: "read-only",
    2003: "cannot connect",
}


def reason_of(error: SQLAlchemyError) -> str:
    original = getattr(error, "orig", None)
    number = original.args[0] if original is not None and original.args else type(error).__name__
    if not isinstance(number, int):
        return str(number)
    distrust = tls_refusal(original)
    words = f"TLS: {distrust}" if distrust else _WORDS.get(number)
    return f"error {number}, {words}" if words else f"error {number}"
