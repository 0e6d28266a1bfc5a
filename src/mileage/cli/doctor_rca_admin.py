"""What an admin plane tells a search for root causes: figures, configuration, replicas, hosts."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

import msgspec

from mileage.cli.admin_call import admin_error, call_admin
from mileage.core.errors import ConfigError
from mileage.doctor.rca.events import Event
from mileage.doctor.rca.topology import GATEWAY

__all__ = ["AdminRecord", "admin_record", "admin_series"]

_OK: Final = 200


class AdminRecord(NamedTuple):
    """Events that the state tells of, and which replica is on which host."""

    events: tuple[Event, ...]
    links: tuple[tuple[str, str], ...]


def admin_series(url: str, token_file: Path | None, window_s: int) -> bytes:
    """The figures of the last `window_s` seconds, as JSON. Raises FetchError, and ConfigError where
    the answer is none."""
    return _get(url, f"/api/v1/series?window_s={window_s}", token_file)


def admin_record(url: str, token_file: Path | None) -> AdminRecord:
    """What the state tells. Raises FetchError, and ConfigError where the answer is none."""
    try:
        state = msgspec.json.decode(_get(url, "/api/v1/status", token_file), type=dict[str, Any])
    except msgspec.DecodeError:
        raise ConfigError("--admin-url", url, "the admin plane of a Mileage gateway") from None
    return AdminRecord(tuple(_events(state)), tuple(_links(state)))


def _get(url: str, path: str, token_file: Path | None) -> bytes:
    answer = call_admin(url, path, token_file, method="GET")
    if answer.status != _OK:
        raise ConfigError("--admin-url", url, f"an answer: {admin_error(answer).message}")
    return answer.body


def _events(state: dict[str, Any]) -> list[Event]:
    found = []
    started, config = state.get("started_utc_s"), state.get("config")
    if isinstance(started, int | float):
        version = state.get("version", "")
        detail = f"the gateway was started, version {version}"
        found.append(Event(at_utc_s=started, kind="restart", node=GATEWAY, detail=detail))
    if isinstance(config, dict):
        number, since = config.get("version"), config.get("since_utc_s")
        # The first version is the start itself.
        if isinstance(number, int) and number > 1 and isinstance(since, int | float):
            detail = f"version {number} came into force"
            found.append(
                Event(at_utc_s=since, kind="config", node=GATEWAY, detail=detail, version=number)
            )
    return found


def _links(state: dict[str, Any]) -> list[tuple[str, str]]:
    found = []
    for row in state.get("replicas") or ():
        url = row.get("url")
        try:
            host = urlsplit(url).hostname if isinstance(url, str) else None
        except ValueError:
            host = None
        if host:
            found.append((f"replica:{row.get('name')}", f"host:{host}"))
    return found
