"""Attacks on a claim, one file each; registry ATTACKS. An attack uses the pool, the pilot and the bounds of the audit.

To add one: a subclass of :class:`Attack` in a file here, one line in ATTACKS, its name in ``cli/audit_options.py`` and
``docs/audit.md``, and in PLANTED of ``tests/unit/audit/test_attacks.py`` a function with a violation that it must find.
"""

from __future__ import annotations

from dperm.audit.attacks.base import Attack, AttackContext
from dperm.audit.attacks.canary import CanaryAttack
from dperm.audit.attacks.density import DensityAttack
from dperm.audit.attacks.determinism import DeterminismAttack
from dperm.audit.attacks.float_grid import FloatGridAttack
from dperm.audit.attacks.one_run import OneRunAttack
from dperm.audit.attacks.releases import ReleasesAttack
from dperm.audit.attacks.side_channels import SideChannelAttack

__all__ = ["ATTACKS", "Attack", "AttackContext"]

#: attacks by name, in the order in which they run: cheap ones first, so that what they leave goes to the others
ATTACKS: dict[str, Attack] = {
    attack.name: attack
    for attack in (
        DeterminismAttack(),
        ReleasesAttack(),
        SideChannelAttack(),
        OneRunAttack(),
        FloatGridAttack(),
        DensityAttack(),
        CanaryAttack(),
    )
}
