"""Releases of dperm's own estimators, below the black box: each output against what was charged for it."""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar

from dperm.audit.attacks.base import Attack, AttackContext
from dperm.audit.pool import Subject
from dperm.audit.result import RELEASES, AttackResult, Verdict
from dperm.privacy.accounting.neighbours import Neighbours

__all__ = ["ReleasesAttack"]

#: runs that measure the releases: enough for halved noise in a release that is made once in a fit
_MOST_RUNS = 80
#: fewest, if there is little time: no other attack has as much power over dperm's own noise in so few runs
_FEWEST = 24


class ReleasesAttack(Attack):
    """Compares the noise of every release with its charge, and every declared sensitivity with real neighbours."""

    name: ClassVar[str] = RELEASES
    about: ClassVar[str] = "dperm's own estimators: the noise of each release against its charge, in this process"
    share: ClassVar[float] = 0.5
    fewest: ClassVar[int] = 1
    advice: ClassVar[str] = (
        "A release of dperm has not the noise that was charged for it, or declares too small a sensitivity: please "
        "report it."
    )

    def run(self, context: AttackContext) -> AttackResult:
        """Fit in this process and look on at the mechanism boundary."""
        # imported here: the cases of the audit of releases use results of attacks
        from dperm.audit.releases import audit_case

        case = _case(context.pool.subject, context)
        if case is None:
            return AttackResult(self.name, Verdict.NOT_RUN, "Only for dperm's own estimators.")
        found = audit_case(
            case,
            confidence=context.confidence,
            most_runs=min(_MOST_RUNS, context.n_runs if context.counted else max(context.n_runs, _FEWEST)),
            seed=int(context.rng.integers(2**31)),
        )
        context.pool.count(found.runs)
        unchecked = "".join(f" Not checked: {one}." for one in found.not_checked)
        if found.verdict is Verdict.NOT_RUN:
            return AttackResult(self.name, Verdict.NOT_RUN, f"No release could be measured.{unchecked}")
        moved = ""
        if found.reached:
            most = max(found.reached.values())
            moved = f" Real neighbours move them by up to {most:.2f} of their sensitivity; above 1 is a fault."
        sentence = "; ".join(found.sentences) or (
            f"{_kinds(len(found.releases))} the noise that was charged; fits: {found.runs}.{moved}"
        )
        return AttackResult(
            self.name,
            found.verdict,
            f"{sentence.rstrip('.')}.{unchecked}",
            method="noise of each release",
            noise_factor=found.noise_factor,
            detail=found.to_dict(),
        )


def _kinds(n: int) -> str:
    return "Releases of 1 kind have" if n == 1 else f"Releases of {n} kinds have"


def _case(subject: Subject, context: AttackContext) -> Any:
    """Return the case of an estimator of dperm; None for any other function."""
    from dperm.audit.estimators import make_estimator
    from dperm.audit.releases import AuditCase
    from dperm.estimators.local.queries import Marginals, SmoothQueries

    if (subject.module, subject.function) != ("dperm.audit.estimators", "make_fit") or subject.arguments is None:
        return None
    table = context.pairs[0].first
    model = make_estimator(**subject.arguments)
    takes_target = not isinstance(model, Marginals | SmoothQueries)
    run = partial(model.fit, table.X, table.y) if takes_target else partial(model.fit, table.X)
    return AuditCase(
        name=type(model).__name__,
        family="local" if subject.local else "central",
        neighbours=Neighbours.parse(context.claim.neighbours),
        run=run,
        fit=model.fit if takes_target else None,
        table=(table.X, table.y),
        report_epsilon=context.claim.epsilon if subject.local else None,
    )
