"""Writes the reference pages from the code: `python -m scripts.reference`, or `make docs`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from scripts.reference import (
    commands,
    configuration,
    engine_plan,
    engines,
    facts,
    gpus,
    metrics,
    rules,
    scenario,
)

from mileage.cli.config import Config
from mileage.cli.hot_keys import is_hot
from mileage.cli.whole_command import app
from mileage.costmodel.architecture_table import ARCHITECTURES
from mileage.costmodel.catalogue import GPUS
from mileage.doctor.rules.all_rules import RULES
from mileage.doctor.vocabulary import SECTIONS
from mileage.engines.capabilities import CAPABILITIES

__all__ = ["pages"]

ROOT = Path(__file__).resolve().parents[2]


def pages() -> dict[Path, Callable[[], str]]:
    """What writes each generated page, by the page's path."""
    directory = ROOT / "docs" / "reference"
    rule_pages = ROOT / "docs" / "rules"
    written = directory / "engines.md"
    return {
        directory / "cli.md": lambda: commands.render(app),
        directory / "configuration.md": lambda: configuration.render(Config, is_hot),
        written: lambda: engines.render(written.read_text("utf-8"), CAPABILITIES.values()),
        directory / "engine-plan.md": engine_plan.render,
        directory / "facts.md": lambda: facts.render(SECTIONS),
        directory / "gpus.md": lambda: gpus.render(GPUS, ARCHITECTURES),
        directory / "metrics.md": lambda: metrics.render(metrics.families_under(ROOT / "src")),
        directory / "scenario.md": scenario.render,
        rule_pages / "README.md": lambda: rules.render_index(RULES),
        **{rule_pages / rules.file_name(rule): partial(rules.render, rule) for rule in RULES},
    }


if __name__ == "__main__":
    for path, write in pages().items():
        text = write()
        if not path.exists() or path.read_text("utf-8") != text:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, "utf-8")
            print(f"wrote {path.relative_to(ROOT)}")
