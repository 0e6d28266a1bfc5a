"""The JSON document of `mileage plan`, from which its tables and its report are made, too."""

from __future__ import annotations

from itertools import chain
from pathlib import Path
from typing import Any, Final

import msgspec

from mileage import __version__
from mileage.cli.plan_arguments import PlanArguments
from mileage.cli.plan_engine import engine_start
from mileage.cli.plan_setup import PlanSetup
from mileage.planner.candidate import Candidate
from mileage.planner.plan import Choice, Plan
from mileage.planner.traffic import Traffic

__all__ = ["choice_document", "plan_document"]

_GB: Final = 1e9
_DIGITS: Final = 6


def plan_document(
    arguments: PlanArguments, setup: PlanSetup, traffic: Traffic, plan: Plan, wall_s: float
) -> dict[str, Any]:
    """All of it; what is not known is null."""

    def told(choice: Choice | None) -> dict[str, Any] | None:
        return None if choice is None else choice_document(arguments, setup, choice)

    goal = setup.world.goal
    simulated = sum(each.candidates for each in plan.simulated[:1])
    return {
        "version": __version__,
        "model": setup.source.architecture.name,
        "trace": {
            "name": arguments.trace,
            "requests": len(traffic),
            "span_s": traffic.span_s,
            "output_tokens": traffic.output_tokens,
        },
        "targets": {
            "ttft_s": goal.slo.ttft_s,
            "itl_s": goal.slo.itl_s,
            "gaps": goal.gaps,
            "attainment_ratio": goal.attainment_ratio,
            "drain_s": goal.drain_s,
        },
        "picks": {name: told(choice) for name, choice in plan.picks.items()},
        "closest": told(plan.closest),
        "cheaper": told(plan.cheaper),
        "pareto": [told(choice) for choice in plan.pareto],
        "ranked_by": plan.ranked_by,
        "search": {
            "candidates": plan.candidates,
            "simulated": simulated,
            "rounds": msgspec.to_builtins(plan.simulated),
            "certain": plan.certain,
            "impossible": msgspec.to_builtins(plan.impossible),
            "ruled_out": msgspec.to_builtins(plan.ruled_out),
            "wall_s": round(wall_s, 3),
            "configs_per_s": round(plan.candidates / wall_s, 3) if wall_s > 0.0 else None,
        },
        "assumptions": list(plan.assumptions),
    }


def choice_document(arguments: PlanArguments, setup: PlanSetup, choice: Choice) -> dict[str, Any]:
    """A set-up, its figures, what binds it, and how it is started."""
    figures, memory, step = choice.figures, choice.memory, choice.binding.step
    model = _served(arguments.model or "", setup)
    start = engine_start(arguments.engine, model, choice.candidate, arguments.gpu_memory)
    return {
        "label": choice.candidate.label,
        "config": _config(choice.candidate),
        "gpus": figures.gpus,
        "usd_per_mtok": _rounded(figures.usd_per_mtok),
        "gpu_h_per_mtok": _rounded(figures.gpu_h_per_mtok),
        "ttft_s": _rounded(figures.ttft_s),
        "itl_s": _rounded(figures.itl_s),
        "interval": {key: list(map(_rounded, pair)) for key, pair in figures.interval.items()},
        "keeps_goal": figures.feasible,
        "attainment_ratio": _rounded(figures.attainment_ratio),
        "busy_ratio": _rounded(figures.busy_ratio),
        "output_tokens_per_s": _rounded(figures.output_tokens_per_s),
        "preemptions": figures.preemptions,
        "prefix_cache_hit_ratio": _rounded(figures.prefix_hit_ratio),
        "memory_gb": {
            "usable": round(memory.total / _GB, 3),
            "weights": round(memory.weights / _GB, 3),
            "activations": round(memory.activations / _GB, 3),
            "context_and_graphs": round(memory.context / _GB, 3),
            "kv_cache": round(memory.kv / _GB, 3),
        },
        "kv_tokens": choice.kv_tokens,
        "binding": {
            "text": choice.binding.text,
            "limits": msgspec.to_builtins(choice.binding.limits),
            "step": {
                name: _rounded(value) if isinstance(value, float) else value
                for name, value in msgspec.to_builtins(step).items()
            },
        },
        "engine": {
            "kind": arguments.engine,
            "command": start.command or None,
            "besides": list(start.besides),
        },
    }


def _served(asked: str, setup: PlanSetup) -> str:
    """What an engine is given: a name of the hub as it is, a file's directory, else that name of
    the model in the catalogue which is or begins so: models of one shape are one model there."""
    path = Path(asked)
    if path.exists():
        return str(path if path.is_dir() or path.suffix == ".gguf" else path.resolve().parent)
    if "/" in asked:
        return asked
    model = setup.source.architecture
    # Short names are for typing: the hub writes a name as its owner does.
    names = [name for name in (model.name, *model.aliases) if "/" in name]
    hub = [n for n in names if n == model.name or not n.rpartition("/")[2].islower()]
    tails = {n: n.rpartition("/")[2].lower() for n in hub}
    same = (n for n in hub if tails[n] == asked.lower())
    begun = (n for n in hub if tails[n].startswith(asked.lower()))
    return next(chain(same, begun), model.name)


def _config(candidate: Candidate) -> dict[str, Any]:
    """Everything, whether it is as usual or not."""
    found: dict[str, Any] = msgspec.to_builtins(candidate)
    return found


def _rounded(value: float | None) -> float | None:
    """Six digits: more than anybody can tell apart."""
    return None if value is None else float(f"{value:.{_DIGITS}g}")
