"""Rules of what joins the cards: peer-to-peer that is off, sockets instead of RDMA, full links."""

from __future__ import annotations

import re

from mileage.doctor.arms import Arm
from mileage.doctor.case import Case
from mileage.doctor.check import Check, both, either
from mileage.doctor.contrast import Contrast, contrasts, slowest
from mileage.doctor.evidence import Evidence
from mileage.doctor.interval import Interval, exactly
from mileage.doctor.machine import Machine
from mileage.doctor.opinion import Change, Opinion
from mileage.doctor.rule import Rule, rule
from mileage.measure.bottleneck_config import BottleneckConfig

__all__ = ["RULES"]

SLOWER = 0.97
"""Speed below which an arm is slower: repeated runs differ by 2 to 3 %."""

POWER_SHARE = 0.6
"""Share of its limit that a busy card stays below while it waits: computing draws more."""

SPREAD = 0.15
"""Difference of utilisation between cards of one group, that all do the same work."""

RDMA = ("roce", "infiniband", "ib", "efa")

FAST_LINK_GBIT_PER_S = 100.0
"""Rate from which on network cards of servers can do RDMA."""

HOST_LINKS = ("pcie", "phb", "sys", "node")
"""PCIe by the host's bridge, and what `nvidia-smi topo` calls such ways."""

P2P_KEYS = (
    "env.NCCL_P2P_DISABLE",
    "env.VLLM_SKIP_P2P_CHECK",
    "disable_custom_all_reduce",
    "hardware.interconnect",
)

NET_KEYS = ("nccl.net_transport", "k8s.privileged", "hardware.interconnect")

NO_PEER = r"lacks GPU P2P capability|P2P test failed|peer access is not supported"
NO_PEER_NCCL = r"P2P is disabled between connected GPUs|NCCL_P2P_DISABLE set by environment to 1"
TOO_MANY_PCIE = r"not supported on more than two PCIe-only GPUs"
BY_HOST_MEMORY = r"\[\w+\] -> \d+\[\w+\].* via SHM"

GEFORCE = re.compile(r"geforce|(?<!\d)rtx[\s_-]*[2345]0[5-9]0|(?<![a-z\d])[345]0[5-9]0(?!\d)")
"""GeForce cards: NVIDIA's driver gives them no peer-to-peer over PCIe. Workstation cards of like
names (RTX 4000, RTX 6000 Ada, RTX A6000) have it."""
NO_PEER_ADVICE = (
    "This card has no peer-to-peer over PCIe with NVIDIA's driver, so that no setting turns it on:"
    " split the layers in place of the matrices (pipeline parallelism), or run a replica on each"
    " card where the model fits; an NVLink bridge helps where the card takes one."
)

BY_SOCKET = r"via NET/Socket"
MAY_USE_SOCKETS = r"Using network Socket|NET/Socket : Using"
"""Of a single machine NCCL says this too, and then uses no network at all."""
NO_DEVICE = (
    r"NET/IB : No device found|NCCL_IB_DISABLE set by environment to 1|Failed to open libibverbs"
)

LINKS = BottleneckConfig()
"""From where on links hold cards up: the thresholds of `mileage cost bottleneck`."""


