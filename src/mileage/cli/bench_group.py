"""BenchGroup: `mileage bench URL ...` runs; `mileage bench NAME ...` is the subcommand NAME."""

from __future__ import annotations

from typing import Any

from typer.core import TyperGroup

from mileage.core.errors import ConfigError

__all__ = ["BenchGroup"]

_COMMAND = "mileage.bench.command"


class BenchGroup(TyperGroup):
    """A group whose first argument is a subcommand's name, or else the group's own argument.

    The group's own options may stand on either side of its argument. A subcommand takes nothing
    from before its name: options there would be those of another command.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """As of a group; see the class."""
        if args and args[0] in self.commands:
            ctx.meta[_COMMAND] = args
            super().parse_args(ctx, [])
            return []
        for place, argument in enumerate(args):
            if argument in self.commands and not args[place - 1].startswith("-"):
                raise ConfigError(args[0], argument, f"options behind `{argument}`, not before it")
        ctx.allow_interspersed_args, ctx.allow_extra_args = True, False
        return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """Runs the subcommand alone, or the group's own function."""
        args = ctx.meta.pop(_COMMAND, None)
        if args is None:
            return super().invoke(ctx)
        with ctx:
            ctx.invoked_subcommand = args[0]
            command = self.commands[args[0]]
            inner = command.make_context(args[0], args[1:], parent=ctx)
            with inner:
                return inner.command.invoke(inner)

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """URL [OPTIONS], or a subcommand."""
        return ["URL [OPTIONS]   or", f"{ctx.command_path} COMMAND ..."]
