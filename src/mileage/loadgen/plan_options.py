"""PlanOptions: how a workload's requests become calls, and PlanTally: what became of them."""

from __future__ import annotations

import re
from typing import Any, Final, get_args

import msgspec

from mileage.core.bounds import require_at_least, require_range
from mileage.core.errors import ConfigError
from mileage.core.request import Endpoint
from mileage.loadgen.server_kind import ServerKind
from mileage.loadgen.token_lengths import LengthTable

__all__ = ["PlanOptions", "PlanTally"]

_HEADER_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER_VALUE: Final = re.compile(r"[\t\x20-\x7e\x80-\xff]*")
_RESERVED: Final = frozenset({"host", "content-length", "transfer-encoding", "connection"})
_OWN_FIELDS: Final = frozenset({"messages", "prompt", "input", "model", "stream"})
_NAMES_MAX: Final = 8


class PlanOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How to make calls of requests. Raises ConfigError for values that cannot be."""

    model: str
    """Asked for by requests that name no model of their own."""
    keep_models: bool = False
    """Requests of a trace that names models ask for them."""
    use_adapters: bool = True
    """Requests with a LoRA adapter ask for it as the model."""
    seed: int = 0
    """Of all text and media. Another one finds the server's caches cold."""
    lengths: LengthTable = LengthTable()
    server: ServerKind = "openai"
    ignore_eos: bool | None = None
    """Answers go on to their planned length. None: where the server is known to be able to."""
    temperature: float | None = 0.0
    """None: the server's default."""
    stream: bool | None = None
    """None: as the workload says."""
    endpoint: Endpoint | None = None
    """None: as the workload says."""
    shared_prefix_ratio: float = 0.0
    """The share of each prompt's text that all prompts have in common, of a workload that tells
    nothing of what they share."""
    embedding_inputs: int = 1
    """Texts that the tokens of an embeddings request are split over."""
    tenant_keys: dict[str, str] = {}
    """Values of the Authorization header by tenant, such as 'Bearer KEY'; `*` stands for tenants
    that have none. Without either: the target's own."""
    tenant_header: str | None = None
    """A header whose value is the tenant's name."""
    tenant_user: bool = False
    """The field `user` is the tenant's name."""
    priority_header: str | None = "x-mileage-priority"
    """A header whose value is the request's priority, where it has one."""
    traceparent: bool = False
    """A W3C trace context for each request."""
    cancel_ratio: float = 0.0
    """The share of requests whose client leaves before the end, at random."""
    cancel_after_s: float = 1.0
    """When it leaves: the mean of an exponential distribution."""
    fields: dict[str, Any] = {}
    """Further fields of every body."""
    headers: tuple[tuple[bytes, bytes], ...] = ()
    """Further headers of every request."""

    def __post_init__(self) -> None:
        if not self.model:
            raise ConfigError("model", self.model, "the name of a model")
        if self.server not in get_args(ServerKind):
            raise ConfigError("server", self.server, f"one of {', '.join(get_args(ServerKind))}")
        if self.endpoint is not None and self.endpoint not in get_args(Endpoint):
            raise ConfigError("endpoint", self.endpoint, f"one of {', '.join(get_args(Endpoint))}")
        if self.temperature is not None:
            require_range("temperature", self.temperature, 0.0, 100.0)
        require_range("shared_prefix_ratio", self.shared_prefix_ratio, 0.0, 1.0)
        require_range("embedding_inputs", self.embedding_inputs, 1, 4096)
        require_range("cancel_ratio", self.cancel_ratio, 0.0, 1.0)
        require_at_least("cancel_after_s", self.cancel_after_s, 0.0)
        for name in self.fields:
            if name in _OWN_FIELDS:
                raise ConfigError("fields", name, "a field that the plan does not fill itself")
        for key in ("tenant_header", "priority_header"):
            if getattr(self, key) is not None:
                _require_header(key, getattr(self, key))
        for raw_name, raw_value in self.headers:
            _require_header("headers", raw_name.decode("latin-1"))
            if not _HEADER_VALUE.fullmatch(raw_value.decode("latin-1")):
                raise ConfigError("headers", raw_name.decode("latin-1"), "a value of one line")
        for tenant, value in self.tenant_keys.items():
            if not value or not _HEADER_VALUE.fullmatch(value):
                raise ConfigError("tenant_keys", tenant, "a value of one line, in ISO 8859-1")


class PlanTally:
    """Counts of one plan, complete when all of it was made."""

    __slots__ = (
        "body_bytes",
        "calls",
        "clipped",
        "media_as_text",
        "prompt_tokens",
        "tenants_without_key",
        "too_short",
    )

    def __init__(self) -> None:
        self.calls = 0
        self.body_bytes = 0
        self.prompt_tokens = 0
        """As the workload has them."""
        self.too_short = 0
        """Prompts that are longer than asked for: the chat template alone has as many tokens."""
        self.clipped = 0
        """Prompts that are shorter than asked for: nobody sends so long ones."""
        self.media_as_text = 0
        """Requests whose endpoint takes no images and audio: they are text of the same length."""
        self.tenants_without_key: list[str] = []
        """The first few tenants that were sent with the target's own key, though others had one."""

    def no_key(self, tenant: str) -> None:
        """Note a tenant that has no key of its own."""
        names = self.tenants_without_key
        if len(names) < _NAMES_MAX and tenant not in names:
            names.append(tenant)


def _require_header(key: str, name: str) -> None:
    if not _HEADER_NAME.fullmatch(name) or name.lower() in _RESERVED:
        raise ConfigError(key, name, "the name of a header that is not of HTTP itself")
