"""Rules of load tools: one that is itself the limit measures itself."""

from __future__ import annotations

from mileage.doctor.case import Case
from mileage.doctor.check import Check, both, either
from mileage.doctor.connection_pool import is_pool_size, varies_pool
from mileage.doctor.evidence import Evidence
from mileage.doctor.opinion import Change, Opinion
from mileage.doctor.request_path import (
    at_the_engine,
    client_sees_more,
    direct_path,
    engine_slots,
    held_at_one_number,
    nothing_waits,
    open_loop,
    requests_wait,
    short_of,
)
from mileage.doctor.rule import Rule, rule

__all__ = ["RULES"]

CORE_BUSY = 0.85
"""Of one core: an event loop that is this busy has no time left when several answers come."""

CORE_FREE = 0.7
"""Of one core: a process below this waits for others more than others wait for it."""

FEW = 0.5
"""Share of the wanted requests: where less than half of them arrive the tool is far behind."""

BETTER = 1.15
"""Ratio of two throughputs that is no noise of one run of a benchmark each."""

TOOL_SETTINGS = (
    "client.tool",
    "client.processes",
    "client.tls",
    "client.connection_reuse",
    "client.read_buffer_kb",
    "client.http_library",
    "topology.client",
)


@rule(
    "CLI002",
    cause="load_generator_bound",
    needs=(
        "client_process_cpu_ratio",
        "client_ttft_mean_s",
        "client_itl_mean_s",
        "client_e2e_mean_s",
        "requests_waiting",
        "gpu_util_ratio",
        "client.tool",
        "client.tls",
        "client.connection_reuse",
        "comparisons",
    ),
    fires={
        "settings": {"client.tool": "own script", "client.processes": 1},
        "signals": {
            "client_process_cpu_ratio": 1.0,
            "client_ttft_mean_s": 2.4,
            "ttft_mean_s": 0.2,
            "requests_waiting": 0,
        },
    },
    clear={
        "settings": {"client.tool": "own script"},
        "signals": {
            "client_process_cpu_ratio": 0.2,
            "client_ttft_mean_s": 0.21,
            "ttft_mean_s": 0.2,
            "requests_waiting": 0,
        },
    },
    silent={"settings": {"client.tool": "own script"}, "signals": {"client_ttft_mean_s": 0.9}},
)
def load_tool_is_the_limit(e: Evidence) -> Opinion:
    """The load tool, not the server, sets the pace that is measured.

    ## Why it costs money
    Capacity is bought, or a change thrown away, by figures that say how fast the client is. A
    Python client that reads thousands of events per second fills one core.

    ## How it is told
    The tool's process uses a whole core; the client sees far more latency than the server's own
    clock; two tools, or one and several processes, disagree about the same server; the GPU does
    less as the tool adds concurrency. A client whose pool holds requests back with an idle CPU is
    `client_connection_limit`; with a proxy between the two clocks it may be the proxy.

    ## What to do
    Run several processes of the tool, on other cores than the engine's; keep connections open and
    read larger pieces; measure with a compiled tool, or with `mileage bench`, which reports its
    own lag. Judge the server by its own metrics until both agree.

    ## Risk
    A stronger generator shows the server's real limit, and can overload a shared system: never
    against production without a cap on its rate. Earlier results of the old tool are not comparable
    with the new ones, so measure the baseline again.
    """
    case = Case()
    cpu = e.number("client_process_cpu_ratio")
    slower = client_sees_more(e)
    handshakes = both(e.is_true("client.tls"), e.is_false("client.connection_reuse"))
    case.shows(both(cpu.any_above(CORE_BUSY), _server_calm(e)), 4.0)
    case.shows(cpu.any_above(CORE_BUSY), 2.6)
    case.shows(both(slower, direct_path(e)), 3.0)
    case.shows(_tools_disagree(e), 4.0)
    case.shows(_does_less_at_more_load(e), 3.0)
    case.shows(both(_late_without_a_queue(e), direct_path(e)), 2.4)
    case.shows(_few_arrive(e), 2.4)
    case.sign(both(handshakes, e.number("concurrency").at_least(32)), yes=1.5)
    case.sign(
        either(e.is_one_of("kind", "benchmark", "eval"), e.is_one_of("client.tool", "ab")), yes=0.4
    )
    case.sign(held_at_one_number(e), yes=-0.8)
    case.refutes(_server_full(e))
    case.refutes(cpu.where(f"< {CORE_FREE:g}", lambda _: cpu.most.below(CORE_FREE)))
    return case.opinion(advice=_tool_advice(e), changes=_more_processes(e))


