"""The collector's service: takes reports, publishes estimates.

It looks at no cookie or user agent, and at addresses only to limit reports per source (``sources``).
"""

from __future__ import annotations

import asyncio
import hmac
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from contextlib import asynccontextmanager, suppress
from importlib.resources import files
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

import dperm
from dperm.collect.description import Collection
from dperm.collect.sdk import bundle
from dperm.collect.service.group_commit import GroupCommit
from dperm.collect.service.metrics import ServiceMetrics
from dperm.collect.service.openapi import openapi
from dperm.collect.service.publishing import Publisher
from dperm.collect.service.sources import SourceLimit
from dperm.collect.service.wire import MOST_BYTES, PACKED, Rejected, read_json, read_packed
from dperm.collect.store.store import Store
from dperm.errors import StoreError

__all__ = ["Service"]

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

#: the longest time that a device may take to send its report
BODY_SECONDS = 10.0

_CORS = [(b"access-control-allow-origin", b"*"), (b"cross-origin-resource-policy", b"cross-origin")]
_PREFLIGHT = [
    *_CORS,
    (b"access-control-allow-methods", b"GET, POST, OPTIONS"),
    (b"access-control-allow-headers", b"content-type"),
    (b"access-control-max-age", b"86400"),
]
_PAGE_HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}
_OPEN = {"access-control-allow-origin": "*", "cross-origin-resource-policy": "cross-origin"}


