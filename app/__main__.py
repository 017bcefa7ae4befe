"""The way in, for `cupo` and for `python -m app`."""

import signal


def main() -> None:
    """Import the commands and run one.

    What they import takes seconds. Ctrl-C ends the process without a word meanwhile, and later where a
    command does not say otherwise; Python's own handler would show the import that it came in.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # in the background it may be ignored
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from app.cli import main as cupo  # noqa: PLC0415 - only now

    cupo()


if __name__ == "__main__":
    main()
