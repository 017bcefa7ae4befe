"""Cupo beside what its users would have instead, under one load, in turn, on one database server.

Nothing here imports the service: it runs `cupo` as a command, as it runs the peers. Servers and processes are
started as the tests start theirs.
"""
