"""Prometheus rules: recorded series of targets, cost and use, and alerts on them."""

from __future__ import annotations

from typing import Final

import msgspec

from mileage.deploy.burn_rate import BURN_RATES, Objective

__all__ = ["Rule", "RuleGroup", "rule_groups", "rules_yaml"]

_WINDOWS: Final = ("5m", "30m", "1h", "6h", "3d")
_IDLE_RATIO_MAX: Final = 0.7
_LAG_BYTES_MAX: Final = 64 * 1024 * 1024
_HEADER: Final = (
    b"# Made by `mileage deploy prometheus`. Load it with `rule_files:` in prometheus.yml.\n"
)


class Rule(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename={"for_": "for"}):
    """A recording rule, or an alert."""

    record: str | None = None
    alert: str | None = None
    expr: str
    for_: str | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class RuleGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Rules that are evaluated together, in order."""

    name: str
    interval: str
    rules: tuple[Rule, ...]


def rule_groups(objective: Objective) -> tuple[RuleGroup, ...]:
    """All groups; the series that alerts read are recorded by groups before theirs."""
    return (
        RuleGroup(name="mileage-targets", interval="30s", rules=_targets()),
        RuleGroup(name="mileage-costs", interval="1m", rules=_costs()),
        RuleGroup(name="mileage-target-alerts", interval="30s", rules=_target_alerts(objective)),
        RuleGroup(name="mileage-cost-alerts", interval="1m", rules=_cost_alerts()),
        RuleGroup(name="mileage-health-alerts", interval="30s", rules=_health_alerts()),
    )


def rules_yaml(objective: Objective) -> bytes:
    """The rule file."""
    groups = msgspec.to_builtins(rule_groups(objective))
    return _HEADER + msgspec.yaml.encode({"groups": groups}, order=None)


def _alert(
    name: str,
    expr: str,
    severity: str,
    *,
    summary: str,
    description: str,
    for_: str | None = None,
    **labels: str,
) -> Rule:
    return Rule(
        alert=name,
        expr=expr,
        for_=for_,
        labels={"severity": severity, **labels},
        annotations={"summary": summary, "description": description},
    )


def _targets() -> tuple[Rule, ...]:
    return tuple(
        Rule(record=f"mileage:targets_missed:ratio_rate{window}", expr=_missed(window))
        for window in _WINDOWS
    )


def _missed(window: str) -> str:
    """Streams that missed their target, as a share; 0 where none did, none without a stream."""
    all_ = f'sum by (model, target) (rate(mileage_slo_requests_total{{target!="all"}}[{window}]))'
    missed = all_.replace('target!="all"', 'target!="all",met="no"')
    return f"({missed} or 0 * {all_}) / ({all_} > 0)"


def _costs() -> tuple[Rule, ...]:
    usd = "sum by (tenant, model) (rate(mileage_cost_usd_total[1h]))"
    output = "sum by (model) (rate(mileage_output_tokens_total[1h]))"
    gpu_s = "sum by (model) (rate(mileage_gpu_seconds_total[1h]))"
    capacity = "sum by (replica) (rate(mileage_capacity_gpu_seconds_total[1h]))"
    idle = "sum by (replica) (rate(mileage_idle_gpu_seconds_total[1h]))"
    return (
        Rule(record="mileage:cost_usd:per_hour", expr=f"3600 * {usd}"),
        Rule(
            record="mileage:cost_usd:per_million_output_tokens",
            expr=f"1e6 * sum by (model) (rate(mileage_cost_usd_total[1h])) / ({output} > 0)",
        ),
        Rule(record="mileage:output_tokens:per_gpu_second", expr=f"{output} / ({gpu_s} > 0)"),
        Rule(record="mileage:idle_gpu:ratio_rate1h", expr=f"{idle} / ({capacity} > 0)"),
    )


def _target_alerts(objective: Objective) -> tuple[Rule, ...]:
    rules = []
    for rate in BURN_RATES:
        threshold = objective.missed_ratio(rate)
        long, short = (
            f"mileage:targets_missed:ratio_rate{window}" for window in (rate.long, rate.short)
        )
        rules.append(
            _alert(
                f"MileageTargetsMissed{rate.long.capitalize()}",
                f"{long} > {threshold:g} and {short} > {threshold:g}",
                rate.severity,
                summary="{{ $labels.model }}: {{ $value | humanizePercentage }} of streams miss "
                "their {{ $labels.target }} target",
                description=(
                    f"The objective is that {objective.ratio:.5g} of streams meet it over"
                    f" {objective.window_days:g} days. At this rate over {rate.long} (and still"
                    f" over {rate.short}) its error budget is spent too early. See which stage"
                    " takes the time: mileage bench tail, and the dashboard."
                ),
                window=rate.long,
            )
        )
    return tuple(rules)


def _cost_alerts() -> tuple[Rule, ...]:
    usd = "mileage:cost_usd:per_million_output_tokens"
    return (
        _alert(
            "MileageBudgetNearlySpent",
            "mileage_budget_left / (mileage_budget_amount > 0) < 0.1",
            "ticket",
            summary="{{ $labels.tenant }} has {{ $value | humanizePercentage }} of its budget left",
            description="Of its {{ $labels.unit }} for this {{ $labels.period }}. At 0 its"
            " requests are refused.",
        ),
        _alert(
            "MileageTokensCostTwiceAsMuch",
            f"{usd} > 2 * ({usd} offset 1d)",
            "ticket",
            for_="1h",
            summary="{{ $labels.model }}: output tokens cost more than twice what they did"
            " yesterday at this time",
            description="USD {{ $value | humanize }} per million. Fewer requests at once, longer"
            " prompts or fewer cache hits do that: mileage cost --by model.",
        ),
        _alert(
            "MileageGpusIdle",
            f"mileage:idle_gpu:ratio_rate1h > {_IDLE_RATIO_MAX}",
            "ticket",
            for_="6h",
            summary="{{ $labels.replica }} is idle {{ $value | humanizePercentage }} of its time",
            description="For six hours: it could be shared, moved to a smaller card or scaled in.",
        ),
    )


def _health_alerts() -> tuple[Rule, ...]:
    return (
        _alert(
            "MileageReplicaDown",
            "mileage_replica_up == 0 and on (replica) mileage_replica_enabled == 1",
            "page",
            for_="2m",
            summary="{{ $labels.replica }} fails its health checks",
            description="For two minutes. Requests go to the others, if there are any.",
        ),
        _alert(
            "MileageLedgerDown",
            "mileage_ledger_up == 0",
            "page",
            for_="5m",
            summary="Request records do not reach the store",
            description="They are kept in the log until they do, as long as the disk has room.",
        ),
        _alert(
            "MileageLedgerBehind",
            f"mileage_ledger_lag_bytes > {_LAG_BYTES_MAX}",
            "ticket",
            for_="10m",
            summary="The store is {{ $value | humanize1024 }}B behind the request log",
            description="Costs are shown late. The store or its disk is too slow.",
        ),
        _alert(
            "MileageLedgerDropsRecords",
            "increase(mileage_ledger_dropped_records_total[10m]) > 0",
            "page",
            summary="Request records are lost",
            description="{{ $value | humanize }} in 10 minutes, mostly for want of disk space:"
            " what these requests cost will never be known.",
        ),
        _alert(
            "MileageGovernorFailed",
            "mileage_governor_failed > 0",
            "page",
            for_="1m",
            summary="The governor of {{ $value }} workers has failed",
            description="Requests flow without limits or fairness. See the gateway's log.",
        ),
        _alert(
            "MileageReloadRefused",
            "mileage_config_last_reload_ok == 0",
            "ticket",
            for_="15m",
            summary="The configuration file is not in order",
            description="The gateway goes on with the one before. `mileage reload` tells why.",
        ),
    )
