"""The model of docs/scale.md: from what was measured and is assumed, with nothing typed."""

from dataclasses import replace
from pathlib import Path

import pytest

from app.nodes import MOST_GROUPS
from app.settings import load_settings
from bench import result, row_sizes, scale_page
from bench.errors import BadUse
from bench.plan import QUICK, Kind
from bench.row_sizes import RowSizes
from bench.scale import Assumptions, Cost, Measured, measured, step
from bench.scale_page import BENCH, PAGE, ROWS, model, with_model
from tests.services import ROOT_KEY

KNOWN = Measured(
    grouped=Cost(service_us=500, database_us=250),
    single=Cost(service_us=1000, database_us=500),
    single_by="itself",
    statements_per_second=None,
    process_mb=100,
    rows=RowSizes("", "", {}, {"device_registration_locks": 50, "devices": 100, "events": 200}),
)
ASSUMED = Assumptions(peak_factor=5, page_fill=0.5, bytes_of_text=0, utilization=0.5, years_kept=1)


def test_the_page_has_the_model_as_it_comes_of_what_is_kept() -> None:
    page = PAGE.read_text()
    assert with_model(page, model()) == page


def test_it_counts_the_connections_that_a_process_opens() -> None:
    settings = load_settings(database_url="mysql+pymysql://a:b@c/d", root_key=ROOT_KEY)
    assert (Assumptions().pool_size, Assumptions().pool_of_groups) == (
        settings.database_pool_size,
        MOST_GROUPS,
    )


def test_what_one_primary_can_bear_stays_on_one() -> None:
    """1,728,000 users make 6 calls a day, 120 a second in the mean and 600 at the peak."""
    found = step(1_728_000, KNOWN, ASSUMED)
    assert (found.calls_per_second, found.shards) == (600, 1)
    assert found.processes == 2  # 600 calls of 500 µs take 0.6 at half load
    assert found.connections == 2 * (10 + 4 + 1) + 2 * 10
    assert found.limits["writes"] == pytest.approx(500 / 5000)
    assert found.limits["processors"] == pytest.approx(600 * 250e-6 / 0.5 / 32)
    assert found.disk_gb == pytest.approx(1.728e6 / 0.5 * (50 + 3 * 100 + 4 * 200) / 1e9)
    assert found.pool_gb == pytest.approx(1.728e6 / 0.5 * (50 + 3 * 100 + 0.1 * 4 * 200) / 1e9)
    assert found.nearest_limit == "writes"


def test_what_it_cannot_bear_goes_to_a_power_of_two_of_them_with_a_transaction_for_each_call() -> None:
    found = step(30_000_000, KNOWN, ASSUMED)
    writes = 30e6 * 5 / 86400 * 5
    assert found.limits["writes"] == pytest.approx(writes / 5000)
    assert (1 < writes / 5000 <= 2, found.shards) == (True, 2)
    assert found.processes == 21  # 10,417 calls of 1 ms take 20.8 at half load
    assert found.connections == 21 * (10 + 1) + 2 * 10
    assert step(40_000_000, KNOWN, ASSUMED).shards == 4


def test_connections_alone_ask_for_no_second_primary() -> None:
    found = step(1_728_000, KNOWN, replace(ASSUMED, primary_connections=10))
    assert (found.nearest_limit, found.shards) == ("connections", 1)


def test_more_users_never_take_less() -> None:
    dollars = [step(10**power, KNOWN, Assumptions()).dollars for power in range(4, 10)]
    assert dollars == sorted(dollars)


def test_a_run_that_failed_is_no_measure() -> None:
    kept = result.read(BENCH)
    kept.samples = [replace(one, failure="broken") for one in kept.samples]
    with pytest.raises(BadUse, match="no valid run"):
        measured(kept, row_sizes.read(ROWS))


def test_a_file_without_sizes_is_refused(tmp_path: Path) -> None:
    (tmp_path / "rows.json").write_text("{}")
    with pytest.raises(BadUse, match="no sizes of rows"):
        row_sizes.read(tmp_path / "rows.json")


def test_a_page_with_no_place_for_the_model_is_left_alone() -> None:
    with pytest.raises(ValueError, match="no lines"):
        with_model(f"# Scale\n{scale_page.BEGIN}", "a table\n")


def test_rows_are_measured_on_a_database_that_is_filled(pytestconfig: pytest.Config) -> None:
    kind: Kind = "mysql" if pytestconfig.getoption("--server") == "mysql" else "mariadb"
    plan = replace(QUICK, filled_users=6_000, filled_devices=20_000, buffer_pool="128M", server=kind)
    found = row_sizes.measure(plan, "today")
    assert found.rows == {"device_registration_locks": 6_000, "devices": 20_000, "events": 20_000}
    assert all(30 < size < 2_000 for size in found.bytes_per_row.values())
