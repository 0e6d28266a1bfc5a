"""DoctorGroup: `mileage doctor URL...` diagnoses; `mileage doctor NAME ...` is a subcommand."""

from __future__ import annotations

from typing import Any

from mileage.cli.bench_group import BenchGroup

__all__ = ["DoctorGroup"]


class DoctorGroup(BenchGroup):
    """As the group of `mileage bench`, but it takes any number of addresses."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """[URL]... [OPTIONS], or a subcommand."""
        return ["[URL]... [OPTIONS]   or", f"{ctx.command_path} COMMAND ..."]