class Service:
    """An ASGI application over one store.

    Parameters
    ----------
    store : Store
        Where reports are counted; closed when the service ends.
    token_key : bytes, optional
        Key of one-time tokens, for collections that need them.
    clock : callable
        Seconds since 1970.
    counts_secret : str, optional
        Gives access to the counters; without it nobody gets them here. A reader who fetches them repeatedly can see
        what single reports say.
    batch_secret : str, optional
        Lets the operator send many reports in one request, without a limit; without it nobody can.
    sources : SourceLimit, optional
        Limit on reports per source; the default one unless given.
    """

    def __init__(
        self,
        store: Store,
        token_key: bytes | None = None,
        clock: Callable[[], float] = time.time,
        counts_secret: str | None = None,
        batch_secret: str | None = None,
        sources: SourceLimit | None = None,
    ) -> None:
        self.store, self.metrics = store, ServiceMetrics()
        self._key = token_key
        self.commits = GroupCommit(store, self.metrics, clock)
        self._counts_secret, self._batch_secret = counts_secret, batch_secret
        self._sources = SourceLimit() if sources is None else sources
        self._publisher = Publisher(store.steps)
        self._estimating = asyncio.Lock()
        routes = [
            Route("/v1", self._list),
            Route("/v1/{task}/schema", self._schema),
            Route("/v1/{task}/estimate", self._estimate),
            Route("/v1/{task}/counts", self._counts),
            Route("/openapi.json", lambda _: _json(openapi(dperm.__version__))),
            Route("/health", self._health),
            Route("/metrics", self._metrics),
            Route("/sdk/dperm.js", lambda _: _script(bundle.script())),
            Route("/sdk/dperm.mjs", lambda _: _script(bundle.module())),
            *(Route(f"/page/{name}", _file(name, kind)) for name, kind in _FILES.items()),
            Route("/", _file("index.html", "text/html; charset=utf-8")),
            Route("/{task}", self._page),
        ]
        self._app = Starlette(
            routes=routes,
            lifespan=self._lifespan,
            exception_handlers={404: _not_found, 405: _not_allowed, StoreError: _unavailable, 500: _failed},
        )

    @asynccontextmanager
    async def _lifespan(self, _: Starlette) -> AsyncIterator[None]:
        self.commits.start()
        try:
            yield
        finally:
            await self.commits.stop()
            self.store.close()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request; reports take a short path past the framework."""
        if scope["type"] == "http":
            path = scope["path"]
            if path.startswith("/v1/") and path.endswith("/reports") and path.count("/") == 3:
                if scope["method"] == "POST":
                    await self._report(scope, receive, send, path[4:-8])
                    return
                if scope["method"] != "OPTIONS":
                    await _send(send, 405, _error("send reports with POST."), [*_CORS, (b"allow", b"POST, OPTIONS")])
                    return
            if scope["method"] == "OPTIONS" and path.startswith("/v1"):
                await _send(send, 204, b"", _PREFLIGHT)
                return
        await self._app(scope, receive, send)

    # ---------------------------------------------------------------------------------- reports
    async def _report(self, scope: Scope, receive: Receive, send: Send, name: str) -> None:
        status, body, more = await self._ingest(scope, receive, name)
        self.metrics.responses[status] += 1
        await _send(send, status, body, [*_CORS, *more])

    async def _ingest(self, scope: Scope, receive: Receive, name: str) -> tuple[int, bytes, list[tuple[bytes, bytes]]]:
        headers = dict(scope["headers"])
        claimed = headers.get(b"authorization", b"")
        operator = _knows(self._batch_secret, claimed)
        if not operator and (seconds := self._sources.wait(scope)):
            self.metrics.limited += 1
            later = [(b"retry-after", b"%d" % seconds), _CLOSE]
            return 429, _error("too many reports from this source: send the same report again later."), later
        try:
            async with asyncio.timeout(BODY_SECONDS):
                body = await _body(headers, receive)
            if self.store.find(name) is None:
                raise Rejected(404, "there is no such collection.")
            if self.commits.full:
                return 429, _error("too many reports are waiting: send the same report again later."), _RETRY_LATER
            kind = headers.get(b"content-type", b"").decode("latin-1").partition(";")[0].strip().lower()
            read = read_packed if kind == PACKED else read_json
            entry = read(body, name, self.store.collections, self._key, operator=operator, claimed=bool(claimed))
            outcome = await self.commits.add(entry)
        except Rejected as error:
            return error.status, _error(str(error)), [_CLOSE] if error.status == 413 else []
        except TimeoutError:
            return 408, _error("the report took too long to arrive."), [_CLOSE]
        except StoreError:
            return 503, _error(_UNAVAILABLE), _RETRY_LATER
        status = 409 if outcome.conflicts else 201 if outcome.accepted else 200
        counts = (outcome.accepted, outcome.duplicates, outcome.conflicts)
        return status, b'{"accepted":%d,"duplicates":%d,"conflicts":%d}' % counts, []

    # ---------------------------------------------------------------------------------- everything else
    def _find(self, request: Request) -> Collection:
        version = _query_number(request, "version")
        found = self.store.find(request.path_params["task"], version)
        if found is None:
            raise Rejected(404, "there is no such collection.")
        return found

    async def _list(self, _: Request) -> Response:
        """All collections, with the mark of the published estimate; null if it cannot be computed now."""
        tests = await self._tests()
        return _json(
            [
                {
                    "name": one.name,
                    "version": one.version,
                    "title": one.title,
                    "hash": one.digest,
                    "epsilon": one.task.epsilon,
                    "asks": one.estimate_model.summary(),
                    "columns": one.estimate_model.columns,
                    "target": one.estimate_model.target,
                    "statistics": one.task.sketch.size,
                    "answers": one.task.n_levels,
                    "tokens": one.tokens,
                    "suspicious": tests[one.digest]["suspicious"] if one.digest in tests else None,
                }
                for one in self.store.collections.values()
            ]
        )

    async def _schema(self, request: Request) -> Response:
        try:
            one = self._find(request)
        except Rejected as error:
            return _refused(error)
        headers = {**_OPEN, "etag": f'"{one.digest}"', "cache-control": "no-cache"}
        return Response(one.text, media_type="application/json", headers=headers)

    async def _estimate(self, request: Request) -> Response:
        try:
            one, window = self._find(request), _query_number(request, "window")
        except Rejected as error:
            return _refused(error)
        text = await self._published(self._publisher.estimate, one, window)
        return Response(text, media_type="application/json", headers=_OPEN)

    async def _published(self, read: Callable[..., Any], *of: Any) -> Any:
        """Read from the published estimates; one reader at a time, and the next one gets the same estimate."""
        async with self._estimating:
            before = self._publisher.changes
            found = await asyncio.to_thread(read, *of)
            if self._publisher.changes != before:
                self.commits.request_tidying()
            return found

    async def _tests(self) -> dict[str, dict[str, Any]]:
        """The test of every collection's published estimate, by hash; fewer if the database cannot be used."""
        found = {}
        with suppress(StoreError):  # health and metrics show what is wrong
            for one in list(self.store.collections.values()):
                found[one.digest] = await self._published(self._publisher.draws, one)
        return found

    async def _counts(self, request: Request) -> Response:
        """The counters, for the operator's other collectors; no CORS header, so no other site's page reads them."""
        if not _knows(self._counts_secret, request.headers.get("authorization", "").encode()):
            return _json({"error": "the counters need the operator's secret."}, 403, {})
        try:
            one = self._find(request)
        except Rejected as error:
            return _json({"error": str(error)}, error.status, {})
        return _json(await asyncio.to_thread(self.store.counters.export, one), headers={"cache-control": "no-store"})

    async def _health(self, _: Request) -> Response:
        await asyncio.to_thread(self.store.registry.refresh)
        await self.commits.check_recovery()
        return _json({"status": "ok", "collections": len(self.store.collections), "version": dperm.__version__})

    async def _metrics(self, _: Request) -> Response:
        """Counts of this service, and the test of every collection's published estimate."""
        for digest, test in (await self._tests()).items():
            one = self.store.collections[digest]
            self.metrics.draws[one.name, one.version] = test["p"], test["suspicious"]
        return Response(self.metrics.text(), media_type="text/plain; version=0.0.4")

    async def _page(self, request: Request) -> Response:
        if self.store.find(request.path_params["task"]) is None:
            return _json({"error": "there is no such collection."}, 404)
        return _file("task.html", "text/html; charset=utf-8")(request)


