"""An engine's container in a pod: its command line, variables, CPUs, GPUs, probes, rights."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from mileage.doctor.collect.facts_document import FactsDocument, facts_document, whole
from mileage.doctor.collect.k8s_object import KubeObject, at, rows, table, word
from mileage.doctor.collect.k8s_quantity import duration_s, quantity
from mileage.doctor.collect.launch_arguments import LaunchFacts, engine_of_command, launch_facts
from mileage.doctor.collect.merge_facts import overlay
from mileage.doctor.collect.setting_values import as_flag

__all__ = [
    "GPU_RESOURCES",
    "ContainerFacts",
    "container_facts",
    "engine_words",
    "gpus_of",
    "progress_deadline_s",
]

GPU_RESOURCES: Final = (
    "nvidia.com/gpu",
    "nvidia.com/gpu.shared",
    "amd.com/gpu",
    "volcano.sh/vgpu-number",
)
_MIG: Final = re.compile(r"nvidia\.com/mig-(\d+g\.\d+gb(?:\.me)?)(?:\.shared)?")
_CORE_LIMITS: Final = ("nvidia.com/gpucores", "volcano.sh/vgpu-cores")
_MEMORY_LIMITS: Final = (
    "nvidia.com/gpumem",
    "nvidia.com/gpumem-percentage",
    "volcano.sh/vgpu-memory",
    "volcano.sh/vgpu-memory-percentage",
)
"""Of HAMi and its Volcano device plugin; cores are percent of one card's SM time."""
_IMAGES: Final[tuple[tuple[str, tuple[str, ...]], ...]] = (
    ("vllm", ("vllm", "serve")),
    ("text-generation-inference", ("text-generation-launcher",)),
    ("llama.cpp", ("llama-server",)),
    ("llama-server", ("llama-server",)),
    ("sglang", ("sglang.launch_server",)),
    ("tritonserver", ("tritonserver",)),
)
"""Images whose entry point is the engine: arguments alone are its command line."""
_VERSION: Final = re.compile(r":v?(\d+\.\d+(?:\.\d+)?(?:\.post\d+)?)")
_TRANSPORTS: Final = {"socket": "socket", "ib": "ib"}


class ContainerFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What a container says, and the defaults of what it leaves out."""

    engine: str | None
    gpus: float | None
    """It asks for; None where it asks for none."""
    configured: FactsDocument
    defaults: FactsDocument


def container_facts(container: KubeObject) -> ContainerFacts:
    """Facts of a container, as a Deployment, a Pod or a KServe predictor has it. Never raises."""
    environment = _environment(container)
    launched = _launched(container, environment)
    settings: dict[str, Any] = {}
    hardware: dict[str, Any] = {}
    settings |= _cpu(container) | _gpu(container, environment, hardware)
    deadline_s = _startup_deadline_s(container)
    if deadline_s is not None:
        settings["k8s.startup_deadline_s"] = deadline_s
    settings |= _rights(container)
    if (transport := _transport(environment)) is not None:
        settings["nccl.net_transport"] = transport
    return ContainerFacts(
        engine=launched.engine,
        gpus=gpus_of(container),
        configured=overlay(
            facts_document(settings=settings, hardware=hardware), launched.configured
        ),
        defaults=launched.defaults,
    )


def engine_words(container: KubeObject) -> list[str]:
    """Its command line; where the image starts the engine, with that before it."""
    said: list[str] = []
    for name in ("command", "args"):
        given = at(container, name)
        if isinstance(given, list):
            said += [text for item in given if (text := word(item)) is not None]
        elif isinstance(given, str):
            said.append(given)
    if engine_of_command(said) is not None or at(container, "command"):
        return said
    image = (word(container, "image") or "").lower()
    before = next((words for piece, words in _IMAGES if piece in image), ())
    return [*before, *said]


def gpus_of(container: KubeObject) -> float | None:
    """GPUs, or slices of them, that it asks for; None where it asks for none."""
    found = 0.0
    for name, value in _resources(container).items():
        if name in GPU_RESOURCES or (isinstance(name, str) and _MIG.fullmatch(name)):
            found += quantity(value) or 0.0
    return whole(found) if found > 0 else None


def _launched(container: KubeObject, environment: Mapping[str, str]) -> LaunchFacts:
    words = engine_words(container)
    version = _VERSION.search(word(container, "image") or "")
    first = launch_facts(words, environment)
    if first.engine not in ("vllm", "tgi") or version is None:
        return first  # tags of other images are not the engine's version
    return launch_facts(words, environment, version=version[1])


def _resources(container: KubeObject) -> dict[Any, Any]:
    """Requests, and over them limits: of a GPU both are the same."""
    asked = table(container, "resources", "requests")
    return {**asked, **table(container, "resources", "limits")}


def _cpu(container: KubeObject) -> dict[str, Any]:
    resources = table(container, "resources")
    asked = quantity(at(resources, "requests", "cpu"))
    limit = quantity(at(resources, "limits", "cpu"))
    found: dict[str, Any] = {}
    if limit is not None and limit > 0:
        found["k8s.cpu_limit"] = limit
    elif "limits" in resources and "cpu" not in table(resources, "limits"):
        found["k8s.cpu_limit"] = None
    asked = limit if asked is None else asked
    if asked is not None and asked >= 0:
        found["k8s.cpu_request"] = asked
    return found


def _gpu(
    container: KubeObject, environment: Mapping[str, str], hardware: dict[str, Any]
) -> dict[str, Any]:
    """GPUs and how they are shared; a MIG profile goes to the hardware."""
    resources, found = _resources(container), dict[str, Any]()
    gpus = gpus_of(container)
    if gpus is not None:
        found["k8s.gpu_request"] = gpus
    profiles = [m[1] for name in resources if (m := _MIG.fullmatch(str(name)))]
    cores = next((quantity(resources[n]) for n in _CORE_LIMITS if n in resources), None)
    if profiles:
        found["k8s.gpu_sharing"] = "mig"
        if len(profiles) == 1:
            hardware["mig_profile"] = profiles[0]
    elif cores is not None or any(name in resources for name in _MEMORY_LIMITS):
        found["k8s.gpu_sharing"] = "hami"
    elif "nvidia.com/gpu.shared" in resources:
        found["k8s.gpu_sharing"] = "time_slicing"
    if cores is not None and 0 <= cores <= 100:
        # 0 is HAMi's word for no limit.
        found["vgpu.core_limit_ratio"] = cores / 100 if cores else 1
    policy = environment.get("GPU_CORE_UTILIZATION_POLICY", "").lower()
    if policy in ("default", "force"):
        found["vgpu.policy"] = policy
    elif found.get("k8s.gpu_sharing") == "hami" and not policy and cores is not None:
        found["vgpu.policy"] = "default"
    return found


def _startup_deadline_s(container: KubeObject) -> float | None:
    """Time until a probe that keeps failing ends the container: the startup probe's, else the
    liveness probe's, which the former holds back."""
    for name in ("startupProbe", "livenessProbe"):
        probe = at(container, name)
        if not isinstance(probe, Mapping):
            continue
        delay = quantity(probe.get("initialDelaySeconds", 0))
        period = quantity(probe.get("periodSeconds", 10))
        failures = quantity(probe.get("failureThreshold", 3))
        if delay is None or period is None or failures is None:
            return None
        total = delay + period * failures
        return whole(total) if total > 0 else None
    return None


def _rights(container: KubeObject) -> dict[str, Any]:
    """May it open devices of the host? Where it is given an RDMA device it needs no right to."""
    privileged = at(container, "securityContext", "privileged")
    if isinstance(privileged, bool) and privileged:
        return {"k8s.privileged": True}
    has_rdma = any("rdma" in str(name) or "efa" in str(name) for name in _resources(container))
    return {} if has_rdma else {"k8s.privileged": False}


def _environment(container: KubeObject) -> dict[str, str]:
    """Variables with a value that stands there; those from secrets and fields are not known."""
    found: dict[str, str] = {}
    for row in rows(container, "env"):
        name, value = word(row, "name"), word(row, "value")
        if name is not None and value is not None:
            found[name] = value
    return found


def _transport(environment: Mapping[str, str]) -> str | None:
    """What NCCL is told to use between machines."""
    if as_flag(environment.get("NCCL_IB_DISABLE")):
        return "socket"
    return _TRANSPORTS.get(environment.get("NCCL_NET", "").strip().lower())


def progress_deadline_s(workload: KubeObject) -> float | None:
    """The deadline that a Deployment's author has set for its progress."""
    return duration_s(at(workload, "spec", "progressDeadlineSeconds"))
