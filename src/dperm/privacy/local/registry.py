"""The registry of local reports whose law is a table of whole numbers; a line here adds one to the contract suite."""

from __future__ import annotations

from dperm.privacy.local.categories import RandomizedCategory
from dperm.privacy.local.few_levels import FewLevels
from dperm.privacy.local.one_bit import OneBit

__all__ = ["LOCAL_REPORTS"]

LOCAL_REPORTS: dict[str, type[OneBit] | type[FewLevels] | type[RandomizedCategory]] = {
    OneBit.kind: OneBit,
    FewLevels.kind: FewLevels,
    RandomizedCategory.kind: RandomizedCategory,
}
