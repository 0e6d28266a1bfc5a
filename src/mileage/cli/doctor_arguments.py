"""Options of `mileage doctor`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

__all__ = ["DoctorArguments", "SourceArguments"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceArguments:
    """What to look at, and for how long."""

    urls: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[URL]...",
            help="Engines or a Mileage gateway to watch: http://HOST:PORT.",
        ),
    ] = None
    fact: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUE",
            help="What no page tells, such as concurrency=256 (requests that clients want in "
            "flight) or model.params_b=70. Repeatable; stands over what was seen.",
        ),
    ] = None
    log: Annotated[
        list[Path] | None,
        typer.Option(help="Log of an engine, from its start on. Repeatable."),
    ] = None
    dcgm: Annotated[
        list[str] | None,
        typer.Option(
            metavar="URL", help="Page of a DCGM exporter with the engine's GPUs. Repeatable."
        ),
    ] = None
    prometheus: Annotated[
        str | None,
        typer.Option(metavar="URL", help="What a Prometheus has recorded over the last --for."),
    ] = None
    selector: Annotated[
        str | None,
        typer.Option(help="Of its series those with these labels: 'namespace=\"prod\"'."),
    ] = None
    model_repository: Annotated[
        Path | None,
        typer.Option(help="Triton's model repository: the config.pbtxt of each model is read."),
    ] = None
    manifest: Annotated[
        list[Path] | None,
        typer.Option(
            help="Kubernetes objects, YAML or JSON: manifests, or what `kubectl get -o yaml` "
            "printed. Repeatable; - reads stdin."
        ),
    ] = None
    k8s: Annotated[
        str | None,
        typer.Option(
            metavar="NAMESPACE[/NAME]",
            help="Ask a cluster for it, by `kubectl get` alone.",
        ),
    ] = None
    duration: Annotated[str, typer.Option("--for", help="How long to watch.")] = "30s"
    api_key_env: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Environment variable with the API key of the engines that are watched.",
        ),
    ] = None
    admin_url: Annotated[
        str | None,
        typer.Option(help="Admin plane of the gateway. [default: of this machine's gateway]"),
    ] = None
    admin_token_file: Annotated[
        Path | None, typer.Option(help="File with the admin plane's token.")
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorArguments(SourceArguments):
    """What to read in place of that or beside it, and how to tell."""

    facts: Annotated[
        Path | None,
        typer.Option(
            help="A facts document (JSON); - reads stdin. Beside a URL it adds what was not seen."
        ),
    ] = None
    dump: Annotated[
        Path | None,
        typer.Option(
            help="A directory that `mileage doctor record` has made; beside a URL as --facts."
        ),
    ] = None
    price: Annotated[
        float | None,
        typer.Option(
            help="USD per GPU and hour. [default: of [billing] in the configuration, else the "
            "range of public offers]"
        ),
    ] = None
    html: Annotated[Path | None, typer.Option(help="Write a page with charts.")] = None
    markdown: Annotated[
        Path | None, typer.Option(help="Write it as Markdown, for an issue or a chat.")
    ] = None
    every_rule: Annotated[
        bool,
        typer.Option(
            "--every-rule", help="Tell also what is clear, and which facts the others lack."
        ),
    ] = False
    fix: Annotated[
        bool,
        typer.Option("--fix", help="Apply what can be changed while it runs, after asking."),
    ] = False
    yes: Annotated[bool, typer.Option("--yes", help="With --fix: do not ask.")] = False
    config: Annotated[Path | None, typer.Option(help="Configuration file, mileage.toml.")] = None
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False
