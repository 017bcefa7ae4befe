"""What the service says when it is asked outside the measured run: before it, and by the auditor after it."""

import contextlib
import dataclasses
import time
from collections.abc import Iterator
from typing import Any

import httpx

from loadtest.client import Access

PAGE = 100
PAUSE_SECONDS = 1.0


class NoAnswer(Exception):
    """The service did not answer as the contract says; the text says what it did, in one line."""


@dataclasses.dataclass(frozen=True)
class Quota:
    limit: int
    used: int
    remaining: int


class Service:
    """One target. Usable from several threads at once."""

    def __init__(self, target: str, access: Access) -> None:
        self.target = target.rstrip("/")
        self.tries = 1
        self._client = httpx.Client(
            headers={"Authorization": f"Bearer {access.key}", "User-Agent": "cupo-loadtest"},
            timeout=min(access.timeout_seconds, 10.0),
            trust_env=False,  # what the run itself does not use, the auditor must not either
        )

    def close(self) -> None:
        self._client.close()

    def quota(self, user: int) -> Quota:
        return _quota(self._json("GET", f"/v1/users/{user}/quota"))

    def devices(self, user: int) -> tuple[list[str], Quota]:
        """All pages of the list, and the quota that the last one carries."""
        devices: list[str] = []
        params: dict[str, str] = {"limit": str(PAGE)}
        while True:
            page = self._json("GET", f"/v1/users/{user}/devices", params=params)
            with _as_the_contract_says("a list of devices"):
                devices += [str(item["device_id"]) for item in page["items"]]
                cursor, quota = page["next_cursor"], _quota(page["quota"])
            if not cursor:
                return devices, quota
            params["cursor"] = str(cursor)

    def register(self, user: int, device: str) -> int:
        """Returns the status."""
        return self._ask("POST", f"/v1/users/{user}/devices", json={"device_id": device}).status_code

    def revoke(self, user: int, device: str) -> int:
        """Returns the status."""
        return self._ask("DELETE", f"/v1/users/{user}/devices/{device}").status_code

    def version(self) -> str:
        """As its OpenAPI document says; empty where there is none to be had."""
        try:
            return str(self._json("GET", "/openapi.json")["info"]["version"])
        except (NoAnswer, KeyError, TypeError):
            return ""

    def _json(self, method: str, path: str, **options: Any) -> Any:
        response = self._ask(method, path, **options)
        with _as_the_contract_says(f"{method} {path}"):
            return response.json()

    def _ask(self, method: str, path: str, **options: Any) -> httpx.Response:
        for _ in range(self.tries - 1):
            with contextlib.suppress(NoAnswer):
                return self._ask_once(method, path, **options)
            time.sleep(PAUSE_SECONDS)
        return self._ask_once(method, path, **options)

    def _ask_once(self, method: str, path: str, **options: Any) -> httpx.Response:
        try:
            response = self._client.request(method, self.target + path, **options)
        except httpx.TransportError as error:
            raise NoAnswer(f"no answer from {self.target}: {error or type(error).__name__}") from error
        if response.status_code in (401, 403):
            raise NoAnswer(
                f"{self.target} refuses the key ({response.status_code}): give --key or CUPO_ROOT_KEY"
            )
        if response.status_code >= 500 or (method == "GET" and response.status_code != 200):
            raise NoAnswer(f"{self.target}: {method} {path} answered {response.status_code}")
        return response


@contextlib.contextmanager
def _as_the_contract_says(what: str) -> Iterator[None]:
    try:
        yield
    except (ValueError, KeyError, TypeError) as error:
        raise NoAnswer(f"{what} is not what the contract says: {error}") from error


def _quota(answer: Any) -> Quota:
    with _as_the_contract_says("a quota"):
        return Quota(int(answer["limit"]), int(answer["used"]), int(answer["remaining"]))
