"""Rules of a proxy in front of the engine: it lets too few through, or is out of CPU."""

from __future__ import annotations

from mileage.doctor.arms import Ratio
from mileage.doctor.case import Case
from mileage.doctor.check import Check, both, either
from mileage.doctor.connection_pool import Pool, is_pool_size, pool_of, stops_at_pool
from mileage.doctor.evidence import Evidence
from mileage.doctor.interval import exactly
from mileage.doctor.opinion import Change, Opinion
from mileage.doctor.proxy_effect import (
    costs_little,
    engine_requests_left,
    proxy_itl,
    proxy_loss,
    proxy_slows,
)
from mileage.doctor.quantity import Quantity
from mileage.doctor.request_path import (
    at_the_engine,
    client_sees_more,
    engine_slots,
    nothing_waits,
    open_loop,
    proxied_path,
    requests_wait,
    short_of,
)
from mileage.doctor.rule import Rule, rule
from mileage.doctor.rules.setting_effect import effect_check, gain_check, speeds, with_more

__all__ = ["RULES"]

CORE_BUSY = 0.85
"""Of one core: an event loop that is this busy adds its queue to every request."""

CORE_FREE = 0.6
"""Of one core: below this a process is not what requests wait for."""

BETTER = 1.1
"""Throughput with more workers or connections over that with fewer."""

CAP_USED = 0.8
"""Mean in flight over the cap where the cap is what holds it: it is full most of the time."""

SLOTS_TAKEN = 0.95
"""Running over slots where none is left: a slot is empty for the time between two requests."""

LARGE_BODY_MB = 1.0
"""A body of this size takes milliseconds to read, check and write again: it blocks the loop."""

PYTHON_PROXIES = ("litellm", "fastapi", "python", "uvicorn", "gunicorn", "flask", "starlette")
"""Proxies whose every request and chunk runs through an interpreter: some hundred each second."""

REFUSED = (
    r"max parallel request limit|crossed .{0,20}max_parallel_requests|exceeded concurrency limit"
    r"|worker_connections are not enough|upstream_rq_pending_overflow|PoolTimeout"
    r"|connection pool (is )?(exhausted|timeout)|limiting connections by zone"
)
"""LiteLLM, uvicorn, nginx, Envoy and httpx when the cap is reached."""

WORKER_KEYS = ("proxy.workers", "proxy.cpus", "proxy.replicas")


@rule(
    "PRX001",
    cause="proxy_concurrency_cap",
    needs=(
        "proxy.max_parallel_requests",
        "proxy.max_connections",
        "proxy.http_library",
        "proxy_requests_in_flight_max",
        "requests_running_max",
        "requests_waiting",
        "max_num_seqs",
        "concurrency",
        "comparisons",
        "logs",
    ),
    fires={
        "topology": {"proxies": ["gateway"]},
        "settings": {"max_num_seqs": 128, "proxy.max_parallel_requests": 32},
        "signals": {"requests_running_max": 32, "requests_waiting": 0},
    },
    clear={
        "topology": {"proxies": ["gateway"]},
        "settings": {"max_num_seqs": 128, "proxy.max_parallel_requests": 512},
        "signals": {"requests_running_max": 128, "requests_waiting": 40},
    },
    silent={"topology": {"proxies": ["gateway"]}, "signals": {"requests_running_max": 32}},
)
def proxy_lets_too_few_through(e: Evidence) -> Opinion:
    """A proxy's pool or limit admits fewer requests than the engine could run.

    ## Why it costs money
    The engine's batch is never larger than the proxy lets it be: weights are read for few
    requests while others wait in the proxy, where the engine's metrics show no queue.

    ## How it is told
    In flight behind the proxy stop at its cap, nothing waits at the engine, and the engine has
    slots left; or the same load is served faster without the proxy, while tokens of one request
    come no slower. If they do, or the proxy's process fills a core, it is `proxy_cpu_bound`.
    Without a proxy it is `client_connection_limit`; requests that wait at the engine are its own
    (`max_num_seqs_cap`).

    ## What to do
    Set the cap to the slots of all replicas and a reserve (LiteLLM `max_parallel_requests`; the
    upstream client's `limit` or `max_connections`; nginx `worker_connections`; Envoy
    `circuit_breakers`), and let the queue stand in the engine or in a gateway that shows it.

    ## Risk
    The queue moves into the engine, where no limit by tenant orders it: one caller can fill all
    slots. More connections take file descriptors in the proxy (raise `ulimit -n`), and a higher
    breaker threshold lets a sick upstream fail more requests before it is taken out.
    """
    case = Case()
    pool, wanted = _cap(e), e.number("concurrency")
    passed = e.number("proxy_requests_in_flight_max")
    through = passed if passed.known else at_the_engine(e)
    waits, proxied = nothing_waits(e), proxied_path(e)
    case.shows(both(_below_slots(e, pool), _seen_at(pool, through)), 4.2)
    case.shows(both(_full(pool, through), proxied, _not_queued(e)), 3.2)
    stops = stops_at_pool(through, pool)
    case.shows(both(short_of(through, wanted), stops, proxied, waits), 3.0)
    case.shows(both(_below_wanted(pool, wanted), proxied, _not_queued(e)), 2.8)
    case.shows(both(proxy_slows(e), _small(e, pool, wanted)), 3.4)
    case.shows(both(proxy_slows(e), _left_at_pool_size(e)), 3.0)
    case.shows(gain_check(_more_connections(e), BETTER), 3.6)
    case.shows(both(proxied, e.logged(REFUSED)), 3.0)
    case.refutes(requests_wait(e))
    case.refutes(costs_little(e))
    case.refutes(_no_proxy(e))
    case.refutes(_client_opens_no_more(e, through))
    case.refutes(_engine_full(e, pool))
    case.refutes(short_of(through, wanted).negated())
    case.sign(e.number("proxy_process_cpu_ratio").any_above(CORE_BUSY), yes=-2.5, no=0.5)
    case.sign(proxy_itl(e).above(1.2), yes=-1.0, no=0.5)
    case.sign(is_pool_size(through), yes=0.5)
    case.sign(open_loop(e), yes=-1.5)
    return case.opinion(
        advice=_cap_advice(e, through), changes=_raised(e), waste_ratio=proxy_loss(e)
    )


