"""What ends a run before it has measured anything."""


class BadUse(Exception):
    """The run cannot begin as asked: told in one line, exit status 2."""


class NotRun(Exception):
    """A contestant cannot be had on this machine or in this version: its rows are left out, and say why."""
