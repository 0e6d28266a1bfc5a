"""The experiment's state on disk: whole or as it was before."""

from __future__ import annotations

from pathlib import Path

import pytest

from mileage.cli.experiment_file import ExperimentFile
from mileage.control.experiment_config import ExperimentConfig
from mileage.gateway.admin.experiment import ExperimentRecord
from tests.support.toy_arms import experiment

RECORD = ExperimentRecord(
    written=ExperimentConfig(),
    config=experiment(),
    state="rolled_back",
    step=1,
    ratio=0.0,
    reason="arm b is worse: “more of its requests fail”",
    since_utc_s=1_700_000_000.5,
)


def test_what_is_saved_is_loaded(tmp_path: Path) -> None:
    path = tmp_path / "state" / "experiment.json"
    ExperimentFile(path).save(RECORD)
    assert ExperimentFile(path).load() == RECORD
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert [each.name for each in path.parent.iterdir()] == ["experiment.json"]


def test_where_none_was_saved_there_is_none(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert ExperimentFile(tmp_path / "nowhere" / "experiment.json").load() is None
    assert caplog.text == ""


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b'{"written": {}', id="cut off"),
        pytest.param(b"\x00\xff\xfe", id="no text"),
        pytest.param(b'{"state": "running"}', id="keys are missing"),
        pytest.param(
            b'{"written":{},"config":{"ratio":7},"state":"running","step":0,"ratio":0.5,'
            b'"reason":"","since_utc_s":0}',
            id="no configuration of today",
        ),
    ],
)
def test_one_that_cannot_be_read_is_as_none_and_said(
    tmp_path: Path, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "experiment.json"
    path.write_bytes(content)
    assert ExperimentFile(path).load() is None
    assert "the experiment's state cannot be read" in caplog.text


def test_a_save_that_fails_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "experiment.json"
    ExperimentFile(path).save(RECORD)
    (tmp_path / "experiment.json.new").mkdir()  # it cannot be opened for writing
    with pytest.raises(OSError, match="directory"):
        ExperimentFile(path).save(RECORD)
    assert ExperimentFile(path).load() == RECORD
