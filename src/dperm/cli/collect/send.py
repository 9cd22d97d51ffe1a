"""``dperm collect send``: send one person's report."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from dperm.cli.collect.fetch import collection_at
from dperm.cli.output import Output, with_output
from dperm.errors import InvalidInput, RunError

__all__ = ["send"]

_FILE = click.Path(dir_okay=False, path_type=Path)


@click.command(short_help="Send the report of one person.")
@click.argument("url")
@click.option("--hash", "digest", help="Expected hash of the description; another one is refused.")
@click.option(
    "--value",
    "values",
    multiple=True,
    required=True,
    metavar="NAME=VALUE",
    help="A column's value, without '='; leave it empty if unknown. Repeat for every column.",
)
@click.option("--target", help="The person's target value; '' if unknown.")
@click.option(
    "--memo",
    type=_FILE,
    default=Path("dperm-reports.json"),
    show_default=True,
    help="File that stores finished reports.",
)
@click.option(
    "--cap", default=4.0, show_default=True, help="Largest total epsilon of this device over all collections."
)
@click.option("--token", default="", help="One-time token.")
@with_output
def send(
    url: str,
    digest: str | None,
    values: Sequence[str],
    target: str | None,
    memo: Path,
    cap: float,
    token: str,
    output: Output,
) -> None:
    """Send one person's report to the collection at URL, such as http://127.0.0.1:8000/v1/speed.

    The report is made once and stored in --memo: a second call sends the same bits. What is not understood, such as an
    unknown class, is reported as unknown, and a note says so: if a report were refused for it, the collector could
    learn a value from its absence.
    """
    from dperm.collect.sdk.python import Device, RefusedTask, load

    try:
        task = load(collection_at(url), digest)
        known, unclear = _values(task, values)
        label, reason = _target(task, target)
        device = Device(memo, cap)
        report = device.report(task, known, label, token)
    except RefusedTask as error:
        raise InvalidInput(str(error)) from None
    except OSError as error:
        raise RunError(f"the collector at {url} cannot be reached ({getattr(error, 'reason', error)}).") from None
    accepted = device.send(task, report)
    # after the report has left: even a terminal that cannot show a note must not decide whether it leaves
    for note in filter(None, [*unclear, reason]):
        output.note(f"note: {note} It counts as unknown in a new report; a stored one stays as it is.")
    if not accepted:
        raise RunError(f"the collector did not accept the report; it is stored in {memo}: send it again later.")
    made = json.loads(report)
    output.result(made, lambda to: to.text(f"sent: statistic {made['j']}, answer {made['b']}; stored in {memo}"))


def _values(task: dict[str, Any], values: Sequence[str]) -> tuple[dict[str, float | None], list[str]]:
    """The person's values, and a sentence about each that is not understood.

    Every column must be named: a forgotten one would silently be reported as unknown. Names alone decide on a refusal.
    """
    columns, out, unclear = task.get("columns"), {}, []
    if not isinstance(columns, list):
        raise InvalidInput("the description of this collection is damaged: it has no list of columns.")
    for value in values:
        name, given, text = value.rpartition("=")
        if not given or name not in columns:
            listed = ", ".join(map(str, columns))
            raise InvalidInput(f"write --value NAME=VALUE with a column of {listed}, not {name if given else value!r}.")
        out[name], reason = _number(text, f"the value of {name!r}")
        unclear.append(reason)
    missing = [name for name in columns if name not in list(out)]  # a forged name may have no hash
    if missing:
        raise InvalidInput(f"--value {missing[0]}=... is missing; write --value {missing[0]}= if it is not known.")
    return out, unclear


def _target(task: dict[str, Any], text: str | None) -> tuple[Any, str]:
    """The class whose text was given, or a number, and a sentence if it is not understood.

    Whether a target is given decides on a refusal, and never which one: a forged description that renames a class would
    otherwise get reports from everybody but that class. So all that can fail about a description comes first.
    """
    how = task.get("record")
    how = how if isinstance(how, dict) else {}
    listed, ranged = how.get("classes"), "target" in how
    # nobody can write another kind of label on a command line
    classes = [one for one in listed if isinstance(one, str | int | float)] if isinstance(listed, list) else []
    if text is None and (listed or ranged):
        raise InvalidInput("--target is missing; write --target '' if it is not known.")
    if text is not None and not listed and not ranged:
        raise InvalidInput("this collection has no target: leave out --target.")
    if not text:
        return None, ""
    if ranged:
        return _number(text, "the target")
    for label in classes:
        if str(label) == text or (isinstance(label, bool) and str(label).lower() == text.lower()):
            return label, ""
    return None, f"there is no class {text!r}: the classes are {', '.join(map(str, classes))}."


def _number(text: str, what: str) -> tuple[float | None, str]:
    """A number, and a sentence if the text is none."""
    words = {"": None, "true": 1.0, "false": 0.0}
    if text.lower() in words:
        return words[text.lower()], ""
    try:
        return float(text), ""
    except ValueError:
        return None, f"{what} must be a number, not {text!r}."
