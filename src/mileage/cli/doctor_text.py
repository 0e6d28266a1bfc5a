"""Figures and phrases of a diagnosis, the same on the terminal, in Markdown and on the page."""

from __future__ import annotations

from typing import Any, Final

from mileage.doctor.finding import Diagnosis, Finding, Gain, GainMetric, Loss

__all__ = [
    "effects",
    "evidence_rows",
    "gain_basis",
    "gains",
    "headline",
    "loss_basis",
    "money",
    "roots",
    "shown_value",
]

_METRICS: Final[dict[GainMetric, str]] = {
    "throughput_ratio": "output tokens per second and card",
    "ttft_p99_ratio": "p99 TTFT",
    "itl_p99_ratio": "p99 gap of the median request",
    "cost_ratio": "cost of the same work",
}


def headline(diagnosis: Diagnosis) -> str:
    """The whole in one line, the number first where there is one."""
    if diagnosis.verdict == "clear":
        return "Clear: nothing that was seen costs money or time."
    if diagnosis.verdict == "not_enough_evidence":
        lacking = ", ".join(diagnosis.missing[:4])
        return f"Not enough evidence. It would help to know: {lacking or 'any signal'}."
    first = roots(diagnosis)[0]
    loss = first.loss_usd_per_month
    told = f"{money(loss)} a month: " if loss is not None else ""
    return f"{told}{first.title.rstrip('.')} ({first.confidence:.0%} sure)"


def money(loss: Loss | None) -> str:
    """`$1,200 to $1,900`; "unknown" where it cannot be known."""
    if loss is None:
        return "unknown"
    low, high = f"${loss.low:,.0f}", f"${loss.high:,.0f}"
    return low if low == high else f"{low} to {high}"


def loss_basis(found: Finding) -> str:
    """What the loss rests on; else why it is not known."""
    loss = found.loss_usd_per_month
    return (found.loss_unknown_because or "") if loss is None else loss.basis


def gains(found: Finding) -> list[str]:
    """`x 2.9 to 4.2 output tokens per second and card`, `x 0.16 to 0.37 p99 TTFT`; or "unknown"."""
    told = [f"{_multiple(each)} {_METRICS[each.metric]}" for each in found.expected_gain or ()]
    return told or ["unknown"]


def gain_basis(found: Finding) -> str:
    """What the gain rests on; else why it is not known."""
    if found.expected_gain:
        return found.expected_gain[0].basis  # one basis for all of them
    return found.gain_unknown_because or ""


def _multiple(gain: Gain) -> str:
    low, high = f"{gain.low:.2g}", f"{gain.high:.2g}"
    return f"x {low}" if low == high else f"x {low} to {high}"


def effects(found: Finding) -> list[str]:
    """When its changes take effect: `max_num_seqs: after a restart ...`."""
    settings: dict[str, list[str]] = {}
    for change in found.changes:
        if change.takes_effect is not None:
            settings.setdefault(change.takes_effect, []).append(change.setting)
    return [f"{', '.join(names)}: {when}" for when, names in settings.items()]


def roots(diagnosis: Diagnosis) -> list[Finding]:
    """Findings that no other brings about."""
    return [found for found in diagnosis.findings if found.consequence_of is None]


def evidence_rows(found: Finding) -> list[tuple[str, str, str, str]]:
    """For each piece of evidence: signal, value, limit, and "for", "against" or ""."""
    rows = []
    for line in found.evidence:
        side = "for" if line.weight > 0 else ("against" if line.weight < 0 else "")
        rows.append((line.signal, shown_value(line.value), line.limit, side))
    return list(dict.fromkeys(rows))


def shown_value(value: Any) -> str:
    """A fact's value for people: `0.98`, `at least 1`, `3 to 5`, `51, 31`, `0.9 ... 0.2`."""
    match value:
        case None:
            return "–"
        case bool():
            return "yes" if value else "no"
        case int() | float():
            return f"{value:.4g}" if abs(value) < 1e6 else f"{value:,.0f}"
        case {"series": [first, *_, last]}:
            return f"{shown_value(first['value'])} … {shown_value(last['value'])}"
        case {"min": low, "max": high}:
            return f"{shown_value(low)} to {shown_value(high)}"
        case {"min": low}:
            return f"at least {shown_value(low)}"
        case {"max": high}:
            return f"at most {shown_value(high)}"
        case [*items]:
            told = ", ".join(shown_value(item) for item in items[:8])
            return f"{told}, …" if len(items) > 8 else told
    return str(value)