@rule(
    "NET001",
    cause="no_p2p_all_reduce",
    needs=(
        "env.NCCL_P2P_DISABLE",
        "disable_custom_all_reduce",
        "hardware.interconnect",
        "gpu_util_ratio",
        "power_w",
        "logs",
        "comparisons",
    ),
    explains=("tp_too_large_for_small_model", "interconnect_saturated"),
    fires={
        "hardware": {"count": 4, "interconnect": "pcie"},
        "settings": {"tensor_parallel_size": 4, "env.NCCL_P2P_DISABLE": 1},
        "signals": {"gpu_util_ratio": [0.99, 0.7, 0.98, 0.72], "power_w": 110},
    },
    clear={
        "hardware": {"count": 2, "interconnect": "nvlink"},
        "settings": {
            "tensor_parallel_size": 2,
            "env.NCCL_P2P_DISABLE": 0,
            "disable_custom_all_reduce": False,
        },
    },
    silent={"hardware": {"count": 2}, "settings": {"tensor_parallel_size": 2}},
)
def all_reduce_through_host(e: Evidence) -> Opinion:
    """Peer-to-peer between cards is off, so that all-reduces go through host memory.

    ## Why it costs money
    Two all-reduces end each layer. Staged through host memory each takes several copies over PCIe
    and waits for the CPU's memory: the cards spin in the collective and compute nothing.

    ## How it is told
    `NCCL_P2P_DISABLE=1`, a log that says so, channels "via SHM", or the engine's own all-reduce
    off on PCIe cards that are uneven or draw far less than their limit. A run with it on settles
    it. A model too small for its width is `tp_too_large_for_small_model`.

    ## What to do
    Unset `NCCL_P2P_DISABLE` and `--disable-custom-all-reduce`; switch off ACS and the IOMMU of the
    host so that cards reach each other (`nvidia-smi topo -p2p r`). Where the cards cannot (GeForce
    cards over PCIe), use pipeline parallelism or replicas instead of tensor parallelism.

    ## Risk
    Switching off ACS or the IOMMU takes away the isolation between devices: not on hosts that pass
    cards through to virtual machines of others. Peer access that is claimed and does not work hangs
    the start or corrupts all-reduces: run `nccl-tests` with checking before traffic. Changes in
    firmware need a reboot of the node.
    """
    case, pair = Case(), slowest(_peer_arms(e))
    off = e.number("env.NCCL_P2P_DISABLE").at_least(1)
    own_off = e.is_true("disable_custom_all_reduce")
    host = e.is_one_of("hardware.interconnect", *HOST_LINKS)
    if pair is not None:
        case.shows(pair.speed.below(SLOWER), 4.5)
        case.refutes(pair.speed.at_least(1.0))
        case.sign(pair.clean(), no=-2.0)
    case.shows(off, 3.2)
    case.shows(e.logged(NO_PEER_NCCL), 3.5)
    case.shows(e.logged(NO_PEER), 3.0)
    case.shows(either(e.logged(TOO_MANY_PCIE), e.logged(BY_HOST_MEMORY)), 2.6)
    case.shows(both(own_off, either(host, _waits(e))), 3.0)
    case.shows(both(host, _several(e), _waits(e)), 2.8)
    case.refutes(_alone(e))
    nvlink = e.is_one_of("hardware.interconnect", "nvlink")
    case.refutes(both(nvlink, off.negated()))
    case.sign(nvlink, yes=0.0 if off.truth else -3.0)
    case.sign(off.negated(), yes=-1.0)
    case.sign(both(_several(e), _waits(e)), yes=0.7)
    if pair is None and _no_peers(e):
        return case.opinion(advice=NO_PEER_ADVICE, waste_ratio=_waste(pair))
    return case.opinion(changes=_peer_changes(e), waste_ratio=_waste(pair))


def _no_peers(e: Evidence) -> bool:
    """Is it a card whose driver has no peer-to-peer over PCIe, whatever is set?"""
    joined = e.is_one_of("hardware.interconnect", "nvlink", "pcie_p2p").truth
    return joined is not True and bool(GEFORCE.search(e.text("hardware.gpu") or ""))


def _peer_arms(e: Evidence) -> tuple[Contrast, ...]:
    def without(arm: Arm) -> bool:
        off = arm.number("env.NCCL_P2P_DISABLE").value.at_least(1)
        return off is True or arm.get("disable_custom_all_reduce") is True

    def behind_host(arm: Arm) -> bool:
        return arm.get("hardware.interconnect") in HOST_LINKS

    def joined(arm: Arm) -> bool:
        return arm.get("hardware.interconnect") in ("nvlink", "pcie_p2p")

    switched = contrasts(e, without, lambda arm: not without(arm) and _states(arm), *P2P_KEYS)
    linked = contrasts(e, behind_host, joined, *P2P_KEYS)
    return (*switched, *(pair for pair in linked if not pair.besides))


def _states(arm: Arm) -> bool:
    keys = ("env.NCCL_P2P_DISABLE", "disable_custom_all_reduce")
    return any(key in arm.values for key in keys) or not arm.setup()


