"""Every series that Prometheus may scrape, each declared once. A leaf: whoever counts imports this.

Durations are in seconds. No label holds an id of a user, a device or a request: each has few values. Those
that are known beforehand are there at 0 from the start, so that a rate over them is right at once.

With several serving processes the values lie in files that all of them read (`PROMETHEUS_MULTIPROC_DIR`, see
docs/decisions/0018-metrics-of-several-processes.md). A gauge is then summed over the processes that live.
"""

from typing import Literal

from prometheus_client import Counter, Gauge, Histogram, disable_created_metrics

from app import __version__

# They would be a second series beside each counter and histogram, which nobody asks for.
disable_created_metrics()  # type: ignore[no-untyped-call] # not in its types

# OpenTelemetry's advice for http.server.request.duration.
REQUEST_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10)
LOCK_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
LAG_BUCKETS = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600, 21_600, 86_400)

RegistrationOutcome = Literal["created", "known", "refused", "churn", "blocked", "evicted", "replaced"]

BUILD = Gauge("cupo_build_info", "Always 1; version is what runs.", ["version"], multiprocess_mode="livemax")

# Requests

REQUEST_SECONDS = Histogram(
    "cupo_http_request_duration_seconds",
    "From the first byte of a request to the last of its answer. route is the template, or unknown; code is "
    "the problem's, or none.",
    ["route", "method", "status", "code"],
    buckets=REQUEST_BUCKETS,
)
REQUESTS_IN_PROGRESS = Gauge(
    "cupo_http_requests_in_progress", "Requests that have no answer yet.", multiprocess_mode="livesum"
)
READY = Gauge(
    "cupo_ready",
    "What /readyz said last: 1 ready, 0 not; 0 too before it was first asked.",
    multiprocess_mode="livemostrecent",
)
REGISTRATIONS = Counter(
    "cupo_registrations_total",
    "Registrations by outcome, once that is final. created, evicted (others made room) and replaced are 201, "
    "known is 200; refused is the limit's 409, churn 429, blocked 403.",
    ["outcome"],
)

# Groups of registrations

GROUP_SIZE = Histogram(
    "cupo_registration_group_size",
    "Registrations that went to the database together; one that went alone is not counted.",
    buckets=(2, 4, 8, 16, 32, 64, 128, 256, 512, 1024),
)
GROUP_LEFT = Counter(
    "cupo_registration_group_left_total",
    "Registrations of a group that were decided alone after all: their user was locked by another call, they "
    "needed more than a group decides, or the group's run failed.",
)

# Transactions

LOCK_WAIT_SECONDS = Histogram(
    "cupo_lock_wait_seconds",
    "How long the statement took that asks for a user's lock, whether it got the lock or not.",
    buckets=LOCK_BUCKETS,
)
CRITICAL_SECTION_SECONDS = Histogram(
    "cupo_critical_section_seconds",
    "How long a user's lock was held: from having it to the end of COMMIT or ROLLBACK.",
    buckets=LOCK_BUCKETS,
)
TRANSACTIONS = Counter(
    "cupo_transactions_total",
    "Transactions by outcome, runs again not counted: committed; rolled_back by a refusal such as a 409; "
    "given_up with a 503; failed by a fault of the service. A group of registrations is one or two, and its "
    "refusals roll nothing back.",
    ["outcome"],
)
DATABASE_ERRORS = Counter(
    "cupo_database_errors_total",
    "Failed runs of transactions by what failed. other is what passes by itself and is none of the rest; "
    "unfit is a database that lacks tables, rights or space.",
    ["kind"],
)
RETRIES = Counter("cupo_transaction_retries_total", "Runs of transactions after the first.")
RETRIES_USED_UP = Counter(
    "cupo_transaction_retries_used_up_total",
    "Transactions given up because the runs or the time for them were used up.",
)
UNKNOWN_COMMITS = Counter(
    "cupo_unknown_commits_total",
    "COMMITs that failed, so that they had happened or not: resolved by running again, or unresolved, a 503. "
    "Of a group's, each registration counts.",
    ["outcome"],
)

# The pool: connections and the threads that use them, of each process

