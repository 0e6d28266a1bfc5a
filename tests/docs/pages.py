"""Markdown pages as their readers see them: headings with anchors, links, text outside code."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]

_FENCE = re.compile(r"^( *)(```+|~~~+).*?^\1\2 *$", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"(`+)(?!`).*?(?<!`)\1(?!`)", re.DOTALL)
_INLINE_LINK = re.compile(
    r"!?\[(?:[^\[\]]|\[[^\]]*\])*\]\(\s*<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\s*\)"
)
_REFERENCE = re.compile(r"^ {0,3}\[[^\]]+\]:\s*<?(\S+?)>?(?:\s|$)", re.MULTILINE)
_HTML_LINK = re.compile(r"<(?:a|img)\b[^>]*?\b(?:href|src)=\"([^\"]+)\"")
_ANCHOR = re.compile(r"<a\b[^>]*?\b(?:id|name)=\"([^\"]+)\"")
_HEADING = re.compile(r"^ {0,3}#{1,6}\s+(.*?)\s*#*\s*$", re.MULTILINE)


class Link(NamedTuple):
    """Where a page points; `line` counts from 1."""

    line: int
    target: str


def pages() -> list[Path]:
    """Every page of the project."""
    return sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


def without_fences(text: str) -> str:
    """The text with blocks of code blanked, so that lines keep their numbers."""
    return _FENCE.sub(lambda m: "\n" * m[0].count("\n"), text)


def links(text: str) -> list[Link]:
    """All links and images of a page, but for those inside code."""
    prose = _CODE.sub(lambda m: "\n" * m[0].count("\n"), without_fences(text))
    return sorted(
        Link(prose.count("\n", 0, match.start()) + 1, match[1])
        for pattern in (_INLINE_LINK, _REFERENCE, _HTML_LINK)
        for match in pattern.finditer(prose)
    )


def anchors(text: str) -> set[str]:
    """Fragments that a link to the page may have, as GitHub makes them from its headings."""
    prose = without_fences(text)
    seen: Counter[str] = Counter()
    found = set(_ANCHOR.findall(prose))
    for heading in _HEADING.findall(prose):
        heading = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        slug = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        found.add(f"{slug}-{seen[slug]}" if seen[slug] else slug)
        seen[slug] += 1
    return found


def broken_links(path: Path, text: str) -> list[str]:
    """Links of the page at `path` that lead to no file, or to no heading of it."""
    broken = []
    for line, target in links(text):
        if re.match(r"[a-z][a-z0-9+.-]*:", target):
            continue
        name, _, fragment = target.partition("#")
        file = path if not name else (path.parent / name)
        if not file.exists():
            broken.append(f"{path.name}:{line}: {target}: no such file")
        elif fragment:
            content = text if file == path else file.read_text("utf-8")
            if fragment not in anchors(content):
                broken.append(f"{path.name}:{line}: {target}: no such heading")
    return broken
