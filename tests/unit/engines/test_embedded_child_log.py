"""The child's log: bounded in memory and on disk, and the errors in it found."""

from __future__ import annotations

from pathlib import Path

import pytest

from mileage.engines.embedded.child_log import ChildLog

LOAD_FAILURE = b"""\
0.00.309.721 E gguf_init_from_reader: invalid magic characters: 'hell', expected 'GGUF'
0.00.309.758 E llama_model_load: error loading model: failed to load model from bad.gguf
0.00.310.035 E srv          init: exiting due to model loading error
0.00.310.100 E srv          init: and one more
"""


def test_the_first_errors_name_the_cause(tmp_path: Path) -> None:
    log = ChildLog(tmp_path / "log")
    log.feed(b"0.00.001.252 W srv init: a warning\n" + LOAD_FAILURE)
    first, *others = log.first_errors().split("; ")
    assert first == "gguf_init_from_reader: invalid magic characters: 'hell', expected 'GGUF'"
    assert len(others) == 2


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        pytest.param(b"ggml.c:22: GGML_ASSERT(x) failed", "ggml.c:22: GGML_ASSERT(x) failed"),
        pytest.param(b"ImportError: libgomp.so.1", "ImportError: libgomp.so.1"),
        pytest.param(b"Segmentation fault", "Segmentation fault"),
    ],
)
def test_other_errors(tmp_path: Path, line: bytes, expected: str) -> None:
    log = ChildLog(tmp_path / "log")
    log.feed(line + b"\n")
    assert log.first_errors() == expected


def test_lines_may_be_cut_anywhere(tmp_path: Path) -> None:
    log = ChildLog(tmp_path / "log")
    for at in range(len(LOAD_FAILURE)):
        log.feed(LOAD_FAILURE[at : at + 1])
    log.feed(b"no line break at the end")
    log.end()
    assert log.tail(2) == [
        "0.00.310.100 E srv          init: and one more",
        "no line break at the end",
    ]


def test_memory_is_bounded(tmp_path: Path) -> None:
    log = ChildLog(tmp_path / "log")
    for _ in range(1000):
        log.feed(b"x" * 5000 + b"\n")
    log.feed(b"y" * 1_000_000)
    log.end()
    lines = log.tail(10_000)
    assert len(lines) <= 200
    assert max(map(len, lines)) <= 2000


def test_disk_is_bounded(tmp_path: Path) -> None:
    log = ChildLog(tmp_path / "state" / "log")
    for _ in range(60):
        log.feed(b"z" * 65_535 + b"\n")
    sizes = [p.stat().st_size for p in (tmp_path / "state").iterdir()]
    assert len(sizes) == 2
    assert sum(sizes) <= 2 * (1024 * 1024 + 65_536)


def test_a_new_child_begins_with_an_empty_log(tmp_path: Path) -> None:
    log = ChildLog(tmp_path / "log")
    log.feed(LOAD_FAILURE + b"rest")
    log.begin()
    assert log.first_errors() == ""
    assert log.tail(5) == []


def test_a_full_disk_keeps_the_lines_in_memory(tmp_path: Path) -> None:
    (tmp_path / "log").symlink_to("/dev/full")
    log = ChildLog(tmp_path / "log")
    log.feed(b"still here\n")
    assert log.tail(1) == ["still here"]
