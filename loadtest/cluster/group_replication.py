"""MySQL's Group Replication, with one primary or with each node as one."""

import contextlib
import dataclasses
from typing import Literal

from loadtest.cluster.network import NUMBERS
from loadtest.cluster.nodes import INNER, Health, Node
from loadtest.cluster.threads import stopped

Mode = Literal["single-primary", "multi-primary"]

GROUP_PORT = 33061
RECOVERY_USER = "cupo_recovery"
APPLIERS = "SELECT thread_os_id FROM performance_schema.threads WHERE name LIKE 'thread/sql/replica%'"


@dataclasses.dataclass(frozen=True)
class GroupReplication:
    mode: Mode
    group: str  # a UUID
    recovery_password: str = dataclasses.field(repr=False)

    def options(self, node: Node, *, first: bool) -> tuple[str, ...]:  # noqa: ARG002 - the same for each
        seeds = ",".join(f"{node.network.address(number)}:{GROUP_PORT}" for number in NUMBERS)
        several = self.mode == "multi-primary"
        return (
            f"--init-file={INNER}/accounts.sql",
            f"--server-id={node.number}",
            f"--report-host={node.host}",
            "--gtid-mode=ON",
            "--enforce-gtid-consistency=ON",
            "--log-bin=binlog",
            "--mysqlx=OFF",
            "--secure-file-priv=NULL",
            "--plugin-load-add=group_replication.so",
            f"--group-replication-group-name={self.group}",
            f"--group-replication-local-address={node.host}:{GROUP_PORT}",
            f"--group-replication-group-seeds={seeds}",
            f"--group-replication-ip-allowlist={node.network.subnet}",
            "--group-replication-start-on-boot=OFF",
            "--group-replication-recovery-get-public-key=ON",
            # A member that was expelled would answer reads while it tries to come back: offline, it does not.
            "--group-replication-autorejoin-tries=0",
            "--group-replication-exit-state-action=OFFLINE_MODE",
            f"--group-replication-single-primary-mode={'OFF' if several else 'ON'}",
            f"--group-replication-enforce-update-everywhere-checks={'ON' if several else 'OFF'}",
        )

    def join(self, node: Node, *, first: bool) -> None:
        if self.health(node).state in ("RECOVERING", "ONLINE"):
            return
        account = f"SOURCE_USER = '{RECOVERY_USER}', SOURCE_PASSWORD = '{self.recovery_password}'"
        node.run(
            "STOP GROUP_REPLICATION",  # one that was expelled, or failed to join, has to leave first
            f"CHANGE REPLICATION SOURCE TO {account} FOR CHANNEL 'group_replication_recovery'",
            f"SET GLOBAL group_replication_bootstrap_group = {'ON' if first else 'OFF'}",
            "START GROUP_REPLICATION",
            "SET GLOBAL group_replication_bootstrap_group = OFF",
            "SET GLOBAL offline_mode = OFF",
        )

    def health(self, node: Node) -> Health:
        members = node.look(
            "SELECT member_host, member_state FROM performance_schema.replication_group_members"
        )
        own = next((member for member in members if member[0] == node.host), None)
        if own is None or own[1] == "OFFLINE":
            return Health(is_running=True, state="OFFLINE")
        reached = [member for member in members if member[1] in ("ONLINE", "RECOVERING")]
        read_only = node.look("SELECT @@GLOBAL.super_read_only")[0][0]
        return Health(
            is_running=True,
            state=own[1],
            size=len(members),
            in_primary=2 * len(reached) > len(members) and own[1] in ("ONLINE", "RECOVERING"),
            takes_writes=not read_only,
        )

    def blocked_applier(self, node: Node) -> contextlib.AbstractContextManager[None]:
        """Its threads are stopped, and not the one that certifies; by SQL this channel cannot be stopped."""
        return stopped([int(row[0]) for row in node.look(APPLIERS)])
