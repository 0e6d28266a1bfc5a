"""Facts of several sources: precedence, provenance, conflicts."""

from __future__ import annotations

from typing import Any

from mileage.doctor.collect.merge_facts import SourcedFacts, Standing, merge_facts, overlay


def facts(standing: Standing, **sections: Any) -> SourcedFacts:
    """One source, called as it stands."""
    return SourcedFacts(source=standing, standing=standing, document=sections)


def test_measured_goes_before_reported_before_configured_before_default() -> None:
    merged = merge_facts(
        [
            facts("default", settings={"block_size": 16, "swap_space": 4}),
            facts("configured", settings={"block_size": 16, "max_num_seqs": 256}),
            facts("reported", settings={"block_size": 528}),
        ]
    )
    assert merged.document["settings"] == {"block_size": 528, "max_num_seqs": 256, "swap_space": 4}
    assert merged.sources == {
        "settings.block_size": "reported",
        "settings.max_num_seqs": "configured",
        "settings.swap_space": "default",
    }


def test_what_cannot_both_be_true_is_told_but_for_a_default() -> None:
    merged = merge_facts(
        [
            facts("default", settings={"block_size": 16}),
            facts("configured", settings={"block_size": 32}),
            facts("reported", settings={"block_size": 64}),
        ]
    )
    (conflict,) = merged.conflicts
    assert (conflict.fact, conflict.kept, conflict.other) == ("settings.block_size", 64, 32)
    assert str(conflict) == "settings.block_size: 64 by reported, 32 by configured"


def test_a_value_within_the_bound_of_a_better_source_makes_it_exact() -> None:
    merged = merge_facts(
        [
            facts("measured", signals={"itl_p50_s": {"min": 0.01, "max": 0.05}}),
            facts("reported", signals={"itl_p50_s": 0.02}),
        ]
    )
    assert merged.document["signals"]["itl_p50_s"] == 0.02
    assert merged.sources["signals.itl_p50_s"] == "reported"
    assert not merged.conflicts


def test_a_value_outside_the_bound_is_a_conflict() -> None:
    merged = merge_facts(
        [
            facts("reported", settings={"max_num_seqs": {"min": 8}}),
            facts("configured", settings={"max_num_seqs": 4}),
        ]
    )
    assert merged.document["settings"]["max_num_seqs"] == {"min": 8}
    assert len(merged.conflicts) == 1


def test_signals_of_two_times_are_no_conflict() -> None:
    merged = merge_facts(
        [
            facts("measured", signals={"requests_running": 3}),
            facts("reported", signals={"requests_running": {"series": [{"value": 9}]}}),
            facts("measured", signals={"requests_running": 5}, workload={"isl_tokens": 1}),
        ]
    )
    assert merged.document["signals"]["requests_running"] == 3
    assert not merged.conflicts


def test_two_measurements_within_two_per_cent_agree() -> None:
    merged = merge_facts(
        [
            facts("measured", signals={"output_tokens_per_s": 100.0}),
            facts("measured", signals={"output_tokens_per_s": 101.5}),
        ]
    )
    assert merged.document["signals"]["output_tokens_per_s"] == 100.0
    assert not merged.conflicts


def test_known_to_be_not_set_is_a_value() -> None:
    merged = merge_facts(
        [
            facts("reported", settings={"quantization": None}),
            facts("configured", settings={"quantization": "awq"}),
        ]
    )
    assert merged.document["settings"] == {"quantization": None}
    assert len(merged.conflicts) == 1


def test_log_lines_are_kept_once_and_in_order() -> None:
    merged = merge_facts([facts("reported", logs=["a", "b"]), facts("reported", logs=["b", "c"])])
    assert merged.document["logs"] == ["a", "b", "c"]


def test_overlay_keeps_the_first_and_adds_the_rest() -> None:
    assert overlay({"signals": {"a": 1}}, {"signals": {"a": 2, "b": 3}, "settings": {"c": 4}}) == {
        "signals": {"a": 1, "b": 3},
        "settings": {"c": 4},
    }
