"""mileage simulate compare and capacity: several arms on one trace, and the highest rate."""

from __future__ import annotations

import pytest

from mileage.cli.simulate_capacity import Goal, highest
from mileage.cli.simulate_figures import BEST, FIGURES, WORST, marks
from mileage.core.errors import ConfigError
from tests.support.simulate_cli import document, simulate

TRACE = "synthetic:rate=4,duration=30s,prompt=uniform:100:2000,output=uniform:10:100"
OPTIONS = ("--trace", TRACE, "--model", "llama-3.1-8b", "--engine-tokens", "1024")
H100 = (*OPTIONS, "--gpu", "h100")
TARGETS = ("--slo", "ttft=1s,itl=50ms")


def test_arms_of_a_comparison_are_what_each_is_alone() -> None:
    both = document("compare", *H100, *TARGETS, "--policy", "off,static:8")
    assert [arm["name"] for arm in both["arms"]] == ["off", "static:8"]
    for arm in both["arms"]:
        alone = document(*H100, *TARGETS, "--policy", arm["name"])
        for key in ("ttft_s", "slo_attainment_ratio", "goodput_rps", "gpu_busy_ratio"):
            assert arm[key] == alone[key]


def test_each_policy_is_run_on_each_gpu_with_each_tensor_parallelism() -> None:
    found = document(
        "compare", *OPTIONS, *TARGETS, "--gpu", "h100,l40s", "--tp", "1,2", "--policy", "off,aimd"
    )
    names = [arm["name"] for arm in found["arms"]]
    assert len(set(names)) == len(names) == 8
    assert names[0] == "H100-SXM5-80GB off"
    assert "2x L40S aimd" in names
    fast, slow = found["arms"][0], found["arms"][4]
    assert fast["assumptions"]["gpu"] != slow["assumptions"]["gpu"]
    assert fast["itl_mean_s"]["p50"] < slow["itl_mean_s"]["p50"]


def test_best_and_worst_are_named_where_arms_differ() -> None:
    found = document("compare", *H100, *TARGETS, "--rate-scale", "8", "--policy", "off,static:2")
    by_name = {arm["name"]: arm for arm in found["arms"]}
    goodput = {name: arm["goodput_rps"] for name, arm in by_name.items()}
    assert found["best"]["goodput_rps"] == max(goodput, key=lambda name: goodput[name])
    assert found["worst"]["goodput_rps"] == min(goodput, key=lambda name: goodput[name])
    assert "preemptions" not in found["best"], "neither had one"
    shown = simulate("compare", *H100, *TARGETS, "--rate-scale", "8", "--policy", "off,static:2")
    row = next(line for line in shown.stdout.splitlines() if line.startswith("goodput"))
    assert row.index("▲") != row.index("▼")
    assert shown.stdout.splitlines()[-1].startswith(f"Best: {found['best']['goodput_rps']}")


def test_capacity_is_the_highest_rate_that_keeps_the_attainment() -> None:
    options = ("capacity", *H100, *TARGETS, "--tolerance", "0.05", "--policy", "off,static:4")
    found = document(*options)
    first, second = found["policies"]
    assert (found["rate_scale"], found["goodput_rps"]) == (
        first["rate_scale"],
        first["goodput_rps"],
    )
    assert found["ratio_to"] == {"static:4": first["rate_scale"] / second["rate_scale"]}
    assert second["ratio_to"] == {"off": second["rate_scale"] / first["rate_scale"]}
    for each in found["policies"]:
        kept = max(p["rate_scale"] for p in each["probes"] if p["kept"])
        missed = min(p["rate_scale"] for p in each["probes"] if not p["kept"])
        assert each["rate_scale"] == kept < missed <= kept * 1.05
        assert each["figures"]["slo_attainment_ratio"] >= 0.95
        alone = document(*H100, *TARGETS, "--policy", each["name"], "--rate-scale", str(missed))
        assert alone["slo_attainment_ratio"] < 0.95
    last = simulate(*options).stdout.splitlines()[-1]
    assert "keeps 95.0% within targets up to" in last


def test_a_guard_of_the_tenths_lowers_the_capacity() -> None:
    options = ("capacity", *H100, "--slo", "ttft=300ms", "--tolerance", "0.1", "--policy", "off")
    free = document(*options, "--attainment", "0.8")
    guarded = document(*options, "--attainment", "0.8", "--decile-min", "0.95")
    assert guarded["rate_scale"] < free["rate_scale"]
    assert min(guarded["policies"][0]["figures"]["attainment_by_prompt_decile"]) >= 0.95


