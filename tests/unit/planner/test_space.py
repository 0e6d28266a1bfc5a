"""Space: what is enumerated, in which order, and what is counted as impossible."""

from __future__ import annotations

import pytest

from mileage.core.errors import ConfigError
from mileage.costmodel.catalogue import architecture, gpu
from mileage.planner.built import Builder
from mileage.planner.candidate import Disaggregation, Sharing
from mileage.planner.space import Space
from mileage.sim.engine_features import SpeculationConfig

LLAMA = Builder(model=architecture("llama-3.1-8b"))
H100 = gpu("h100").name


def test_every_value_is_combined_with_every_other_in_a_fixed_order() -> None:
    space = Space(
        gpus=("h100", "l40s"),
        tensor_parallel=(1, 2),
        replicas=(1, 2, 3),
        weights=("bf16", "fp8"),
        kv=("bf16",),
        running_max=(64, 128),
        step_tokens_max=(2048,),
        gpus_max=4,
    )
    found = space.explore(LLAMA)
    # TP2 leaves room for two replicas.
    assert len(found.candidates) == 2 * (3 + 2) * 2 * 2
    assert found == space.explore(LLAMA)
    assert len(set(found.candidates)) == len(found.candidates)
    assert found.candidates[0].label == f"1 x {H100}, bf16, 64 seqs, 2048 tokens"
    assert not found.impossible


def test_what_cannot_be_is_counted_by_its_reason_with_an_example() -> None:
    space = Space(
        gpus=("t4",),
        tensor_parallel=(1, 2, 3),
        weights=("bf16",),
        running_max=(64, 2304),
        step_tokens_max=(2048,),
        replicas=(1,),
    )
    found = space.explore(LLAMA)
    reasons = {each.reason: each for each in found.impossible}
    assert reasons["layout"].settings == 2
    assert "divisor of 32 heads" in reasons["layout"].example
    assert reasons["memory"].settings >= 1
    assert "GB more each" in reasons["memory"].example
    assert reasons["parts"].settings == 1
    assert [each.tensor_parallel for each in found.candidates] == [2]


def test_features_that_are_not_simulated_together_are_parts() -> None:
    space = Space(
        gpus=("h100",),
        tensor_parallel=(1,),
        replicas=(1,),
        weights=("bf16",),
        kv=("bf16",),
        running_max=(64,),
        step_tokens_max=(2048,),
        speculation=(None, SpeculationConfig()),
        disaggregation=(None, Disaggregation()),
    )
    found = space.explore(LLAMA)
    assert len(found.candidates) == 3
    (parts,) = found.impossible
    assert (parts.reason, parts.settings) == ("parts", 1)


def test_the_usual_values_are_those_of_the_card() -> None:
    found = Space(gpus=("a10", "h100"), gpus_max=8).explore(LLAMA).candidates
    assert {each.weights for each in found if each.gpu == H100} == {"bf16", "fp8", "int4"}
    assert {each.weights for each in found if each.gpu != H100} == {"bf16", "int8", "int4"}
    assert {each.kv for each in found if each.gpu != H100} == {"bf16"}
    assert {each.running_max for each in found if each.gpu == H100} == {64, 256}
    assert {each.step_tokens_max for each in found if each.gpu == H100} == {512, 2048, 8192}
    assert max(each.gpus() for each in found) == 8


def test_replicas_that_share_fill_whole_gpus() -> None:
    found = Space(
        gpus=("h100",),
        gpus_max=2,
        tensor_parallel=(1,),
        weights=("int4",),
        kv=("bf16",),
        running_max=(64,),
        step_tokens_max=(2048,),
        sharing=(Sharing(replicas=2),),
    ).explore(LLAMA)
    assert [(each.replicas, each.gpus()) for each in found.candidates] == [(2, 1), (4, 2)]


@pytest.mark.parametrize(
    ("fields", "key"),
    [
        pytest.param({"gpus": ("h100",), "kv": ()}, "kv", id="a dimension without values"),
        pytest.param({"gpus": ("no such card",)}, "gpu", id="an unknown card"),
    ],
)
def test_a_space_that_cannot_be_is_refused(fields: dict[str, tuple[str, ...]], key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Space(**fields)  # type: ignore[arg-type]
    assert caught.value.key == key
