"""Text of clients' and engines' for a terminal: what it holds cannot control it."""

from __future__ import annotations

from rich.text import Text

__all__ = ["safe_text"]


def safe_text(value: str) -> Text:
    """The value as it is, except that nobody can put control codes on a terminal with it."""
    return Text("".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in value))
