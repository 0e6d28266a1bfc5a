"""`mileage serve`: the gateway in front of your engines, or on an engine of its own."""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated
from urllib.parse import quote

import msgspec
import typer
import uvloop
from rich.console import Console

from mileage.cli.config import Config, state_directory
from mileage.cli.config_source import ConfigSource
from mileage.cli.host import Host
from mileage.cli.listening import Listening
from mileage.cli.logs import log_settings, set_up_logs
from mileage.cli.progress import Steps
from mileage.core.errors import ConfigError
from mileage.engines.embedded.resolve import resolve_model
from mileage.engines.remote import parse_engine
from mileage.gateway.admin.token import resolve_token
from mileage.storage.postgres_address import display_address

__all__ = ["serve"]

_Path = Path | None
_Engines = Annotated[
    list[str] | None,
    typer.Option(
        help="Engine to stand in front of: KIND=URL, KIND one of vllm, sglang, trtllm, triton, "
        "llamacpp, openai. Repeatable. Without one, the embedded engine serves."
    ),
]
_Observe = Annotated[
    bool,
    typer.Option(
        "--observe", help="Hold and refuse nothing; count what the governor would have done."
    ),
]


def serve(
    config: Annotated[_Path, typer.Option("--config", help="mileage.toml to read.")] = None,
    host: Annotated[str | None, typer.Option(help="Address to serve on.")] = None,
    port: Annotated[int | None, typer.Option(help="Port to serve on.")] = None,
    workers: Annotated[int | None, typer.Option(help="Worker processes on the port.")] = None,
    admin_port: Annotated[int | None, typer.Option(help="Port of the dashboard.")] = None,
    engine: _Engines = None,
    alias: Annotated[
        list[str] | None, typer.Option(help="NAME=MODEL: another name for a model. Repeatable.")
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(help="Embedded engine: smollm2, a GGUF file, or hf:OWNER/REPO/FILE.gguf."),
    ] = None,
    slots: Annotated[int | None, typer.Option(help="Embedded: requests that run at once.")] = None,
    context_tokens: Annotated[int | None, typer.Option(help="Embedded: context of a slot.")] = None,
    threads: Annotated[int | None, typer.Option(help="Embedded: CPU threads.")] = None,
    weights: Annotated[
        str | None, typer.Option(help="Embedded: convert weights once: as-is, q4_0, q8_0.")
    ] = None,
    lora: Annotated[list[str] | None, typer.Option(help="Embedded: adapter. Repeatable.")] = None,
    ledger_directory: Annotated[str | None, typer.Option(help="Where records are kept.")] = None,
    tls_cert: Annotated[str | None, typer.Option(help="Certificate chain, PEM.")] = None,
    tls_key: Annotated[str | None, typer.Option(help="Private key, PEM.")] = None,
    allow_no_keys: Annotated[
        bool, typer.Option("--allow-no-keys", help="Serve other machines without API keys.")
    ] = False,
    no_watch: Annotated[
        bool,
        typer.Option("--no-watch", help="Do not reload the configuration when it was written."),
    ] = False,
    observe: _Observe = False,
    log_level: Annotated[str, typer.Option(help="debug, info, warning or error.")] = "warning",
    log_format: Annotated[
        str, typer.Option(help="Of the log on stderr: text, or json for a document a line.")
    ] = "text",
    as_json: Annotated[
        bool, typer.Option("--json", help="When ready, print one JSON document to stdout.")
    ] = False,
) -> None:
    """Serve the OpenAI API in front of your engines, or on an engine of its own.

    Example: mileage serve --engine vllm=http://10.0.0.5:8000 --port 8080
    """
    flags = {
        "server.host": host,
        "server.port": port,
        "server.workers": workers,
        "server.tls_cert": tls_cert,
        "server.tls_key": tls_key,
        "server.allow_no_keys": allow_no_keys or None,
        "server.watch_config": False if no_watch else None,
        "admin.port": admin_port,
        "governor.mode": "observe" if observe else None,
        "embedded.model": model,
        "embedded.slots": slots,
        "embedded.context_tokens": context_tokens,
        "embedded.threads": threads,
        "embedded.weights": weights,
        "embedded.lora": lora or None,
        "ledger.directory": ledger_directory,
        "engines": _engines(engine or []),
        "aliases": _aliases(alias or []),
    }
    settings = log_settings(log_level, log_format)
    set_up_logs(settings)
    _serve(ConfigSource(config, flags), log_level=settings, as_json=as_json)