@rule(
    "PRX002",
    cause="proxy_cpu_bound",
    needs=(
        "proxy_process_cpu_ratio",
        "proxy.workers",
        "proxy.cpus",
        "proxy.kind",
        "payload_mb",
        "comparisons",
    ),
    fires={
        "topology": {"proxies": ["litellm"]},
        "settings": {"proxy.kind": "litellm", "proxy.workers": 1, "proxy.cpus": 8},
        "signals": {"proxy_process_cpu_ratio": 1.0, "requests_waiting": 0},
    },
    clear={
        "topology": {"proxies": ["litellm"]},
        "settings": {"proxy.kind": "litellm", "proxy.workers": 1, "proxy.cpus": 8},
        "signals": {"proxy_process_cpu_ratio": 0.1, "requests_waiting": 0},
    },
    silent={
        "topology": {"proxies": ["litellm"]},
        "settings": {"proxy.kind": "litellm", "proxy.workers": 1, "proxy.cpus": 8},
    },
)
def proxy_out_of_cpu(e: Evidence) -> Opinion:
    """The proxy's processes are out of CPU, so that requests and tokens wait in them.

    ## Why it costs money
    One event loop passes on each chunk of each answer. When it is full the engine's answers wait
    to be read and the next requests wait to be sent: GPUs idle behind a few dollars of CPU.

    ## How it is told
    The busiest proxy process uses a whole core, with fewer workers than CPUs; or throughput falls
    and latency rises through the proxy, more so with large bodies, spend records or a database on
    the way. With CPU to spare and in flight at a round number it is `proxy_concurrency_cap`.

    ## What to do
    One worker process for each CPU (LiteLLM `--num_workers`, gunicorn `-w`), more replicas; take
    logging, spend rows and schema checks off the request's path; send large media by reference;
    or use a compiled proxy. `mileage serve` is measured against the engine alone.

    ## Risk
    Workers do not share memory: rate limits and caches count per worker unless a store such as
    Redis holds them, so budgets may be overrun by that factor. With logging off the path, records
    of a crash's last seconds are lost.
    """
    case = Case()
    cpu = e.number("proxy_process_cpu_ratio")
    slows = proxy_slows(e)
    large = e.number("payload_mb").at_least(LARGE_BODY_MB)
    case.shows(cpu.any_above(CORE_BUSY), 3.5)
    case.shows(slows, 2.6)
    case.shows(gain_check(_more_workers(e), BETTER), 3.6)
    case.shows(both(proxied_path(e), _slower_with_payload(e)), 3.0)
    case.shows(effect_check(_of_heavy_work(e), 1 / BETTER), 3.6)
    case.shows(both(proxied_path(e), client_sees_more(e), _weak(e)), 2.4)
    case.refutes(costs_little(e))
    case.refutes(cpu.where(f"< {CORE_FREE:g}", lambda _: cpu.most.below(CORE_FREE)))
    case.refutes(_no_proxy(e))
    case.sign(requests_wait(e), yes=-2.0)
    case.sign(e.number("client_process_cpu_ratio").any_above(CORE_BUSY), yes=-2.0)
    case.sign(e.number("proxy.cpus").exceeds(e.number("proxy.workers")), yes=0.7)
    case.sign(large, yes=1.0)
    case.sign(e.is_true("proxy.spend_logging"), yes=0.4)
    case.sign(e.is_false("proxy.db_pooler"), yes=0.3)
    case.sign(either(e.contains("proxy.kind", *PYTHON_PROXIES), _python_hop(e)), yes=0.4)
    case.sign(proxy_itl(e).above(1.2), yes=0.7, no=-0.5)
    case.sign(_left_at_pool_size(e), yes=-0.5)
    return case.opinion(
        advice=_cpu_advice(e), changes=_workers_for_cpus(e), waste_ratio=proxy_loss(e)
    )


