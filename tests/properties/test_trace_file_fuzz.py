"""What a trace may be named by: whatever bytes there are, requests or one error of ours."""

from __future__ import annotations

import gzip
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mileage.cli.trace_source import open_trace
from mileage.core.errors import ConfigError, LedgerError, TraceError
from mileage.costmodel.fitted_engine import FittedEngine
from mileage.storage.sqlite import DATABASE_NAME, SqliteStore
from mileage.workload.columns import azure_columns, columns_of
from mileage.workload.read_options import ReadOptions
from mileage.workload.source import read_trace
from mileage.workload.trace_check import fault_of
from tests.support.ledger_records import store_ends, timeline
from tests.support.served_journal import write_journal
from tests.support.traces import AZURE, BURSTGPT, MOONCAKE

HEADS = [
    *(b"", AZURE[0], BURSTGPT[0], MOONCAKE[0], b"\xef\xbb\xbf", b"time,isl,osl", b"[", b"{"),
    *(b"PAR1", b"PK\x03\x04", b"\x28\xb5\x2f\xfd", b"\x1f\x8b\x08\x00", b"\xff\xfe", b"MILEAGEJ"),
    *(b"SQLite format 3\0", b"arrived_s,prompt_tokens,output_tokens"),
]
PIECES = st.one_of(
    st.sampled_from([*AZURE[1:], *BURSTGPT[1:], *MOONCAKE, b"\r\n", b"\n", b",", b'"', b"\0"]),
    st.binary(max_size=30),
)
CONTENTS = st.builds(
    lambda head, pieces: head + b"\n".join(pieces),
    st.sampled_from(HEADS),
    st.lists(PIECES, max_size=6),
)
CHANGES = st.lists(
    st.tuples(st.floats(0.0, 1.0, exclude_max=True), st.binary(max_size=4)), max_size=4
)
"""Places, as a share of the whole, and what is put there in place of as many bytes, or of one."""


def changed(content: bytes, changes: list[tuple[float, bytes]]) -> bytes:
    data = bytearray(content)
    for share, new in changes:
        at = int(share * len(data))
        data[at : at + max(1, len(new))] = new
    return bytes(data)


def is_read_or_refused(path: Path, *, keep_failed: bool = False) -> None:
    options = ReadOptions(keep_failed=keep_failed)
    try:
        with open_trace(str(path), options=options) as trace:
            found = list(trace)
    except (TraceError, ConfigError, LedgerError) as error:
        assert str(path) in str(error)  # noqa: PT017
        assert ":0:" not in str(error)  # noqa: PT017
        return
    assert [fault for r in found if (fault := fault_of(r))] == []


@given(content=CONTENTS, packed=st.booleans(), changes=CHANGES)
def test_any_file(content: bytes, packed: bool, changes: list[tuple[float, bytes]]) -> None:
    data = gzip.compress(content, mtime=0) if packed else content
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "t"
        path.write_bytes(changed(data, changes) if packed else data)
        is_read_or_refused(path)


@pytest.fixture(scope="module")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("ledger") / DATABASE_NAME
    store = SqliteStore(path)
    store_ends(store, [timeline(n, prompt_tokens=10 + n, output_tokens=5) for n in range(9)])
    store.close()
    return path


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("journal")
    write_journal(directory)
    (segment,) = directory.rglob("*.mjl")
    return segment


@given(changes=CHANGES, keep=st.booleans(), data=st.data())
@pytest.mark.parametrize("kind", ["ledger", "journal"])
def test_any_damage_of_our_own_records(
    request: pytest.FixtureRequest,
    kind: str,
    changes: list[tuple[float, bytes]],
    keep: bool,
    data: st.DataObject,
) -> None:
    whole: Path = request.getfixturevalue(kind)
    content = whole.read_bytes()
    if data.draw(st.booleans(), "cut"):
        content = content[: data.draw(st.integers(0, len(content)), "at")]
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / whole.name
        path.write_bytes(changed(content, changes))
        is_read_or_refused(path, keep_failed=keep)


@given(
    lines=st.lists(
        st.one_of(st.sampled_from(AZURE), st.binary(max_size=40), st.just(b"2024-05-10 00:00,1,0")),
        max_size=6,
    ),
    keep=st.booleans(),
)
def test_the_fast_reader_of_azure_reads_and_refuses_the_same(
    lines: list[bytes], keep: bool
) -> None:
    options = ReadOptions(format="azure", keep_failed=keep)
    try:
        slow = columns_of(read_trace(lines, path="t", options=options))
    except TraceError as error:
        with pytest.raises(TraceError, match=f"t:{error.line}: "):
            azure_columns(lines, path="t", options=options)
        return
    fast = azure_columns(lines, path="t", options=options)
    # Where the earliest record is not the first one, the slow reader subtracts twice.
    assert fast.arrived_s.tolist() == pytest.approx(slow.arrived_s.tolist(), abs=1e-4)
    assert fast.prompt_tokens.tolist() == slow.prompt_tokens.tolist()
    assert fast.output_tokens.tolist() == slow.output_tokens.tolist()


@given(content=st.one_of(st.binary(max_size=60), st.just(b'{"steps":{},"kind":"steps"}')))
def test_any_file_is_a_fitted_engine_or_refused(content: bytes) -> None:
    with pytest.raises(ConfigError):
        FittedEngine.from_json(content)
