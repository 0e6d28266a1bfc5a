"""What is said of a run in a line each: where, what load, what became of it, what to beware of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from mileage.cli.bench_figures import value_at
from mileage.cli.bench_format import amount, count, latency, percent, rate

__all__ = ["endpoint_line", "load_line", "requests_line", "verdict_line", "warnings_of"]

_CENSORED_MAX: Final = 0.01
"""A p99 says nothing where more than this share of the latencies is not known."""
_LENGTH_OFF: Final = 0.1
_FEW_FOR_P99: Final = 100
_SAMPLES_MAX: Final = 3


def endpoint_line(document: Mapping[str, Any]) -> str:
    """Where, which model, which server."""
    conditions = document["conditions"]
    server = conditions.get("server") or {}
    parts = [str(conditions.get("url")), str(conditions.get("model"))]
    if server.get("kind") not in (None, "openai"):
        parts.append(" ".join(filter(None, (server["kind"], server.get("version")))))
    return ", ".join(parts)


def load_line(document: Mapping[str, Any]) -> str:
    """What was sent, for how long."""
    conditions, window = document["conditions"], document["window"]
    load = conditions.get("load") or {}
    parts = [str((conditions.get("workload") or {}).get("name"))]
    if load.get("mode") == "closed":
        parts.append("closed loop")
    parts.append(f"{window['end_s'] - window['start_s']:.3g} s measured")
    if load.get("warmup_s"):
        parts.append(f"after {load['warmup_s']:g} s of warm-up")
    return ", ".join(parts)


def requests_line(document: Mapping[str, Any]) -> str:
    """How many, and what became of them."""
    failed: Mapping[str, int] = document["requests_failed"]
    text = f"{count(document['requests'])} sent, {count(document['requests_ok'])} ok"
    if failed:
        classes = ", ".join(f"{count(number)} {name}" for name, number in failed.items())
        text += f", {count(sum(failed.values()))} failed ({classes})"
    if document["requests_cancelled"]:
        text += f", {count(document['requests_cancelled'])} cancelled on purpose"
    return text


def verdict_line(document: Mapping[str, Any]) -> str:
    """The line that says it all."""
    if document["error"] is not None:
        begin = "The run ended early" if document["requests_ok"] else "No run"
        return f"{begin}: {document['error']}"
    generator = document["generator"]
    if document["interrupted"]:
        begin = "Interrupted: the result up to there"
    elif not document["requests"]:
        return "Nothing was measured: no request was due in the measured time"
    elif not document["requests_ok"]:
        return "No request was answered well"
    elif generator["limited"]:
        return f"The load generator was the limit, not the server: {generator['reason']}"
    else:
        begin = f"{percent(document['requests_ok'] / document['requests'])} answered well"
    parts = [begin]
    if (goodput := document["goodput_rps"]) is not None:
        met = document["slo_attainment_ratio"]
        share = "" if met is None else f" ({percent(met)})"
        parts.append(f"goodput {rate(goodput)}{share}")
    for key, name in (("ttft_s.p99", "TTFT p99"), ("itl_s.p99", "ITL p99")):
        if (value := value_at(document, key)) is not None:
            parts.append(f"{name} {latency(value)}")
    if value_at(document, "ttft_s.p99") is None and (e2e := value_at(document, "e2e_s.p99")):
        parts.append(f"E2E p99 {latency(e2e)}")
    if (tokens := document["output_tokens_per_s"]) is not None:
        parts.append(f"{rate(tokens)} output tokens")
    return "; ".join(parts)


def warnings_of(document: Mapping[str, Any]) -> list[str]:
    """What makes the figures say less than they seem to, or something else."""
    found = [
        *_failures(document),
        *_of_statistics(document),
        *_of_plan(document),
        *_of_means(document),
    ]
    generator = document["generator"]
    if generator["limited"] and not document["requests_ok"]:
        found.append(f"the load generator was at its limit: {generator['reason']}")
    server = document["server"] or {}
    if server.get("restarted"):
        found.append("the server's process ended, or another took its place, during the run")
    return found


def _failures(document: Mapping[str, Any]) -> list[str]:
    found = []
    for each in document["errors"][:_SAMPLES_MAX]:
        what = each["error"] or each["class"]
        # The same words are another kind where the answer had begun.
        begun = ", the answer begun" if each["class"] == "timeout" and each["status"] else ""
        found.append(f"{count(each['requests'])} {each['class']}{begun}: {what}")
    more = document["errors"][_SAMPLES_MAX:]
    if more:
        number = sum(each["requests"] for each in more)
        found.append(f"{count(number)} more failures of {len(more)} kinds")
    return found


def _of_statistics(document: Mapping[str, Any]) -> list[str]:
    found = []
    censored = document["latency_censored_ratio"]
    if censored is not None and censored > _CENSORED_MAX:
        at_least = value_at(document, "e2e_at_least_s.p99")
        text = f"{percent(censored)} of the latencies are not known to their end"
        if at_least is not None:
            text += f": the p99 of all is at least {latency(at_least)} end to end"
        found.append(text)
    if 0 < document["requests_ok"] < _FEW_FOR_P99:
        found.append(f"{count(document['requests_ok'])} answers are few: a p99 is their slowest")
    steady = document.get("steady_state") or {}
    if steady.get("steady") is False:
        found.append(steady["text"])
    per_event = document["tokens_per_event"]
    if per_event is not None and per_event > 1.05:
        found.append(f"an event carries {per_event:.3g} tokens: ITL is between events")
    return found


def _of_plan(document: Mapping[str, Any]) -> list[str]:
    found = []
    ratio = document["prompt_tokens"]["ratio"]
    if ratio is not None and abs(ratio - 1.0) > _LENGTH_OFF:
        found.append(f"prompts had {percent(ratio)} of their planned tokens, by the engine's count")
    workload = document["conditions"].get("workload") or {}
    if bad := workload.get("bad_records"):
        first = (workload.get("bad_named") or [""])[0]
        found.append(f"{count(bad)} records of the trace are broken and were left out: {first}")
    plan = document["plan"]
    if plan.get("prompts_clipped"):
        found.append(
            f"{count(plan['prompts_clipped'])} prompts were cut: nobody sends so long ones"
        )
    if plan.get("tenants_without_key"):
        names = ", ".join(plan["tenants_without_key"])
        found.append(f"tenants without a key of their own: {names}")
    return found


def _of_means(document: Mapping[str, Any]) -> list[str]:
    found = []
    for name, each in document["engine_means"].items():
        if each["agrees"]:
            continue
        form = latency if name.endswith("_s") else amount
        text = (
            f"{name.removesuffix('_s').replace('_', ' ')}: mean {form(each['seen_mean'])} from "
            f"here, {form(each['engine_mean'])} by the engine"
        )
        if each["seen_count"] != each["engine_count"]:
            # Then the means are not of the same requests.
            text += f", of {count(each['seen_count'])} and {count(each['engine_count'])}"
        found.append(text)
    return found
