"""Non-interference of whole paths: with blind mechanisms nothing that anybody sees depends on the data.

``check.py`` has the check, ``blind.py`` the mechanisms that ignore their input, ``seeing.py`` what counts as seen,
``forms.py`` the comparison, ``tables.py`` tables that agree in public facts only, and ``cases.py`` the paths of dperm:
estimators, solvers, searches, scores, purchases, local and vertical runs. A new estimator, solver or vertical method is
enrolled by its registry.
"""

from dperm.testing.whole_path.artefacts import everything_about
from dperm.testing.whole_path.blind import LEVELS, BlindMechanisms
from dperm.testing.whole_path.check import check_whole_path
from dperm.testing.whole_path.seeing import PRIVATE, SharedValues

__all__ = [
    "LEVELS",
    "PRIVATE",
    "BlindMechanisms",
    "SharedValues",
    "check_whole_path",
    "everything_about",
]
