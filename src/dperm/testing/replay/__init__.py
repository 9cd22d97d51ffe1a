"""Record a run at the mechanism boundary, recompute its cost from the log, and repeat it on neighbouring data.

================  ==============================================================================================
``check.py``      :func:`check_recorded`, the whole check, and :func:`check_run`, the checks of one record
``totals.py``     the total cost by dp-accounting and OpenDP, from sensitivities and noise scales alone
``searches.py``   the same for the best of a random number of runs
``noise.py``      every event states the noise of its release, and that noise is drawn
``replayer.py``   repeats a recorded run on a neighbouring table
``neighbours.py`` the search for neighbouring tables
================  ==============================================================================================

The recorder itself is :mod:`dperm.privacy.recording`; how far a value moved is in :mod:`dperm.testing.distance`.
"""

from dperm.testing.replay.check import ClaimedTotal, RecordedCheck, check_recorded, check_run
from dperm.testing.replay.totals import IndependentTotal, independent_total

__all__ = ["ClaimedTotal", "IndependentTotal", "RecordedCheck", "check_recorded", "check_run", "independent_total"]
