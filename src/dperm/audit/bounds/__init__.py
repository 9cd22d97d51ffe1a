"""What attack results prove: lower bounds on epsilon with their confidence, violations of a claim, and the power.

- Many runs on two neighbouring data sets (one number per run): :func:`clopper_pearson_bound`, which assumes nothing,
  :func:`gaussian_dp_bound`, and :func:`claim_violation`, which tests a whole privacy profile.
- One run with many canaries (one number per canary): :func:`one_run_bound` and :func:`one_run_fdp_bound`.
- :func:`noise_factor_found` says what an audit would have found; :func:`one_run_noise_factor` the same for one run.

Each bound is exact in finite samples and proved in ``bounds.proof.md``. Equal values are ordered by lots that are drawn
anew, so two calls with the same values may differ a little.
"""

from __future__ import annotations

from dperm.audit.bounds.one_run import one_run_bound, one_run_fdp_bound
from dperm.audit.bounds.one_run_power import CanaryScores, one_run_noise_factor
from dperm.audit.bounds.power import noise_factor_found
from dperm.audit.bounds.results import LowerBound, Violation
from dperm.audit.bounds.two_samples import claim_violation, clopper_pearson_bound, gaussian_dp_bound

__all__ = [
    "CanaryScores",
    "LowerBound",
    "Violation",
    "claim_violation",
    "clopper_pearson_bound",
    "gaussian_dp_bound",
    "noise_factor_found",
    "one_run_bound",
    "one_run_fdp_bound",
    "one_run_noise_factor",
]
