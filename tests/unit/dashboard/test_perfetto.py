"""Perfetto traces: read back by Perfetto's own definitions, nested, in order, on one clock."""

from __future__ import annotations

import io
from collections import defaultdict
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace, TrackEvent

from mileage.core.timeline import RequestTimeline
from mileage.dashboard.perfetto_json import JsonTrace
from mileage.dashboard.perfetto_proto import ProtoTrace
from mileage.dashboard.request_tracks import RequestTracks, TraceCounts
from mileage.dashboard.step_tracks import write_steps
from mileage.ledger.engine_step import EngineStep, StepUse

START_NS = 1_793_491_200_000_000_000
SECOND = 1_000_000_000


def request(number: int, at_s: float = 0.0, **fields: Any) -> RequestTimeline:
    given = {
        "replica": "gpu-1",
        "dispatched_s": 0.25,
        "first_token_s": 0.75,
        "last_token_s": 1.75,
        "finished_s": 2.0,
        **fields,
    }
    return RequestTimeline(
        id=number,
        tenant="team ä",
        model="m",
        endpoint="chat",
        stream=True,
        arrived_at_utc_ns=START_NS + round(at_s * SECOND),
        outcome="ok",
        status=200,
        prompt_tokens=11,
        **given,
    )


class Read:
    """What a reader of Perfetto's format sees."""

    def __init__(self, data: bytes) -> None:
        self.tracks: dict[int, str] = {}
        self.processes: dict[int, str] = {}
        self.parents: dict[int, int] = {}
        self.units: dict[int, str] = {}
        self.events: dict[int, list[tuple[int, int, str, dict[str, Any], Any]]] = defaultdict(list)
        self.curves: dict[str, list[tuple[int, float]]] = defaultdict(list)
        self.clocks: dict[int, int] = {}
        names: dict[int, str] = {}
        keys: dict[int, str] = {}
        for packet in Trace.FromString(data).packet:
            assert packet.trusted_packet_sequence_id == 1
            for clock in packet.clock_snapshot.clocks:
                self.clocks[clock.clock_id] = clock.timestamp
            if packet.HasField("track_descriptor"):
                self._describe(packet.track_descriptor)
            names |= {each.iid: each.name for each in packet.interned_data.event_names}
            keys |= {each.iid: each.name for each in packet.interned_data.debug_annotation_names}
            if packet.HasField("track_event"):
                self._event(packet.timestamp, packet.track_event, names, keys)

    def _describe(self, track: Any) -> None:
        if track.HasField("process"):
            self.processes[track.uuid] = track.process.process_name
            return
        self.tracks[track.uuid], self.parents[track.uuid] = track.name, track.parent_uuid
        if track.HasField("counter"):
            self.units[track.uuid] = track.counter.unit_name

    def _event(self, at_ns: int, event: Any, names: dict[int, str], keys: dict[int, str]) -> None:
        if event.type == TrackEvent.TYPE_COUNTER:
            name = (
                f"{self.processes[self.parents[event.track_uuid]]}: {self.tracks[event.track_uuid]}"
            )
            self.curves[name].append((at_ns, event.double_counter_value))
            return
        args = {}
        for each in event.debug_annotations:
            kind = each.WhichOneof("value")
            args[keys[each.name_iid]] = getattr(each, kind)
        name = names[event.name_iid] if event.name_iid else event.name
        self.events[event.track_uuid].append((at_ns, event.type, name, args, event))

    def slices(self) -> dict[str, list[tuple[int, int, str, int, dict[str, Any]]]]:
        """Track -> (start, end, name, depth, args); fails where they do not nest."""
        found: dict[str, list[tuple[int, int, str, int, dict[str, Any]]]] = {}
        for track, events in self.events.items():
            name = f"{self.processes[self.parents[track]]}: {self.tracks[track]}"
            open_: list[tuple[int, str, dict[str, Any]]] = []
            rows = found.setdefault(name, [])
            last_ns = 0
            for at_ns, kind, text, args, _ in sorted(events, key=lambda event: event[0]):
                assert at_ns >= last_ns
                last_ns = at_ns
                if kind == TrackEvent.TYPE_SLICE_BEGIN:
                    open_.append((at_ns, text, args))
                else:
                    start_ns, text, args = open_.pop()
                    rows.append((start_ns, at_ns, text, len(open_), args))
            assert not open_
        return found


def written(requests: list[RequestTimeline], steps: list[EngineStep] | None = None) -> bytes:
    file = io.BytesIO()
    writer = ProtoTrace(file)
    tracks = RequestTracks(writer)
    tracks.write(requests)
    tracks.finish()
    write_steps(writer, steps or [], tracks.process_of, tracks.counts)
    writer.finish()
    return file.getvalue()


