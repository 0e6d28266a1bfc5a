"""prepare(): all that is found out about an endpoint before load is put on it."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from mileage.cli.bench_arguments import LoadArguments
from mileage.cli.bench_setup import plan_options
from mileage.cli.bench_target import Endpoint, look_at, model_of, unknown_model
from mileage.cli.bench_workload import BenchWorkload
from mileage.core.errors import EngineError
from mileage.engines.kinds import KINDS
from mileage.loadgen.calibration import calibrate, find_server_kind
from mileage.loadgen.plan_options import PlanOptions
from mileage.loadgen.server_kind import ServerKind
from mileage.loadgen.target import Target
from mileage.loadgen.token_lengths import LengthTable, TokenLengths
from mileage.wire.fetch import Fetch, fetch

__all__ = ["Prepared", "prepare"]

_TIMEOUT_S: Final = 10.0
_NO_MODEL: Final = "model"
"""Asked for where nobody tells which there is, and nobody will answer."""


class Prepared(msgspec.Struct, frozen=True, kw_only=True):
    """An endpoint, and how calls to it are made."""

    endpoint: Endpoint
    target: Target
    model: str
    plan: PlanOptions
    workload: BenchWorkload
    kind: ServerKind = "openai"
    version: str | None = None
    doubt: str | None = None
    """Why the run would hardly be one: the endpoint does not answer, or has no such model."""

    @property
    def facts(self) -> dict[str, Any]:
        """What is known of the server, for a document."""
        lengths = self.plan.lengths.of(self.plan.endpoint or "chat", self.model)
        return {
            "url": self.endpoint.shown,
            "model": self.model,
            "server": {
                "kind": self.kind,
                "version": self.version,
                "header": self.endpoint.server,
            },
            "prompt_lengths": msgspec.to_builtins(lengths),
        }


async def prepare(
    arguments: LoadArguments,
    url: str,
    workload: BenchWorkload,
    *,
    authorization: str | None,
    ask: Fetch = fetch,
) -> Prepared:
    """Look at the endpoint, choose the model, and learn how long its prompts become.

    What an endpoint lacks is in the result as a doubt. Raises ConfigError for options that cannot
    be, and where a model must be named.
    """
    endpoint = await look_at(url, authorization=authorization, fetch=ask)
    doubt = endpoint.error
    if doubt is not None:
        model = arguments.model or _NO_MODEL
    else:
        model = model_of(endpoint, arguments.model)
        doubt = unknown_model(endpoint, model)
    kind: ServerKind = "openai"
    version = None
    lengths = LengthTable(model=model)
    plain = plan_options(arguments, model=model)  # tells what is wrong before anything is sent
    if doubt is None:
        kind = await find_server_kind(url, authorization=authorization, timeout_s=_TIMEOUT_S)
        version = await _version(url, kind, authorization, ask)
    if doubt is None and arguments.calibrate:
        # Bodies with what the options add: a server may refuse others.
        found: TokenLengths = await calibrate(
            url,
            model=model,
            endpoint=plain.endpoint or "chat",
            server=kind,
            authorization=authorization or _any_key(plain),
            seed=arguments.seed,
            timeout_s=_TIMEOUT_S,
        )
        lengths = LengthTable(found={(plain.endpoint or "chat", model): found}, model=model)
    return Prepared(
        endpoint=endpoint,
        target=Target(url=url, authorization=authorization),
        model=model,
        plan=plan_options(arguments, model=model, server=kind, lengths=lengths),
        workload=workload,
        kind=kind,
        version=version,
        doubt=doubt,
    )


def _any_key(plan: PlanOptions) -> str | None:
    return next(iter(plan.tenant_keys.values()), None)


async def _version(url: str, kind: ServerKind, authorization: str | None, ask: Fetch) -> str | None:
    known = None if kind == "mileage" else KINDS[kind]
    headers = () if authorization is None else (("authorization", authorization),)
    for path in known.version_paths if known is not None else ():
        try:
            answer = await ask(f"{url}{path}", headers=headers, timeout_s=_TIMEOUT_S)
            tree = msgspec.json.decode(answer.body) if answer.status == 200 else {}
        except (EngineError, msgspec.MsgspecError, RecursionError):
            continue
        value = tree.get(known.version_field) if known and isinstance(tree, dict) else None
        if isinstance(value, str) and value.isprintable():
            return value[:100]
    return None