def test_an_impossible_target_tells_what_light_load_meets() -> None:
    result = simulate("capacity", *H100, "--slo", "ttft=12ms", "--policy", "off")
    assert isinstance(result.exception, ConfigError)
    message = str(result.exception)
    assert message.startswith("--attainment: got 0.95")
    assert "with one request at a time" in message
    assert "(target 12 ms)" in message


def test_a_target_that_one_policy_never_keeps_leaves_the_others_theirs() -> None:
    found = document(
        "capacity",
        *("--trace", TRACE, "--model", "llama-3.1-8b", "--gpu", "h100,l4", "--policy", "off"),
        *("--slo", "itl=40ms", "--gaps", "mean", "--tolerance", "0.2"),
    )
    quick, slow = found["policies"]
    assert quick["rate_scale"] > 0.0
    assert slow["rate_scale"] is None
    assert slow["light_load"]["slo_attainment_ratio"] < 0.95
    assert quick["ratio_to"] == {"L4": None}


def test_a_trace_that_overloads_nothing_is_not_enough_evidence() -> None:
    few = ("--trace", TRACE, "--requests", "5", "--model", "llama-3.1-8b", "--gpu", "h100")
    result = simulate("capacity", *few, "--slo", "ttft=60s", "--policy", "off")
    assert result.exit_code == 3
    assert "simulate a longer trace" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        pytest.param(("compare", *H100, "--policy", "off,,model"), "--policy", id="empty name"),
        pytest.param(("compare", *H100, "--policy", "off,off"), "only once", id="twice"),
        pytest.param(
            ("compare", *H100, "--policy", ",".join(f"static:{n}" for n in range(1, 30))),
            "at most 24",
            id="too many",
        ),
        pytest.param(("capacity", *H100), "--slo", id="no target"),
        pytest.param(
            ("capacity", *H100, *TARGETS, "--attainment", "1.5"), "--attainment", id="1.5"
        ),
        pytest.param(("capacity", *H100, *TARGETS, "--tolerance", "0"), "--tolerance", id="exact"),
        pytest.param(
            ("capacity", *H100, *TARGETS, "--decile-min", "0"), "--decile-min", id="no guard"
        ),
    ],
)
def test_bad_input_gets_one_error(arguments: tuple[str, ...], told: str) -> None:
    result = simulate(*arguments)
    assert isinstance(result.exception, ConfigError), result.output
    assert told in str(result.exception)


@pytest.mark.parametrize("limit", [0.002, 0.3, 1.0, 1.7, 900.0])
def test_the_search_finds_a_limit_wherever_it_is(limit: float) -> None:
    asked: list[float] = []

    def kept(value: float) -> bool:
        asked.append(value)
        return value <= limit

    found = highest(kept, 1.0, 0.01, known=limit >= 1.0)
    assert limit / 1.01 <= found <= limit
    assert len(asked) == len(set(asked)), "each value is asked for once"


def test_the_search_ends_without_a_limit() -> None:
    assert highest(lambda _: True, 1.0, 0.01, known=True) == float("inf")
    assert highest(lambda _: False, 1.0, 0.01, known=False) == 0.0


def test_an_attainment_of_nothing_is_no_goal() -> None:
    with pytest.raises(ConfigError, match="--attainment"):
        Goal(attainment=0.0)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        pytest.param(
            ("--gpu", "h100,H100-SXM5-80GB", "--policy", "off"),
            "--gpu: got 'h100,H100-SXM5-80GB', expected each only once",
            id="one GPU by two of its names",
        ),
        pytest.param(
            ("--gpu", "h100", "--tp", "2,2", "--policy", "off"),
            "--tp: got '2,2', expected each only once",
            id="a tensor parallelism twice",
        ),
        pytest.param(
            ("--gpu", "h100", "--policy", "off", "--variant", "plain kv_blocks=100"),
            "--variant: got 'plain', expected names that differ, and not plain",
            id="a variant with the name of what it varies",
        ),
    ],
)
def test_what_is_there_twice_is_told_by_its_option(options: tuple[str, ...], told: str) -> None:
    assert str(simulate("compare", *OPTIONS, *options).exception) == told


def test_what_looks_the_same_is_neither_best_nor_worst() -> None:
    figure = next(each for each in FIGURES if each.key == "usd_per_mtok")
    assert marks(figure, [4.30201, 4.30202, None]) == ["", "", ""]
    assert marks(figure, [4.30201, 4.5, None]) == [BEST, WORST, ""]


def test_without_targets_nothing_is_told_of_who_met_them() -> None:
    told = simulate("compare", *H100, "--policy", "off,static:8").stdout
    assert "goodput tells which is best" in told
    assert "met their targets" not in told
    assert "goodput  " not in told
