"""The `mileage` command: runs what is asked for, and maps errors to exit codes."""

from __future__ import annotations

import contextlib
import sys

import typer

from mileage.cli.commands import asked_for, command_line
from mileage.cli.error_document import UsageError, error_document, wants_json
from mileage.cli.told_stdout import open_standard_files, tell_of_stdout
from mileage.core.errors import ConfigError, FileError, MileageError, TraceError

__all__ = ["main"]


def main() -> None:
    """Run the command line; errors become a line on stderr and an exit code, and where --json asks
    for a document that has not been printed, a document of the error."""
    open_standard_files()
    file = tell_of_stdout()
    error: Exception
    try:
        try:
            app = command_line(asked_for(sys.argv[1:]))
            sys.exit(app(standalone_mode=False))
        finally:
            sys.stdout.flush()  # here it can still be told that it failed
    except BrokenPipeError:
        sys.exit(1)  # whoever reads has enough: nothing to tell
    except typer.Abort:
        typer.echo("Aborted!", err=True)
        sys.exit(1)
    except UsageError as caught:
        error, code = caught, getattr(caught, "exit_code", 2)
        caught.show()  # type: ignore[attr-defined]
    except MileageError as caught:
        error, code = caught, 2 if isinstance(caught, ConfigError | TraceError) else 1
        typer.echo(f"mileage: {error}", err=True)
    if wants_json(sys.argv[1:]) and not (file is not None and file.was_written):
        _print(error_document(error, code))
    sys.exit(code)


def _print(document: str) -> None:
    """On standard output; where that cannot be written, what is on standard error must do."""
    with contextlib.suppress(OSError, FileError):
        typer.echo(document)
        sys.stdout.flush()


if __name__ == "__main__":
    main()
