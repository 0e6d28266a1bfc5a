"""What the options of mileage bench mean for its load."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mileage.cli.bench_arguments import LoadArguments
from mileage.cli.bench_setup import (
    calls_of,
    endpoint_kind,
    plan_options,
    price_of,
    ramp_of,
    run_options,
    targets_of,
)
from mileage.cli.bench_workload import BenchWorkload
from mileage.cli.config import Config
from mileage.control.config import CostsConfig
from mileage.core.errors import ConfigError
from mileage.core.slo import Slo
from mileage.loadgen.plan_options import PlanOptions, PlanTally
from mileage.loadgen.planned_call import PlannedCall
from mileage.loadgen.run_options import Ramp
from mileage.workload.trace_request import TraceRequest


@pytest.mark.parametrize(
    ("given", "is_trace", "expected"),
    [
        pytest.param(
            {"rate": 8.0},
            False,
            {"mode": "open", "concurrency": None, "duration_s": 30.0, "warmup_s": 5.0},
            id="a rate lasts for half a minute after its warm-up",
        ),
        pytest.param(
            {"trace": "t"},
            True,
            {"mode": "open", "duration_s": None, "warmup_s": 5.0},
            id="a trace is sent as a whole",
        ),
        pytest.param(
            {"rate": 8.0, "requests": 50},
            False,
            {"duration_s": None},
            id="a number of requests ends a run, not the time",
        ),
        pytest.param(
            {"rate": 8.0, "requests": 50, "duration": "2m"},
            False,
            {"duration_s": 120.0},
            id="both may be given",
        ),
        pytest.param(
            {"concurrency": 4, "think": "250ms"},
            False,
            {"mode": "closed", "concurrency": 4, "think_s": 0.25, "warmup_s": 5.0},
            id="clients are a closed loop",
        ),
        pytest.param(
            {"concurrency": 4, "trace": "t"},
            True,
            {"mode": "closed", "warmup_s": 0.0},
            id="a closed loop over a trace has no warm-up, which would eat its requests",
        ),
        pytest.param(
            {"concurrency": 4, "ramp": "1:4:10s"},
            False,
            {"mode": "closed", "concurrency": None, "ramp": Ramp(start=1, end=4, over_s=10)},
            id="of a closed loop with a ramp, the ramp says how many clients",
        ),
        pytest.param(
            {"ramp": "1:8:1m"},
            False,
            {"mode": "open", "ramp": Ramp(start=1, end=8, over_s=60)},
            id="a ramp of arrivals",
        ),
        pytest.param(
            {
                "rate": 1.0,
                "warmup": "0s",
                "drain": "5s",
                "timeout": "90s",
                "connect_timeout": "2s",
                "connections": 7,
                "retries": 3,
            },
            False,
            {
                "warmup_s": 0.0,
                "drain_s": 5.0,
                "response_timeout_s": 90.0,
                "connect_timeout_s": 2.0,
                "connections_max": 7,
                "retries": 3,
            },
            id="all limits",
        ),
    ],
)
def test_options_become_a_load(
    given: dict[str, Any], is_trace: bool, expected: dict[str, Any]
) -> None:
    options = run_options(LoadArguments(**given), is_trace=is_trace)
    assert {key: getattr(options, key) for key in expected} == expected


def test_nothing_is_sent_again_unless_asked_for() -> None:
    assert run_options(LoadArguments(rate=1.0), is_trace=False).retries == 0


@pytest.mark.parametrize(
    ("given", "option"),
    [
        pytest.param({"duration": "soon"}, "--duration", id="a duration that is none"),
        pytest.param({"duration": "0s"}, "--duration", id="no duration"),
        pytest.param({"warmup": "-1s"}, "--warmup", id="a warm-up before the beginning"),
        pytest.param({"think": "1s"}, "--think", id="thinking in an open loop"),
        pytest.param({"ramp": "1:8"}, "--ramp", id="a ramp without its time"),
        pytest.param({"ramp": "0:0:5s"}, "--ramp", id="a ramp of nothing"),
        pytest.param({"ramp": "1:-8:5s"}, "--ramp", id="a ramp below nothing"),
        pytest.param({"ramp": "1:8:0s"}, "--ramp", id="a ramp that is a step"),
        pytest.param({"ramp": "1:8:x"}, "--ramp", id="a ramp whose time is none"),
        pytest.param({"timeout": "0s"}, "--timeout", id="no patience at all"),
        pytest.param({"connect_timeout": "0s"}, "--connect-timeout", id="no time to connect"),
        pytest.param({"drain": "x"}, "--drain", id="a drain that is none"),
        pytest.param({"connections": 0}, "--connections", id="no connections"),
        pytest.param({"retries": -1}, "--retries", id="fewer than no retries"),
        pytest.param({"concurrency": 0}, "--concurrency", id="no clients"),
    ],
)
def test_a_load_that_cannot_be_is_told_by_its_option(given: dict[str, Any], option: str) -> None:
    with pytest.raises(ConfigError) as caught:
        run_options(LoadArguments(**given), is_trace=False)
    assert caught.value.key == option


@pytest.mark.parametrize("text", ["", "1", "1:2", "1:2:3s:4", "a:2:3s", "1::3s", "nan:2:3s"])
def test_what_is_no_ramp_is_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        ramp_of(text)


def test_options_become_a_plan() -> None:
    arguments = LoadArguments(
        seed=7,
        stream=False,
        endpoint="completions",
        ignore_eos=True,
        header=["x-team: blue"],
        cancel_ratio=0.25,
        cancel_after="500ms",
        body_field=["temperature=0.7", "stop=[1,2]", "user=me", 'tag="a=b"', "empty="],
    )
    plan = plan_options(arguments, model="toy", server="vllm")
    assert (plan.model, plan.server, plan.seed) == ("toy", "vllm", 7)
    assert (plan.stream, plan.endpoint, plan.ignore_eos) == (False, "completions", True)
    assert plan.headers == ((b"x-team", b"blue"),)
    assert (plan.cancel_ratio, plan.cancel_after_s) == (0.25, 0.5)
    assert plan.fields == {
        "temperature": 0.7,
        "stop": [1, 2],
        "user": "me",
        "tag": "a=b",
        "empty": "",
    }


@pytest.mark.parametrize(
    ("given", "option"),
    [
        pytest.param({"endpoint": "images"}, "--endpoint", id="an API that is not known"),
        pytest.param({"body_field": ["temperature"]}, "--body-field", id="a field without a value"),
        pytest.param({"body_field": ["=1"]}, "--body-field", id="a field without a name"),
        pytest.param({"body_field": ["stream=true"]}, "--body-field", id="a field of the plan"),
        pytest.param({"cancel_ratio": 1.5}, "--cancel-ratio", id="more than all"),
        pytest.param({"cancel_after": "x"}, "--cancel-after", id="a time that is none"),
        pytest.param({"shared_prefix_ratio": -0.1}, "--shared-prefix-ratio", id="less than none"),
        pytest.param({"tenant_header": "x y"}, "--tenant-header", id="a header that is none"),
        pytest.param({"tenant_key": ["acme"]}, "--tenant-key", id="a key of nobody"),
        pytest.param({"header": ["x"]}, "--header", id="a header without a value"),
    ],
)
def test_a_plan_that_cannot_be_is_told_by_its_option(given: dict[str, Any], option: str) -> None:
    with pytest.raises(ConfigError) as caught:
        plan_options(LoadArguments(**given), model="toy")
    assert caught.value.key == option


def test_without_a_model_the_option_for_one_is_named() -> None:
    with pytest.raises(ConfigError, match=r"^--model: "):
        plan_options(LoadArguments(), model="")


def test_the_api_is_of_the_workload_unless_it_is_asked_for() -> None:
    assert endpoint_kind(LoadArguments()) is None
    assert endpoint_kind(LoadArguments(endpoint="embeddings")) == "embeddings"


CONFIG = """
[slo]
ttft_s = 2.0
itl_s = 0.06
ttft_unloaded_ratio = 3.0

