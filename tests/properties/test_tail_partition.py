"""Tail attribution, whatever the run looked like: the parts of a latency are exactly the whole."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from mileage.core.timeline import RequestTimeline
from mileage.measure.call_record import CallRecord
from mileage.measure.tail import attribute_tail, call_pieces, latency_ns
from mileage.measure.tail_batch import Batch
from mileage.measure.tail_flight import flights
from mileage.measure.tail_host import Pause
from mileage.measure.tail_relabel import Pauses
from mileage.measure.tail_report import TailOptions
from mileage.measure.tail_stage import CAUSES

SECONDS = st.floats(0.0, 5.0, allow_nan=False)
MAYBE = st.none() | SECONDS
OPTIONS = st.builds(
    TailOptions,
    latency=st.sampled_from(["e2e", "ttft"]),
    share_ratio=st.floats(0.0, 0.5),
    requests_min=st.integers(1, 5),
)


@st.composite
def calls(draw: st.DrawFn) -> list[CallRecord]:
    """Calls with any times, also such as no clock gives."""
    found = []
    for index in range(draw(st.integers(1, 8))):
        times = draw(st.lists(SECONDS, max_size=6))
        stream = draw(st.booleans())
        found.append(
            CallRecord(
                index=index,
                phase="measured",
                outcome="ok",
                scheduled_s=draw(SECONDS),
                taken_s=draw(MAYBE),
                connected_s=draw(MAYBE),
                sent_s=draw(SECONDS),
                ended_s=draw(SECONDS),
                token_times_s=array("d", times if draw(st.booleans()) else sorted(times)),
                token_events=array("I", [1] * len(times)),
                stream=stream,
                prompt_tokens=draw(st.none() | st.integers(0, 10**6)),
                request_id=f"req-{index:x}",
            )
        )
    return found


@st.composite
def timelines(draw: st.DrawFn) -> dict[str, RequestTimeline]:
    found = {}
    for index in draw(st.sets(st.integers(0, 7))):
        found[f"req-{index:x}"] = RequestTimeline(
            id=index,
            tenant="default",
            model="m",
            endpoint="chat",
            stream=True,
            arrived_at_utc_ns=draw(st.integers(0, 10**10)),
            outcome="ok",
            status=200,
            dispatched_s=draw(MAYBE),
            first_token_s=draw(MAYBE),
            finished_s=draw(MAYBE),
        )
    return found


@st.composite
def pauses(draw: st.DrawFn) -> list[Pause]:
    found = []
    for _ in range(draw(st.integers(0, 8))):
        start, length = draw(SECONDS), draw(st.floats(0.0, 3.0))
        found.append(
            Pause(
                cause=draw(st.sampled_from(CAUSES)),
                role=draw(st.sampled_from(["generator", "gateway", "engine"])),
                start_s=start,
                end_s=start + length,
                busy_s=draw(st.floats(0.0, 3.0)),
            )
        )
    return found


@given(calls(), timelines(), pauses(), OPTIONS)
def test_pieces_cover_the_latency_without_gap_or_overlap(
    records: list[CallRecord],
    known: dict[str, RequestTimeline],
    met: Sequence[Pause],
    options: TailOptions,
) -> None:
    sent = flights(records, known)
    batch, laid = Batch(sent), Pauses(met)
    for flight in sent:
        found = call_pieces(flight, batch, laid, options)
        assert sum(p.end_ns - p.start_ns for p in found) == latency_ns(flight, options)
        at = flight.scheduled_ns
        for piece in found:
            assert piece.start_ns == at
            assert piece.end_ns > piece.start_ns
            assert (piece.role is not None) == (piece.stage in CAUSES)
            at = piece.end_ns


@given(calls(), pauses(), OPTIONS)
def test_no_pause_takes_more_than_it_held(
    records: list[CallRecord], met: Sequence[Pause], options: TailOptions
) -> None:
    sent = flights(records, {})
    batch = Batch(sent)
    for flight in sent:
        for pause in met:
            found = call_pieces(flight, batch, Pauses([pause]), options)
            taken = sum(p.end_ns - p.start_ns for p in found if p.role is not None)
            assert taken <= round(min(pause.busy_s, pause.end_s - pause.start_s) * 1e9) + 1


@given(calls(), timelines(), pauses(), OPTIONS)
def test_a_report_adds_up(
    records: list[CallRecord],
    known: dict[str, RequestTimeline],
    met: Sequence[Pause],
    options: TailOptions,
) -> None:
    try:
        report = attribute_tail(records, options, timelines=known, pauses=met)
    except ValueError:
        return
    assert abs(sum(s.tail_s for s in report.stages) - report.tail_mean_s) < 1e-9
    assert abs(sum(s.typical_s for s in report.stages) - report.typical_mean_s) < 1e-9
    for worst in report.waterfalls:
        assert abs(sum(s.end_s - s.start_s for s in worst.slices) - worst.latency_s) < 1e-9
