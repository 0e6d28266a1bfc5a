"""`mileage doctor`: why GPUs are idle or latency is high."""

from __future__ import annotations

import typer

from mileage.cli.doctor_arguments import DoctorArguments
from mileage.cli.doctor_group import DoctorGroup
from mileage.cli.doctor_profile import register_profile
from mileage.cli.doctor_rca import register_rca
from mileage.cli.doctor_record import register_record
from mileage.cli.doctor_run import run_doctor
from mileage.cli.simulate_arguments import taking

__all__ = ["doctor"]

doctor = typer.Typer(cls=DoctorGroup, rich_markup_mode=None)
register_record(doctor)
register_profile(doctor)
register_rca(doctor)


@doctor.callback(invoke_without_command=True)
@taking(DoctorArguments)
def run(context: typer.Context, arguments: DoctorArguments) -> None:
    """Tell why GPUs are idle or latency is high: cause, evidence, money and remedy.

    Watches engines and gateways for a while, or reads a facts document or a dump of `mileage
    doctor record`. Exits with 0 where all is clear, with 1 where something is found, with 3 where
    too little is known.

    Example: mileage doctor http://127.0.0.1:8000 --for 30s --fact concurrency=256

    From a file: mileage doctor --facts facts.json --json
    """
    code = run_doctor(arguments)
    if code:
        raise typer.Exit(code)
