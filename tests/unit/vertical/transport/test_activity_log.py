"""The activity log: one JSON object per line, appended."""

from __future__ import annotations

import json

from dperm.vertical.transport.activity_log import ActivityLog


def test_the_activity_log_appends(tmp_path):
    for _ in range(2):
        log = ActivityLog(tmp_path / "logs" / "audit.jsonl")
        log.write("connected", {"party": "org-a"})
        log.close()
    lines = (tmp_path / "logs" / "audit.jsonl").read_text().splitlines()
    assert [json.loads(line)["event"] for line in lines] == ["connected"] * 2
    ActivityLog().write("nothing", {})
