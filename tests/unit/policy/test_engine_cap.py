"""The cap that an engine gets for the gateway's limit: never below it."""

from __future__ import annotations

import msgspec
import pytest

from mileage.policy.engine_cap import engine_cap, running_max
from mileage.policy.engine_knobs import ControlDocument, EngineKnobs, RankState


def document(
    *, slots: int = 64, start: int | None = 64, ranks: int = 1, sizes: tuple[int, ...] = ()
) -> ControlDocument:
    nothing = EngineKnobs()
    rank = RankState(
        rank=0,
        boot="b",
        version=0,
        writer="",
        applied_version=0,
        applied=nothing,
        requested=nothing,
        start=EngineKnobs(active_max=start),
        clamped={},
        bounds={"active_max": (1, slots)},
        capabilities={"active_max": True},
        lease_s=None,
        lease_left_s=None,
        reverted=False,
        steps_total=0,
        running=0,
        waiting=0,
        step_tokens_seen_max=None,
        prefill_tokens_step_max=None,
        running_seen_max=None,
    )
    return ControlDocument(
        engine_version="0",
        plugin_version="0",
        boot="b",
        version=0,
        applied_version=0,
        requested=nothing,
        applied=nothing,
        start=rank.start,
        bounds=rank.bounds,
        clamped={},
        capabilities=rank.capabilities,
        lease_s=None,
        lease_left_s=None,
        reverted=False,
        ranks=[rank] * ranks,
        graph_sizes=list(sizes),
    )


@pytest.mark.parametrize(
    ("limit", "found", "cap"),
    [
        pytest.param(12, document(), 12, id="no graphs: the limit itself"),
        pytest.param(12, document(sizes=(1, 2, 4, 8, 16, 32)), 16, id="the next larger graph"),
        pytest.param(16, document(sizes=(8, 16, 32)), 16, id="just a graph"),
        pytest.param(33, document(sizes=(8, 16, 32)), 33, id="beyond the last graph"),
        pytest.param(33, document(sizes=(8, 32, 64)), None, id="only the largest holds it: all"),
        pytest.param(64, document(), None, id="all that it runs: nothing to ask"),
        pytest.param(1024, document(), None, id="more than it runs"),
        pytest.param(40, document(start=32), None, id="started with a lower cap: never above that"),
        pytest.param(16, document(ranks=4), 5, id="ranks: an even part, and room for uneven ones"),
        pytest.param(1, document(ranks=4), 1, id="never below one"),
    ],
)
def test_the_cap(limit: int, found: ControlDocument, cap: int | None) -> None:
    assert engine_cap(limit, found) == cap


def test_an_engine_without_the_knob_gets_none() -> None:
    lacking = msgspec.structs.replace(document(), capabilities={"active_max": "it has none"})
    assert engine_cap(4, lacking) is None
    unknown = msgspec.structs.replace(document(), bounds={})
    assert (engine_cap(4, unknown), running_max(unknown)) == (None, None)


def test_what_it_runs_at_once_is_that_of_all_ranks_as_started() -> None:
    assert running_max(document(ranks=4)) == 256
    assert running_max(document(start=32)) == 32
    assert running_max(document(start=None)) == 64
