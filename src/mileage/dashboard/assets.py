"""Assets: the files of the dashboard's pages, as they are in the package."""

from __future__ import annotations

from importlib.resources import files

__all__ = ["load_assets"]


def load_assets() -> dict[str, bytes]:
    """Every file by name; nothing is loaded from elsewhere, so the dashboard works offline."""
    directory = files("mileage.dashboard") / "static"
    return {file.name: file.read_bytes() for file in directory.iterdir() if file.is_file()}
