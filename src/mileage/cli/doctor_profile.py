"""`mileage doctor profile`: the profiler for a question, run within bounds, and what it says."""

from __future__ import annotations

import shlex
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, get_args

import typer

from mileage.cli.bench_document import encoded
from mileage.cli.bench_target import url_of
from mileage.cli.doctor_arguments import DoctorArguments
from mileage.cli.doctor_document import doctor_document
from mileage.cli.doctor_profile_document import plan_document, reading_document
from mileage.cli.doctor_profile_run import run_plan
from mileage.cli.doctor_profile_tables import show_plan, show_readings
from mileage.cli.doctor_source import Gathered, gather
from mileage.cli.doctor_tables import show_diagnosis
from mileage.cli.simulate_arguments import taking
from mileage.core.errors import ConfigError
from mileage.doctor.collect.merge_facts import SourcedFacts, merge_facts
from mileage.doctor.collect.profile_facts import profile_facts
from mileage.doctor.collect.profile_reading import ProfileReading
from mileage.doctor.document import diagnose_document
from mileage.doctor.profile_plan import (
    TOPICS,
    ProfilePlan,
    ProfileTool,
    Topic,
    plan_profile,
    topic_of,
)
from mileage.doctor.rules.all_rules import RULES
from mileage.scrape.profile_export import read_profile
from mileage.workload.synthetic.spelling import seconds_of

__all__ = ["ProfileArguments", "register_profile"]

_FOR_MIN_S: Final = 1.0
_FOR_MAX_S: Final = 600.0
_CODES: Final = {"clear": 0, "finding": 1, "not_enough_evidence": 3}


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileArguments:
    """What to find out, of what, and whether to do it."""

    question: Annotated[
        str,
        typer.Argument(
            metavar="QUESTION",
            help="gaps, kernels, memory, communication or cpu; or a rule or cause of the doctor.",
        ),
    ]
    url: Annotated[str | None, typer.Option(help="An engine that runs: http://HOST:PORT.")] = None
    pid: Annotated[
        int | None, typer.Option(min=1, help="A Python process that runs, for py-spy.")
    ] = None
    command: Annotated[
        str | None,
        typer.Option(help="The engine's command line, for nsys and ncu: they have to start it."),
    ] = None
    tool: Annotated[
        str | None,
        typer.Option(help="torch, nsys, ncu or py-spy. [default: by the question]"),
    ] = None
    duration: Annotated[str, typer.Option("--for", help="How long to record.")] = "10s"
    run: Annotated[
        bool, typer.Option("--run", help="Run it, and read its result. [default: print it]")
    ] = False
    to: Annotated[
        Path | None,
        typer.Option(help="Directory to make for results. [default: profile-QUESTION-TIME]"),
    ] = None
    trace_dir: Annotated[
        Path | None,
        typer.Option(help="Where vLLM writes its traces to, on this machine, for --run."),
    ] = None
    read: Annotated[
        list[Path] | None,
        typer.Option(
            help="An export: CSV or JSON of nsys stats, CSV of ncu, a trace of torch.profiler, "
            "py-spy's raw stacks; gzip too. Repeatable."
        ),
    ] = None
    facts: Annotated[
        Path | None, typer.Option(help="A facts document beside it, for the diagnosis.")
    ] = None
    fact: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE", help="What nothing else tells. Repeatable."),
    ] = None
    log: Annotated[list[Path] | None, typer.Option(help="Log of the engine. Repeatable.")] = None
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False


def register_profile(doctor: typer.Typer) -> None:
    """Makes it a subcommand of `mileage doctor`."""
    doctor.command("profile")(profile)


