"""What joins the cards: peers that do not reach each other, sockets, full links."""

from __future__ import annotations

from typing import Any

import pytest

from mileage.doctor.evidence import Evidence
from mileage.doctor.facts import decode_facts
from mileage.doctor.opinion import Change, Opinion
from mileage.doctor.rules.interconnect import RULES


def opinion(rule: str, facts: dict[str, Any]) -> Opinion:
    (check,) = (each.check for each in RULES if each.id == rule)
    return check(Evidence(decode_facts(facts)))


def arms(*each: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"arms": [{"arm": str(n)} | arm for n, arm in enumerate(each)]}]


TWO = {"tensor_parallel_size": 2}


@pytest.mark.parametrize(
    ("facts", "outcome"),
    [
        pytest.param(
            {"settings": {**TWO, "env.NCCL_P2P_DISABLE": 1}}, "finding", id="the variable is set"
        ),
        pytest.param(
            {
                "hardware": {"interconnect": "nvlink"},
                "settings": {**TWO, "env.NCCL_P2P_DISABLE": 1},
            },
            "finding",
            id="set on cards with NVLink: worse still",
        ),
        pytest.param(
            {
                "hardware": {"interconnect": "pcie"},
                "settings": {**TWO, "disable_custom_all_reduce": True},
            },
            "finding",
            id="the engine's own all-reduce is off on PCIe",
        ),
        pytest.param(
            {
                "hardware": {"interconnect": "pcie", "count": 2},
                "signals": {"gpu_util_ratio": [1.0, 0.7]},
            },
            "finding",
            id="cards of one group, unevenly busy, behind a host bridge",
        ),
        pytest.param(
            {
                "hardware": {"interconnect": "pcie", "tdp_w": 450},
                "settings": TWO,
                "signals": {"gpu_util_ratio": [1.0, 1.0], "power_w": [140, 150]},
            },
            "finding",
            id="busy cards that draw a third of their power",
        ),
        pytest.param(
            {
                "settings": TWO,
                "logs": ["0[0] -> 1[1] via SHM/direct/direct", "x: NCCL INFO comm 0x1 rank 0"],
            },
            "finding",
            id="NCCL's newer form of a channel through host memory",
        ),
        pytest.param(
            {"settings": TWO, "logs": ["NCCL INFO Channel 00/0 : 0[1a000] -> 1[3b000] via SHM"]},
            "finding",
            id="NCCL's channels go through host memory",
        ),
        pytest.param(
            {"logs": ["NCCL WARN P2P is disabled between connected GPUs 1 and 0."]},
            "finding",
            id="NCCL warns of it",
        ),
        pytest.param(
            {
                "settings": TWO,
                "comparisons": arms(
                    {
                        "settings": {"disable_custom_all_reduce": True},
                        "signals": {"throughput_rel": 1},
                        "current": True,
                    },
                    {
                        "settings": {"disable_custom_all_reduce": False},
                        "signals": {"throughput_rel": 1.4},
                    },
                ),
            },
            "finding",
            id="faster with it on",
        ),
        pytest.param(
            {
                "settings": TWO,
                "comparisons": arms(
                    {
                        "settings": {"env.NCCL_P2P_DISABLE": 1},
                        "signals": {"output_tokens_per_s": 500},
                    },
                    {
                        "settings": {"env.NCCL_P2P_DISABLE": 0},
                        "signals": {"output_tokens_per_s": 498},
                    },
                ),
            },
            "clear",
            id="measured both ways, and it makes no difference",
        ),
        pytest.param(
            {"settings": {"tensor_parallel_size": 1, "env.NCCL_P2P_DISABLE": 1}},
            "clear",
            id="a card that is alone reduces nothing",
        ),
        pytest.param(
            {
                "hardware": {"interconnect": "nvlink"},
                "settings": {**TWO, "env.NCCL_P2P_DISABLE": 0},
                "signals": {"power_w": 100, "power_limit_w": 700, "requests_running": 3},
            },
            "clear",
            id="NVLink with peers on: little power has another cause",
        ),
        pytest.param(
            {"hardware": {"interconnect": "pcie"}, "settings": TWO},
            "not_enough_evidence",
            id="PCIe alone is no loss",
        ),
        pytest.param(
            {
                "hardware": {"interconnect": "pcie"},
                "settings": TWO,
                "signals": {"gpu_util_ratio": [0.98, 0.97], "power_w": 400, "power_limit_w": 450},
            },
            "not_enough_evidence",
            id="even cards at full power do not wait",
        ),
        pytest.param(
            {
                "settings": TWO,
                "comparisons": arms(
                    {
                        "hardware": {"interconnect": "pcie"},
                        "signals": {"output_tokens_per_s": 500},
                        "current": True,
                    },
                    {
                        "hardware": {"interconnect": "pcie_p2p"},
                        "signals": {"output_tokens_per_s": 700},
                    },
                ),
            },
            "finding",
            id="faster where cards reach each other",
        ),
    ],
)
def test_peers(facts: dict[str, Any], outcome: str) -> None:
    assert opinion("NET001", facts).outcome == outcome


