"""docs/reference/cli.md out of the command line itself: commands, arguments, options, defaults."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import typer

__all__ = ["render"]

INTRO = """\
# Command line

<!-- Written by `make docs` from the code; change the help texts there. -->

Options go before the environment, the environment before the configuration file, the file before
the defaults: see [configuration](configuration.md). Results go to standard output, progress and
logs to standard error. `NO_COLOR` is honoured.

| Exit code | Meaning |
|---|---|
| 0 | it worked |
| 1 | it failed, or found what it was asked to look for; the reason is on standard error |
| 2 | the command line or the configuration is wrong; the message names the option or key |
| 3 | not enough evidence for an answer |
"""


def render(app: typer.Typer) -> str:
    """The page, for every command of the app that is not hidden."""
    root = typer.main.get_command(app)
    parts = [INTRO]
    parts.extend(_section(path, command) for path, command in _commands(root, root.name or ""))
    return "\n".join(parts)


def _commands(command: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Each command below, groups before their members. Typer's commands are click's by shape."""
    yield path, command
    for name, child in getattr(command, "commands", {}).items():
        if not child.hidden:
            yield from _commands(child, f"{path} {name}")


def _section(path: str, command: Any) -> str:
    members = getattr(command, "commands", {})
    visible = [p for p in command.params if not getattr(p, "hidden", False) and p.name != "help"]
    options = [p for p in visible if p.param_type_name == "option"]
    arguments = [p for p in visible if p.param_type_name == "argument"]
    usage = [path, *(["[OPTIONS]"] if options else []), *(_argument(a) for a in arguments)]
    if members:
        usage.append("COMMAND")
    lines = [f"## {path}", "", inspect.cleandoc(command.help or ""), ""]
    lines += ["```", " ".join(usage), "```", ""]
    if arguments:
        lines += ["| Argument | Meaning |", "|---|---|"]
        lines += [f"| `{_argument(a)}` | {_cell(a.help)} |" for a in arguments]
        lines.append("")
    if options:
        lines += ["| Option | Default | Meaning |", "|---|---|---|"]
        lines += [f"| {_option(o)} | {_default(o)} | {_cell(o.help)} |" for o in options]
        lines.append("")
    return "\n".join(lines)


def _argument(argument: Any) -> str:
    name = (argument.metavar or argument.name or "").upper()
    many = "..." if argument.nargs == -1 else ""
    return f"{name}{many}" if argument.required else f"[{name}]{many}"


def _option(option: Any) -> str:
    names = ", ".join(f"`{name}`" for name in sorted(option.opts, key=len, reverse=True))
    negative = "".join(f", `{name}`" for name in option.secondary_opts)
    if option.is_flag:
        return names + negative
    value = option.metavar or getattr(option.type, "name", "value")
    choices = getattr(option.type, "choices", None)
    if choices:
        value = "\\|".join(str(c) for c in choices)
    return f"{names} {value.upper() if not choices else value}" + (
        ", repeatable" if option.multiple else ""
    )


def _default(option: Any) -> str:
    default = option.default
    if default is None or default in ((), [], False) or callable(default):
        return ""
    return "on" if default is True else f"`{default}`"


def _cell(text: str | None) -> str:
    return " ".join((text or "").split()).replace("|", "\\|")
