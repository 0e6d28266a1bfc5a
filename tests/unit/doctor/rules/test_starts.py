"""Slow starts: weights, graphs, kernels and a full CPU, told from one another."""

from __future__ import annotations

from typing import Any

import pytest

from mileage.doctor.evidence import Evidence
from mileage.doctor.facts import decode_facts
from mileage.doctor.opinion import Change, Opinion
from mileage.doctor.rules.startup import RULES as READ_AND_BUILD
from mileage.doctor.rules.startup_kernels import RULES as KERNELS
from mileage.doctor.start_phases import StartPhases

WEIGHTS, GRAPHS, KERNEL_CACHE, CPU = "START001", "START002", "START003", "START004"


def evidence(facts: dict[str, Any]) -> Evidence:
    return Evidence(decode_facts(facts))


def opinion(rule: str, facts: dict[str, Any]) -> Opinion:
    (check,) = (each.check for each in (*READ_AND_BUILD, *KERNELS) if each.id == rule)
    return check(evidence(facts))


def start(**phases: Any) -> dict[str, Any]:
    return {"signals": {f"startup_{name}": value for name, value in phases.items()}}


def arms(key: str, one: Any, one_s: float, other: Any, other_s: float) -> dict[str, Any]:
    return {
        "comparisons": [
            {
                "arms": [
                    {
                        "arm": "now",
                        "settings": {key: one},
                        "signals": {"startup_total_s": one_s},
                        "current": True,
                    },
                    {
                        "arm": "tried",
                        "settings": {key: other},
                        "signals": {"startup_total_s": other_s},
                    },
                ]
            }
        ]
    }


@pytest.mark.parametrize(
    ("facts", "outcome"),
    [
        pytest.param(start(weights_s=200, compile_s=40), "finding", id="the longest phase"),
        pytest.param(start(weights_s=200, total_s=300), "finding", id="two thirds of the start"),
        pytest.param(
            start(weights_s=60, total_s=300), "not_enough_evidence", id="a fifth of the start"
        ),
        pytest.param(
            {"model": {"weights_gib": 15}, **start(weights_s=90)},
            "finding",
            id="a sixth of a gibibyte per second",
        ),
        pytest.param(
            {"model": {"weights_gib": 130}, **start(weights_s=50)},
            "clear",
            id="fast reading of much",
        ),
        pytest.param(
            {"settings": {"storage.weights_fs": "efs"}, **start(weights_s={"min": 100})},
            "finding",
            id="network storage",
        ),
        pytest.param(
            {
                "signals": {
                    "startup_weights_s": 100,
                    "disk_read_mb_per_s": 90,
                }
            },
            "finding",
            id="a slow disk",
        ),
        pytest.param(start(weights_s={"min": 600}), "finding", id="ten minutes whatever the model"),
        pytest.param(
            start(weights_s=9, compile_s=3), "clear", id="the longest phase of a short start"
        ),
        pytest.param(start(weights_s=60, compile_s=90), "clear", id="compiling takes longer"),
        pytest.param(start(weights_s=60, kv_profile_s=90), "clear", id="warming up takes longer"),
        pytest.param(
            arms("storage.weights_fs", "nfs", 400, "local_nvme", 60),
            "finding",
            id="another place settles it",
        ),
        pytest.param(
            arms("safetensors_load_strategy", "lazy", 70, "eager", 65),
            "not_enough_evidence",
            id="runs that scatter",
        ),
        pytest.param(
            {
                "comparisons": [
                    {
                        "arms": [
                            {"arm": "as it is", "signals": {"startup_weights_s": 190}},
                            {"arm": "patched", "signals": {"startup_weights_s": 7}},
                        ]
                    }
                ]
            },
            "finding",
            id="a change that no setting tells makes it short",
        ),
        pytest.param(
            {"logs": ["Loading weights took 300.1 seconds", "Graph capturing finished in 20 secs"]},
            "finding",
            id="phases of the log",
        ),
        pytest.param(
            {
                "settings": {"storage.page_cache": "hot"},
                "signals": {"startup_weights_s": 150, "cpu_util_ratio": 1.0},
            },
            "not_enough_evidence",
            id="weights in memory and a full CPU",
        ),
        pytest.param(
            start(weights_s={"min": 10, "max": 200}),
            "not_enough_evidence",
            id="a bound that may be short",
        ),
    ],
)
def test_weights(facts: dict[str, Any], outcome: str) -> None:
    assert opinion(WEIGHTS, facts).outcome == outcome


@pytest.mark.parametrize(
    ("facts", "outcome"),
    [
        pytest.param(
            start(weights_s=30, compile_s=20, graph_capture_s=25),
            "finding",
            id="longer together, though each is shorter",
        ),
        pytest.param(start(compile_s=70, total_s=120), "finding", id="most of the start"),
        pytest.param(start(p2p_check_s=50, weights_s=20), "finding", id="the check of links"),
        pytest.param(start(compile_s=90), "finding", id="all that is known"),
        pytest.param(start(engine_init_s=120, weights_s=20), "finding", id="setting the engine up"),
        pytest.param(
            arms("storage.compile_cache", "empty", 200, "populated", 80),
            "finding",
            id="a filled cache settles it",
        ),
        pytest.param(
            arms("enforce_eager", False, 200, True, 60), "finding", id="so does leaving graphs out"
        ),
        pytest.param(start(weights_s=90, compile_s=30), "clear", id="weights take longer"),
        pytest.param(start(compile_s=20, kv_profile_s=200), "clear", id="kernels take longer"),
        pytest.param(start(compile_s=4, graph_capture_s=3), "clear", id="a short phase"),
        pytest.param(
            {"settings": {"enforce_eager": True}, **start(engine_init_s=120, weights_s=20)},
            "not_enough_evidence",
            id="graphs are off: it is something else",
        ),
        pytest.param(
            start(compile_s={"min": 30, "max": 90}, weights_s={"min": 40, "max": 60}),
            "not_enough_evidence",
            id="bounds that overlap",
        ),
    ],
)
def test_graphs(facts: dict[str, Any], outcome: str) -> None:
    assert opinion(GRAPHS, facts).outcome == outcome


