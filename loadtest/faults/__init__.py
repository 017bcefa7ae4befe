"""Load on several replicas while faults are worked on them and on their database, and every history checked.

A run starts all of it itself, in a folder of its own, and ends it: the database (one server, or a cluster),
the replicas (`cupo serve` as a command), the clients. Every call is kept as an operation of its user; at the
end `loadtest.linearizability` says whether any order of the calls explains their answers and the rows that
are left.
"""