def _engines(texts: list[str]) -> list[object] | None:
    return [msgspec.to_builtins(parse_engine(text)) for text in texts] or None


def _aliases(texts: list[str]) -> dict[str, str] | None:
    aliases = {}
    for text in texts:
        name, equals, target = text.partition("=")
        if not (name and equals and target):
            raise ConfigError("--alias", text, "NAME=MODEL")
        aliases[name] = target
    return aliases or None


def _serve(source: ConfigSource, *, log_level: str, as_json: bool) -> None:
    started_s = time.monotonic()
    config = source.load()
    console = Console(stderr=True, highlight=False)
    model_path, model_paths = None, {}
    for model in config.models:
        with Steps(console) as steps:
            path = model_paths[model.replica] = resolve_model(model, progress=steps)
        console.print(f"model    {model.replica}  [dim]{path}[/dim]", soft_wrap=True)
    if not (config.engines or config.models):
        with Steps(console) as steps:
            model_path = resolve_model(config.embedded, progress=steps)
        console.print(f"model    {config.embedded.model}  [dim]{model_path}[/dim]", soft_wrap=True)
    elif config.engines:
        console.print(f"engines  {', '.join(engine.replica for engine in config.engines)}")

    def ready(listening: Listening) -> None:
        if as_json:
            typer.echo(msgspec.json.encode(listening).decode())
        _show(console, config, listening, time.monotonic() - started_s)

    def make_host() -> Host:
        return Host(source, config, model_path, model_paths=model_paths, log_level=log_level)

    uvloop.run(_run(make_host, ready, console))


async def _run(
    make_host: Callable[[], Host], ready: Callable[[Listening], None], console: Console
) -> None:
    host = make_host()
    loop = asyncio.get_running_loop()

    def stop() -> None:
        console.print("stopping: requests in flight are finished; once more to stop at once")
        host.stop()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    loop.add_signal_handler(signal.SIGHUP, _hang_up(host))
    await host.run(ready)


def _hang_up(host: Host) -> Callable[[], None]:
    """What SIGHUP means: a reload, but where it comes because the terminal was closed, the end."""
    terminal = sys.stderr.isatty()

    def hang_up() -> None:
        if terminal and not sys.stderr.isatty():
            host.stop()
        else:
            host.ask_reload()

    return hang_up


def _dashboard(config: Config, listening: Listening) -> str:
    """Where the dashboard is: with its token for a person at a terminal, never in a log."""
    if sys.stderr.isatty():
        token = resolve_token(config.admin, state_directory())
        return f"{listening.admin_url}/?token={quote(token, safe='')}"
    if listening.admin_token_file is None:
        return f"{listening.admin_url}  (token: as configured)"
    return f"{listening.admin_url}  (token: in {listening.admin_token_file})"


def _show(console: Console, config: Config, listening: Listening, took_s: float) -> None:
    """Where it is and how to try it."""
    console.print(f"API      [bold]{listening.url}[/bold]  [dim]ready in {took_s:.1f} s[/dim]")
    if listening.admin_url is not None:
        console.print(f"admin    {_dashboard(config, listening)}", soft_wrap=True, markup=False)
    console.print(f"ledger   [dim]{listening.ledger or 'not kept'}[/dim]", soft_wrap=True)
    if listening.ledger is not None and config.ledger.database is not None:
        console.print(f"         [dim]{display_address(config.ledger.database)}[/dim]")
    model = listening.models[0] if listening.models else "MODEL"
    key = ' -H "Authorization: Bearer $KEY"' if config.key_hashes else ""
    messages = '[{"role": "user", "content": "What is a GPU? Answer in one sentence."}]'
    body = f'{{"model": "{model}", "max_tokens": 64, "messages": {messages}}}'
    console.print(
        f"try      curl {listening.url}/chat/completions{key} "
        f"-H 'Content-Type: application/json' -d '{body}'",
        soft_wrap=True,
        markup=False,
    )
