"""Rules of limits on a shared GPU's compute."""

from __future__ import annotations

from mileage.doctor.case import Case
from mileage.doctor.check import Check, both, either
from mileage.doctor.contrast import contrasts
from mileage.doctor.evidence import Evidence
from mileage.doctor.interval import Interval, exactly
from mileage.doctor.opinion import Change, Opinion
from mileage.doctor.quantity import Quantity
from mileage.doctor.rule import Rule, rule
from mileage.doctor.rules.slower_arm import any_slower

__all__ = ["RULES"]

OVER_LIMIT_RATIO = 1.2
"""Use over the limit beyond what a limiter that samples and corrects overshoots."""

ON_RATIO = 0.6
OFF_RATIO = 0.2
"""Utilisation of the on and of the off phase of a limiter that works by letting run and halting."""

LOGGED_STALL = (
    r"watchdog caught collective operation timeout"
    r"|No available (shared memory broadcast )?block found in \d+ second"
    r"|NCCL .*(timed? ?out|timeout)"
    r"|RPC call to \w+ timed out|EngineDeadError|execute_model timed out"
    r"|watchdog timeout"
)
"""What PyTorch, vLLM and SGLang say where one rank of a group does not come."""


@rule(
    "SHARE001",
    cause="vgpu_limit_not_enforced",
    needs=("vgpu.core_limit_ratio", "vgpu.policy", "k8s.pods_on_gpu", "gpu_util_ratio"),
    fires={
        "settings": {
            "k8s.gpu_sharing": "hami",
            "vgpu.core_limit_ratio": 0.3,
            "vgpu.policy": "default",
            "k8s.pods_on_gpu": 1,
        },
        "signals": {"gpu_util_ratio": 0.96},
    },
    clear={
        "settings": {"vgpu.core_limit_ratio": 0.3, "k8s.pods_on_gpu": 1},
        "signals": {"gpu_util_ratio": 0.29},
    },
    silent={"settings": {"vgpu.core_limit_ratio": 0.3, "vgpu.policy": "default"}},
)
def core_limit_not_applied(e: Evidence) -> Opinion:
    """A pod uses more of the card than its core limit grants.

    ## Why it costs money
    What is granted and charged is not what is used: the measured capacity of such a pod is gone
    when a second one comes, and plans that were made with it are wrong.

    ## How it is told
    Utilisation above the limit (of all pods on the card together, for that is what the counter
    sees). The default policy applies the limit only where pods compete. A limit that is applied
    by switching on and off shows as `vgpu_limit_sawtooth`.

    ## What to do
    Set the policy to `force` where the limit must hold (HAMi: `GPU_CORE_UTILIZATION_POLICY=force`),
    or measure with the card's other pods under load.

    ## Risk
    A limit that is enforced slows down a pod that has lived on more than its share, perhaps below
    its latency targets: raise its share first, or tell its owner. The forced policy halts kernels
    in turns, so tails grow even where the mean is fine.
    """
    case = Case()
    limit, util = e.number("vgpu.core_limit_ratio"), _device_use(e)
    pods = e.number("k8s.pods_on_gpu")
    case.must(limit.below(1.0))
    case.shows(_above_limit(e, util, limit, pods), 3.0)
    case.refutes(e.is_one_of("k8s.gpu_sharing", "none", "mig"))
    case.refutes(_alternates(util))
    case.sign(e.is_one_of("vgpu.policy", "default"), yes=1.5)
    case.sign(pods.at_most(1.0), yes=1.0)
    case.sign(e.is_one_of("k8s.gpu_sharing", "hami"), yes=0.5)
    return case.opinion(
        advice=f"The limit of {limit.value.shown()} is not applied: force it, or do not "
        "plan with it.",
        changes=(Change("vgpu.policy", "force"),),
    )


def _device_use(e: Evidence) -> Quantity:
    for key in ("gpu_util_ratio", "sm_active_ratio", "gr_engine_active_ratio"):
        if e.known(key):
            return e.number(key)
    return e.number("gpu_util_ratio")