def test_the_change_takes_away_what_was_set() -> None:
    found = opinion(
        "NET001",
        {"settings": {**TWO, "env.NCCL_P2P_DISABLE": 1, "disable_custom_all_reduce": True}},
    )
    assert found.changes == (
        Change("env.NCCL_P2P_DISABLE", None),
        Change("disable_custom_all_reduce", False),
    )


SOCKET = {"nccl.net_transport": "socket"}


@pytest.mark.parametrize(
    ("facts", "outcome"),
    [
        pytest.param(
            {"hardware": {"interconnect": "roce"}, "settings": SOCKET},
            "finding",
            id="sockets on a network that can do RDMA",
        ),
        pytest.param(
            {"hardware": {"nodes": 2}, "settings": {**SOCKET, "k8s.privileged": False}},
            "finding",
            id="sockets in a container without devices",
        ),
        pytest.param(
            {
                "hardware": {"nodes": 2},
                "settings": SOCKET,
                "signals": {"network_link_gbit_per_s": 400},
            },
            "finding",
            id="sockets on a link of 400 Gbit/s",
        ),
        pytest.param(
            {"logs": ["NCCL INFO NET/IB : No device found.", "NCCL INFO NET/Socket : Using eth0"]},
            "not_enough_evidence",
            id="what NCCL says of a single machine too",
        ),
        pytest.param(
            {"settings": {**SOCKET, "k8s.privileged": False}},
            "not_enough_evidence",
            id="an ordinary pod that may be alone",
        ),
        pytest.param(
            {"hardware": {"nodes": 2}, "logs": ["NCCL INFO NET/IB : No device found."]},
            "finding",
            id="NCCL finds no device",
        ),
        pytest.param(
            {
                "hardware": {"nodes": 2},
                "comparisons": arms(
                    {"settings": SOCKET, "signals": {"itl_mean_s": 0.2}, "current": True},
                    {"settings": {"nccl.net_transport": "ib"}, "signals": {"itl_mean_s": 0.05}},
                ),
            },
            "finding",
            id="RDMA is four times as fast",
        ),
        pytest.param(
            {"hardware": {"interconnect": "ethernet", "nodes": 2}, "settings": SOCKET},
            "clear",
            id="plain Ethernet has nothing else",
        ),
        pytest.param(
            {
                "hardware": {"interconnect": "infiniband", "nodes": 2},
                "settings": {"nccl.net_transport": "ib"},
            },
            "clear",
            id="RDMA is in use",
        ),
        pytest.param(
            {"hardware": {"nodes": 1, "interconnect": "infiniband"}, "settings": SOCKET},
            "clear",
            id="one machine needs no network",
        ),
        pytest.param(
            {"hardware": {"nodes": 2, "interconnect": "infiniband"}},
            "not_enough_evidence",
            id="the transport is not known",
        ),
        pytest.param(
            {
                "hardware": {"nodes": 2},
                "settings": SOCKET,
                "signals": {"network_link_gbit_per_s": {"min": 10}},
            },
            "not_enough_evidence",
            id="a link that may be slow or fast",
        ),
    ],
)
def test_sockets(facts: dict[str, Any], outcome: str) -> None:
    assert opinion("NET002", facts).outcome == outcome


@pytest.mark.parametrize(
    ("facts", "outcome"),
    [
        pytest.param({"signals": {"nvlink_util_ratio": [0.95, 0.4]}}, "finding", id="one is full"),
        pytest.param(
            {
                "hardware": {"gpu": "H100"},
                "signals": {"nvlink_tx_bytes_per_s": 430e9},
            },
            "finding",
            id="bytes of nearly 450 GB/s in one direction",
        ),
        pytest.param(
            {"hardware": {"gpu": "L40S"}, "signals": {"pcie_tx_bytes_per_s": 30.5e9}},
            "finding",
            id="a card without NVLink fills its slot",
        ),
        pytest.param(
            {
                "signals": {
                    "nvlink_util_ratio": 0.6,
                    "sm_active_ratio": 0.2,
                    "dram_active_ratio": 0.1,
                }
            },
            "finding",
            id="half full, while compute and memory idle",
        ),
        pytest.param(
            {
                "signals": {
                    "nvlink_util_ratio": 0.6,
                    "sm_active_ratio": 0.9,
                    "dram_active_ratio": 0.5,
                }
            },
            "clear",
            id="half full beside busy cards",
        ),
        pytest.param(
            {"hardware": {"gpu": "H100"}, "signals": {"nvlink_tx_bytes_per_s": 5e9}},
            "clear",
            id="one per cent of the links",
        ),
        pytest.param(
            {"signals": {"nvlink_tx_bytes_per_s": 430e9}},
            "not_enough_evidence",
            id="the card, and so its rate, is not known",
        ),
    ],
)
def test_links(facts: dict[str, Any], outcome: str) -> None:
    assert opinion("NET003", facts).outcome == outcome
