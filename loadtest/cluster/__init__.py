"""Real clusters of three nodes on one machine: Galera, and Group Replication with one primary or with three.

    with start("galera", folder) as cluster:
        cluster.nodes[0].kill()
        cluster.partition(2, one_way="in")

Each node is a server in a network namespace of its own, so it takes root. The service reaches all of them
from this machine as usual, also one that is cut off from the other two.
"""

from loadtest.cluster.clusters import Cluster, Kind, open_cluster, start
from loadtest.cluster.network import ClusterError, NoNamespaces, NotInstalled, OneWay
from loadtest.cluster.nodes import Health, Node

__all__ = [
    "Cluster",
    "ClusterError",
    "Health",
    "Kind",
    "NoNamespaces",
    "Node",
    "NotInstalled",
    "OneWay",
    "open_cluster",
    "start",
]
