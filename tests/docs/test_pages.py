"""Pages link to what exists, name make targets that exist, and no machine of their author's."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, anchors, broken_links, links, pages

# Directories of one machine; a page must work on any.
MACHINE_PATHS = re.compile(r"(?<![\w.~$}/-])/(?:home|root|tmp|Users|work|workspace|mnt|media)/")


def make_targets(makefile: str) -> set[str]:
    """Targets that a Makefile defines; a pattern such as bench-% stays one."""
    found: set[str] = set()
    for names in re.findall(r"^([a-z][\w %.-]*):(?!=)", makefile, re.MULTILINE):
        found.update(names.split())
    return found


def unknown_targets(text: str, targets: set[str]) -> list[str]:
    """Targets that code in the page calls with `make`, and that are not among `targets`."""
    spans = re.findall(r"```.*?```|`[^`\n]+`", text, re.DOTALL)
    called = {
        name
        for span in spans
        for name in re.findall(r"(?:^|[`&;|]) *make ([a-z][\w-]*)", span, re.MULTILINE)
    }
    stems = tuple(t.removesuffix("%") for t in targets if t.endswith("%"))
    return sorted(c for c in called if c not in targets and not (stems and c.startswith(stems)))


def test_every_link_leads_somewhere() -> None:
    found = pages()
    assert found
    assert [b for page in found for b in broken_links(page, page.read_text("utf-8"))] == []


def test_every_page_begins_with_a_title() -> None:
    assert [p.name for p in pages() if not re.match(r"# \S", p.read_text("utf-8"))] == []


def test_every_page_can_be_reached_from_the_readme() -> None:
    waiting, reached = [ROOT / "README.md"], set[Path]()
    while waiting:
        page = waiting.pop()
        if page in reached:
            continue
        reached.add(page)
        for _, target in links(page.read_text("utf-8")):
            file = (page.parent / target.partition("#")[0]).resolve()
            if file.suffix == ".md" and file.exists():
                waiting.append(file)
    assert [str(p.relative_to(ROOT)) for p in pages() if p not in reached] == []


def test_make_targets_in_pages_exist() -> None:
    targets = make_targets((ROOT / "Makefile").read_text("utf-8"))
    assert {"setup", "serve", "test", "check", "bench", "docs"} <= targets
    assert {
        page.name: unknown
        for page in pages()
        if (unknown := unknown_targets(page.read_text("utf-8"), targets))
    } == {}


def missing_paths(text: str, root: Path) -> list[str]:
    """Paths of the repository that code in the page names, and that are not there.

    `*` and `NAME` stand for any name.
    """
    named = re.findall(r"`((?:src|tests|scripts|docs|benchmarks|\.ci)/[\w./*-]*)`", text)
    return sorted(
        name for name in set(named) if not any(root.glob(name.rstrip("/").replace("NAME", "*")))
    )


def test_paths_in_pages_exist() -> None:
    assert {
        page.name: missing
        for page in pages()
        if (missing := missing_paths(page.read_text("utf-8"), ROOT))
    } == {}


def test_a_missing_path_is_found(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "a_b.py").touch()
    page = "`src/a_b.py`, `src/`, `src/a_*.py`, `src/NAME.py`, `src/c.py`, src/d.py, `docs/x`"
    assert missing_paths(page, tmp_path) == ["docs/x", "src/c.py"]


def test_no_page_or_script_names_a_path_of_one_machine() -> None:
    scripts = [p for p in (ROOT / "scripts").rglob("*") if p.suffix in (".sh", ".py")]
    files = [*pages(), *scripts, ROOT / "Makefile", ROOT / ".ci" / "run", ROOT / "pyproject.toml"]
    found = {
        str(f.relative_to(ROOT)): MACHINE_PATHS.findall(f.read_text("utf-8"))
        for f in files
        if MACHINE_PATHS.search(f.read_text("utf-8"))
    }
    assert found == {}


@pytest.mark.parametrize(
    ("text", "broken"),
    [
        pytest.param("# T\n[a](b.md)", ["no such file"], id="a file that is not there"),
        pytest.param("# T\n[a](other.md#none)", ["no such heading"], id="a heading of another"),
        pytest.param("# T\n[a](#none)", ["no such heading"], id="a heading of its own"),
        pytest.param("# T\n![a](x.png)", ["no such file"], id="an image"),
        pytest.param("# T\n[a]: x.md", ["no such file"], id="a reference"),
        pytest.param('# T\n<img src="x.png">', ["no such file"], id="an HTML image"),
        pytest.param("# T\n[a](other.md#a-b) [b](#t) [c](https://x.y/z.md)", [], id="good links"),
        pytest.param("# T\n`[a](b.md)`\n```\n[a](b.md)\n```", [], id="code is no link"),
    ],
)
def test_a_broken_link_is_found(tmp_path: Path, text: str, broken: list[str]) -> None:
    (tmp_path / "other.md").write_text("# A B\n", "utf-8")
    page = tmp_path / "page.md"
    page.write_text(text, "utf-8")
    assert [b.rpartition(": ")[2] for b in broken_links(page, text)] == broken


def test_anchors_are_those_of_github() -> None:
    text = "# `[server]`\n## A b, c!\n## A b, c!\n```\n# no\n```\n### [x](y.md) z_1\n"
    assert anchors(text) == {"server", "a-b-c", "a-b-c-1", "x-z_1"}


def test_an_unknown_make_target_is_found() -> None:
    targets = make_targets("setup: ## x\nbench-%: setup\nA := 1\n\t@make: no\n")
    assert targets == {"setup", "bench-%"}
    page = "`make setup`, `make bench-x A=1`, to make do, `apt install make x`"
    page += "\n```\nmake nothing\n```"
    assert unknown_targets(page, targets) == ["nothing"]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        pytest.param("see /home/alice/x", True, id="a home directory"),
        pytest.param("see ~/x, $HOME/tmp/x and https://h/tmp/x", False, id="paths of any machine"),
    ],
)
def test_a_path_of_one_machine_is_found(text: str, found: bool) -> None:
    assert bool(MACHINE_PATHS.search(text)) is found