def _waits(e: Evidence) -> Check:
    """Do the cards wait for each other: uneven, or busy with little power?"""
    used, limit = e.number("gpu_util_ratio"), e.number("power_limit_w")
    spread = used.most.minus(used.least).above(SPREAD) if used.units else None
    top = limit if limit.known else e.number("hardware.tdp_w")
    drawn = e.number("power_w").where(
        f"< {POWER_SHARE:g} of its limit",
        lambda value: value.over(top.value).below(POWER_SHARE) if top.known else None,
    )
    busy = either(used.any_above(0.5), e.number("requests_running").above(0))
    return either(
        Check("gpu_util_ratio", used.plain(), "uneven", spread),
        both(drawn, busy),
    )


def _several(e: Evidence) -> Check:
    return either(
        e.number("tensor_parallel_size").at_least(2), e.number("hardware.count").at_least(2)
    )


def _alone(e: Evidence) -> Check:
    """Is there one card, or none that shares its work?"""
    stages = e.number("pipeline_parallel_size")
    split = e.number("tensor_parallel_size").at_most(1)
    return either(
        e.number("hardware.count").at_most(1),
        both(split, stages.at_most(1)) if stages.known else split,
    )


def _peer_changes(e: Evidence) -> tuple[Change, ...]:
    changes: list[Change] = []
    if e.number("env.NCCL_P2P_DISABLE").at_least(1).truth:
        changes.append(Change("env.NCCL_P2P_DISABLE", None))
    if e.is_true("disable_custom_all_reduce").truth:
        changes.append(Change("disable_custom_all_reduce", False))
    return tuple(changes)


def _waste(pair: Contrast | None) -> Interval | None:
    if pair is None or not pair.speed.known or not pair.speed.value.bounded:
        return None
    return exactly(1.0).minus(pair.speed.value).clipped(0.0, 1.0)


@rule(
    "NET002",
    cause="network_socket_fallback",
    needs=(
        "nccl.net_transport",
        "hardware.interconnect",
        "hardware.nodes",
        "k8s.privileged",
        "logs",
        "comparisons",
    ),
    explains=("tp_too_large_for_small_model", "interconnect_saturated"),
    fires={
        "hardware": {"nodes": 2, "interconnect": "infiniband"},
        "settings": {"nccl.net_transport": "socket"},
    },
    clear={
        "hardware": {"nodes": 2, "interconnect": "infiniband"},
        "settings": {"nccl.net_transport": "ib"},
    },
    silent={"hardware": {"nodes": 2}, "settings": {"nccl.net_transport": "socket"}},
)
def sockets_instead_of_rdma(e: Evidence) -> Opinion:
    """Cards of several machines talk over TCP sockets although the network can do RDMA.

    ## Why it costs money
    Each message goes through the kernel and the CPU: a tenth of the rate and ten times the delay
    of RDMA, in every layer of tensor parallelism and every hand-over of a pipeline.

    ## How it is told
    NCCL's transport is `socket` and the network is InfiniBand or RoCE, or the container may not
    open its devices; or NCCL's log finds no device. On plain Ethernet sockets are all there is.

    ## What to do
    Give the container the devices (`/dev/infiniband`, the RDMA device plugin, `IPC_LOCK`, or
    `privileged: true`), unset `NCCL_IB_DISABLE`, name the card in `NCCL_IB_HCA`, and look for
    `NET/IB` with `NCCL_DEBUG=INFO`. Without RDMA: keep tensor parallelism within a machine.

    ## Risk
    Pods with `IPC_LOCK`, raw devices or `privileged` have more rights on the node than security
    policies may allow. A wrong device or GID index makes NCCL hang at its first collective instead
    of falling back: try it on one group, and keep the socket setting for the way back.
    """
    case, pair = Case(), slowest(_socket_arms(e))
    sockets = either(e.is_one_of("nccl.net_transport", "socket"), e.logged(BY_SOCKET))
    rdma = either(
        e.is_one_of("hardware.interconnect", *RDMA),
        e.number("network_link_gbit_per_s").at_least(FAST_LINK_GBIT_PER_S),
    )
    closed = e.is_false("k8s.privileged")
    machines = e.number("hardware.nodes").at_least(2)
    if pair is not None:
        case.shows(pair.speed.below(SLOWER), 4.5)
        case.sign(pair.clean(), no=-1.0)
    may_use = either(sockets, e.logged(MAY_USE_SOCKETS))
    case.shows(both(may_use, rdma), 4.0)
    case.shows(both(may_use, closed, machines), 3.0)
    case.shows(both(e.logged(NO_DEVICE), either(machines, rdma, e.logged(BY_SOCKET))), 3.0)
    case.shows(both(machines, rdma, closed), 2.5)
    case.refutes(e.is_one_of("nccl.net_transport", "ib"))
    case.refutes(e.is_one_of("hardware.interconnect", "ethernet"))
    case.refutes(e.number("hardware.nodes").at_most(1))
    case.sign(machines, yes=0.5)
    changes = (Change("nccl.net_transport", "ib"),)
    return case.opinion(changes=changes, waste_ratio=_waste(pair))


