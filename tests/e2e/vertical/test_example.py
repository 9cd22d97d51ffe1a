"""The example with three organisations, exactly as its README says, in real processes."""

from __future__ import annotations

import csv
import json
import re
import runpy
import shlex
import shutil
from pathlib import Path

import numpy as np

from dperm.privacy.ledger import Ledger

EXAMPLE = Path(__file__).parents[3] / "examples" / "three_organisations"
_BLOCK = re.compile(r"```sh (\w+)( &)?\n(.*?)```", re.DOTALL)
_COMMAND = """
import os, sys
os.chdir({cwd!r})
log = os.open({log!r}, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
os.dup2(log, 1); os.dup2(log, 2)
sys.argv = {argv!r}
from dperm.cli.main import main
main()
"""


def test_the_example_works_as_written(tmp_path, processes, consortium):
    folder = tmp_path / "example"
    shutil.copytree(EXAMPLE, folder, ignore=shutil.ignore_patterns("keys", "state", "authority", "*.db*", "*.json"))
    for path in folder.glob("*/*.toml"):
        path.write_text(path.read_text().replace("7443", str(consortium.port)))
    runpy.run_path(str(folder / "make_tables.py"), run_name="example")["main"](folder)

    def start(who, line):
        code = _COMMAND.format(cwd=str(folder), log=str(folder / f"{who}.log"), argv=shlex.split(line))
        process = processes.Process(target=exec, args=(code, {"__name__": "__main__"}))
        process.start()
        return process

    def said(who):
        return (folder / f"{who}.log").read_text()

    def ended(process, who):
        process.join(60)
        code = process.exitcode
        assert code is not None, said(who)
        process.close()
        return code

    def play(blocks):
        waiting = []
        for who, background, lines in blocks:
            for line in lines.strip().splitlines():
                process = start(who, line)
                if background:
                    waiting.append((process, who))
                else:
                    assert ended(process, who) == 0, said(who)
                    for other in waiting:
                        assert ended(*other) == 0, said(other[1])
                    waiting = []

    text = (EXAMPLE / "README.md").read_text()
    blocks = _BLOCK.findall(text)
    assert len(blocks) == 16
    play(blocks)

    order = json.loads((folder / "hospital" / "order.json").read_text())["rows"]
    with open(folder / "hospital" / "table.csv") as handle:
        table = list(csv.DictReader(handle))
    with open(folder / "hospital" / "predictions.csv") as handle:
        guess = list(csv.DictReader(handle))
    assert list(guess[0]) == ["patient", "table_row", "prediction", "probability"]
    assert [int(one["table_row"]) for one in guess] == order  # both ways to join lead to the same people
    assert [one["patient"] for one in guess] == [table[row]["patient"] for row in order]
    truth = {one["patient"]: one["readmitted"] for one in table}
    assert 2400 < len(guess) < 3000
    right = np.mean([one["prediction"] == truth[one["patient"]] for one in guess])
    assert right > 0.7  # 0.768 on average, with a standard deviation of 0.009 from the noise
    assert "epsilon 1" in said("hospital")

    # a second run passes the insurer's cap: both say so with exit code 3, and the pharmacy is told
    config = folder / "hospital" / "coordinator.toml"
    config.write_text(config.read_text().replace("readmission-1", "readmission-2"))
    parties = [(start(who, f"dperm vertical party {who}/party.toml"), who) for who in ("insurer", "pharmacy")]
    hospital = start("hospital", "dperm vertical coordinator hospital/coordinator.toml --quiet")
    assert ended(hospital, "hospital") == 3
    assert "insurer refused step 1" in said("hospital")
    codes = [ended(*party) for party in parties]
    assert codes[0] == 3, said("insurer")
    assert codes[1] == 1
    entries = Ledger(folder / "pharmacy" / "ledger.db", dataset="patients").entries()
    assert [e["kind"] for e in entries].count("reserve") == 1  # nobody pays for a run that another one refused
