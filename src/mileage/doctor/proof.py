"""The command that proves a remedy: the deployment with and without the change, side by side."""

from __future__ import annotations

from mileage.doctor.evidence import Evidence
from mileage.doctor.interval import Interval
from mileage.doctor.opinion import Opinion

__all__ = ["proof_command"]

URL_NOW = "http://HOST:PORT"
URL_CHANGED = "http://CHANGED-HOST:PORT"
WATCH_AGAIN = ("replicas_", "scale_", "pod_", "hpa", "keda", "autoscaler", "node_", "knative")
"""Names of facts about replicas that come and go: no load on one endpoint proves anything."""
OUTSIDE = frozenset(
    {
        "idle_capacity",
        "client_connection_limit",
        "load_generator_bound",
        "no_request_merging",
        "volatile_prefix",
    }
)
"""Causes whose remedy is not in the server: a generator of our own would not have the fault."""
BOOKS = (
    "cost_",
    "metering",
    "calls_count",
    "tokens_count",
    "gpu_share_",
    "gpu_hours_",
    "gpu_cost_",
)
"""Names of facts about what is recorded."""
CONCURRENCY_USUAL = 32
"""Where the load is not known: enough for a batch, few enough for a small engine."""


def proof_command(opinion: Opinion, evidence: Evidence, url: str | None, cause: str = "") -> str:
    """The command, with the load that the facts tell of.

    What shows at a start is proven by the next start's log; what is about replicas, clients or
    records by another look; all else by `mileage bench ab` with the metric that the evidence is
    about. The address of the deployment with the change is for its user to put in.
    """
    asked = [sign.check.signal for sign in opinion.signs if sign.check.truth]
    now = url or URL_NOW
    if any(key.startswith("startup_") for key in asked):
        return f"mileage doctor {now} --log LOG-OF-THE-NEXT-START"
    if cause in OUTSIDE or any(key.startswith(WATCH_AGAIN) for key in asked):
        return f"mileage doctor {now} --for 10m"
    if any(key.startswith(BOOKS) for key in asked):
        return "mileage doctor --facts FACTS-AFTER-THE-CHANGE.json"
    load = " ".join(_load(evidence))
    return f"mileage bench ab {now} {URL_CHANGED} {load} --metric {_metric(asked)}"


def _load(evidence: Evidence) -> list[str]:
    concurrency = _count(evidence.number("concurrency").value)
    rate = evidence.number("rate_rps").value
    if concurrency is None and rate.bounded and rate.low > 0:
        options = [f"--rate {rate.middle:.3g}"]
    else:
        options = [f"--concurrency {concurrency or _seen(evidence) or CONCURRENCY_USUAL}"]
    for key, option in (("isl_tokens", "--prompt-tokens"), ("osl_tokens", "--output-tokens")):
        tokens = _count(evidence.number(key).value)
        if tokens is not None:
            options.append(f"{option} {tokens}")
    shared = evidence.number("shared_prefix_ratio").value
    if shared.bounded and shared.low > 0 and shared.high <= 1:
        options.append(f"--shared-prefix-ratio {shared.middle:.2g}")
    return options


def _seen(evidence: Evidence) -> int | None:
    """Requests that run and wait: what clients keep in flight; less would not reach a cap."""
    running, waiting = evidence.number("requests_running"), evidence.number("requests_waiting")
    if not running.known or not waiting.known:
        return None
    return _count(running.total.plus(waiting.total))


def _count(value: Interval) -> int | None:
    """A whole number of at least 1; None where it is not known to one side."""
    if not value.bounded:
        return None
    return max(1, round(value.middle)) if value.middle > 0 else None


def _metric(asked: list[str]) -> str:
    if any("ttft" in key or "queue_time" in key for key in asked):
        return "ttft_p99_s"
    if any("itl" in key or "step_time" in key for key in asked):
        return "itl_p99_s"
    return "output_tokens_per_s"