def _above_limit(e: Evidence, util: Quantity, limit: Quantity, pods: Quantity) -> Check:
    """Is the card used beyond what all pods on it may use together?"""
    words = f"> {OVER_LIMIT_RATIO:g} x vgpu.core_limit_ratio ({limit.value.shown()}) of each pod"
    if not util.known or not limit.known:
        return Check(util.key, util.plain(), words, None)
    granted = limit.value.times(pods.value if pods.known else exactly(1.0))
    allowed = granted.times(exactly(OVER_LIMIT_RATIO)).clipped(0.0, 1.0)
    return Check(util.key, util.plain(), words, util.value.exceeds(allowed))


@rule(
    "SHARE002",
    cause="vgpu_sm_limit_breaks_tp",
    needs=(
        "vgpu.core_limit_ratio",
        "tensor_parallel_size",
        "requests_completed_count",
        "replicas_ready",
        "logs",
    ),
    fires={
        "settings": {"vgpu.core_limit_ratio": 0.5, "tensor_parallel_size": 4},
        "signals": {"requests_running": 3, "requests_completed_count": 0},
    },
    clear={
        "settings": {"vgpu.core_limit_ratio": 0.5, "tensor_parallel_size": 4},
        "signals": {"requests_completed_count": 812, "output_tokens_per_s": 640},
    },
    silent={"settings": {"vgpu.core_limit_ratio": 0.5, "tensor_parallel_size": 4}},
)
def core_limit_stalls_group(e: Evidence) -> Opinion:
    """A limit of SM time halts ranks of a tensor-parallel group that wait for each other.

    ## Why it costs money
    Every layer ends in a collective that all ranks must reach. A limiter halts each rank's
    launches on its own; ranks that wait spin on the card, use up their share, and the group makes
    no progress: cards that serve nothing.

    ## How it is told
    A core limit below the whole card together with tensor parallelism, and nothing completes, no
    replica gets ready, or collectives time out. With one card the limit only slows.

    ## What to do
    Give tensor-parallel pods whole cards (no core limit), or a model that fits one shared card.

    ## Risk
    Whole cards for a tensor-parallel group leave less to share, and the pods beside it must move or
    wait for a place. Without the limit one tenant can take the card's time from others that stay on
    it.
    """
    case = Case()
    limit, tensor = e.number("vgpu.core_limit_ratio"), e.number("tensor_parallel_size")
    case.must(limit.below(1.0))
    case.must(tensor.above(1.0))
    case.shows(_nothing_completes(e), 5.0)
    case.shows(e.logged(LOGGED_STALL), 5.0)
    case.shows(_spins_beside_idle(e), 3.0)
    case.shows(_free_of_limit_is_faster(e), 4.0)
    case.refutes(
        either(
            e.number("requests_completed_count").any_above(0.0),
            e.number("requests_per_s").any_above(0.0),
            e.number("output_tokens_per_s").any_above(0.0),
        )
        if _free_of_limit_is_faster(e).truth is None
        else Check("comparisons", None, "", None)
    )
    return case.opinion(
        "critical",
        advice=f"Remove the core limit of {limit.value.shown()} from this pod: its "
        f"{tensor.value.shown()} ranks wait for each other.",
        changes=(Change("vgpu.core_limit_ratio", None),),
        waste_ratio=Interval(0.9, 1.0),
    )


def _nothing_completes(e: Evidence) -> Check:
    return either(
        e.number("requests_completed_count").all_below(1e-9).said("none"),
        e.number("replicas_ready").all_below(1e-9).said("none"),
        e.number("requests_per_s").all_below(1e-9).said("none"),
        both(
            e.number("output_tokens_per_s").all_below(1e-9).said("none"),
            e.number("requests_running").any_above(0.0),
        ),
    )


def _spins_beside_idle(e: Evidence) -> Check:
    """Is one card of the group full and another idle?"""
    util = e.number("gpu_util_ratio")
    truth = None
    if util.units:
        truth = util.most.at_least(0.9) is True and util.least.below(OFF_RATIO) is True
    return Check(util.key, util.plain(), "one full, one idle", truth)


