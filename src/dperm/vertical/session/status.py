"""The public progress of a run, for displays such as ``dperm.cli.vertical.progress``."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from dperm.vertical.session.spec import START

__all__ = ["PartyStatus", "RunStatus"]


@dataclass
class PartyStatus:
    """Public progress of one party in a run."""

    connected: bool = False
    bytes_sent: int = 0
    bytes_received: int = 0
    #: when the request that is still unanswered was sent
    waiting_since: float | None = None
    reconnects: int = 0


@dataclass
class RunStatus:
    """Public progress of a run; nothing in it depends on data."""

    run: str
    method: str
    step: int = 0
    attempt: int = 0
    n_rounds: int | None = None
    epsilon: float | None = None
    delta: float | None = None
    state: str = "waiting for the parties"
    parties: dict[str, PartyStatus] = field(default_factory=dict)
    started: float = field(default_factory=time.time)
    seconds_per_round: list[float] = field(default_factory=list)

    @property
    def round(self) -> int:
        """Completed rounds of the method."""
        return max(0, self.step - START - 1)