_FILES = {"page.css": "text/css", **dict.fromkeys(("index.js", "questions.js", "task.js"), "text/javascript")}
_RETRY_LATER = [(b"retry-after", b"2")]
_CLOSE = (b"connection", b"close")
_UNAVAILABLE = "the database cannot be used now: send the same report again later."


def _knows(secret: str | None, given: bytes) -> bool:
    """Whether a request carries the secret; the time it takes reveals nothing about it."""
    return secret is not None and hmac.compare_digest(given, f"Bearer {secret}".encode())


def _query_number(request: Request, name: str) -> int | None:
    given = request.query_params.getlist(name)
    if not given:
        return None
    digits = given[0].removeprefix("-")
    if len(given) > 1 or not digits.isascii() or not digits.isdigit() or len(digits) > 16:
        raise Rejected(400, f"{name} must be one whole number.")
    return int(given[0])


async def _body(headers: dict[bytes, bytes], receive: Receive) -> bytes:
    if int(headers.get(b"content-length", b"0")) > MOST_BYTES:
        raise Rejected(413, f"a body may have at most {MOST_BYTES} bytes: send the reports in parts.")
    parts, size = [], 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Rejected(400, "the body ended early.")
        part = message.get("body", b"")
        size += len(part)
        if size > MOST_BYTES:
            raise Rejected(413, f"a body may have at most {MOST_BYTES} bytes: send the reports in parts.")
        parts.append(part)
        if not message.get("more_body", False):
            return parts[0] if len(parts) == 1 else b"".join(parts)


async def _send(send: Send, status: int, body: bytes, headers: list[tuple[bytes, bytes]]) -> None:
    about = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))] if body else []
    await send({"type": "http.response.start", "status": status, "headers": [*about, *headers]})
    await send({"type": "http.response.body", "body": body})


def _error(sentence: str) -> bytes:
    return json.dumps({"error": sentence}).encode()


def _json(data: Any, status: int = 200, headers: dict[str, str] = _OPEN) -> Response:
    return Response(json.dumps(data, allow_nan=False), status, media_type="application/json", headers=headers)


def _refused(error: Rejected) -> Response:
    return _json({"error": str(error)}, error.status)


def _not_found(_: Request, __: Exception) -> Response:
    return _json({"error": "there is nothing at this address."}, 404)


def _not_allowed(_: Request, error: Any) -> Response:
    answer = _json({"error": "this address does not support that method."}, 405)
    answer.headers.update(error.headers or {})
    return answer


def _unavailable(_: Request, __: Exception) -> Response:
    answer = _json({"error": _UNAVAILABLE}, 503)
    answer.headers["retry-after"] = "2"
    return answer


def _failed(_: Request, __: Exception) -> Response:
    return _json({"error": "the service failed."}, 500)


def _script(text: str) -> Response:
    return Response(text, media_type="text/javascript", headers={**_OPEN, "cache-control": "max-age=300"})


def _file(name: str, kind: str) -> Callable[[Request], Response]:
    def answer(_: Request) -> Response:
        content = files("dperm.collect").joinpath("page", name).read_bytes()
        return Response(content, media_type=kind, headers=_PAGE_HEADERS)

    return answer