POOL_SIZE = Gauge(
    "cupo_database_pool_size", "Database connections that there may be.", multiprocess_mode="livesum"
)
POOL_IN_USE = Gauge(
    "cupo_database_pool_in_use", "Database connections that a transaction has.", multiprocess_mode="livesum"
)
POOL_WAITING = Gauge(
    "cupo_database_pool_waiting", "Calls that wait for a database connection.", multiprocess_mode="livesum"
)
POOL_TIMEOUTS = Counter(
    "cupo_database_pool_timeouts_total", "Calls that got no database connection in time, a 503 overloaded."
)
THREADS_IN_USE = Gauge(
    "cupo_database_threads_in_use",
    "Threads that carry out a call's transaction.",
    multiprocess_mode="livesum",
)

NODE_UP = Gauge(
    "cupo_database_node_up",
    "Whether calls are led to a node of CUPO_DATABASE_HOSTS: 1, or 0 while it is taken out, in any process.",
    ["node"],
    multiprocess_mode="livemin",
)

# The worker

SWEEPS = Counter(
    "cupo_sweeps_total", "Passes over what has run out: done, or failed by the database.", ["outcome"]
)
SWEEP_SECONDS = Histogram(
    "cupo_sweep_duration_seconds", "How long a pass took.", buckets=(0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60)
)
SWEPT = Counter(
    "cupo_swept_total",
    "What passes removed: devices past their lease, answers and deliveries past their time.",
    ["what"],
)
SWEEP_USERS_LEFT_OUT = Counter(
    "cupo_sweep_users_left_out_total", "Users that a pass left for the next one: their lock was held."
)
LAST_SWEEP = Gauge(
    "cupo_sweep_last_success_timestamp_seconds",
    "When a pass last ended well, in Unix time; 0: not yet.",
    multiprocess_mode="livemax",
)

AUDIT_USERS_ABOVE_LIMIT = Gauge(
    "cupo_audit_users_above_limit",
    "Users above their limit as the worker last counted them. passed and untold should not be; lowered (the "
    "limit was) and imported (by --over-limit keep) may be.",
    ["cause"],
    multiprocess_mode="livemax",
)
LAST_AUDIT = Gauge(
    "cupo_audit_last_success_timestamp_seconds",
    "When the worker last counted users above their limit, in Unix time; 0: not yet.",
    multiprocess_mode="livemax",
)

# The outbox and its webhooks

OUTBOX_OLDEST_SECONDS = Gauge(
    "cupo_outbox_oldest_undelivered_age_seconds",
    "For how long the oldest event has waited for an endpoint that is served; 0: none does.",
    multiprocess_mode="livemax",
)
OUTBOX_LAG_SECONDS = Histogram(
    "cupo_outbox_lag_seconds",
    "From an event to the claim of its delivery that succeeded, and that attempt.",
    buckets=LAG_BUCKETS,
)
WEBHOOK_DELIVERIES = Counter(
    "cupo_webhook_deliveries_total",
    "Attempts to deliver by outcome: succeeded, failed (there will be another), given_up (it was the last).",
    ["outcome"],
)
WEBHOOK_ATTEMPT_SECONDS = Histogram(
    "cupo_webhook_attempt_duration_seconds",
    "How long the receiver of a delivery took to answer, or the attempt to fail.",
    buckets=REQUEST_BUCKETS,
)

# Logs

LOG_LINES_DROPPED = Counter(
    "cupo_log_lines_dropped_total", "Log lines lost because what takes them was too slow, or gone."
)

OUTCOMES: dict[Counter, tuple[str, ...]] = {
    REGISTRATIONS: ("created", "known", "refused", "churn", "blocked", "evicted", "replaced"),
    TRANSACTIONS: ("committed", "rolled_back", "given_up", "failed"),
    DATABASE_ERRORS: (
        "deadlock",
        "lock_timeout",
        "lost_connection",
        "too_many_connections",
        "unfit",
        "other",
    ),
    UNKNOWN_COMMITS: ("resolved", "unresolved"),
    SWEEPS: ("done", "failed"),
    SWEPT: ("devices", "answers", "deliveries"),
    WEBHOOK_DELIVERIES: ("succeeded", "failed", "given_up"),
}
for _counter, _values in OUTCOMES.items():
    for _value in _values:
        _counter.labels(_value)
BUILD.labels(__version__).set(1)
