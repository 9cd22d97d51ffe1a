"""Audit of dperm's own releases, below the black box: each output against what was charged for it.

Too little noise in one of several releases hardly moves the total epsilon, so no attack through ``fit`` finds it. Here
real runs are watched at the mechanism boundary (``collector.py``): each release gets its true value or that of a
worst-case neighbour (``moves.py``), and what its caller really gets is measured (``measurements.py``) and judged
(``judging.py``). ``cases.py`` lists what is run, ``audit.py`` runs it. Declared sensitivities are checked on real
neighbours by :mod:`dperm.testing.replay`. Proof: ``releases.proof.md``.
"""

from __future__ import annotations

from dperm.audit.releases.audit import CaseResult, ReleaseAudit, audit_case, audit_releases
from dperm.audit.releases.cases import FAMILIES, AuditCase, all_cases, fit_case
from dperm.audit.releases.judging import ReleaseResult
from dperm.audit.result import Verdict

__all__ = [
    "FAMILIES",
    "AuditCase",
    "CaseResult",
    "ReleaseAudit",
    "ReleaseResult",
    "Verdict",
    "all_cases",
    "audit_case",
    "audit_releases",
    "fit_case",
]
