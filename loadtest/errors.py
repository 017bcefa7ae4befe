"""What ends a run before it can say anything about the service."""


class BadUse(Exception):
    """The run cannot begin, or cannot be judged, as asked: told in one line, exit status 2."""
