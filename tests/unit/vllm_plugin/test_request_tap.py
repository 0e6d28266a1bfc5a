"""What vLLM's stat loggers hear of ended requests is in the files: queue time and tokens."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from mileage.core.request_name import request_name
from mileage.ledger.engine_request import EngineRequest
from mileage.ledger.step_record import STEP_LENGTH
from mileage.storage.step_directory import begin_step_directory
from mileage.vllm_plugin import stat_logger
from mileage.vllm_plugin.record_channel import ChannelLimits
from mileage.vllm_plugin.request_tap import RequestTap
from mileage.vllm_plugin.stat_logger import RequestLogger
from mileage.vllm_plugin.step_tap import TapSettings

TAG, OTHER = "01234567", "76543210"


def named(number: int, tag: str = TAG) -> str:
    return f"chatcmpl-{request_name(number, tag).decode()}"


def stats(request_id: str | None, **changes: Any) -> Any:
    """As vLLM 0.32's FinishedRequestStats."""
    fields = {
        "request_id": request_id,
        "queued_time": 0.25,
        "prefill_time": 0.5,
        "decode_time": 1.5,
        "inference_time": 2.0,
        "num_prompt_tokens": 40,
        "num_cached_tokens": 32,
        "num_generation_tokens": 7,
        "num_preemptions": 1,
    }
    return SimpleNamespace(**{**fields, **changes})


def told(tap: RequestTap, directory: Path) -> list[EngineRequest]:
    """All records in the files, once nothing is written any more."""
    tap.channel.stop()
    found: list[EngineRequest] = []
    for path in sorted(directory.glob("*.requests")):
        data = path.read_bytes()
        while data:
            (length,) = STEP_LENGTH.unpack_from(data)
            found.append(msgspec.msgpack.decode(data[4 : 4 + length], type=EngineRequest))
            data = data[4 + length :]
    return found


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    begin_step_directory(tmp_path / "steps", TAG)
    return tmp_path / "steps"


def tap_of(directory: Path, **limits: Any) -> RequestTap:
    return RequestTap(TapSettings(directory, "a"), ChannelLimits(interval_s=0.001, **limits))


def test_requests_of_the_gateway_are_told_with_its_ids(directory: Path) -> None:
    tap = tap_of(directory)
    tap.ended([stats(named(7)), stats(named(8, OTHER)), stats("chatcmpl-0123456789abcdef")], 99)
    assert told(tap, directory) == [EngineRequest("a", 99, 7, 0.25, 0.5, 1.5, 40, 32, 7, 1)]
    assert (tap.requests_total, tap.nameless_total) == (1, 0)


@pytest.mark.parametrize(
    ("changes", "times"),
    [
        pytest.param(
            {"queued_time": 0.0, "prefill_time": 0.0, "inference_time": 0.0, "decode_time": 0.0},
            (None, None, None),
            id="no moment was told: no time is known",
        ),
        pytest.param({"queued_time": 0.0}, (0.0, 0.5, 1.5), id="it did not wait"),
        pytest.param({"queued_time": -8.5}, (None, 0.5, 1.5), id="when it came was not told"),
        pytest.param({"decode_time": float("nan")}, (0.25, 0.5, None), id="no number"),
    ],
)
def test_a_time_that_is_not_known_is_none(
    directory: Path, changes: dict[str, float], times: tuple[float | None, ...]
) -> None:
    tap = tap_of(directory)
    tap.ended([stats(named(7), **changes)], 99)
    (one,) = told(tap, directory)
    assert (one.queue_s, one.prefill_s, one.decode_s) == times


def test_a_vllm_that_does_not_name_requests_tells_none(directory: Path) -> None:
    tap = tap_of(directory)
    tap.ended([stats(None), SimpleNamespace(queued_time=1.0)], 99)
    assert told(tap, directory) == []
    assert tap.nameless_total == 2


def test_what_the_channel_cannot_hold_is_dropped_and_told(directory: Path) -> None:
    tap = tap_of(directory, waiting_bytes=0)
    tap.ended([stats(named(7)), stats(named(8))], 99)
    tap.channel._limits = ChannelLimits(interval_s=0.001)
    tap.ended([stats(named(9))], 101)
    found = told(tap, directory)
    assert [(one.request_id, one.lost_requests) for one in found] == [(0, 2), (9, 0)]
    assert tap.channel.dropped_total == 2


@pytest.fixture
def asked(directory: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("MILEAGE_STEPS_DIR", str(directory))
    monkeypatch.setenv("MILEAGE_REPLICA", "a")
    monkeypatch.setattr(stat_logger, "_taps", {})
    yield directory
    for tap in stat_logger._taps.values():
        tap.channel.stop()


def test_loggers_of_one_server_share_a_channel(asked: Path) -> None:
    loggers = [RequestLogger(None, rank) for rank in range(2)]
    for number, logger in enumerate(loggers):
        logger.record(None, SimpleNamespace(finished_requests=[stats(named(number + 1))]))
        logger.record(None, None)
        logger.record(None, SimpleNamespace(finished_requests=[]))
    (tap,) = stat_logger._taps.values()
    assert [one.request_id for one in told(tap, asked)] == [1, 2]


def test_a_logger_that_fails_leaves_the_server_alone(asked: Path) -> None:
    logger = RequestLogger(None)
    for _ in range(2):
        logger.record(None, SimpleNamespace(finished_requests=[stats(5)]))  # type: ignore[arg-type]
    logger.log_engine_initialized()
    logger.log()
    (tap,) = stat_logger._taps.values()
    assert told(tap, asked) == []


def test_without_a_place_for_records_there_is_no_channel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MILEAGE_STEPS_DIR", raising=False)
    monkeypatch.setattr(stat_logger, "_taps", {})
    logger = RequestLogger(None)
    logger.record(None, SimpleNamespace(finished_requests=[stats(named(1))]))
    assert stat_logger._taps == {}
