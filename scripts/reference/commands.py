"""docs/reference/cli.md out of the command line itself: commands, arguments, options, defaults.

Reads the functions' signatures and not the parser made of them, whose shape differs between
releases of typer.
"""

from __future__ import annotations

import enum
import inspect
import types
import typing
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import typer
from typer.models import ArgumentInfo, OptionInfo

__all__ = ["Command", "Parameter", "commands", "render"]

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
| 2 | the command line, the configuration or a trace is wrong; the option, key or line is named |
| 3 | not enough evidence for an answer, or the load generator was the limit |
| 130 | a load run was ended by Ctrl-C; what it saw is told |

With `--json` standard output is one JSON document, also where an error comes in place of the
result: `{"error": {...}}` with `kind` (`usage`, `config`, `trace`, `engine`, `file`, `ledger` or
`failure`), `message`, `exit_code`, and what is known of its place: `key`, `expected` and `place` of
`config`, `path` and `line` of `trace`, `path` of `file` and `ledger`, `engine` of `engine`. What
goes wrong after the document was printed, such as a full disk under `--report`, is told on standard
error alone.
"""


class Parameter(NamedTuple):
    """One argument (`names` empty) or option of a command, as its signature has it."""

    name: str
    names: tuple[str, ...]
    type: str
    repeatable: bool
    required: bool
    default: str
    help: str


class Command(NamedTuple):
    """One command or group; `members` are a group's."""

    path: str
    help: str
    parameters: list[Parameter]
    members: list[str]


def render(app: typer.Typer) -> str:
    """The page, for every command of the app that is not hidden."""
    return "\n".join([INTRO, *(_section(command) for command in commands(app))])


def commands(app: typer.Typer, path: str | None = None) -> Iterator[Command]:
    """The app's group, then its commands and those of its groups. The app must have a name."""
    path = path or str(app.info.name)
    plain = [c for c in app.registered_commands if not c.hidden and c.callback is not None]
    groups = [g for g in app.registered_groups if g.typer_instance is not None]
    members = [_name(c.name, c.callback) for c in plain] + [str(g.name) for g in groups]
    callback = app.registered_callback
    yield _command(path, callback.callback if callback else None, app.info.help, members)
    for command in plain:
        name = _name(command.name, command.callback)
        yield _command(f"{path} {name}", command.callback, command.help, [])
    for group in groups:
        assert group.typer_instance is not None
        yield from commands(group.typer_instance, f"{path} {group.name}")


def _name(name: str | None, callback: Callable[..., Any] | None) -> str:
    return name or getattr(callback, "__name__", "").replace("_", "-")


def _command(
    path: str, callback: Callable[..., Any] | None, help: object, members: list[str]
) -> Command:
    text = help if isinstance(help, str) else inspect.getdoc(callback) or ""
    return Command(path, inspect.cleandoc(text), _parameters(callback), members)


def _parameters(callback: Callable[..., Any] | None) -> list[Parameter]:
    if callback is None:
        return []
    hints = typing.get_type_hints(callback, include_extras=True)
    found = []
    for name, parameter in inspect.signature(callback).parameters.items():
        hint = hints[name]
        infos = [i for i in getattr(hint, "__metadata__", ()) if isinstance(i, _Info)]
        if infos and not infos[0].hidden:
            found.append(_parameter(name, hint.__origin__, infos[0], parameter.default))
    return found


_Info = ArgumentInfo | OptionInfo


def _parameter(name: str, hint: Any, info: _Info, default: object) -> Parameter:
    some = [t for t in typing.get_args(hint) if t is not types.NoneType]
    if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union:
        hint = some[0]
    repeatable = typing.get_origin(hint) is list
    if repeatable:
        hint = typing.get_args(hint)[0]
    required = default is inspect.Parameter.empty
    shown = (
        "" if required or default in (None, False) else "on" if default is True else f"`{default}`"
    )
    names: tuple[str, ...] = ()
    if isinstance(info, OptionInfo):
        # Inside Annotated, typer takes the first declaration for a default, and moves it later.
        first = (info.default,) if isinstance(info.default, str) else ()
        names = (*first, *(info.param_decls or ()))
        if not any(n.startswith("-") for n in names):
            flag = name.replace("_", "-")
            names = (f"--{flag}", f"--no-{flag}") if hint is bool else (f"--{flag}",)
    return Parameter(
        name=str(info.metavar or name).upper(),
        names=names,
        type="" if hint is bool else _type_name(hint),
        repeatable=repeatable,
        required=required,
        default=shown,
        help=" ".join((info.help or "").split()).replace("|", "\\|"),
    )


def _type_name(hint: Any) -> str:
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return "\\|".join(str(member.value) for member in hint)
    return {int: "INTEGER", float: "NUMBER", str: "TEXT"}.get(hint) or hint.__name__.upper()


def _section(command: Command) -> str:
    options = [p for p in command.parameters if p.names]
    arguments = [p for p in command.parameters if not p.names]
    usage = [command.path, *(["[OPTIONS]"] if options else []), *map(_argument, arguments)]
    if command.members:
        usage.append("COMMAND")
    lines = [f"## {command.path}", "", command.help, "", "```", " ".join(usage), "```", ""]
    if command.members:
        lines += [f"Commands: {', '.join(f'`{m}`' for m in command.members)}.", ""]
    if arguments:
        lines += ["| Argument | Meaning |", "|---|---|"]
        lines += [f"| `{_argument(a)}` | {a.help} |" for a in arguments]
        lines.append("")
    if options:
        lines += ["| Option | Default | Meaning |", "|---|---|---|"]
        lines += [f"| {_option(o)} | {o.default} | {o.help} |" for o in options]
        lines.append("")
    return "\n".join(lines)


def _argument(argument: Parameter) -> str:
    many = "..." if argument.repeatable else ""
    return f"{argument.name}{many}" if argument.required else f"[{argument.name}]{many}"


def _option(option: Parameter) -> str:
    names = ", ".join(f"`{name}`" for name in option.names)
    many = option.repeatable and "repeatable" not in option.help.lower()
    return " ".join(filter(None, [names, option.type, "(repeatable)" if many else ""]))
