"""App: what the data plane answers to each path; requests for engines become exchanges."""

from __future__ import annotations

import logging
import time
import zlib
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from functools import partial
from urllib.parse import unquote

import msgspec

from mileage.core.request import Endpoint, Request
from mileage.gateway.adapter_access import AdapterAccess, no_such_model
from mileage.gateway.answer_head import JSON_LINES
from mileage.gateway.bodies import parse_body
from mileage.gateway.call import Call
from mileage.gateway.config import GatewayConfig
from mileage.gateway.counting_pool import CountingPool
from mileage.gateway.driver import Driver
from mileage.gateway.exchange import Exchange
from mileage.gateway.keys import Caller, KeyRing
from mileage.gateway.labels import LabelBook
from mileage.gateway.merge_keys import NO_KEYS, merge_keys
from mileage.gateway.origins import Origins
from mileage.gateway.prompt_cache import CachedPrompt, PromptCache
from mileage.gateway.prompt_sample import PromptSample
from mileage.gateway.refusals import Refusal
from mileage.gateway.request_head import RequestHead
from mileage.gateway.request_ids import RequestIds
from mileage.gateway.target import PATHS
from mileage.wire.message import HttpRequest
from mileage.wire.server import ServerConnection

__all__ = ["App"]

_log = logging.getLogger(__name__)
_TEXT = b"content-type: text/plain; charset=utf-8\r\n"
_ENDPOINTS: dict[bytes, Endpoint] = {path: endpoint for endpoint, path in PATHS.items()}
_DRAIN_RETRY_AFTER_S = 5


