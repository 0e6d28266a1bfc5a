"""`mileage engine control`: read and change the limits of a running vLLM that has the plugin."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
import typer
from rich.table import Table

from mileage.cli.engine_control_call import ask_control, control_token
from mileage.cli.terminal_text import safe_text
from mileage.cli.wide_console import wide_console
from mileage.core.bounds import require_positive, require_range
from mileage.core.errors import ConfigError, MileageError
from mileage.policy.engine_knobs import KNOBS, ControlDocument

__all__ = ["control"]

_START: Final = "start"
_OFF: Final = "off"
_RENEW_RATIO: Final = 1 / 3
_RETRY_RATIO: Final = 1 / 20
_ASK_MIN_S: Final = 0.1
_HOLD_LEASE_S: Final = 10.0
_VALUE: Final = "; start: the engine's own"

_Knob = str | None
_Lease = Annotated[
    float | None,
    typer.Option(
        "--lease-s",
        help="Seconds after which the start values come back by themselves. Without it the values "
        "stay.",
    ),
]
_Hold = Annotated[
    bool,
    typer.Option(
        "--hold",
        help="Stay and renew the lease until interrupted: then the start values come back. Where "
        "it cannot be renewed, that is tried until it has run out.",
    ),
]
_TokenFile = Annotated[
    Path | None,
    typer.Option(
        help="File with the control's token. Without it: MILEAGE_CONTROL_TOKEN, else the file that "
        "MILEAGE_CONTROL_TOKEN_FILE names."
    ),
]


def control(
    url: Annotated[str, typer.Argument(help="The engine's server, such as http://127.0.0.1:8000.")],
    active_max: Annotated[_Knob, typer.Option(help=f"Requests that run at once{_VALUE}.")] = None,
    step_tokens_max: Annotated[_Knob, typer.Option(help=f"Tokens of one step{_VALUE}.")] = None,
    long_prefill_tokens_max: Annotated[
        _Knob,
        typer.Option(help=f"Tokens of one prompt in a step, 0: no such limit{_VALUE}."),
    ] = None,
    waiting_max: Annotated[
        _Knob,
        typer.Option(help=f"Requests that wait; more are refused with a 503{_VALUE}: no limit."),
    ] = None,
    policy: Annotated[
        str | None,
        typer.Option(help="Policies inside the engine, as a JSON object; off: none."),
    ] = None,
    lease_s: _Lease = None,
    hold: _Hold = False,
    wait_s: Annotated[
        float,
        typer.Option("--wait-s", help="Seconds to wait until the values are in force, 0 to 60."),
    ] = 5.0,
    token_file: _TokenFile = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Show the limits of a running vLLM with Mileage's plugin, or change some of them.

    What is not named stays as it is. The engine clamps what is out of its range, and says so.

    Exit code 1: the engine cannot be asked, or did not put the values in force within --wait-s;
    2: a value is none.

    Example: mileage engine control http://127.0.0.1:8000 --active-max 16 --step-tokens-max 512
    """
    asked = (active_max, step_tokens_max, long_prefill_tokens_max, waiting_max)
    knobs = {
        name: _number(name, text)
        for name, text in zip(KNOBS, asked, strict=True)
        if text is not None
    }
    token = control_token(token_file)
    if not knobs and policy is None and lease_s is None and not hold:
        _show(asyncio.run(ask_control(url, token)), as_json=as_json)
        return
    if lease_s is not None:
        require_positive("--lease-s", lease_s)
    require_range("--wait-s", wait_s, 0.0, 60.0)
    lease_s = _HOLD_LEASE_S if hold and lease_s is None else lease_s
    body: dict[str, Any] = {"knobs": knobs, "lease_s": lease_s, "wait_s": wait_s}
    if policy is not None:
        body["policy"] = _policy(policy)
    found = asyncio.run(ask_control(url, token, body))
    _show(found, as_json=as_json)
    if hold:
        assert lease_s is not None
        asyncio.run(_renew(url, token, lease_s))
    if found.applied_version < found.version:
        typer.echo("mileage: not in force yet: the engine is in a long step", err=True)
        raise typer.Exit(1)


async def _renew(url: str, token: str, lease_s: float) -> None:
    """Renew the lease again and again; what fails is tried again until the lease has run out.

    Raises MileageError then, and at once for a ConfigError: the engine will not take it later.
    """
    loop = asyncio.get_running_loop()
    renewed_s = loop.time()
    failing = False
    while True:
        await asyncio.sleep(lease_s * (_RETRY_RATIO if failing else _RENEW_RATIO))
        asked_s = loop.time()  # the lease began no earlier
        try:
            async with asyncio.timeout_at(max(renewed_s + lease_s, asked_s + _ASK_MIN_S)):
                await ask_control(url, token, {"lease_s": lease_s})
        except (TimeoutError, MileageError) as error:
            if isinstance(error, ConfigError):
                raise
            said = str(error) or "it did not answer"
            if loop.time() >= renewed_s + lease_s:
                raise MileageError(
                    f"the lease of {lease_s:g} s has run out and could not be renewed: the "
                    f"engine's start values are back ({said})"
                ) from error
            if not failing:
                typer.echo(f"mileage: the lease was not renewed, trying on: {said}", err=True)
            failing = True
        else:
            renewed_s, failing = asked_s, False


def _number(name: str, text: str) -> int | None:
    if text == _START:
        return None
    try:
        return int(text)
    except ValueError:
        option = f"--{name.replace('_', '-')}"
        raise ConfigError(option, text, f"a whole number, or {_START}") from None


def _policy(text: str) -> dict[str, Any] | None:
    if text == _OFF:
        return None
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except msgspec.DecodeError:
        expected = f'a JSON object, such as {{"budget": "model", "itl_target_s": 0.05}}, or {_OFF}'
        raise ConfigError("--policy", text, expected) from None


def _show(found: ControlDocument, *, as_json: bool) -> None:
    if as_json:
        typer.echo(msgspec.json.encode(found).decode())
        return
    console = wide_console()
    console.print("vLLM      ", safe_text(found.engine_version), f"plugin {found.plugin_version}")
    console.print(f"version    {found.version} asked for, {found.applied_version} in force")
    console.print(f"lease      {_lease(found)}")
    if found.failed is not None:
        console.print("failed    ", safe_text(found.failed))
    table = Table("", "in force", "asked for", "at the start", "lowest", "highest", "", box=None)
    for name in KNOBS:
        low, high = found.bounds.get(name, (None, None))
        applied, asked, start = (
            getattr(knobs, name) for knobs in (found.applied, found.requested, found.start)
        )
        cells = ("-" if each is None else str(each) for each in (applied, asked, start, low, high))
        clamped, can = found.clamped.get(name), found.capabilities.get(name)
        note = clamped.reason if clamped else "" if can is True else str(can)
        table.add_row(name, *cells, safe_text(note))
    console.print(table)
    ranks = Table("rank", "in force", "steps", "running", "waiting", box=None)
    for rank in found.ranks:
        figures = (rank.rank, rank.applied_version, rank.steps_total, rank.running, rank.waiting)
        ranks.add_row(*map(str, figures))
    console.print(ranks)
    if found.policy is not None:
        console.print("policy    ", safe_text(msgspec.json.encode(found.policy).decode()))


def _lease(found: ControlDocument) -> str:
    if found.failed is not None:
        return "none: the control of an engine has failed, and its start values are back"
    if found.reverted:
        return "has run out: the start values are back"
    if found.lease_left_s is None:
        return "none: the values stay"
    return f"{found.lease_left_s:.1f} s left of {found.lease_s:g} s"