def _cap(e: Evidence) -> Pool | None:
    """The proxy's explicit cap for a key or model, else its pool towards the engine."""
    stated = e.number("proxy.max_parallel_requests")
    pool = pool_of(e, "proxy")
    if not stated.known:
        return pool
    if pool is not None and pool.certain and pool.size.high < stated.value.low:
        return pool
    return Pool(stated.value, True, f"{stated.value.shown()} parallel requests")


def _below_slots(e: Evidence, pool: Pool | None) -> Check:
    """Is the explicit cap below what the engine would run?"""
    slots = engine_slots(e)
    truth = None
    if pool is not None and pool.certain and slots is not None:
        truth = slots.exceeds(pool.size)
    limit = "> the proxy's cap" if pool is None else f"> the proxy's cap of {pool.said}"
    return Check("max_num_seqs", None if slots is None else slots.plain(), limit, truth)


def _seen_at(pool: Pool | None, through: Quantity) -> Check:
    """Are as many in flight as the cap allows? Not seen counts as yes: the setting decides."""
    if pool is None or not through.known:
        return Check(through.key, None, "at the cap", True)
    if through.key != "requests_running":
        return pool.full(through)
    truth = through.total.at_least(CAP_USED * pool.size.high)
    return Check(through.key, through.plain(), f">= {CAP_USED:g} x the cap on average", truth)


def _full(pool: Pool | None, through: Quantity) -> Check:
    if pool is None:
        return Check("proxy.max_connections", None, "the proxy's pool is full", None)
    return pool.full(through)


def _below_wanted(pool: Pool | None, wanted: Quantity) -> Check:
    if pool is None or not pool.certain:
        return Check("proxy.max_connections", None, "< concurrency", None)
    return pool.below(wanted)


def _small(e: Evidence, pool: Pool | None, wanted: Quantity) -> Check:
    """Is the pool below what clients want, or, where it is set, below the slots?"""
    if pool is None:
        return Check("proxy.max_connections", None, "< concurrency", None)
    slots = _below_slots(e, pool)
    return either(pool.below(wanted), slots)


def _not_queued(e: Evidence) -> Check:
    """Nothing waits at the engine, as far as is known."""
    waits = requests_wait(e)
    return Check(waits.signal, waits.value, "none waits at the engine", waits.truth is not True)


def _client_opens_no_more(e: Evidence, through: Quantity) -> Check:
    """Has the client itself no more requests open than get through, and fewer than it wants?"""
    opened = e.number("client_requests_in_flight_max")
    passed = Check(opened.key, opened.plain(), "no more than get through", None)
    if opened.known and through.known:
        truth = through.total.times(exactly(1.05)).at_least(opened.total.high)
        passed = Check(opened.key, opened.plain(), passed.limit, truth)
    return both(short_of(opened, e.number("concurrency")), passed)


def _engine_full(e: Evidence, pool: Pool | None) -> Check:
    """Does the engine run all that it has slots for, so that a larger pool would feed nothing?"""
    slots, running = engine_slots(e), at_the_engine(e)
    truth: bool | None = None
    if slots is not None and pool is not None and running.known:
        feeds_all = slots.exceeds(pool.size) is not True
        truth = (feeds_all and running.total.at_least(SLOTS_TAKEN * slots.high) is True) or None
    return Check(running.key, running.plain(), "all slots of the engine are taken", truth)


