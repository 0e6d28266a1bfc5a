"""Any CSV table: columns by their usual names or by ours, units of time, and its faults."""

from __future__ import annotations

from typing import Any

import pytest

from mileage.core.errors import ConfigError, TraceError
from mileage.workload.read_options import ReadOptions
from mileage.workload.trace_request import TraceRequest
from tests.support.traces import read


def test_a_table_with_all_that_is_known() -> None:
    lines = [
        b"time,user,model,input_tokens,output_tokens,max_tokens,session_id,lora,priority,note",
        b'10.5,acme,llama,100,20,50,7,sql,high,"a, b"',
        b"11,,,5,6,,,,,",
    ]
    assert read(lines) == [
        TraceRequest(
            arrived_s=0.0,
            prompt_tokens=100,
            output_tokens=20,
            tenant="acme",
            model="llama",
            output_tokens_max=50,
            conversation=7,
            adapter="sql",
            priority="high",
        ),
        TraceRequest(arrived_s=0.5, prompt_tokens=5, output_tokens=6),
    ]


@pytest.mark.parametrize(
    ("header", "second", "options"),
    [
        pytest.param("timestamp", ("3.0", "4.5"), {}, id="seconds"),
        pytest.param("timestamp_ms", ("3000", "4500"), {}, id="milliseconds by name"),
        pytest.param("ts", ("3000000", "4500000"), {"time_unit": "us"}, id="microseconds as told"),
        pytest.param("arrival_time_ns", ("0", "1500000000"), {}, id="nanoseconds by name"),
        pytest.param(
            "created", ("2025-01-31T23:59:59Z", "2025-02-01 00:00:00.5"), {}, id="dates and times"
        ),
        pytest.param("Arrived At", ("-2", "-0.5"), {}, id="a name in words, times below 0"),
    ],
)
def test_units_of_time(header: str, second: tuple[str, str], options: dict[str, Any]) -> None:
    lines = [f"{header},ISL,OSL", *(f"{time},7,8" for time in second)]
    assert [r.arrived_s for r in read([s.encode() for s in lines], **options)] == [0.0, 1.5]


def test_columns_of_other_names() -> None:
    lines = [b"when,n_in,n_out,time", b"1,10,2,x", b"3,11,4,y"]
    columns = {"arrived_s": "when", "prompt_tokens": "n_in", "output_tokens": "n_out"}
    assert [(r.arrived_s, r.prompt_tokens) for r in read(lines, columns=columns)] == [
        (0.0, 10),
        (2.0, 11),
    ]


def test_embeddings_may_generate_nothing() -> None:
    lines = [b"time,endpoint,prompt_len,output_len", b"0,embeddings,5,0", b"1,chat,5,0"]
    (request,) = read(lines)
    assert (request.endpoint, request.output_tokens) == ("embeddings", 0)


@pytest.mark.parametrize(
    ("lines", "line", "message"),
    [
        pytest.param([b"time,prompt_len", b"0,1"], 1, "no column for output_tokens", id="missing"),
        pytest.param([b"time,isl,osl,time", b"0,1,1,0"], 1, "two columns", id="a name twice"),
        pytest.param([b"time,isl,osl", b"0,1"], 2, "has 2 fields", id="a field less"),
        pytest.param([b"time,isl,osl", b",1,1"], 2, "time: got ''", id="no time"),
        pytest.param([b"time,isl,osl", b"nan,1,1"], 2, "time", id="nan"),
        pytest.param([b"time,isl,osl", b"0,-1,1"], 2, "isl", id="below 0"),
        pytest.param([b"time,isl,osl", b"1764428000000,1,1"], 2, "--time-unit", id="milliseconds"),
        pytest.param([b"time,isl,osl", b"2025-01-01 00:00,1,1", b"5,1,1"], 3, "date", id="mixed"),
        pytest.param([b"time,isl,osl,endpoint", b"0,1,1,talk"], 2, "endpoint", id="endpoint"),
        pytest.param([b"time,isl,osl", b'0,"1,1', b"1,1,1"], 2, "not closed", id="open quote"),
        pytest.param([b"time,isl,osl,ISL", b"0,1,1,0"], 1, "two columns", id="in other letters"),
        pytest.param([b"time;isl;osl", b"0;1;1"], 1, "not semicolons", id="semicolons"),
        pytest.param([b"time\tisl\tosl", b"0\t1\t1"], 1, "not tabs", id="tabs"),
        pytest.param([b"time,isl,osl", b"inf,1,1"], 2, "time: got 'inf'", id="infinite"),
        pytest.param([b"time,isl,osl", b"0,1e3,1"], 2, "isl: got '1e3'", id="an exponent"),
        pytest.param([b"time,isl,osl", b"0,1," + b"9" * 99], 2, "osl: got '999", id="huge"),
        pytest.param([b"time,isl,osl", b"0,1,\xff"], 2, "UTF-8", id="no text"),
    ],
)
def test_a_fault_is_told_by_line_and_column(lines: list[bytes], line: int, message: str) -> None:
    with pytest.raises(TraceError) as caught:
        read(lines)
    assert caught.value.line == line
    assert message in caught.value.message


@pytest.mark.parametrize(
    ("columns", "key"),
    [({"prompt": "isl"}, "columns"), ({"prompt_tokens": "n"}, "columns.prompt_tokens")],
)
def test_columns_that_are_not_there(columns: dict[str, str], key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read([b"time,isl,osl", b"0,1,1"], columns=columns)
    assert caught.value.key == key


@pytest.mark.parametrize(
    ("options", "key"),
    [
        ({"format": "parquet"}, "format"),
        ({"spread": "some"}, "spread"),
        ({"spread_max_s": 5.0}, "spread_max_s"),
        ({"time_unit": "min"}, "time_unit"),
        ({"block_tokens": 0}, "block_tokens"),
        ({"reorder_places": 0}, "reorder_places"),
    ],
)
def test_options_that_cannot_be(options: dict[str, object], key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        ReadOptions(**options)  # type: ignore[arg-type]
    assert caught.value.key == key
