"""The strategy lab: every way to guard the limit under the same load, straight on the database.

`python -m loadtest compare --database-url mysql+pymysql://…` makes a database of its own, lets many callers
loose on one user after another, audits the rows with SQL, and says of each strategy whether it behaved as
it had to.
"""
