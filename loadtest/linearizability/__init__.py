"""Whether what clients were told of each user fits some order of their calls that respects time.

For whoever records a run:

    operations = [Operation(user=7, process="client 3", kind="register", sent=1.02, finished=1.05, device="a",
                            status=201, quota=Quota(used=1, limit=2)), …]
    write_operations(folder / OPERATIONS, operations)       # read again by `python -m loadtest check FOLDER`
    found = check(operations, limit=2)                      # the limit that each user has at the start

`found.violations` is one Violation for each user whose answers no order explains, `found.undecided` the users
for whom that could not be decided within the bound on work, which is no pass either. A Violation's `str()` is
several lines for people, `draw` makes an SVG of it, and `loadtest.page.histories` a page's section of both.

Each user begins with no device. Record every call, also those without an answer, and look at the rows once
more when the load has ended, as a last `list` of each user.
"""

from loadtest.linearizability.checking import Checked, check
from loadtest.linearizability.drawing import draw
from loadtest.linearizability.operation import (
    OPERATIONS,
    Kind,
    Operation,
    Quota,
    as_line,
    read_operations,
    write_operations,
)
from loadtest.linearizability.violation import Violation

__all__ = [
    "OPERATIONS",
    "Checked",
    "Kind",
    "Operation",
    "Quota",
    "Violation",
    "as_line",
    "check",
    "draw",
    "read_operations",
    "write_operations",
]
