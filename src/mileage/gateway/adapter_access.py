"""AdapterAccess: which LoRA adapters there are to ask for, and who may."""

from __future__ import annotations

from collections.abc import Iterable

from mileage.core.request import Endpoint, Request
from mileage.gateway.refusals import Refusal
from mileage.policy.residency.adapters import AdapterConfig

__all__ = ["AdapterAccess", "no_such_model"]


class AdapterAccess:
    """`names` are all of them; `endpoints` those at which engines take adapters, None: at all."""

    __slots__ = ("_endpoints", "names")

    def __init__(
        self, adapters: Iterable[AdapterConfig], endpoints: Iterable[Endpoint] | None
    ) -> None:
        self.names = {adapter.name: adapter for adapter in adapters}
        self._endpoints = None if endpoints is None else frozenset(endpoints)

    def check(self, name: str, tenant: str, endpoint: Endpoint) -> None:
        """Refuse another tenant's as if there were none, and an endpoint that takes none."""
        if self.names[name].tenant not in (None, tenant):
            raise no_such_model(name)
        if self._endpoints is not None and endpoint not in self._endpoints:
            message = f"the engine does not take adapters here, but at {sorted(self._endpoints)}"
            raise Refusal(501, message, code="endpoint_not_supported")

    def allows(self, request: Request) -> bool:
        """Whether its model is none of these, or one that its tenant may use."""
        adapter = self.names.get(request.model)
        return adapter is None or adapter.tenant in (None, request.tenant)

    def seen_by(self, tenant: str, names: Iterable[str]) -> list[str]:
        """Those of the models that the tenant is to know of."""
        known = self.names
        return [n for n in names if n not in known or known[n].tenant in (None, tenant)]

    def base(self, name: str) -> str | None:
        """The model that it is for; None: it is none of these."""
        adapter = self.names.get(name)
        return None if adapter is None else adapter.base


def no_such_model(name: str) -> Refusal:
    """The answer to a request for what there is not."""
    message = f"the model '{name}' does not exist; GET /v1/models lists those that do"
    return Refusal(404, message, param="model", code="model_not_found")