def _left_at_pool_size(e: Evidence) -> Check:
    """By Little's law, are as many requests past the proxy as a usual pool of 100 holds?"""
    left = engine_requests_left(e)
    pool = pool_of(e, "proxy")
    size = pool.size if pool is not None else exactly(100.0)
    truth = None
    if left.bounded:
        truth = left.low >= 0.85 * size.low and left.high <= 1.15 * size.high
    return Check("comparisons", left.plain(), f"{size.shown()} past the proxy", truth)


def _more_connections(e: Evidence) -> tuple[Ratio, ...]:
    caps = ("proxy.max_connections", "proxy.max_parallel_requests")
    return tuple(pair for key in caps for pair in with_more(e, key, also=caps))


def _more_workers(e: Evidence) -> tuple[Ratio, ...]:
    return tuple(pair for key in WORKER_KEYS for pair in with_more(e, key, also=WORKER_KEYS))


def _of_heavy_work(e: Evidence) -> tuple[Ratio, ...]:
    """Arms with work on the path of the request, beside arms without it."""
    spends = speeds(e, "proxy.spend_logging", lambda arm: arm.get("proxy.spend_logging"))
    pooled = speeds(e, "proxy.db_pooler", lambda arm: _not(arm.get("proxy.db_pooler")))
    python = speeds(e, "proxy.kind", lambda arm: _is_python(arm.get("proxy.kind")))
    return spends + pooled + python


def _not(flag: object) -> bool | None:
    return None if flag is None else not flag


def _is_python(kind: object) -> bool | None:
    return any(name in kind for name in PYTHON_PROXIES) if isinstance(kind, str) else None


def _weak(e: Evidence) -> Check:
    """Is the proxy one that runs out of CPU early?"""
    return either(
        e.number("proxy.cpus").exceeds(e.number("proxy.workers")),
        e.contains("proxy.kind", *PYTHON_PROXIES),
        e.includes("topology.proxies", *PYTHON_PROXIES),
        e.number("payload_mb").at_least(LARGE_BODY_MB),
    )


def _slower_with_payload(e: Evidence) -> Check:
    """Arms with larger bodies are slower, through the proxy."""
    found = with_more(e, "payload_mb", factor=1.5)
    worst = min((ratio.value.high for ratio in found), default=None)
    truth = None if worst is None else worst <= 1 / 1.5
    return Check("comparisons", worst, "slower with larger bodies", truth)


def _python_hop(e: Evidence) -> Check:
    return e.includes("topology.proxies", *PYTHON_PROXIES)


def _no_proxy(e: Evidence) -> Check:
    """Is it known that requests come directly, and that no arms came through a proxy?"""
    direct = proxied_path(e).truth is False and not e.comparisons
    return Check("topology.proxies", [] if direct else None, "no proxy", direct or None)


def _raised(e: Evidence) -> tuple[Change, ...]:
    slots = engine_slots(e)
    key = "proxy.max_connections"
    if e.known("proxy.max_parallel_requests"):
        key = "proxy.max_parallel_requests"
    if slots is not None and slots.exact:
        return (Change(key, int(slots.low * 1.25) + 1),)
    wanted = e.number("concurrency").value
    return (Change(key, int(wanted.low)),) if wanted.exact else ()


def _cap_advice(e: Evidence, through: Quantity) -> str:
    slots = engine_slots(e)
    if not through.known or slots is None or slots.exceeds(through.total) is not True:
        return ""
    return (
        f"{through.total.shown()} requests get through the proxy and the engine would run "
        f"{slots.shown()}: raise the proxy's cap above that."
    )


def _workers_for_cpus(e: Evidence) -> tuple[Change, ...]:
    cpus, workers = e.number("proxy.cpus").value, e.number("proxy.workers")
    more = not workers.known or workers.value.below(cpus.low)
    return (Change("proxy.workers", int(cpus.low)),) if cpus.exact and more else ()


def _cpu_advice(e: Evidence) -> str:
    cpu = e.number("proxy_process_cpu_ratio")
    if not cpu.known:
        return ""
    return (
        f"The busiest proxy process uses {cpu.most.shown()} of a core: start one worker for each "
        "CPU and take heavy work off the path of the request."
    )


RULES: tuple[Rule, ...] = (proxy_lets_too_few_through, proxy_out_of_cpu)
"""Rules of this family."""