@pytest.mark.parametrize(
    ("facts", "outcome"),
    [
        pytest.param(
            start(kv_profile_s=150, weights_s=20, compile_s=40), "finding", id="the longest phase"
        ),
        pytest.param(
            start(silent_s={"min": 240}, weights_s=20), "finding", id="a long gap in the log"
        ),
        pytest.param(
            start(silent_s=100, weights_s=100),
            "not_enough_evidence",
            id="a gap as long as loading may be loading",
        ),
        pytest.param(
            {"settings": {"storage.kernel_cache": "empty"}, **start(engine_init_s=130)},
            "finding",
            id="the cache is empty and setting up takes minutes",
        ),
        pytest.param(
            {"settings": {"enforce_eager": True}, **start(engine_init_s=130, weights_s=10)},
            "finding",
            id="graphs are off and it is no shorter",
        ),
        pytest.param(
            start(engine_init_s=260, compile_s=24, graph_capture_s=15, weights_s=10),
            "finding",
            id="what setting up takes beside compiling and capture",
        ),
        pytest.param(
            {
                "logs": ["flashinfer.jit: [Autotuner]: Autotuning process starts ..."],
                **start(total_s=500),
            },
            "finding",
            id="the log tunes, and the start is long",
        ),
        pytest.param(
            {"logs": ["flashinfer.jit: [Autotuner]: Autotuning process starts ..."]},
            "not_enough_evidence",
            id="the log tunes, and may be done at once",
        ),
        pytest.param(
            arms("storage.kernel_cache", "empty", 300, "populated", 60),
            "finding",
            id="a filled cache settles it",
        ),
        pytest.param(
            {"settings": {"storage.kernel_cache": "populated"}, **start(kv_profile_s=150)},
            "clear",
            id="the cache is filled",
        ),
        pytest.param(start(kv_profile_s=5, silent_s=8), "clear", id="short"),
        pytest.param(start(kv_profile_s=60, compile_s=90), "clear", id="compiling takes longer"),
    ],
)
def test_kernels(facts: dict[str, Any], outcome: str) -> None:
    assert opinion(KERNEL_CACHE, facts).outcome == outcome


@pytest.mark.parametrize(
    ("facts", "outcome"),
    [
        pytest.param(
            {"signals": {"startup_graph_capture_s": 900, "cpu_util_ratio": {"min": 0.95}}},
            "finding",
            id="capture of minutes on a full CPU",
        ),
        pytest.param(
            {"signals": {"startup_compile_s": 900, "cpu_throttled_ratio": 0.7}},
            "finding",
            id="compiling under a quota",
        ),
        pytest.param(
            {
                "settings": {"k8s.cpu_limit": 4},
                "signals": {"startup_import_s": 120, "cpu_cores_used": 4},
            },
            "finding",
            id="imports of minutes with all granted cores in use",
        ),
        pytest.param(
            {
                "settings": {"k8s.cpu_limit": 2, "tensor_parallel_size": 8},
                "signals": {"startup_graph_capture_s": 200},
            },
            "finding",
            id="two cores for eight workers",
        ),
        pytest.param(arms("k8s.cpu_limit", 2, 900, 16, 150), "finding", id="more cores settle it"),
        pytest.param(
            arms("k8s.cpu_limit", 16, 900, 2, 150),
            "not_enough_evidence",
            id="fewer cores were faster: it is something else",
        ),
        pytest.param(
            {"signals": {"startup_graph_capture_s": 200, "cpu_util_ratio": 0.2}},
            "clear",
            id="cores to spare",
        ),
        pytest.param(
            {"signals": {"startup_graph_capture_s": 150}},
            "not_enough_evidence",
            id="nothing is known of the CPU",
        ),
        pytest.param(
            {
                "signals": {
                    "startup_weights_s": 900,
                    "cpu_util_ratio": 0.95,
                    "io_wait_ratio": 0.6,
                }
            },
            "not_enough_evidence",
            id="the CPU waits for the disk",
        ),
        pytest.param(
            {"signals": {"cpu_util_ratio": 1.0}}, "not_enough_evidence", id="no phase is known"
        ),
    ],
)
def test_cpu(facts: dict[str, Any], outcome: str) -> None:
    assert opinion(CPU, facts).outcome == outcome


def test_the_advised_cores_are_one_per_worker_and_two() -> None:
    facts = {
        "settings": {"k8s.cpu_limit": 2, "tensor_parallel_size": 8},
        "signals": {"startup_graph_capture_s": 600},
    }
    assert opinion(CPU, facts).changes == (
        Change("k8s.cpu_request", 10.0),
        Change("k8s.cpu_limit", 10.0),
    )


def test_a_signal_comes_before_the_log() -> None:
    facts = {"logs": ["Loading weights took 300 seconds"], **start(weights_s=12)}
    assert StartPhases(evidence(facts)).weights.value.low == 12


def test_what_profiling_took_follows_only_where_the_rest_is_known() -> None:
    part = StartPhases(evidence(start(engine_init_s=100, compile_s=30)))
    whole = StartPhases(evidence(start(engine_init_s=100, compile_s=30, graph_capture_s=20)))
    assert not part.kernels.known
    assert whole.kernels.value.low == whole.kernels.value.high == 50
