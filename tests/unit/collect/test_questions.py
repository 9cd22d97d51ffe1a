"""Questions in words: the same on the page, in the JSON and in the terminal."""

from __future__ import annotations

import json
import subprocess
from importlib.resources import files

import pytest
from programs import find_node

from dperm.collect import Collection
from dperm.collect.questions import question_text

NODE = find_node() or ""

_PROGRAM = """
const cases = JSON.parse(require("fs").readFileSync(0));
const texts = ([task, target, n]) => Array.from({ length: n }, (_, j) => questions(task, target)(j));
console.log(JSON.stringify(cases.map(texts)));
"""


def test_questions_in_words(collections: dict[str, Collection]) -> None:
    found = {
        name: [question_text(one, j) for j in range(min(one.task.sketch.size, 14))] for name, one in collections.items()
    }
    assert found["logistic"][:5] == ["target × seconds", "target × mood", "target", "seconds²", "seconds × mood"]
    assert found["three-classes"][0] == "seconds × [1]"
    assert found["linear"][0] == "a × target"
    assert found["marginals"][11:13] == ["not q11", "whether an even number of q0, q1 holds"]
    assert found["smooth"][0].startswith("T")
    assert found["theta-grid"][0] == "the loss of weights -2, -2"


@pytest.mark.skipif(not NODE, reason="neither node nor playwright is installed")
def test_the_page_has_the_same_words(collections: dict[str, Collection]) -> None:
    """Every question of every kind, up to some thousands."""
    given = [
        (json.loads(one.text), one.estimate_model.target, min(one.task.sketch.size, 3000))
        for one in collections.values()
    ]
    script = files("dperm.collect").joinpath("page", "questions.js").read_text(encoding="utf-8").replace("export ", "")
    done = subprocess.run([NODE, "-e", script + _PROGRAM], input=json.dumps(given), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for one, theirs in zip(collections.values(), json.loads(done.stdout), strict=True):
        assert theirs == [question_text(one, j) for j in range(len(theirs))]
