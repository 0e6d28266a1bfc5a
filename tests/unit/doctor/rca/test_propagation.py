"""ranked(): who explains whom, by the way of requests and by time."""

from __future__ import annotations

import pytest

from mileage.doctor.rca.anomalies import Anomaly
from mileage.doctor.rca.propagation import Root, ranked
from mileage.doctor.rca.series import History, Series, kind_of
from mileage.doctor.rca.topology import Topology, topology_of
from mileage.doctor.rca.trouble import troubles

NODES = ("gateway", "replica:h1:8000", "replica:h1:8001", "replica:h2:8000", "tenant:x", "host:h1")


def fleet() -> Topology:
    """Two replicas on h1, one on h2, one tenant."""
    rows = tuple(Series(node=node, name="x", values=()) for node in (*NODES, "gpu:h1/0"))
    return topology_of(History(start_utc_s=0.0, step_s=60.0, series=rows))


def anomaly(node: str, name: str, start: int, *, up: bool = True, score: float = 10.0) -> Anomaly:
    """One that lasts twenty points."""
    return Anomaly(
        node=node,
        name=name,
        kind=kind_of(name),
        start=start,
        end=start + 20,
        direction="up" if up else "down",
        score=score,
        actual=2.0,
        expected=1.0,
        method="level",
    )


def roots(*found: Anomaly) -> list[Root]:
    """The ranking of these."""
    return ranked(troubles(found), fleet())


def test_the_graph_is_made_of_names() -> None:
    graph = fleet()
    assert ("gateway", "replica:h2:8000") in graph.edges
    assert ("replica:h1:8000", "gpu:h1/0") in graph.edges
    assert ("gpu:h1/0", "host:h1") in graph.edges
    assert graph.distance("tenant:x", "host:h1") == 3
    assert graph.distance("replica:h2:8000", "host:h1") is None


@pytest.mark.parametrize(
    ("cause", "effect", "relation"),
    [
        ("tenant:x", "replica:h2:8000", "feeds"),
        ("host:h1", "tenant:x", "serves"),
        ("replica:h1:8000", "replica:h2:8000", "beside"),
        ("replica:h2:8000", "host:h1", None),
        ("gateway", "gateway", None),
        ("gateway", "replica:unknown", None),
    ],
)
def test_ways_of_load_and_slowness(cause: str, effect: str, relation: str | None) -> None:
    assert fleet().relation(cause, effect) == relation


def test_tenants_rival_each_other() -> None:
    graph = Topology([("tenant:x", "gateway"), ("tenant:y", "gateway")])
    assert graph.relation("tenant:x", "tenant:y") == "rivals"


def test_replicas_of_one_host_that_slow_together_point_to_the_host() -> None:
    found = roots(
        anomaly("replica:h1:8000", "ttft_p50_s", 10),
        anomaly("replica:h1:8001", "ttft_p50_s", 11),
        anomaly("tenant:x", "ttft_p50_s", 11),
    )
    assert found[0].node == "host:h1" or found[0].node == "gpu:h1/0"
    assert found[0].common == ("replica:h1:8000", "replica:h1:8001")


def test_two_replicas_at_once_cannot_be_told_apart() -> None:
    graph = Topology([("gateway", f"replica:{name}") for name in "abcd"])
    found = ranked(
        troubles([anomaly("replica:a", "ttft_p50_s", 10), anomaly("replica:b", "ttft_p50_s", 10)]),
        graph,
    )
    assert found[0].tied_with == ("replica:b",)
    assert found[0].simultaneous == ("replica:b",)


def test_a_neighbour_that_was_slow_first_explains_and_one_point_is_not_enough() -> None:
    graph = Topology([("gateway", f"replica:{name}") for name in "abcd"])
    for lead, explained in ((5, ("replica:a",)), (1, ())):
        found = ranked(
            troubles(
                [
                    anomaly("replica:a", "ttft_p50_s", 10),
                    anomaly("replica:b", "ttft_p50_s", 10 + lead),
                ]
            ),
            graph,
        )
        by_node = {each.node: each for each in found}
        assert by_node["replica:b"].explained_by == explained


def test_a_cause_that_was_over_long_before_explains_nothing() -> None:
    found = roots(
        anomaly("replica:h1:8000", "ttft_p50_s", 10), anomaly("replica:h2:8000", "ttft_p50_s", 90)
    )
    assert {each.node: each.explained_by for each in found}["replica:h2:8000"] == ()


def test_what_gets_better_is_no_trouble() -> None:
    assert roots(anomaly("gateway", "ttft_p50_s", 10, up=False)) == []
    assert roots(anomaly("gateway", "decode_tokens_per_s", 10)) == []


def test_less_throughput_where_less_came_in_is_no_trouble() -> None:
    fewer = anomaly("gateway", "requests_per_s", 10, up=False)
    less = anomaly("gateway", "output_tokens_per_s", 11, up=False)
    assert roots(fewer, less) == []
    assert roots(less)[0].node == "gateway"


def test_the_score_is_the_sum_of_its_parts_and_at_most_one() -> None:
    for root in roots(
        anomaly("replica:h1:8000", "ttft_p50_s", 10),
        anomaly("gateway", "ttft_p50_s", 11),
        anomaly("tenant:x", "requests_per_s", 40),
    ):
        assert root.score == pytest.approx(sum(value for _, value in root.parts))
        assert 0.0 <= root.score <= 1.0
