"""``dperm audit``: attack a claimed guarantee, of dperm or of any function."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from dperm.cli.audit_all import audit_all
from dperm.cli.audit_exit import end_of_audit, never_exit_code_1
from dperm.cli.audit_files import AuditFiles, told
from dperm.cli.audit_options import (
    ATTACK_NAMES,
    FAST_SECONDS,
    NEIGHBOURS,
    SECONDS,
    check_all,
    check_one,
    given_attacks,
    given_labels,
    given_settings,
)
from dperm.cli.output import Output, with_output
from dperm.errors import InvalidInput

__all__ = ["audit"]


@click.command()
@click.argument("subject", metavar="ESTIMATOR|MODULE:FUNCTION|all")
@click.option("--epsilon", type=float, default=None, help="Claimed epsilon; needed except for all.")
@click.option("--delta", type=float, default=None, help="Claimed delta; 0 for a function, dperm's default for its own.")
@click.option(
    "--neighbours",
    type=click.Choice(NEIGHBOURS),
    default="replace-one",
    show_default=True,
    help="Which two tables the claim compares.",
)
@click.option("--gaussian", is_flag=True, help="The claim is that of Gaussian noise: tested far more closely.")
@click.option(
    "--set", "settings", multiple=True, callback=given_settings, metavar="NAME=VALUE", help="Setting of an estimator."
)
@click.option("--features", type=int, default=2, show_default=True, help="Number of columns.")
@click.option("--rows", type=int, default=8, show_default=True, help="Number of rows.")
@click.option(
    "--range", "feature_range", type=(float, float), default=(-1.0, 1.0), show_default=True, help="Of columns."
)
@click.option("--classes", callback=given_labels, default=None, help="Labels, as in 0,1 (the default).")
@click.option("--target-range", type=(float, float), default=None, help="Range of a numerical target.")
@click.option("--in-range", is_flag=True, help="Try no values outside these ranges: the caller clips them.")
@click.option("--python", default=None, metavar="PATH", help="Interpreter of the function's own environment.")
@click.option("--path", "folders", multiple=True, metavar="DIR", help="Where to look for the module; here by default.")
@click.option("--attacks", callback=given_attacks, default=None, help=f"Some of {','.join(ATTACK_NAMES)}.")
@click.option("--confidence", type=float, default=0.9999, show_default=True, help="Of the whole audit.")
@click.option("--seconds", type=float, default=None, help=f"About how long the audit may take; {SECONDS:g} by default.")
@click.option("--runs", type=int, default=None, help="Number of runs, instead of a time.")
@click.option("--fast", is_flag=True, help=f"The same as --seconds {FAST_SECONDS:g}; of all, six cases.")
@click.option("--workers", type=int, default=2, show_default=True, help="Processes.")
@click.option("--timeout", type=float, default=60.0, show_default=True, help="Seconds for one run.")
@click.option("--seed", type=int, default=0, show_default=True, help="Of the audit's choices, not of the noise.")
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default=None,
    help="Folder for audit.json and the page audit.html.",
)
@click.option("--force", is_flag=True, help="Overwrite existing files.")
@with_output
def audit(subject: str, out: Path | None, force: bool, output: Output, **options: Any) -> int:
    """Attack a claimed guarantee: how do we know that it holds?

    ESTIMATOR is one of dperm's, such as DPLogisticRegression. MODULE:FUNCTION is any function fit(X, y) that returns
    the released vector. all audits dperm itself: every solver and release, local reports and vertical rounds. Exit code
    1 means that the claim does not hold, 0 that no attack contradicts it.
    """
    with never_exit_code_1():
        if subject == "all":
            check_all(click.get_current_context())
            return audit_all(options["confidence"], options["fast"], options["seed"], out, force, output)
        check_one(subject, options)
        return _audit_one(subject, options, out, force, output)


def _audit_one(subject: str, options: dict[str, Any], out: Path | None, force: bool, output: Output) -> int:
    """Audit one estimator or function."""
    from dperm.audit import AuditSettings, run_audit
    from dperm.audit.page import audit_page
    from dperm.audit.result import shown_number

    files = AuditFiles(out, "audit", force=force)
    how = AuditSettings(
        attacks=options["attacks"],
        confidence=options["confidence"],
        seconds=FAST_SECONDS if options["fast"] else SECONDS if options["seconds"] is None else options["seconds"],
        runs=options["runs"],
        n_workers=options["workers"],
        timeout=options["timeout"],
        in_range=options["in_range"],
        seed=options["seed"],
    )
    what, claim, facts, name = _subject(subject, options)
    with told(output) as tell:
        found = run_audit(what, claim, facts, how, name=name, tell=tell)
    data = found.to_dict()
    files.write(data, audit_page(found))

    def show(output: Output) -> None:
        output.lines(_summary(found) + files.lines)
        output.text("")
        verdicts = {one.attack: str(one.verdict) for one in found.attacks}
        rows = [
            (one.attack, verdicts.get(one.attack, ""), shown_number(one.epsilon), shown_number(one.noise_factor),
             f"{one.runs:,}", f"{one.seconds:.0f} s")
            for one in (found.preparation, *found.attacks) if one is not None
        ]  # fmt: skip
        output.table(("attack", "verdict", "epsilon", "power", "runs", "time"), rows, right=(2, 3, 4, 5))
        output.text("")
        output.lines([(one.attack, one.advice or one.sentence) for one in found.attacks])

    return end_of_audit(found.verdict, data, show, output)


def _subject(subject: str, options: dict[str, Any]) -> tuple[Any, Any, Any, str]:
    """Return the function, its claim and the public facts."""
    from dperm.audit import Claim, PublicFacts, Subject
    from dperm.audit.estimators import own_subject

    numerical = options["target_range"] is not None
    facts = PublicFacts(
        n_rows=options["rows"],
        n_features=options["features"],
        feature_range=options["feature_range"],
        classes=None if numerical else options["classes"] or (0, 1),
        target_range=options["target_range"] or (-1.0, 1.0),
    )
    epsilon, delta, neighbours = options["epsilon"], options["delta"], options["neighbours"]
    if ":" not in subject:
        own = own_subject(subject, options["settings"], facts, epsilon, delta, neighbours)
        if options["classes"] is not None and own.facts.classes is None:
            raise InvalidInput(f"{subject} has no classes: leave out --classes.")
        return own.subject, own.claim, own.facts, own.name
    module, _, function = subject.partition(":")
    folders = tuple(str(Path(one).resolve()) for one in options["folders"] or (".",))
    make = Claim.gaussian if options["gaussian"] else Claim
    claim = make(epsilon, delta or 0.0, neighbours)
    return Subject(module, function, options["python"], folders), claim, facts, subject


def _summary(found: Any) -> list[tuple[str, str]]:
    from dperm.audit.claim import RELATIONS

    claim = found.claim
    return [
        ("Audited", found.subject),
        ("Claim", f"epsilon {claim.epsilon:g}, delta {claim.delta:g}, when {RELATIONS[claim.neighbours]}"),
        ("Verdict", found.sentence()),
        ("Confidence", f"a claim that is true is called false with probability {1.0 - found.confidence:.2g} at most"),
        ("Effort", f"{found.runs:,} runs in {found.seconds:.0f} seconds"),
    ]