[slo.models."toy"]
ttft_s = 0.5

[costs]
usd_per_gpu_hour = 1.5
"""


@pytest.mark.parametrize(
    ("given", "slo"),
    [
        pytest.param({}, Slo(ttft_s=2.0, itl_s=0.06), id="those of the configuration"),
        pytest.param({"model": "toy"}, Slo(ttft_s=0.5), id="those of the model"),
        pytest.param({"slo": "itl=20ms"}, Slo(itl_s=0.02), id="those asked for, and no others"),
    ],
)
def test_targets_are_those_that_are_nearest(
    tmp_path: Path, given: dict[str, Any], slo: Slo
) -> None:
    file = tmp_path / "mileage.toml"
    file.write_text(CONFIG)
    found, config = targets_of(LoadArguments(config=file, **given))
    assert found == slo
    assert config.costs.usd_per_gpu_hour == 1.5


@pytest.mark.parametrize("text", ["", "ttft", "ttft=2", "e2e=2s", "ttft=1s,ttft=2s", "itl=0ms"])
def test_targets_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"^--slo: "):
        targets_of(LoadArguments(slo=text))


def test_the_price_is_as_asked_for_or_of_the_configuration_or_not_known() -> None:
    config = Config(costs=CostsConfig(usd_per_gpu_hour=1.5))
    assert price_of(LoadArguments(price=2.0), config) == 2.0
    assert price_of(LoadArguments(price=0.0), config) == 0.0  # free, and not unknown
    assert price_of(LoadArguments(), config) == 1.5
    assert price_of(LoadArguments(), Config()) is None


@pytest.mark.parametrize("price", [-1.0, 1e9, float("nan")])
def test_a_price_that_cannot_be_is_refused(price: float) -> None:
    with pytest.raises(ConfigError, match=r"^--price: "):
        price_of(LoadArguments(price=price), Config())


def workload_of_times(*arrived_s: float, is_trace: bool) -> BenchWorkload:
    requests = [
        TraceRequest(arrived_s=at_s, prompt_tokens=16, output_tokens=4) for at_s in arrived_s
    ]
    return BenchWorkload(
        name="a workload",
        make=lambda: list(requests),
        is_trace=is_trace,
        count=len(requests) if is_trace else None,
        facts={},
    )


def prompt_of(call: PlannedCall) -> str:
    found: str = json.loads(call.body)["messages"][-1]["content"]
    return found


def test_a_trace_is_sent_as_a_whole_after_a_warm_up_with_other_text() -> None:
    workload = workload_of_times(0.0, 1.0, 3.0, is_trace=True)
    tally = PlanTally()
    calls = list(calls_of(workload, PlanOptions(model="toy"), 2.0, tally))
    assert [call.scheduled_s for call in calls] == [0.0, 1.0, 2.0, 3.0, 5.0]
    assert [call.index for call in calls] == [0, 1, 2, 3, 4]
    # Caches that know the warm-up do not know the trace.
    assert len({prompt_of(call) for call in calls}) == 5
    # The warm-up is in no count of the plan.
    assert tally.calls == 3


def test_a_warm_up_does_not_change_what_is_measured() -> None:
    workload = workload_of_times(0.0, 1.0, 3.0, is_trace=True)
    plan = PlanOptions(model="toy")
    without = [call.body for call in calls_of(workload, plan, 0.0, PlanTally())]
    with_one = [call.body for call in calls_of(workload, plan, 2.0, PlanTally())]
    assert with_one[2:] == without


def test_a_made_up_load_goes_on_from_its_warm_up() -> None:
    workload = workload_of_times(0.0, 1.0, 3.0, is_trace=False)
    calls = list(calls_of(workload, PlanOptions(model="toy"), 2.0, PlanTally()))
    assert [call.scheduled_s for call in calls] == [0.0, 1.0, 3.0]