class App:
    """Handles every request that the listener receives."""

    def __init__(
        self,
        config: GatewayConfig,
        driver: Driver,
        ids: RequestIds,
        *,
        utc_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self._driver = driver
        self._ids = ids
        self._utc_ns = utc_ns
        self._labels = LabelBook()
        self.draining = False
        self.prompts = PromptSample()
        self._cache = PromptCache(config)
        tokenizer = config.tokenizer
        self._counting = (
            CountingPool(tokenizer, driver.metrics.counting) if tokenizer.models else None
        )
        self._adapters = AdapterAccess((), None)
        self._gone: AbstractSet[str] = frozenset()
        """Adapters that there were before the last reload."""
        self.use(config)

    def use(self, config: GatewayConfig) -> None:
        """Answer by this configuration from the next request on."""
        self._keys = KeyRing(config.key_hashes, config.key_names)
        self._aliases = config.aliases
        self._private = config.private_models
        before = self._adapters.names
        self._adapters = AdapterAccess(config.adapters, config.adapter_endpoints)
        self._gone = before.keys() - self._adapters.names.keys()
        self._origins = Origins(config.server, keys=bool(config.key_hashes))
        self._cache.use(config)
        self._pass_authorization = not config.key_hashes

    def turn_away(self) -> None:
        """Refuse what waits for a model that is no more, or is not its tenant's any more."""
        for exchange in list(self._driver.exchanges.values()):
            request = exchange.request
            may = self._may_use(request.tenant, request.model)
            if not may or request.model in self._gone or not self._adapters.allows(request):
                exchange.turn_away(no_such_model(exchange.call.body.model))

    def close(self) -> None:
        """Count no more prompts."""
        if self._counting is not None:
            self._counting.close()

    def handle(self, http: HttpRequest, connection: ServerConnection) -> None:
        """Answer a request, now or when the engine has."""
        path = http.target
        if b"?" in path or path[:1] != b"/":
            path = _path_of(path)
        endpoint = _ENDPOINTS.get(path)
        try:
            if endpoint is not None and http.method == b"POST":
                self._generate(endpoint, http, connection)
            else:
                self._other(path, http, connection)
        except Refusal as refusal:
            self._refuse(refusal, connection, endpoint, http)
        except Exception:
            # A bug of ours: this client is told, all others go on.
            _log.exception("a request could not be handled")
            if connection.owner is not None:
                connection.abort()  # what has begun must not answer a later request
                return
            failure = Refusal(500, "the gateway failed to handle the request")
            self._refuse(failure, connection, endpoint, http)

    def refused(self, status: int) -> None:
        """Count an answer that the listener gave by itself."""
        self._driver.metrics.responded(status)

    # --- requests for engines -----------------------------------------------------------------

    def _generate(
        self, endpoint: Endpoint, http: HttpRequest, connection: ServerConnection
    ) -> None:
        head = RequestHead(http.headers)
        cors = self._cors(head)
        if self.draining:
            raise Refusal(503, "the gateway is shutting down", retry_after_s=_DRAIN_RETRY_AFTER_S)
        caller = self._keys.caller(head.authorization, head.api_key)
        if caller is None:
            raise _key_refusal(head.authorization is None and head.api_key is None)
        credentials = head.credentials() if self._pass_authorization else b""
        priority = head.priority()
        body = parse_body(endpoint, http.body)
        self.prompts.offer(endpoint, http.body, http.received_s)
        # Of the last byte's receipt: a pipelined request has waited since.
        waited_s = time.monotonic() - http.received_s
        arrived_at_utc_ns = self._utc_ns() - int(waited_s * 1e9)
        model = self._aliases.get(body.model, body.model)
        if self._private or model in self._adapters.names:
            self._admit(model, caller.tenant, endpoint)
        keys = NO_KEYS
        if body.deterministic or head.merge is not None:
            merging = self._driver.merging
            variant = head.variant(priority, credentials)
            keys = merge_keys(endpoint, http.body, body, merging, model, head.merge, variant)
        cached = self._cache.look(caller.tenant, model, body, self._driver.arm_by_prefix)
        request_id = self._ids.next(arrived_at_utc_ns)
        # Some by place: with more than 15 names a call goes through a dict, thrice as slow.
        request = Request(
            request_id,
            caller.tenant,
            model,
            endpoint,
            body.stream,
            http.received_s,
            prompt_tokens_estimate=body.prompt_tokens_estimate,
            prompt_tokens_max=body.prompt_tokens_max,
            output_tokens_max=body.output_tokens_max,
            prefix_key=zlib.crc32(body.prefix, zlib.crc32(f"{caller.tenant}\n{model}".encode())),
            priority=priority,
            choices=body.choices,
            image_patches=body.media.image_patches,
            audio_frames=body.media.audio_frames,
            merge_key=keys.merge,
            batch_key=cached.batch_key(keys.batch, caller.tenant),
            batch_items=keys.batch_items,
            prefix_blocks=cached.blocks,
            prefix_block_tokens=cached.block_tokens,
        )
        body.release()
        id_line = b"x-request-id: req-%x\r\n" % request_id
        call = Call(
            http,
            body,
            request,
            headers=head.forwarded(id_line),
            credentials=credentials,
            answer_head=cors + id_line,
            arrived_at_utc_ns=arrived_at_utc_ns,
            trace_id=head.trace_id(),
        )
        self._identify(call, caller, head, cached)
        exchange = Exchange(self._driver, connection, call)
        connection.owner = exchange
        self._take_on(exchange, body.text_bytes)

    def _take_on(self, exchange: Exchange, text_bytes: int) -> None:
        """Have it decided upon: at once, or when its prompt is counted."""
        request, raw, counting = exchange.request, exchange.call.http.body, self._counting
        if (
            counting is None
            or not counting.takes(request.model, text_bytes, raw)
            or self._refuses(request)
        ):
            self._driver.arrived(exchange)
            return
        self._driver.expect(exchange)
        tenant = request.tenant
        exchange.uncount = counting.count(
            request.model,
            request.endpoint,
            raw,
            partial(self._counted, exchange),
            tenant=tenant,
            apart=None if exchange.call.salts is None else tenant,
        )

    def _refuses(self, request: Request) -> bool:
        """Whether it need not be counted, since however short it is it will not be let in."""
        intake = self._driver.controller.intake
        if not intake.refuses(request.tenant, request.arrived_s):
            return False
        self._driver.metrics.counting.prompts.add(("limited",))
        return True

    def _counted(self, exchange: Exchange, prompt_tokens: int | None) -> None:
        """Its prompt is counted, or is to be estimated; its client may have left meanwhile."""
        exchange.uncount = None
        if exchange.done:
            return
        try:
            if prompt_tokens is not None:
                exchange.counted(prompt_tokens)
            self._driver.arrived(exchange, time.monotonic())
        except Exception:
            _log.exception("a request could not be handled")
            exchange.abort()

    def _cors(self, head: RequestHead) -> bytes:
        """Header lines for the origin that asks; Refusal for one that may not."""
        if self._origins.guarded:
            self._origins.check(head.host, head.origin)
        return b"" if head.origin is None else self._origins.lines(head.origin)

    def _identify(
        self, call: Call, caller: Caller, head: RequestHead, cached: CachedPrompt
    ) -> None:
        """Note what the engine is told of its tenant, and for its record what costs are told apart
        by."""
        call.salts = cached.salts
        if caller.key is not None:
            call.key = caller.key
        if head.labels is not None:
            call.labels = self._labels.read(head.labels, call.arrived_at_utc_ns)
        if (adapters := self._driver.adapters) and call.request.model in adapters:
            call.adapter = adapters[call.request.model].name
        elif call.request.model in self._adapters.names:
            call.adapter = call.request.model

    # --- everything else ----------------------------------------------------------------------

    def _other(self, path: bytes, http: HttpRequest, connection: ServerConnection) -> None:
        method = http.method
        if method == b"OPTIONS" and self._origins.cors:
            self._preflight(http, connection)
        elif path == b"/healthz":
            self._answer(connection, 200, _TEXT, b"ok\n")
        elif path == b"/readyz":
            self._ready(connection)
        elif path == b"/v1/models" or path.startswith(b"/v1/models/"):
            if method not in (b"GET", b"HEAD"):
                raise Refusal(405, "only GET is allowed here")
            self._models(path, http, connection)
        elif path in _ENDPOINTS:
            raise Refusal(405, "only POST is allowed here")
        else:
            shown = path.decode("ascii", "replace")
            raise Refusal(404, f"there is nothing at {shown}", code="unknown_url")

    def _ready(self, connection: ServerConnection) -> None:
        if self.draining:
            self._answer(connection, 503, _TEXT, b"draining\n")
        elif not self._driver.served_models():
            self._answer(connection, 503, _TEXT, b"no engine is up yet\n")
        else:
            self._answer(connection, 200, _TEXT, b"ready\n")

    def _models(self, path: bytes, http: HttpRequest, connection: ServerConnection) -> None:
        if self._origins.guarded:
            self._origins.check(http.header(b"host"), http.header(b"origin"))
        authorization, api_key = http.header(b"authorization"), http.header(b"x-api-key")
        caller = self._keys.caller(authorization, api_key)
        if caller is None:
            raise _key_refusal(authorization is None and api_key is None)
        served = self._adapters.seen_by(caller.tenant, self._driver.served_models())
        served = [model for model in served if self._may_use(caller.tenant, model)]
        names = [*served, *(alias for alias, model in self._aliases.items() if model in served)]
        listed = [self._listed(name) for name in names]
        if path == b"/v1/models":
            body = msgspec.json.encode({"object": "list", "data": listed})
        else:
            # Clients encode the slash of a hub's name.
            wanted = unquote(path.removeprefix(b"/v1/models/"), errors="replace")
            found = [entry for entry in listed if entry["id"] == wanted]
            if not found:
                raise no_such_model(wanted)
            body = msgspec.json.encode(found[0])
        head = JSON_LINES + self._origins.lines(http.header(b"origin"))
        self._answer(connection, 200, head, body)

    def _admit(self, model: str, tenant: str, endpoint: Endpoint) -> None:
        """Refuse what only others may use as if there were none; count uses of adapters."""
        if not self._may_use(tenant, model):
            raise no_such_model(model)
        if model in self._adapters.names:
            self._adapters.check(model, tenant, endpoint)
            uses = self._driver.adapter_uses
            uses[model] = uses.get(model, 0) + 1

    def _may_use(self, tenant: str, model: str) -> bool:
        return tenant in self._private.get(model, (tenant,))

    def _listed(self, name: str) -> dict[str, str | int]:
        """A model as clients are told of it; an adapter with the model that it is for."""
        shown: dict[str, str | int] = {"id": name, "object": "model", "created": 0}
        adapter = self._driver.adapters.get(name)
        base = self._adapters.base(name) if adapter is None else adapter.base
        if base not in (None, name):
            shown["parent"] = base
        shown["owned_by"] = "mileage"
        return shown

    def _preflight(self, http: HttpRequest, connection: ServerConnection) -> None:
        origin = self._origins.lines(http.header(b"origin"))
        if not origin:
            raise Refusal(403, "this origin is not in server.cors_origins")
        wanted = http.header(b"access-control-request-headers") or b"authorization, content-type"
        head = (
            b"%baccess-control-allow-methods: GET, POST, OPTIONS\r\n"
            b"access-control-allow-headers: %b\r\naccess-control-max-age: 600\r\n"
        ) % (origin, wanted)
        self._answer(connection, 204, head, b"")

    def _answer(self, connection: ServerConnection, status: int, head: bytes, body: bytes) -> None:
        self._driver.metrics.responded(status)
        connection.respond(status, head, body)

    def _refuse(
        self,
        refusal: Refusal,
        connection: ServerConnection,
        endpoint: Endpoint | None,
        http: HttpRequest,
    ) -> None:
        head = refusal.head()
        if refusal.status == 401:
            head += b"www-authenticate: Bearer\r\n"
        if refusal.status == 405:
            head += b"allow: %b\r\n" % (b"POST" if endpoint is not None else b"GET")
        head += self._origins.lines(http.header(b"origin"))
        self._answer(connection, refusal.status, head, refusal.body(endpoint))


def _key_refusal(missing: bool) -> Refusal:
    message = (
        "an API key is needed: send 'Authorization: Bearer KEY'"
        if missing
        else "the API key is not valid"
    )
    return Refusal(401, message, code="invalid_api_key")


def _path_of(target: bytes) -> bytes:
    """The path of a request target: origin form with a query, or absolute form."""
    if target[:1] != b"/":
        _, found, rest = target.partition(b"://")
        target = b"/" + rest.partition(b"/")[2] if found else target
    return target.partition(b"?")[0]
