"""What `mileage bench diff --json` prints: metrics of both runs, and what else differs."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import Any, Final

from mileage import __version__
from mileage.cli.bench_figures import value_at
from mileage.cli.bench_html import flat
from mileage.cli.bench_result import LIMITED
from mileage.cli.simulate_policy import slo_of
from mileage.core.slo import Slo
from mileage.loadgen.saved_run import SavedRun
from mileage.measure.arm_slot import DECIDING, METRICS
from mileage.measure.two_runs import BLOCKS_MIN, RunDifference, RunWindow, two_runs

__all__ = ["diff_document", "diff_exit_code"]

_TOLD: Final = (
    ("slo_attainment_ratio", "slo_attainment_ratio"),
    ("utilisation_ratio", "utilisation_ratio"),
    ("memory_bytes", "memory_bytes"),
    ("energy_j_per_token", "energy_j_per_output_token"),
    ("usd_per_million_tokens", "usd_per_mtok"),
    ("cached_tokens_ratio", "cached_tokens_ratio"),
)
"""Metrics that the documents of the runs have as one number: they come without an interval."""
_NOT_CONDITIONS: Final = ("prompt_lengths.", "workload.bad_", "server.header")
_FAILED_APART: Final = 0.01
"""Runs whose shares of failed requests differ by more are not of the same work."""


def diff_document(
    a: SavedRun, b: SavedRun, *, names: tuple[str, str], slo: str | None = None, seed: int = 0
) -> dict[str, Any]:
    """The document. Raises ConfigError for targets that are none."""
    targets = _targets(a) if slo is None else slo_of(slo)
    faults = [*_faults("A", a), *_faults("B", b)]
    windows = [
        RunWindow(records=run.records, start_s=run.meta.start_s, end_s=run.meta.end_s)
        for run in (a, b)
    ]
    found: dict[str, RunDifference] = {}
    if all(window.end_s > window.start_s for window in windows):
        plain = Slo(ttft_s=targets.ttft_s, itl_s=targets.itl_s)
        found = two_runs(*windows, slo=plain, deciding=DECIDING, seed=seed)
    metrics = {name: _metric(each) for name, each in found.items()}
    metrics |= _told(a, b)
    verdict, text = _verdict(found, faults)
    return {
        "verdict": verdict,
        "reason": text,
        "deciding": [name for name in DECIDING if name in found],
        "metrics": metrics,
        "differences": _differences(a, b),
        "warnings": [*faults, *_warnings(a, b)],
        "targets": {"ttft_s": targets.ttft_s, "itl_s": targets.itl_s},
        "runs": {arm: _run(run, name) for arm, run, name in zip("ab", (a, b), names, strict=True)},
        "version": __version__,
    }


def diff_exit_code(document: Mapping[str, Any]) -> int:
    """0 better or no difference, 1 worse in something that decides, 3 no verdict."""
    return {"worse": 1, "mixed": 1, "invalid": LIMITED}.get(document["verdict"], 0)


def _targets(run: SavedRun) -> Slo:
    told = run.meta.figures.get("targets") or {}
    return Slo(ttft_s=told.get("ttft_s"), itl_s=told.get("itl_s"))


def _metric(each: RunDifference) -> dict[str, Any]:
    return {
        "a": each.a,
        "b": each.b,
        "ratio": each.ratio,
        "ci95": each.ci95,
        "better": each.better,
        "verdict": each.verdict,
    }


def _told(a: SavedRun, b: SavedRun) -> dict[str, Any]:
    """What each run has one number of; and the share that failed."""
    found: dict[str, Any] = {}
    for name, key in _TOLD:
        first, second = value_at(a.meta.figures, key), value_at(b.meta.figures, key)
        if first is not None or second is not None:
            found[name] = _plain(name, first, second)
    found["failed_ratio"] = _plain("failed_ratio", _failed_ratio(a), _failed_ratio(b))
    return found


def _plain(name: str, a: float | None, b: float | None) -> dict[str, Any]:
    return {
        "a": a,
        "b": b,
        "ratio": b / a if a and b is not None else None,
        "ci95": None,
        "better": METRICS[name].better,
        "verdict": None,
    }


def _failed_ratio(run: SavedRun) -> float | None:
    figures = run.meta.figures
    requests = (figures.get("requests") or 0) - (figures.get("requests_cancelled") or 0)
    if not requests:
        return None
    return float(sum((figures.get("requests_failed") or {}).values()) / requests)


def _faults(name: str, run: SavedRun) -> list[str]:
    """What keeps a run from being compared."""
    figures, found = run.meta.figures, []
    if error := figures.get("error"):
        found.append(f"{name} is no run: {error}")
    elif not figures.get("requests_ok"):
        found.append(f"{name} has no request that was answered well")
    if run.meta.generator.get("limited"):
        found.append(f"{name}'s load generator was its limit: {run.meta.generator.get('reason')}")
    return found


def _warnings(a: SavedRun, b: SavedRun) -> list[str]:
    found = []
    apart_s = _apart_s(a, b)
    apart = "" if apart_s is None else f", {_duration(apart_s)} apart"
    found.append(
        f"two runs{apart}: whatever else changed between them is in the difference, too; "
        "mileage bench ab interleaves both"
    )
    for name, run in (("A", a), ("B", b)):
        if run.meta.figures.get("interrupted"):
            found.append(f"{name} was interrupted")
        steady = run.meta.figures.get("steady_state") or {}
        if steady.get("steady") is False:
            found.append(f"{name}: {steady.get('text')}")
    first, second = _failed_ratio(a), _failed_ratio(b)
    if first is not None and second is not None and abs(first - second) > _FAILED_APART:
        found.append(
            f"{first:.1%} of A's requests failed and {second:.1%} of B's: latencies are of those "
            "that did not"
        )
    return found


def _apart_s(a: SavedRun, b: SavedRun) -> float | None:
    try:
        first, second = (datetime.datetime.fromisoformat(run.meta.started_at_utc) for run in (a, b))
        return abs((second - first).total_seconds())
    except (ValueError, TypeError):
        return None


def _duration(seconds: float) -> str:
    for unit, name in ((86_400.0, "days"), (3600.0, "hours"), (60.0, "minutes")):
        if seconds >= 2 * unit:
            return f"{seconds / unit:.0f} {name}"
    return f"{seconds:.0f} seconds"


def _differences(a: SavedRun, b: SavedRun) -> list[dict[str, Any]]:
    """Conditions that are not the same: name, a, b."""
    trees = [
        dict(flat({**run.meta.options, "host": run.meta.host, "targets": _told_targets(run)}))
        for run in (a, b)
    ]
    return [
        {"name": name, "a": trees[0].get(name), "b": trees[1].get(name)}
        for name in dict.fromkeys([*trees[0], *trees[1]])
        if trees[0].get(name) != trees[1].get(name) and not name.startswith(_NOT_CONDITIONS)
    ]


def _told_targets(run: SavedRun) -> dict[str, Any]:
    told: dict[str, Any] = run.meta.figures.get("targets") or {}
    return told


def _run(run: SavedRun, name: str) -> dict[str, Any]:
    meta = run.meta
    return {
        "file": name,
        "started_at_utc": meta.started_at_utc,
        "window_s": meta.end_s - meta.start_s,
        "requests": meta.figures.get("requests"),
        "requests_ok": meta.figures.get("requests_ok"),
        "requests_failed": meta.figures.get("requests_failed"),
        "model": meta.model,
        "workload": meta.workload,
        "conditions": meta.options,
    }


def _verdict(found: Mapping[str, RunDifference], faults: list[str]) -> tuple[str, str]:
    """better, worse, mixed, no_difference or invalid; and the same in a sentence."""
    if faults:
        return "invalid", f"No verdict: {'; '.join(faults)}."
    judged = [found[name] for name in DECIDING if name in found]
    known = [each for each in judged if each.verdict is not None]
    if not known:
        why = f"the runs are shorter than {BLOCKS_MIN} blocks of time, or share no metric"
        return "invalid", f"No verdict: {why}."
    words = {each.verdict for each in known} - {"no_difference"}
    if not words:
        names = ", ".join(each.metric for each in known)
        return "no_difference", f"No difference seen in {names}."
    parts = [_sentence(each) for each in known if each.verdict != "no_difference"]
    verdict = "mixed" if len(words) == 2 else str(next(iter(words)))
    return verdict, f"B is {'; '.join(parts)}."


def _sentence(each: RunDifference) -> str:
    ratio = each.ratio or 0.0
    text = f"{each.verdict} in {each.metric}, {ratio:.3g} times A's"
    if each.ci95 is not None:
        text += f" ({each.ci95[0]:.3g} to {each.ci95[1]:.3g})"
    return text
