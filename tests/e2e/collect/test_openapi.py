"""The served OpenAPI document against the running service: generated requests, valid and not."""

from __future__ import annotations

import itertools
import json
import os
import urllib.request
from collections.abc import Callable
from typing import Any

import pytest

from dperm.collect import Collection

schemathesis = pytest.importorskip("schemathesis")

#: generated requests per operation
EXAMPLES = int(os.environ.get("DPERM_EXAMPLES", "40"))


@pytest.mark.filterwarnings("ignore")
def test_every_answer_is_one_that_the_document_names(start: Callable[..., Any], speed: Collection) -> None:
    from hypothesis import HealthCheck, given, settings
    from schemathesis.checks import not_a_server_error
    from schemathesis.specs.openapi.checks import (
        content_type_conformance,
        response_schema_conformance,
        status_code_conformance,
    )

    collector = start()
    with urllib.request.urlopen(f"{collector.url}/openapi.json") as answer:
        document = json.load(answer)
    # a name and a hash that exist, so that generated requests reach what lies behind them
    for path in document["paths"].values():
        for operation in path.values():
            for parameter in operation.get("parameters", ()):
                if parameter["name"] == "task":
                    parameter["schema"] = {"enum": ["speed", "speed-2"]}
    body = document["paths"]["/v1/{task}/reports"]["post"]["requestBody"]["content"]
    for shape in body["application/json"]["schema"]["oneOf"]:
        shape["properties"]["task"] = {"enum": [speed.digest]}
        reports = shape["properties"].get("reports", {}).get("items", shape)["properties"]
        reports.update(j={"type": "integer", "minimum": 0, "maximum": 8}, b={"enum": [0, 1]})
        del reports["token"]
    schema = schemathesis.openapi.from_dict(document)
    schema.config.update(base_url=collector.url)
    checks = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
    tried: set[str] = set()
    modes = (schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE)
    operator = {"Authorization": f"Bearer {collector.batch_secret}"}
    for found in schema.get_all_operations():
        operation = found.ok()
        for mode, headers in itertools.product(modes, ({}, operator)):
            if operation.method != "post" and (mode is modes[1] or headers):
                continue

            @settings(
                max_examples=EXAMPLES,
                deadline=None,
                database=None,
                suppress_health_check=list(HealthCheck),
                derandomize=True,
            )
            @given(case=operation.as_strategy(generation_mode=mode))
            def send(case: Any) -> None:
                response = case.call(timeout=30, headers=headers)  # noqa: B023
                tried.add(f"{case.method} {case.operation.path} {response.status_code}")
                case.validate_response(response, checks=checks)

            send()
    assert "POST /v1/{task}/reports 201" in tried, sorted(tried)
    assert "POST /v1/{task}/reports 400" in tried
    assert "POST /v1/{task}/reports 403" in tried
    assert "GET /v1/{task}/estimate 200" in tried
    assert collector.log.read_text() == ""
