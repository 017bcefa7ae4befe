"""What the checks of several nodes come to: one node that is fit will do, if all that are belong together."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from app.ops.checks import CLUSTER, Check, all_hold
from app.settings import Settings

# What fails of a node that is away or set aside. Another one does its work; any other fault is one to mend.
OF_ABSENCE = frozenset({"reachable", "fit"})


def together(looks: list[list[Check]], settings: Settings) -> list[Check]:
    """For `/readyz`: the checks of the best node, and one for each by its place among the hosts."""
    if len(looks) == 1:
        return looks[0]
    fit = [checks for checks in looks if all_hold(checks)]
    best = max(looks, key=lambda checks: sum(check.ok for check in checks))
    shown = [check for check in best if check.name != CLUSTER]
    nodes = [_summary(number, checks) for number, checks in enumerate(looks, 1)]
    return [*shown, *nodes, _one_cluster(fit, settings)]


def of_each(looks: Mapping[str, list[Check]], settings: Settings) -> list[Check]:
    """For `cupo doctor`: all checks of all nodes. One that is away is a warning while another is fit."""
    if len(looks) == 1:
        return next(iter(looks.values()))
    fit = [checks for checks in looks.values() if all_hold(checks)]
    told = [
        replace(
            check,
            name=f"{node}: {check.name}",
            is_required=check.is_required and not (fit and check.name in OF_ABSENCE),
        )
        for node, checks in looks.items()
        for check in checks
    ]
    return [*told, _one_cluster(fit, settings)]


def _summary(number: int, checks: list[Check]) -> Check:
    failed = next((check for check in checks if check.status == "fail"), None)
    found = f"{failed.name}: {failed.found}" if failed else "fit"
    return Check(f"node {number}", ok=failed is None, found=found, wanted="fit", is_required=False)


def _one_cluster(fit: Iterable[list[Check]], settings: Settings) -> Check:
    """Servers that are not of one cluster would each count their own devices, and let the limit be passed."""
    names = [check.found for checks in fit for check in checks if check.name == CLUSTER]
    are_strangers = len(set(names)) > 1 or (len(names) > 1 and names[0] == "none")
    is_vouched_for = settings.multi_writer == "on" and set(names) == {"none"}
    found = f"{len(names)} servers that do not replicate to each other" if are_strangers else "one"
    return Check("one cluster", ok=not are_strangers or is_vouched_for, found=found, wanted="one")
