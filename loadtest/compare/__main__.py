"""`python -m loadtest.compare`: the same as `python -m loadtest compare`."""

import typer

from loadtest.compare.command import compare

if __name__ == "__main__":
    typer.run(compare)
