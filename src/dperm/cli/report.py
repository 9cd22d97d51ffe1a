"""``dperm report``: show the privacy report of a model, in the terminal or as a page."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dperm.cli.options import FILE
from dperm.cli.output import Output, with_output
from dperm.cli.writing import check_outputs
from dperm.errors import InvalidInput

if TYPE_CHECKING:
    from dperm.reporting.report import PrivacyReport

__all__ = ["read_report", "report"]


@click.command()
@click.argument("model", type=FILE)
@click.option("--out", type=FILE, help="Write a page (.html) or the plain report (.json) instead.")
@click.option("--force", is_flag=True, help="Write over an existing file.")
@with_output
def report(model: Path, out: Path | None, force: bool, output: Output) -> None:
    """Show the privacy report of MODEL, a saved model (also one of a vertical run) or a report."""
    from dperm.atomic_files import write_atomically

    if out is not None:
        if out.suffix not in (".html", ".json"):
            raise InvalidInput("--out must end in .html (a page) or .json (the plain report).")
        check_outputs([out], inputs=(model,), force=force)
    found, page = read_report(model)
    if out is not None:
        written = write_atomically(out, page() if out.suffix == ".html" else found.to_json() + "\n")
        output.result({"written": str(written)}, lambda o: o.text(f"Written: {written}"))
        return

    def show(output: Output) -> None:
        output.text(found.summary())
        if found.ledger.get("dataset"):
            entry = found.ledger.get("reservation")
            output.text(f"Ledger: given as data set {found.ledger['dataset']}" + (f", entry {entry}" if entry else ""))

    output.result(json.loads(found.to_json()), show)


def read_report(path: Path) -> tuple[PrivacyReport, Callable[[], str]]:
    """Return the report in a file, and a function that makes its page."""
    import dperm
    from dperm.estimators.persistence.saved import FORMAT

    try:
        text = path.read_text(encoding="utf-8")
        data = json.loads(text)
    except OSError as error:
        raise InvalidInput(f"{str(path)!r} cannot be read: {error.strerror}.") from None
    except ValueError:
        raise InvalidInput(f"{str(path)!r} is neither a model nor a report: it is not JSON, or damaged.") from None
    if isinstance(data, dict) and data.get("format") == FORMAT:
        from dperm.cli.summary import page_of

        saved = dperm.load(path)
        return saved.privacy_report_, lambda: page_of(saved)
    from dperm.reporting.page import report_page
    from dperm.vertical.methods.training import MODEL_FORMAT

    if isinstance(data, dict) and data.get("format") == MODEL_FORMAT:
        if "report" not in data:
            raise InvalidInput(
                f"{path.name} is one party's part of a model and has no report: the report is in the coordinator's "
                "model, and the cost of the run for this party is in its ledger."
            )
        text = json.dumps(data["report"])
    found = dperm.PrivacyReport.from_json(text)
    return found, lambda: report_page(found)
