"""PlanGroup: `mileage plan ...` searches; `mileage plan NAME ...` is the subcommand NAME."""

from __future__ import annotations

from typing import Any

from mileage.cli.bench_group import BenchGroup

__all__ = ["PlanGroup"]


class PlanGroup(BenchGroup):
    """As the group of `mileage bench`, but it has no argument of its own."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """[OPTIONS], or a subcommand."""
        return ["[OPTIONS]   or", f"{ctx.command_path} COMMAND ..."]
