"""``dperm audit``: attacks a claimed guarantee, and says what it found and with what power.

The audited function runs in processes of its own (``pool.py``, ``worker.py``), on made-up tables (``tables.py``).
``attacks/`` has one file for each attack, ``bounds/`` what their results prove. May import all of dperm except ``cli``.
"""

from __future__ import annotations

from dperm.audit.claim import Claim
from dperm.audit.pool import Subject
from dperm.audit.result import AttackResult, AuditResult, Verdict
from dperm.audit.runner import AuditSettings, run_audit
from dperm.audit.tables import PublicFacts

__all__ = [
    "AttackResult",
    "AuditResult",
    "AuditSettings",
    "Claim",
    "PublicFacts",
    "Subject",
    "Verdict",
    "run_audit",
]
