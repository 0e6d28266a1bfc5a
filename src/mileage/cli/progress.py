"""Progress of long steps on a terminal: bars where it is one, else a line per step."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from rich import filesize
from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

__all__ = ["Steps"]


class Steps:
    """Called with (label, done_bytes, total_bytes); shows a bar per label while it is entered."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._tasks: dict[str, TaskID] = {}
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            DownloadColumn(),
            TransferSpeedColumn(),
            TimeRemainingColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )

    def __call__(self, label: str, done_bytes: int, total_bytes: int | None) -> None:
        task = self._tasks.get(label)
        if task is None:
            task = self._tasks[label] = self._progress.add_task(label, total=total_bytes)
            if not self._console.is_terminal:
                size = f" ({filesize.decimal(total_bytes)})" if total_bytes else ""
                self._console.print(f"{label}{size}", markup=False)
        self._progress.update(task, completed=done_bytes, total=total_bytes)

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._progress.stop()
