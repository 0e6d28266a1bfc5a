"""What the journal and the admin plane tell a search for root causes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from mileage.cli import doctor_rca_admin
from mileage.cli.doctor_rca_admin import admin_record
from mileage.cli.doctor_rca_journal import journal_events
from mileage.core.errors import ConfigError
from mileage.core.events import ConfigChanged
from mileage.storage.journal_writer import JournalWriter
from mileage.wire.fetch import FetchResponse
from tests.support.journals import header

BEGAN_S = 1_700_000_000.0


def journal(directory: Path, began_s: float, config: str, *changes: tuple[float, str]) -> None:
    """One run of a worker, with configurations so many seconds after its start."""
    writer = JournalWriter(
        directory,
        header(config=config, began_s=100.0),
        segment_bytes_max=1 << 16,
        bytes_max=1 << 24,
        clock=lambda: 100.0,
        utc_ns=lambda: round(began_s * 1e9),
    )
    writer.start(lambda: b"")
    for version, (after_s, settings) in enumerate(changes, start=2):
        writer.handled(100.0 + after_s, ConfigChanged(version, settings), ())
    writer.close()


def test_configurations_of_a_journal_come_with_time_version_and_keys(tmp_path: Path) -> None:
    journal(tmp_path, BEGAN_S, '{"a":{"b":1}}', (60.0, '{"a":{"b":2}}'), (90.0, '{"a":{"b":3}}'))
    events, notes = journal_events(tmp_path, BEGAN_S)
    assert [(each.kind, each.version, round(each.at_utc_s - BEGAN_S)) for each in events] == [
        ("config", 2, 60),
        ("config", 3, 90),
    ]
    assert (events[0].detail, notes) == ("a.b changed", [])


@pytest.mark.parametrize(
    ("config", "kind"),
    [
        pytest.param('{"a":1}', "restart", id="as it was"),
        pytest.param('{"a":2}', "config", id="with another configuration"),
    ],
)
def test_a_start_of_the_gateway_is_an_event(tmp_path: Path, config: str, kind: str) -> None:
    journal(tmp_path, BEGAN_S, '{"a":1}')
    journal(tmp_path, BEGAN_S + 500, config)
    events, _ = journal_events(tmp_path, BEGAN_S)
    assert [(each.kind, each.at_utc_s - BEGAN_S) for each in events] == [(kind, 500.0)]


def test_without_a_journal_and_before_the_time_there_are_no_events(tmp_path: Path) -> None:
    assert journal_events(tmp_path / "none", 0.0) == ([], [])
    journal(tmp_path, BEGAN_S, "{}", (60.0, '{"a":1}'))
    assert journal_events(tmp_path, BEGAN_S + 61.0) == ([], [])


def test_a_damaged_journal_is_told(tmp_path: Path) -> None:
    journal(tmp_path, BEGAN_S, "{}")
    (file,) = tmp_path.rglob("*.mjl")
    file.write_bytes(b"no journal at all, and long enough to be one")
    events, notes = journal_events(tmp_path, 0.0)
    assert (events, len(notes)) == ([], 1)


def answering(monkeypatch: pytest.MonkeyPatch, status: int, document: Any) -> None:
    """The admin plane answers this."""
    answer = FetchResponse(status, (), msgspec.json.encode(document))
    monkeypatch.setattr(doctor_rca_admin, "call_admin", lambda *_, **__: answer)


def test_the_state_of_a_gateway_tells_its_configuration_and_hosts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    state = {
        "version": "1",
        "started_utc_s": 10.0,
        "config": {"version": 4, "since_utc_s": 20.0},
        "replicas": [{"name": "a", "url": "http://h1:8000"}, {"name": "b", "url": None}],
    }
    answering(monkeypatch, 200, state)
    record = admin_record("http://admin", None)
    assert [(each.kind, each.at_utc_s, each.version) for each in record.events] == [
        ("restart", 10.0, None),
        ("config", 20.0, 4),
    ]
    assert record.links == (("replica:a", "host:h1"),)


@pytest.mark.parametrize(("status", "document"), [(401, {"error": {}}), (200, [1])])
def test_an_answer_that_is_none_is_named(
    monkeypatch: pytest.MonkeyPatch, status: int, document: Any
) -> None:
    answering(monkeypatch, status, document)
    with pytest.raises(ConfigError, match="--admin-url"):
        admin_record("http://admin", None)