def test_a_request_and_its_stages() -> None:
    read = Read(written([request(7)]))
    assert set(read.processes.values()) == {"gateway", "replica gpu-1"}
    at = START_NS
    slices = {
        track: [(start - at, end - at, name, depth) for start, end, name, depth, _ in rows]
        for track, rows in read.slices().items()
    }
    assert slices == {
        "gateway: requests 1": [
            (0, SECOND // 4, "queue", 1),
            (0, 2 * SECOND, "team ä", 0),
        ],
        "replica gpu-1: requests 1": [
            (SECOND // 4, 3 * SECOND // 4, "prefill", 1),
            (3 * SECOND // 4, 7 * SECOND // 4, "decode", 1),
            (SECOND // 4, 2 * SECOND, "m", 0),
        ],
    }
    (_, args) = read.slices()["gateway: requests 1"][1][3:]
    assert args["prompt_tokens"] == 11
    assert args["outcome"] == "ok"
    assert read.curves["replica gpu-1: requests in the engine"] == [
        (at + SECOND // 4, 1.0),
        (at + 2 * SECOND, 0.0),
    ]
    assert read.clocks == {1: at, 6: at}, "times are UTC"


def test_an_arrow_leads_from_the_gateway_to_the_replica() -> None:
    read = Read(written([request(7)]))
    events = [event for rows in read.events.values() for *_, event in rows]
    (left,) = [event for event in events if event.flow_ids]
    (reached,) = [event for event in events if event.terminating_flow_ids]
    assert list(left.flow_ids) == list(reached.terminating_flow_ids)
    assert read.parents[left.track_uuid] != read.parents[reached.track_uuid]


def test_as_few_tracks_as_hold_them() -> None:
    read = Read(written([request(1, 0.0), request(2, 1.0), request(3, 2.0), request(4, 2.5)]))
    assert len([track for track in read.slices() if track.startswith("gateway")]) == 3
    assert max(level for _, level in read.curves["replica gpu-1: requests in the engine"]) == 3


def test_a_request_that_was_refused_has_the_gateways_part_alone() -> None:
    refused = request(
        1, replica=None, dispatched_s=None, first_token_s=None, last_token_s=None, finished_s=0.1
    )
    assert list(Read(written([refused])).slices()) == ["gateway: requests 1"]


def test_steps_and_the_idle_time_between_them() -> None:
    steps = [
        EngineStep("gpu-1", START_NS, 100, (StepUse(1, 50, 0, 0), StepUse(2, 0, 1, 9))),
        EngineStep("gpu-1", START_NS + 100, 50, (StepUse(1, 0, 1, 50),)),
        EngineStep("gpu-1", START_NS + 400, 100, ()),
        EngineStep("gpu-1", START_NS + 450, 100, ()),
    ]
    read = Read(written([], steps))
    rows = [
        (start - START_NS, end - START_NS, name)
        for start, end, name, *_ in read.slices()["replica gpu-1: engine steps"]
    ]
    assert rows == [
        (0, 100, "mixed step"),
        (100, 150, "decode step"),
        (400, 500, "step without requests"),
        (500, 550, "step without requests"),
    ]
    assert [(at - START_NS, idle) for at, idle in read.curves["replica gpu-1: idle"]] == [
        (0, 0.0),
        (150, 1.0),
        (400, 0.0),
        (550, 1.0),
    ]


offsets = st.none() | st.floats(-10, 1e4)
timelines = st.lists(
    st.tuples(st.floats(0, 100), offsets, offsets, offsets, offsets, st.sampled_from("ab")),
    max_size=30,
)


@given(timelines)
def test_whatever_was_recorded_slices_nest(
    rows: list[tuple[float, float | None, float | None, float | None, float | None, str]],
) -> None:
    requests = [
        request(
            number,
            at_s,
            dispatched_s=dispatched_s,
            first_token_s=first_s,
            last_token_s=last_s,
            finished_s=finished_s,
            replica=replica,
        )
        for number, (at_s, dispatched_s, first_s, last_s, finished_s, replica) in enumerate(
            sorted(rows, key=lambda row: row[0])
        )
    ]
    data = written(requests)
    assert data == written(requests)
    read = Read(data)
    slices = read.slices()
    whole = [row for track in slices.values() for row in track if row[3] == 0]
    sent = sum(r.dispatched_s is not None for r in requests)
    assert len(whole) == len(requests) + sent
    assert all(start <= end for rows_ in slices.values() for start, end, *_ in rows_)
    for curve in read.curves.values():
        assert [at for at, _ in curve] == sorted(at for at, _ in curve)
        assert curve[-1][1] == 0
        assert all(level >= 0 for _, level in curve)


def test_json_has_the_same() -> None:
    file = io.BytesIO()
    writer = JsonTrace(file)
    tracks = RequestTracks(writer)
    tracks.write([request(7)])
    tracks.finish()
    writer.finish()
    document = msgspec.json.decode(file.getvalue())
    begun = [event for event in document["traceEvents"] if event["ph"] == "B"]
    assert [event["name"] for event in begun] == ["team ä", "queue", "m", "prefill", "decode"]
    assert begun[0]["ts"] == START_NS / 1000
    assert len([event for event in document["traceEvents"] if event["ph"] == "E"]) == 5
    flows = [event["ph"] for event in document["traceEvents"] if event["ph"] in "sf"]
    assert flows == ["s", "f"]
    assert tracks.counts == TraceCounts(
        requests=1, slices=5, first_ns=START_NS, last_ns=START_NS + 2 * SECOND
    )


@pytest.mark.parametrize("value", [0, -1, 2**62, -(2**63), True, 1.5, "text"])
def test_values_of_arguments_are_what_they_were(value: Any) -> None:
    file = io.BytesIO()
    writer = ProtoTrace(file)
    track = writer.track(writer.process("p"), "t")
    writer.begin(track, "s", 1, {"value": value})
    writer.end(track, 2)
    ((_, _, _, _, args),) = Read(file.getvalue()).slices()["p: t"]
    assert args == {"value": value}
