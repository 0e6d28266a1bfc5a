"""Which resource replicas share, by what was seen at the point where one more brings little."""

from __future__ import annotations

from typing import Any

import pytest

from mileage.measure.machine_use import GroupUse, MachineUse
from mileage.measure.shared_resource import ReplicaEvidence, shared_resources


def use(**changes: Any) -> MachineUse:
    usual: dict[str, Any] = {
        "window_s": 10.0,
        "cores": 4,
        "cpu_ratio": 0.4,
        "core_max_ratio": 0.5,
        "steal_ratio": 0.0,
        "pressure_cpu_ratio": 0.1,
        "pressure_memory_ratio": 0.0,
        "pressure_io_ratio": 0.0,
        "network_ratio": None,
        "network_name": None,
        "network_bytes_per_s": 0.0,
        "groups": {"replicas": GroupUse(cores=1.5, thread_ratio=0.5)},
    }
    return MachineUse(**{**usual, **changes})


def evidence(**changes: Any) -> ReplicaEvidence:
    usual: dict[str, Any] = {"use": use(), "cpu_s_per_token": 1e-3}
    return ReplicaEvidence(**{**usual, **changes})


FULL = {"replicas": GroupUse(cores=3.6, thread_ratio=1.0)}
GATEWAY = {"gateway": GroupUse(cores=1.0, thread_ratio=0.97)}


@pytest.mark.parametrize(
    ("at", "resource"),
    [
        pytest.param(evidence(), "none_seen", id="idle cores and nothing waits"),
        pytest.param(evidence(generator_reason="late"), "generator", id="the load was the limit"),
        pytest.param(evidence(use=use(groups=GATEWAY)), "gateway_core", id="a thread is full"),
        pytest.param(evidence(gpu_sharers={"GPU-0": 2, "GPU-1": 1}), "gpu", id="two on one GPU"),
        pytest.param(evidence(gpu_sharers={"GPU-0": 1}), "none_seen", id="a GPU for each"),
        pytest.param(evidence(use=use(cpu_ratio=0.95, groups=FULL)), "cpu", id="all cores busy"),
        pytest.param(
            evidence(use=use(cpu_ratio=0.95)), "other_programs", id="busy with something else"
        ),
        pytest.param(evidence(use=use(steal_ratio=0.1)), "hypervisor", id="cores are taken"),
        pytest.param(evidence(use=use(pressure_memory_ratio=0.2)), "memory", id="it swaps"),
        pytest.param(evidence(use=use(pressure_io_ratio=0.4)), "disk", id="the disk is waited for"),
        pytest.param(
            evidence(use=use(network_ratio=0.9, network_name="eth0")), "network", id="a full link"
        ),
        pytest.param(
            evidence(cpu_s_per_token=2e-3), "memory_bandwidth", id="tokens cost more, cores idle"
        ),
        pytest.param(
            evidence(
                cpu_s_per_token=2e-3,
                use=use(groups={"replicas": GroupUse(cores=0.1, thread_ratio=0.1)}),
            ),
            "none_seen",
            id="tokens cost more, of replicas that hardly compute",
        ),
        pytest.param(evidence(cpu_s_per_token=1.1e-3), "none_seen", id="tokens cost a bit more"),
        pytest.param(evidence(use=None), "none_seen", id="nobody looked"),
    ],
)
def test_what_is_shared(at: ReplicaEvidence, resource: str) -> None:
    assert shared_resources(evidence(), at)[0].resource == resource


def test_tokens_that_cost_more_on_full_cores_say_nothing_of_memory() -> None:
    full = evidence(use=use(cpu_ratio=1.0, groups=FULL), cpu_s_per_token=2e-3)
    assert [each.resource for each in shared_resources(evidence(), full)] == ["cpu"]


def test_all_that_is_seen_is_told_the_generator_first() -> None:
    at = evidence(use=use(cpu_ratio=0.95, groups=FULL | GATEWAY), generator_reason="late")
    found = [each.resource for each in shared_resources(evidence(), at)]
    assert found == ["generator", "gateway_core", "cpu"]


def test_nothing_seen_says_what_was_looked_at() -> None:
    (found,) = shared_resources(evidence(), evidence(local=False))
    assert "cores 40% busy" in found.evidence
    assert "other machines" in found.evidence