def _server_calm(e: Evidence) -> Check:
    """Has the server something left, or does the client see more than it?"""
    return either(
        nothing_waits(e),
        e.number("gpu_util_ratio").below(0.9),
        e.number("sm_active_ratio").below(0.7),
        client_sees_more(e),
    )


def _server_full(e: Evidence) -> Check:
    """Do requests wait at a GPU that works all the time, and is the client no later than that?"""
    slower = client_sees_more(e)
    calm = Check(slower.signal, slower.value, "the client sees no more", slower.truth is not True)
    busy = either(
        e.number("gpu_util_ratio").at_least(0.9), e.number("sm_active_ratio").at_least(0.7)
    )
    return both(requests_wait(e), busy, calm)


def _few_arrive(e: Evidence) -> Check:
    """A load tool wants more in flight than reaches the engine, and no pool's size stops it."""
    running, tool = at_the_engine(e), e.text("client.tool")
    odd = is_pool_size(running).negated()
    measured = Check("client.tool", tool, "a load tool measures", True if tool else None)
    short = short_of(running, e.number("concurrency"), FEW)
    closed = Check("arrivals", e.text("arrivals"), "not at times of their own", True)
    if open_loop(e).truth:
        closed = Check(closed.signal, closed.value, closed.limit, False)
    return both(short, nothing_waits(e), direct_path(e), odd, measured, closed)


def _tools_disagree(e: Evidence) -> Check:
    """Arms that differ in the load tool alone do not agree about the server."""
    truth: bool | None = None
    shown: object = None
    for comparison in e.comparisons:
        if not comparison.varies_only(*TOOL_SETTINGS) or varies_pool(comparison):
            continue
        for one, other in comparison.pairs():
            ratio = comparison.speed(other, one)
            if not ratio.known:
                ratio = comparison.ratio("gpu_util_ratio", other, one)
            apart = either(ratio.at_least(BETTER), ratio.at_most(1 / BETTER)).truth
            if apart is not None and not truth:
                truth, shown = apart, ratio.value.plain()
    return Check("comparisons", shown, "another load tool measures another speed", truth)


def _does_less_at_more_load(e: Evidence) -> Check:
    """Load points: the GPU, or what is running on it, gets less as the tool adds concurrency."""
    for comparison in e.comparisons:
        if "concurrency" not in comparison.varied() or not comparison.varies_only(
            "concurrency", "num_requests", "rate_rps", "client.processes"
        ):
            continue
        arms = sorted(comparison.arms, key=lambda arm: arm.number("concurrency").value.middle)
        for key in ("gpu_util_ratio", "sm_active_ratio", "power_w"):
            ratio = comparison.ratio(key, arms[-1], arms[0])
            waiting = arms[-1].number("requests_waiting")
            if ratio.known and not (waiting.known and waiting.total.at_least(1)):
                return ratio.at_most(0.85).said("the GPU does less at more concurrency")
    return Check("comparisons", None, "the GPU does less at more concurrency", None)


def _late_without_a_queue(e: Evidence) -> Check:
    """A small model with slots to spare, and a first token that the client gets after a second.

    All requests of the client fit the slots at once, so none queues; a model of a few billion
    parameters computes such a batch of prompts of usual length in well under a second.
    """
    slots, wanted = engine_slots(e), e.number("concurrency")
    room = Check("max_num_seqs", None, "slots for all that is wanted", None)
    if slots is not None and wanted.known:
        truth = slots.at_least(wanted.value.high)
        room = Check("max_num_seqs", slots.plain(), room.limit, truth)
    prompts = e.number("isl_tokens")
    usual = Check("isl_tokens", prompts.plain(), "<= 2048", prompts.value.at_most(2048))
    if not prompts.known:
        usual = Check("isl_tokens", None, "<= 2048", True)
    tool = e.text("client.tool")
    return both(
        room,
        usual,
        e.number("model.params_b").at_most(3.0),
        e.number("client_ttft_mean_s").at_least(1.0),
        Check("client.tool", tool, "a load tool measures", None if tool is None else True),
    )


def _more_processes(e: Evidence) -> tuple[Change, ...]:
    processes = e.number("client.processes")
    if processes.known and processes.value.exact:
        return (Change("client.processes", int(processes.value.low) * 4),)
    return ()


def _tool_advice(e: Evidence) -> str:
    cpu = e.number("client_process_cpu_ratio")
    if not cpu.known or cpu.most.below(CORE_BUSY):
        return ""
    return (
        f"The load tool's busiest process uses {cpu.most.shown()} of a core: start several of "
        "them, away from the engine's cores, and measure again."
    )


RULES: tuple[Rule, ...] = (load_tool_is_the_limit,)
"""Rules of this family."""
