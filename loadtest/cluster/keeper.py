"""`python -m loadtest.cluster.keeper FOLDER`: removes the cluster there once its standard input ends."""

import sys
from pathlib import Path

from loadtest.cluster.clusters import open_cluster

if __name__ == "__main__":
    sys.stdin.read()
    open_cluster(Path(sys.argv[1])).down()