@taking(ProfileArguments)
def profile(context: typer.Context, arguments: ProfileArguments) -> None:
    """Print the bounded profiler command that answers a question, run it, or read its result.

    Nothing is run without --run. What is read is diagnosed together with --facts, --fact, --log and
    what the engine at --url tells; exit codes are those of `mileage doctor`.

    Example: mileage doctor profile engine_host_bound --url http://127.0.0.1:8000 --for 5s

    Of what is there: mileage doctor profile gaps --read trace.json.gz
    """
    topic = _topic(arguments.question)
    paths = arguments.read or []
    if arguments.run and paths:
        raise ConfigError("--run", True, "either --run or --read")
    if not paths:
        plan, directory = _plan(topic, arguments)
        if not arguments.run:
            typer.echo(encoded(plan_document(plan))) if arguments.as_json else show_plan(plan)
            return
        for_s = seconds_of("--for", arguments.duration)
        url = url_of(arguments.url, "--url") if arguments.url is not None else None
        paths = run_plan(plan, directory, for_s=for_s, url=url, trace_dir=arguments.trace_dir)
    code = _diagnose(topic, arguments, [read_profile(path) for path in paths])
    if code:
        raise typer.Exit(code)


def _topic(question: str) -> Topic:
    wanted = question.strip().lower()
    found = topic_of(wanted)
    for rule in RULES:
        if found is None and wanted in (rule.id.lower(), rule.name):
            wanted = rule.cause
            found = topic_of(wanted)
    if found is not None:
        return found
    known = any(rule.cause == wanted for rule in RULES)
    expected = f"one of {', '.join(TOPICS)}, or a rule that a profile can tell about"
    hint = "; this one is told by metrics and settings: mileage doctor" if known else ""
    raise ConfigError("QUESTION", question, f"{expected}{hint}")


def _plan(topic: Topic, arguments: ProfileArguments) -> tuple[ProfilePlan, Path]:
    for_s = seconds_of("--for", arguments.duration)
    if not _FOR_MIN_S <= for_s <= _FOR_MAX_S:
        raise ConfigError("--for", arguments.duration, "a time of 1 s to 10 min")
    try:
        command = shlex.split(arguments.command or "")
    except ValueError as error:
        raise ConfigError("--command", arguments.command, f"a command line ({error})") from None
    tool: ProfileTool | None = None
    if arguments.tool is not None:
        known: dict[str, ProfileTool] = {name: name for name in get_args(ProfileTool)}
        tool = known.get(arguments.tool)
        if tool is None:
            raise ConfigError("--tool", arguments.tool, " or ".join(known))
    directory = arguments.to or Path(
        time.strftime(f"profile-{topic}-%Y%m%dT%H%M%SZ", time.gmtime())
    )
    plan = plan_profile(
        topic,
        directory=str(directory),
        for_s=for_s,
        url=url_of(arguments.url, "--url") if arguments.url is not None else None,
        pid=arguments.pid,
        command=command,
        tool=tool,
    )
    return plan, directory


def _diagnose(topic: Topic, arguments: ProfileArguments, readings: list[ProfileReading]) -> int:
    gathered = _beside(arguments)
    profiled = SourcedFacts(source="profile", standing="measured", document=profile_facts(readings))
    seen = SourcedFacts(source="what was seen", standing="measured", document=gathered.document)
    document = merge_facts([profiled, seen]).document
    diagnosis = diagnose_document(document, url=gathered.url, simulate=True)
    if arguments.as_json:
        shown = {name: part for name, part in document.items() if name != "logs"}
        told = doctor_document(diagnosis, shown, gathered.notes)
        typer.echo(encoded({**reading_document(topic, readings), **told}))
    else:
        show_readings(topic, readings)
        show_diagnosis(diagnosis, gathered.notes)
    return _CODES[diagnosis.verdict]


def _beside(arguments: ProfileArguments) -> Gathered:
    """What is known beside the profile; an engine is watched for as long as it was profiled."""
    if not any((arguments.url, arguments.facts, arguments.fact, arguments.log)):
        return Gathered({}, {})
    watched = arguments.url is not None and arguments.facts is None
    return gather(
        DoctorArguments(
            urls=[arguments.url] if watched and arguments.url is not None else None,
            facts=arguments.facts,
            fact=arguments.fact,
            log=arguments.log,
            duration=arguments.duration,
        )
    )