def _free_of_limit_is_faster(e: Evidence) -> Check:
    key = "vgpu.core_limit_ratio"
    pairs = contrasts(
        e,
        lambda arm: arm.number(key).value.below(1.0) is True,
        lambda arm: arm.number(key).unset or arm.number(key).value.at_least(1.0) is True,
        key,
        "vgpu.policy",
        "k8s.gpu_sharing",
    )
    return any_slower(pair for pair in pairs if not pair.besides)


@rule(
    "SHARE003",
    cause="vgpu_limit_sawtooth",
    needs=("vgpu.core_limit_ratio", "vgpu.policy", "gpu_util_ratio"),
    fires={
        "settings": {"vgpu.core_limit_ratio": 0.5, "vgpu.policy": "force"},
        "signals": {
            "gpu_util_ratio": {"series": [{"value": 0.99}, {"value": 0}, {"value": 0.98}]},
        },
    },
    clear={
        "settings": {"vgpu.core_limit_ratio": 0.5, "vgpu.policy": "force"},
        "signals": {
            "gpu_util_ratio": {"series": [{"value": 0.52}, {"value": 0.49}, {"value": 0.5}]},
        },
    },
    silent={
        "settings": {"vgpu.core_limit_ratio": 0.5, "vgpu.policy": "force"},
        "signals": {"gpu_util_ratio": 0.5},
    },
)
def core_limit_switches_on_and_off(e: Evidence) -> Opinion:
    """A forced core limit works by letting the card run and halting it in turns.

    ## Why it costs money
    Work halts in the middle of a step: the time between tokens swings from nothing to the length
    of the off phase, and batches that would have run side by side run in bursts.

    ## How it is told
    Utilisation alternates between nearly full and nearly none while a limit is forced and there is
    work. Without a limit the same pattern is a batch that comes and goes, or starved input.

    ## What to do
    Share by MIG or MPS, which divide the card in space; or relax the policy to the default and
    the limit to what the pod really needs.

    ## Risk
    MIG can be changed only while nothing runs on the card and its slices have fixed sizes; under
    MPS a fault in one client can end all of them. With the default policy a busy neighbour takes
    idle time, so what each pod gets is no longer the same every day.
    """
    case = Case()
    limit, util = e.number("vgpu.core_limit_ratio"), _device_use(e)
    case.must(either(limit.below(1.0), e.is_one_of("vgpu.policy", "force")))
    case.shows(_alternates(util), 3.0)
    case.refutes(e.number("requests_running").all_below(1e-9).said("none"))
    case.refutes(e.is_one_of("k8s.gpu_sharing", "none", "mig"))
    case.sign(e.is_one_of("vgpu.policy", "force"), yes=2.0, no=-1.0)
    case.sign(e.is_one_of("arrivals", "bursty"), yes=-1.0)
    case.sign(limit.below(1.0), yes=0.5)
    return case.opinion(
        advice="Divide the card in space (MIG, MPS) instead of in time.",
        changes=(Change("k8s.gpu_sharing", "mig"),),
    )


def _alternates(util: Quantity) -> Check:
    """Does the series go from nearly full to nearly none, or back, and more than once if long?"""
    phases: list[bool] = []
    for point in util.series:
        on, off = point.at_least(ON_RATIO) is True, point.at_most(OFF_RATIO) is True
        if (on or off) and (not phases or phases[-1] != on):
            phases.append(on)
    truth = None
    if len(util.series) >= 2:
        truth = len(phases) >= (2 if len(util.series) < 4 else 3)
    return Check(util.key, util.plain(), f">= {ON_RATIO:g} and <= {OFF_RATIO:g} in turns", truth)


RULES: tuple[Rule, ...] = (
    core_limit_not_applied,
    core_limit_stalls_group,
    core_limit_switches_on_and_off,
)
"""Rules of this family."""
