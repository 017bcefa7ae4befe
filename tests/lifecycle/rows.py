"""What the tests put into the tables, or change there, behind the service's back."""

from sqlalchemy import Engine, insert, text

from app.tables import devices


def put_devices(
    auditor: Engine, user_id: int, device_ids: list[str], lease_seconds: int | None = None
) -> None:
    """Devices that came from elsewhere: they are there, and no event or lock row is."""
    row = {"user_id": user_id, "lease_seconds": lease_seconds, "revision": 1}
    with auditor.connect() as connection:
        now = connection.exec_driver_sql("SELECT UTC_TIMESTAMP(6)").scalar_one()
        row |= {
            "registered_at": now,
            "last_seen_at": now,
            "expires_at": None if lease_seconds is None else now,
        }
        connection.execute(insert(devices), [row | {"device_id": device_id} for device_id in device_ids])


def put_own_limit(auditor: Engine, user_id: int, limit: int) -> None:
    run(
        auditor,
        "INSERT INTO user_quotas (user_id, device_limit, revision) VALUES (:user, :limit, 1)",
        user=user_id,
        limit=limit,
    )


def let_lease_end(auditor: Engine, user_id: int, device_id: str, ago_seconds: int = 1) -> None:
    run(
        auditor,
        "UPDATE devices SET lease_seconds = COALESCE(lease_seconds, 7200),"
        " expires_at = UTC_TIMESTAMP(6) - INTERVAL :ago SECOND WHERE user_id = :user AND device_id = :device",
        user=user_id,
        device=device_id,
        ago=ago_seconds,
    )


def run(auditor: Engine, statement: str, **parameters: object) -> int:
    """Carry the statement out, and say how many rows it found."""
    with auditor.connect() as connection:
        return connection.execute(text(statement), parameters).rowcount
