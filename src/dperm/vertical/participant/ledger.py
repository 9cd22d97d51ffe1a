"""A participant's own ledger, opened with the cap of its configuration."""

from __future__ import annotations

from dperm.errors import InvalidInput
from dperm.privacy.accounting.budget import Budget
from dperm.privacy.ledger import Ledger
from dperm.vertical.participant.config import Config

__all__ = ["open_own_ledger"]


def open_own_ledger(config: Config) -> Ledger:
    """Open a participant's ledger; the first time, set its cap."""
    settings, where = config.ledger, config.path.name
    if settings is None:
        raise InvalidInput(f"{where} has no section [ledger]: add one, because training is charged to it.")
    ledger = Ledger(settings.file, dataset=settings.dataset)
    if settings.epsilon is not None:
        wanted = Budget(settings.epsilon, settings.delta)
        if ledger.cap is None:
            ledger.set_cap(wanted)
        elif ledger.cap.budget != wanted:
            raise InvalidInput(f"the cap in {where} differs from the ledger's, which cannot change: correct [ledger].")
    return ledger
