"""Curves of GPUs in a trace, read back by Perfetto's own definitions."""

from __future__ import annotations

import io
from collections import defaultdict

from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace, TrackEvent

from mileage.dashboard.gpu_tracks import GpuPoint, GpuTracks
from mileage.dashboard.perfetto_proto import ProtoTrace
from mileage.dashboard.request_tracks import TraceCounts

AT = 1_793_491_200_000_000_000
MINUTE = 60_000_000_000


class Read:
    """Curves and slices by process and name."""

    def __init__(self, points: list[GpuPoint]) -> None:
        file = io.BytesIO()
        writer, self.counts = ProtoTrace(file), TraceCounts()
        self.gpus = GpuTracks(writer, self.counts, source="minutes").write(points)
        writer.finish()
        self.curves: dict[str, list[tuple[int, float]]] = defaultdict(list)
        self.units: dict[str, str] = {}
        self.slices: dict[str, list[tuple[int, int, str]]] = defaultdict(list)
        processes: dict[int, str] = {}
        tracks: dict[int, str] = {}
        names: dict[int, str] = {}
        begun: dict[int, tuple[int, str]] = {}
        for packet in Trace.FromString(file.getvalue()).packet:
            track, event = packet.track_descriptor, packet.track_event
            names |= {each.iid: each.name for each in packet.interned_data.event_names}
            if track.HasField("process"):
                processes[track.uuid] = track.process.process_name
            elif packet.HasField("track_descriptor"):
                tracks[track.uuid] = f"{processes[track.parent_uuid]}: {track.name}"
                if track.HasField("counter"):
                    self.units[tracks[track.uuid]] = track.counter.unit_name
            if not packet.HasField("track_event"):
                continue
            name, at_ns = tracks[event.track_uuid], packet.timestamp - AT
            if event.type == TrackEvent.TYPE_COUNTER:
                self.curves[name].append((at_ns, event.double_counter_value))
            elif event.type == TrackEvent.TYPE_SLICE_BEGIN:
                begun[event.track_uuid] = (at_ns, names[event.name_iid])
            else:
                start_ns, text = begun.pop(event.track_uuid)
                self.slices[name].append((start_ns, at_ns, text))
        assert not begun


def minute(number: int, gpu: str = "n:0", **figures: float) -> GpuPoint:
    start_ns = AT + number * MINUTE
    return GpuPoint(gpu, start_ns, start_ns + MINUTE, **figures)


def test_each_figure_is_a_curve_on_the_clock_of_requests() -> None:
    read = Read(
        [
            minute(0, bandwidth_ratio=0.5, idle_ratio=0.25, power_w=300.0),
            minute(1, bandwidth_ratio=0.6, idle_ratio=0.0, power_w=0.0),
        ]
    )
    assert read.curves == {
        "GPU n:0: bandwidth use": [(0, 0.5), (MINUTE, 0.6)],
        "GPU n:0: idle cycles": [(0, 0.25), (MINUTE, 0.0)],
        "GPU n:0: power": [(0, 300.0), (MINUTE, 0.0)],
    }
    assert read.units == {
        "GPU n:0: bandwidth use": "ratio",
        "GPU n:0: idle cycles": "ratio",
        "GPU n:0: power": "W",
    }


def test_what_was_never_known_has_no_curve_and_what_is_unknown_no_zero() -> None:
    read = Read([minute(0, idle_ratio=0.5), minute(1), minute(2, idle_ratio=1.0)])
    assert read.curves == {"GPU n:0: idle cycles": [(0, 0.5), (2 * MINUTE, 1.0)]}


def test_where_nothing_was_seen_there_is_a_gap() -> None:
    points = [minute(number, idle_ratio=0.5) for number in (0, 1, 5)]
    read = Read(points)
    assert read.slices == {
        "GPU n:0: seen": [(0, 2 * MINUTE, "minutes"), (5 * MINUTE, 6 * MINUTE, "minutes")]
    }
    assert read.counts == TraceCounts(slices=2, first_ns=AT, last_ns=AT + 6 * MINUTE)


def test_gpus_are_apart() -> None:
    points = [
        minute(number, gpu, idle_ratio=number / 4) for number in range(3) for gpu in ("n:0", "n:1")
    ]
    read = Read(points)
    assert read.gpus == 2
    assert read.curves["GPU n:0: idle cycles"] == read.curves["GPU n:1: idle cycles"]
    assert len(read.slices) == 2


def test_nothing_is_no_track() -> None:
    read = Read([])
    assert (read.gpus, read.counts.slices, dict(read.curves)) == (0, 0, {})
