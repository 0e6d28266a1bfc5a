"""Rules of observing: looking costs what it looks at."""

from __future__ import annotations

import re

from mileage.doctor.case import Case
from mileage.doctor.check import Check, both, either
from mileage.doctor.evidence import Evidence
from mileage.doctor.opinion import Change, Opinion
from mileage.doctor.rule import Rule, rule
from mileage.doctor.rules.setting_effect import gain_check, with_more

__all__ = ["RULES"]

PROBE_LINE = re.compile(r"GET /(metrics|health|healthz|livez|readyz|ping|v1/models|v2/health)\b")
WORK_LINE = re.compile(r"POST /\S+")

LINES_MIN = 20
"""Access lines from which a share of them says something."""

PROBES_RATIO = 0.8
"""Share of the access lines that are probes: four of five answers serve nobody."""

POLLING_FAST_S = 1.0
"""Exporters and engines renew their figures once a second or less: faster polling reads nothing
new."""

CORE_BUSY = 0.9
"""Of one core: the process that answers probes has none left for requests."""

PROBE_LATE = r"(liveness|readiness|startup) probe failed.{0,120}(timeout|deadline exceeded)"

BETTER = 1.05


@rule(
    "OBS001",
    cause="probes_too_frequent",
    needs=("keda.polling_s", "frontend_process_cpu_ratio", "logs", "comparisons"),
    fires={
        "settings": {"keda.polling_s": 0.2, "autoscaler.kind": "keda"},
        "signals": {"frontend_process_cpu_ratio": 0.97},
        "logs": ['"GET /metrics HTTP/1.1" 200 OK'] * 20,
    },
    clear={
        "settings": {"keda.polling_s": 30},
        "logs": ['"POST /v1/completions HTTP/1.1" 200 OK'] * 20,
    },
    silent={"signals": {"frontend_process_cpu_ratio": 0.97}},
)
def probes_come_too_often(e: Evidence) -> Opinion:
    """Probes and metrics are asked for so often that answering them takes the server's time.

    ## Why it costs money
    `/metrics` renders every counter and histogram in the process that also reads requests and
    writes tokens; a GPU counter that is sampled every few milliseconds disturbs kernels. A probe
    that is answered late restarts a healthy server, with all its requests.

    ## How it is told
    Nearly all lines of the access log are probes, or something polls more than once a second,
    while the process that answers them fills its core or answers probes too late; or throughput
    rises with a longer interval. The same full core without probes is `frontend_cpu_bound`.

    ## What to do
    One scraper at 5 to 15 s, probes every 10 s with a timeout of some seconds, on a separate
    port or process, and no access log for them. Give GPU counters 1 s or more.

    ## Risk
    Looked at less often, a failure is noticed later: with a period of 10 s and three failures a
    dead pod gets traffic for up to half a minute. Alerts over windows shorter than two scrapes stop
    working, and rates over them become gaps.
    """
    case = Case()
    often = either(e.number("keda.polling_s").below(POLLING_FAST_S), _mostly_probes(e))
    pressed = either(
        e.number("frontend_process_cpu_ratio").any_above(CORE_BUSY),
        e.logged(PROBE_LATE),
    )
    longer = with_more(e, "keda.polling_s", factor=1.5)
    case.shows(both(often, pressed), 3.4)
    case.shows(gain_check(longer, BETTER), 3.4)
    case.refutes(often.negated())
    case.refutes(e.number("frontend_process_cpu_ratio").all_below(0.5))
    return case.opinion(changes=(Change("keda.polling_s", 15.0),) if longer else ())


def _mostly_probes(e: Evidence) -> Check:
    probes = sum(1 for _ in e.log_matches(PROBE_LINE))
    work = sum(1 for _ in e.log_matches(WORK_LINE))
    truth: bool | None = None
    if probes + work >= LINES_MIN:
        truth = probes / (probes + work) >= PROBES_RATIO
    shown = f"{probes} of {probes + work} access lines" if probes + work else None
    return Check("logs", shown, f">= {PROBES_RATIO:g} are probes", truth)


RULES: tuple[Rule, ...] = (probes_come_too_often,)
"""Rules of this family."""
