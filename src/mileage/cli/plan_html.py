"""The HTML report of `mileage plan --report`: the front as a chart, the picks, and what binds."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mileage import __version__
from mileage.cli.html_report import write_page
from mileage.cli.plan_tables import (
    PICK_NAMES,
    cheaper_line,
    cost_text,
    distinct_front,
    figure_rows,
    picked,
    search_line,
    verdict_line,
)
from mileage.cli.simulate_format import seconds
from mileage.planner.plan import Plan

__all__ = ["plan_html", "write_plan"]


def write_plan(path: Path, document: Mapping[str, Any], plan: Plan) -> None:
    """Write the report; the file is whole, or as it was before. Raises FileError."""
    write_page(path, plan_html(document, plan))


def plan_html(document: Mapping[str, Any], plan: Plan) -> str:
    """The page."""
    # Only here: it needs plotly, and those who ask for no report do not.
    from mileage.dashboard.report_page import ReportPage, ReportRow, pair, table

    page = ReportPage(title=f"A plan for {document['model']}", footer=f"mileage {__version__}")
    page.head(verdict_line(document), tuple(_facts(document)))
    sections = _charts(page, document, plan)
    if sections:
        page.add(pair(*sections))
    chosen = picked(document)
    if chosen:
        rows = [ReportRow(name="", cells=tuple(choice["label"] for choice, _ in chosen))]
        rows += [
            ReportRow(name=name, cells=tuple(cells))
            for name, cells in figure_rows(document, [choice for choice, _ in chosen])
        ]
        page.add(table("Picks", rows, tuple(names for _, names in chosen)))
        bound = [ReportRow(name=names, cells=(each["binding"]["text"],)) for each, names in chosen]
        page.add(table("What binds them", bound, kind="texts"))
        started = [
            ReportRow(name=names, cells=("; ".join(_start(each)),)) for each, names in chosen
        ]
        page.add(table("How they are started", started, kind="texts"))
    front = [
        ReportRow(name=each["label"], cells=_latencies(each, cost_text(each)))
        for each in distinct_front(document)
    ]
    page.add(table("Pareto front", front, ("TTFT", "ITL", "per million output tokens")))
    page.add(
        table(
            "Assumptions",
            [
                ReportRow(name=str(at), cells=(line,))
                for at, line in enumerate(document["assumptions"], start=1)
            ],
            kind="texts",
        )
    )
    return page.render()


def _start(choice: Mapping[str, Any]) -> list[str]:
    """The command, and what has to be done besides."""
    engine = choice["engine"]
    return [each for each in (engine["command"], *engine["besides"]) if each]


def _facts(document: Mapping[str, Any]) -> list[tuple[str, str]]:
    trace, search = document["trace"], document["search"]
    targets = document["targets"]
    told = [
        f"{name} {seconds(targets[key])}"
        for name, key in (("TTFT", "ttft_s"), ("ITL", "itl_s"))
        if targets[key] is not None
    ]
    asked = ", ".join(told) or "to keep up"
    found = [
        ("Trace", f"{trace['name']}: {trace['requests']:,} requests, {trace['span_s']:,.0f} s"),
        ("Targets", f"{asked}, for {targets['attainment_ratio']:.4g} of all requests"),
        ("Search", search_line(document)),
        *((("Cheaper", line),) if (line := cheaper_line(document)) is not None else ()),
    ]
    return [
        *found,
        *(
            ("Impossible", f"{each['settings']:,}, such as {each['example']}")
            for each in search["impossible"]
        ),
        *(
            ("Out of reach", f"{each['candidates']:,}, such as {each['example']}")
            for each in search["ruled_out"]
        ),
    ]


def _latencies(each: Mapping[str, Any], cost: str) -> tuple[str, ...]:
    cells = ["-" if each[key] is None else seconds(each[key]) for key in ("ttft_s", "itl_s")]
    return (*cells, cost)


def _charts(page: Any, document: Mapping[str, Any], plan: Plan) -> list[str]:
    """Latencies over cost, and one over the other."""
    from mileage.dashboard.report_page import text
    from mileage.dashboard.sweep_report import FrontPoint, sweep_chart

    class PlanPoint(FrontPoint, frozen=True, kw_only=True):
        cost: float

    names: dict[str, list[str]] = {}
    for key, choice in document["picks"].items():
        if choice is not None:
            names.setdefault(choice["label"], []).append(PICK_NAMES[key])
    front = {each.candidate for each in plan.pareto}
    points = [
        PlanPoint(
            label=seen.candidate.label,
            ttft_s=seen.figures.ttft_s,
            itl_s=seen.figures.itl_s,
            throughput=seen.figures.output_tokens_per_s,
            cost=seen.figures.cost,
            kind=0 if seen.candidate in front else 2,
            picks=tuple(names.get(seen.candidate.label, ())),
        )
        for seen in plan.seen
        if seen.figures.ttft_s is not None and seen.figures.caught_up
    ]
    unit = "USD" if document["ranked_by"] == "usd" else "GPU-hours"
    cost = f"{unit} per million output tokens"
    charts = [(cost, "TTFT", "cost", "ttft_s")]
    if points and all(point.itl_s is not None for point in points):
        charts += [(cost, "ITL", "cost", "itl_s"), ("TTFT", "ITL", "ttft_s", "itl_s")]
    found = []
    for x_name, y_name, x, y in charts if points else ():
        drawn = sweep_chart(points, x_name, y_name, x, y)
        _name_picks_only(drawn)
        place = page.place(drawn, f"{y_name} over {x_name}")
        found.append(
            f"<section><h2>{text(y_name)} over {text(x_name)}</h2>"
            f'<div class="charts" style="--least: 480px"><figure>{place}</figure></div></section>'
        )
    return found


def _name_picks_only(drawn: Any) -> None:
    """Fronts have dozens of points with long names: those of the others are shown on hovering."""
    picked_names = tuple(PICK_NAMES.values())
    for trace in drawn["traces"]:
        told = trace.get("hovertext", ())
        if trace.get("mode") == "markers+text":
            trace["text"] = [
                ", ".join(name for name in picked_names if f", {name}" in text) for text in told
            ]
