"""Progress of long steps on a terminal: bars where it is one, else a line per step."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from rich import filesize
from rich.console import Console, RenderableType
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.table import Column

__all__ = ["Steps"]


class Steps:
    """Called with (label, done_bytes, total_bytes); shows a bar per label while it is entered."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._tasks: dict[str, TaskID] = {}
        # The bar alone gives way on a narrow terminal: a task of several lines would scroll.
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=None, table_column=Column(max_width=40)),
            DownloadColumn(table_column=Column(no_wrap=True)),
            TransferSpeedColumn(table_column=Column(no_wrap=True)),
            TimeRemainingColumn(compact=True, table_column=Column(no_wrap=True)),
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

    @property
    def bars(self) -> RenderableType:
        """All steps as a terminal shows them now."""
        return self._progress.get_renderable()

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
