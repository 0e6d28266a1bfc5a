"""Which profiler a question gets, and that its command is bounded and writes nothing over."""

from __future__ import annotations

import pytest

from mileage.doctor.profile_plan import _CAUSES, TOPICS, plan_profile, topic_of
from mileage.doctor.rules.all_rules import RULES


def test_every_cause_that_has_a_topic_is_one_of_the_rules() -> None:
    assert {cause for causes in _CAUSES.values() for cause in causes} <= {r.cause for r in RULES}


def test_no_cause_has_two_topics() -> None:
    assert sum(map(len, _CAUSES.values())) == len(set().union(*_CAUSES.values()))


@pytest.mark.parametrize(
    ("question", "topic"),
    [
        pytest.param("engine_host_bound", "gaps", id="a cause"),
        pytest.param("tp_too_large_for_small_model", "communication", id="another"),
        pytest.param("cpu", "cpu", id="a topic itself"),
        pytest.param("keda_cooldown_bypasses_hpa", None, id="what no profiler sees"),
    ],
)
def test_a_question_has_a_topic(question: str, topic: str | None) -> None:
    assert topic_of(question) == topic


@pytest.mark.parametrize(
    ("topic", "url", "command", "tool"),
    [
        pytest.param("cpu", "http://e:1", (), "py-spy", id="Python is looked at from outside"),
        pytest.param("gaps", "http://e:1", (), "torch", id="an engine that runs profiles itself"),
        pytest.param("gaps", None, (), "nsys", id="else nsys starts it"),
        pytest.param("gaps", "http://e:1", ("vllm",), "nsys", id="also where it is said how"),
        pytest.param("memory", None, ("vllm",), "ncu", id="counters are read by ncu"),
    ],
)
def test_what_is_known_chooses_the_tool(
    topic: str, url: str | None, command: tuple[str, ...], tool: str
) -> None:
    plan = plan_profile(topic, directory="d", for_s=5, url=url, command=command)  # type: ignore[arg-type]
    assert plan.tool == tool


@pytest.mark.parametrize("topic", TOPICS)
@pytest.mark.parametrize(
    ("tool", "bounds"),
    [
        pytest.param(
            "nsys", {"--duration=7", "--sample=none", "--force-overwrite=false"}, id="nsys"
        ),
        pytest.param("ncu", {"--launch-count", "--launch-skip", "--kernel-name"}, id="ncu"),
        pytest.param("py-spy", {"--duration", "7", "--nonblocking"}, id="py-spy"),
        pytest.param("torch", {"--max-time", "http://HOST:PORT/start_profile"}, id="torch"),
    ],
)
def test_a_command_is_bounded_and_whole_only_where_all_is_known(
    topic: str, tool: str, bounds: set[str]
) -> None:
    plan = plan_profile(topic, directory="d", for_s=7, tool=tool)  # type: ignore[arg-type]
    assert bounds <= set(plan.commands[0])
    assert not plan.is_whole
    assert plan.timeout_s < 2000
    assert plan.cost
    assert plan.disturbs
    assert plan.install


def test_the_command_of_the_engine_stands_last_as_it_was_given() -> None:
    words = ("vllm", "serve", "a model; rm -rf /")
    plan = plan_profile("gaps", directory="d", for_s=5, command=words)
    assert plan.commands[0][-3:] == words
    assert plan.is_whole
