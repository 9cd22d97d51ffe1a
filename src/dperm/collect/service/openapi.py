"""The OpenAPI description of the service."""

from __future__ import annotations

from typing import Any

from dperm.collect.service.wire import MOST_REPORTS, PACKED

__all__ = ["openapi"]

_TEXT = {"type": "string"}
_WHOLE = {"type": "integer", "minimum": 0}
_HEX32 = {"type": "string", "pattern": "^[0-9a-f]{32}$"}
_HEX64 = {"type": "string", "pattern": "^[0-9a-f]{64}$"}


def _json(schema: dict[str, Any], description: str) -> dict[str, Any]:
    return {"description": description, "content": {"application/json": {"schema": schema}}}


def _error(description: str) -> dict[str, Any]:
    return _json({"$ref": "#/components/schemas/Error"}, description)


def _object(required: list[str], **properties: Any) -> dict[str, Any]:
    return {"type": "object", "required": required, "properties": properties, "additionalProperties": False}


def openapi(version: str) -> dict[str, Any]:
    """Return the description as plain data for JSON."""
    task = {
        "name": "task",
        "in": "path",
        "required": True,
        "schema": {"type": "string", "pattern": "^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$"},
        "description": "Name of the collection.",
    }
    newest = {
        "name": "version",
        "in": "query",
        "required": False,
        "schema": {"type": "integer", "minimum": 1, "maximum": 2147483647},
        "description": "Version of the collection; the newest unless given.",
    }
    window = {
        "name": "window",
        "in": "query",
        "required": False,
        "schema": {"type": "integer", "minimum": -(1 << 53), "maximum": 1 << 53},
        "description": "One counting window; all of them unless given.",
    }
    report = _object(["id", "j", "b"], id=_HEX32, j=_WHOLE, b={**_WHOLE, "maximum": 15}, token=_HEX32)
    single = _object(["task", "id", "j", "b"], task=_HEX64, **report["properties"])
    many = _object(
        ["task", "reports"],
        task=_HEX64,
        reports={"type": "array", "minItems": 1, "maxItems": MOST_REPORTS, "items": report},
    )
    outcome = _object(["accepted", "duplicates", "conflicts"], accepted=_WHOLE, duplicates=_WHOLE, conflicts=_WHOLE)
    reports = {"schema": {"oneOf": [single, many]}}
    missing, bad = _error("There is no such collection."), _error("The request cannot be read.")
    method = _error("The address does not support this method.")

    def get(summary: str, answer: dict[str, Any], *parameters: dict[str, Any], **more: Any) -> dict[str, Any]:
        described = {"200": answer, "405": method, **({"404": missing, "400": bad} if parameters else {}), **more}
        return {"get": {"summary": summary, "parameters": list(parameters), "responses": described}}

    anything = {"type": "object"}
    down = _error("The database cannot be used now: send the same report again later.")
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "dperm collector",
            "version": version,
            "description": "Counts one-bit reports, each of them differentially private for the person who sent it.",
        },
        "paths": {
            "/v1": get("All collections.", _json({"type": "array", "items": anything}, "What is collected.")),
            "/v1/{task}/schema": get(
                "The description that devices compute with.", _json(anything, "The description."), task, newest
            ),
            "/v1/{task}/reports": {
                "post": {
                    "summary": "Send a report. Sending it again changes nothing.",
                    "description": "Several reports in one request need the header `Authorization: Bearer` with the "
                    "operator's secret.",
                    "parameters": [task],
                    "requestBody": {
                        "required": True,
                        "content": {
                            "application/json": reports,
                            "text/plain": {"schema": {**_TEXT, "description": "The same JSON; needs no preflight."}},
                            PACKED: {"schema": {**_TEXT, "format": "binary"}},
                        },
                    },
                    "responses": {
                        "200": _json(outcome, "Every report was counted before."),
                        "201": _json(outcome, "Counted, on disk."),
                        "400": _error(
                            "A report is malformed or belongs to another task; nothing in the request was counted."
                        ),
                        "403": _error(
                            "A token is not valid for this collection, or several reports came without the operator's "
                            "secret; nothing in the request was counted."
                        ),
                        "404": missing,
                        "405": method,
                        "408": _error("The body took too long to arrive: send the same report again."),
                        "409": _json(
                            outcome, "An id was used before with another report; the other reports are counted."
                        ),
                        "413": _error("The body is too large."),
                        "429": {
                            **_error("Too many reports, of this source or of all: send the same report again later."),
                            "headers": {
                                "Retry-After": {"description": "Seconds to wait.", "schema": {"type": "integer"}}
                            },
                        },
                        "503": down,
                    },
                }
            },
            "/v1/{task}/estimate": get(
                "The estimate from the counts.",
                _json(
                    anything,
                    "Means, the model with intervals, the privacy cost, and the test of how often each question was "
                    "answered: `suspicious` marks an estimate with made-up reports, `trimmed` holds one without them.",
                ),
                task,
                newest,
                window,
                **{"503": down},
            ),
            "/v1/{task}/counts": get(
                "The counters, for merging; needs the header `Authorization: Bearer` with the operator's secret.",
                _json(anything, "The counters."),
                task,
                newest,
                **{"403": _error("The secret is missing or wrong."), "503": down},
            ),
            "/health": get("Whether reports can be counted.", _json(anything, "They can."), **{"503": down}),
            "/metrics": get(
                "Metrics for the operator; the test of every collection's published estimate is among them.",
                {"description": "Prometheus' text format.", "content": {"text/plain": {"schema": _TEXT}}},
            ),
        },
        "components": {"schemas": {"Error": _object(["error"], error=_TEXT)}},
    }
