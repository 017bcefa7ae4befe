"""A client of the service and an auditor with its own SQL: proves on any database that the limit holds.

Nothing here imports the service; what it says of the service it saw from outside.
"""
