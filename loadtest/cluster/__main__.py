"""`python -m loadtest.cluster`, as `scripts/cluster` runs it."""

from loadtest.cluster.command import app

app(prog_name="scripts/cluster")
