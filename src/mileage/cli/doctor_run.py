"""Running a diagnosis: gather facts, ask the rules, tell what they say."""

from __future__ import annotations

from typing import Any, Final

import typer

from mileage.cli.bench_document import encoded
from mileage.cli.doctor_arguments import DoctorArguments
from mileage.cli.doctor_conflicts import conflict_rows, show_conflicts
from mileage.cli.doctor_document import doctor_document
from mileage.cli.doctor_fix import fix
from mileage.cli.doctor_markdown import diagnosis_markdown
from mileage.cli.doctor_price import stated_price
from mileage.cli.doctor_source import Gathered, gather
from mileage.cli.doctor_tables import show_diagnosis
from mileage.cli.html_report import check_report, write_page
from mileage.cli.whole_file import check_place, whole_file
from mileage.doctor.document import diagnose_document
from mileage.doctor.finding import Diagnosis

__all__ = ["run_doctor"]

_CODES: Final = {"clear": 0, "finding": 1, "not_enough_evidence": 3}


def run_doctor(arguments: DoctorArguments) -> int:
    """Do what the options say; the exit code. Raises MileageError."""
    check_report(arguments.html, "--html")
    if arguments.markdown is not None:
        check_place(arguments.markdown, key="--markdown")
    gathered = gather(arguments)
    diagnosis = _diagnosed(arguments, gathered)
    if arguments.markdown is not None:
        with whole_file(arguments.markdown, key="--markdown") as file:
            file.write(diagnosis_markdown(diagnosis).encode())
    if arguments.html is not None:
        from mileage.cli.doctor_html import doctor_html

        write_page(arguments.html, doctor_html(diagnosis, gathered), "--html")
    if arguments.as_json:
        document = doctor_document(
            diagnosis, _shown(gathered), gathered.notes, every_rule=arguments.every_rule
        )
        typer.echo(encoded({**document, "conflicts": conflict_rows(gathered.conflicts)}))
    else:
        show_diagnosis(diagnosis, gathered.notes, every_rule=arguments.every_rule)
        show_conflicts(gathered.conflicts)
    if arguments.fix:
        fix(arguments, diagnosis, gathered.admin_url or arguments.admin_url, gathered.url)
    return _CODES[diagnosis.verdict]


def _diagnosed(arguments: DoctorArguments, gathered: Gathered) -> Diagnosis:
    return diagnose_document(
        gathered.document,
        price=stated_price(arguments, gathered.document),
        url=gathered.url,
        simulate=True,
    )


def _shown(gathered: Gathered) -> dict[str, Any]:
    """The facts, without the lines of logs: they may hold what is nobody's business."""
    return {name: part for name, part in gathered.document.items() if name != "logs"}