def _socket_arms(e: Evidence) -> tuple[Contrast, ...]:
    def sockets(arm: Arm) -> bool:
        return arm.get("nccl.net_transport") == "socket" or (
            arm.get("nccl.net_transport") is None and arm.get("k8s.privileged") is False
        )

    def rdma(arm: Arm) -> bool:
        return arm.get("nccl.net_transport") == "ib" or arm.get("k8s.privileged") is True

    return contrasts(e, sockets, rdma, *NET_KEYS)


@rule(
    "NET003",
    cause="interconnect_saturated",
    needs=("nvlink_util_ratio", "nvlink_tx_bytes_per_s", "pcie_tx_bytes_per_s", "sm_active_ratio"),
    fires={
        "hardware": {"gpu": "H100", "count": 8, "interconnect": "nvlink"},
        "settings": {"tensor_parallel_size": 8},
        "signals": {"nvlink_util_ratio": 0.95, "requests_running": 200},
    },
    clear={
        "hardware": {"gpu": "H100", "count": 8},
        "signals": {"nvlink_util_ratio": 0.05, "sm_active_ratio": 0.9},
    },
    silent={"hardware": {"gpu": "H100", "count": 8}, "signals": {"sm_active_ratio": 0.9}},
)
def links_are_full(e: Evidence) -> Opinion:
    """The links between cards are full: the cards wait for each other's data.

    ## Why it costs money
    Cards that wait for an all-reduce are paid for and compute nothing.

    ## How it is told
    NVLink (or PCIe, where cards have no NVLink) carries more than 92 % of its rate, or more than
    half while compute and memory idle: the bounds of `mileage cost bottleneck`.

    ## What to do
    Split less: a smaller `--tensor-parallel-size` with replicas, pipeline parallelism over the
    slower link, smaller prefill chunks (`--max-num-batched-tokens`), or quantised all-reduces where
    the engine has them.

    ## Risk
    Narrower groups need the weights to fit fewer cards and leave each less room for keys and
    values; pipeline stages add latency to every prompt and idle at low load. Quantised all-reduces
    change numerics: compare answers on your evaluation.
    """
    case, used = Case(), _link_use(e)
    busy = either(
        e.number("sm_active_ratio").at_most(LINKS.link_idle_max),
        e.number("gpu_util_ratio").at_most(LINKS.link_idle_max),
    )
    idle = both(busy, e.number("dram_active_ratio").at_most(LINKS.link_idle_max))
    full = _of_link(used, LINKS.nvlink_min)
    case.shows(full, 3.0)
    case.shows(both(_of_link(used, LINKS.link_busy_min), idle), 2.8)
    return case.opinion()


def _link_use(e: Evidence) -> tuple[str, Interval | None]:
    """The busiest card's share of its link, and the signal that tells it."""
    stated = e.number("nvlink_util_ratio")
    if stated.known:
        return stated.key, stated.most
    card = Machine(e).gpu
    if card is None:
        return stated.key, None
    sent = e.number("nvlink_tx_bytes_per_s")
    if card.nvlink_gb_per_s is not None:
        rate = exactly(card.nvlink_gb_per_s * 1e9 / 2)
        return sent.key, sent.most.over(rate) if sent.known else None
    sent = e.number("pcie_tx_bytes_per_s")
    rate = exactly(card.pcie_gb_per_s * 1e9)
    return sent.key, sent.most.over(rate) if sent.known else None


def _of_link(used: tuple[str, Interval | None], limit: float) -> Check:
    key, share = used
    if share is None:
        return Check(key, None, f"> {limit:g} of the link's rate", None)
    return Check(key, share.plain(), f"> {limit:g} of the link's rate", share.above(limit))


RULES: tuple[Rule, ...] = (all_reduce_through_host, sockets_instead_of_rdma, links_are_full)
"""Rules of this family."""
