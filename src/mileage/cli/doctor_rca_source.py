"""Where `mileage doctor rca` has its history from: the ledger, a file, or an admin plane."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Final

import msgspec

from mileage.cli.config import load_config
from mileage.cli.doctor_rca_admin import AdminRecord, admin_record, admin_series
from mileage.cli.doctor_rca_arguments import RcaArguments
from mileage.cli.doctor_rca_ledger import Searched, ledger_history
from mileage.cli.ledger_place import ledger_place
from mileage.cli.since import since_utc_ns
from mileage.core.errors import ConfigError
from mileage.doctor.rca.history_document import decode_history
from mileage.doctor.rca.series import History

__all__ = ["gathered_history"]

_NS: Final = 1_000_000_000
_DAY_S: Final = 86_400.0
_FILE_BYTES_MAX: Final = 256 * 1024 * 1024


def gathered_history(arguments: RcaArguments) -> History:
    """The history. ConfigError for options that contradict, LedgerError and FetchError where the
    record cannot be read."""
    if arguments.series is not None:
        if arguments.ledger is not None or arguments.admin_url is not None:
            raise ConfigError("--series", str(arguments.series), "no --ledger and no --admin-url")
        return _of_file(arguments.series)
    times = _searched(arguments, time.time_ns())
    admin: AdminRecord | None = None
    if arguments.admin_url is not None:
        admin = admin_record(arguments.admin_url, arguments.admin_token_file)
        if arguments.ledger is None:
            return _of_admin(arguments, admin, times)
    config = load_config(arguments.config, {})
    place = ledger_place(
        config.ledger,
        arguments.ledger,
        expected="a directory with a ledger of mileage serve, or --series, or --admin-url",
    )
    return ledger_history(place, config, times, admin)


def _searched(arguments: RcaArguments, now_utc_ns: int) -> Searched:
    until_ns = now_utc_ns
    if arguments.until is not None:
        until_ns = _moment("--until", arguments.until, now_utc_ns)
    # A length reaches back from --until, so that an hour of last week can be named.
    since_ns = since_utc_ns(arguments.since, until_ns)
    if since_ns >= until_ns:
        raise ConfigError("--since", arguments.since, "a time before --until and before now")
    before_ns = _moment("--history", arguments.history, since_ns)
    if before_ns > since_ns:
        raise ConfigError("--history", arguments.history, "a length such as 7d")
    return Searched(before_ns / _NS, since_ns / _NS, until_ns / _NS)


def _moment(key: str, text: str, now_utc_ns: int) -> int:
    try:
        return since_utc_ns(text, now_utc_ns)
    except ConfigError as error:
        raise error.named(key) from None


def _of_file(path: Path) -> History:
    try:
        if str(path) == "-":
            data = sys.stdin.buffer.read(_FILE_BYTES_MAX + 1)
        else:
            with path.open("rb") as file:
                data = file.read(_FILE_BYTES_MAX + 1)
    except OSError as error:
        expected = f"a readable file with a history ({error.strerror})"
        raise ConfigError("--series", str(path), expected) from None
    if len(data) > _FILE_BYTES_MAX:
        raise ConfigError("--series", str(path), f"at most {_FILE_BYTES_MAX} bytes")
    return decode_history(data)


def _of_admin(arguments: RcaArguments, admin: AdminRecord, times: Searched) -> History:
    assert arguments.admin_url is not None
    window_s = min(_DAY_S, max(60.0, time.time() - times.before_utc_s))
    history = decode_history(
        admin_series(arguments.admin_url, arguments.admin_token_file, int(window_s)),
        key="--admin-url",
    )
    since = max(times.since_utc_s, history.start_utc_s)
    points = int((times.until_utc_s - history.start_utc_s) / history.step_s) + 1
    series = [
        msgspec.structs.replace(each, values=each.values[: max(0, points)])
        for each in history.series
    ]
    return msgspec.structs.replace(
        history,
        series=tuple(series),
        since_utc_s=since,
        events=admin.events,
        links=admin.links,
    )
