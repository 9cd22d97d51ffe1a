"""Participants in this process, with keys in memory and folders of their own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from dperm.vertical.coordinator import CoordinatorSession
from dperm.vertical.keys import Identity
from dperm.vertical.party import PartySession
from dperm.vertical.rehearsal import RehearsalDesk
from dperm.vertical.simulate import passing_identities
from dperm.vertical.spec import RunSpec
from dperm.vertical.transport import InProcess

PARTIES = ("org-a", "org-b", "org-c")


@dataclass
class Stage:
    """A coordinator and parties that can be stopped and started again on the same folders."""

    root: Path
    spec: RunSpec
    desk: Callable[[str], Any] = RehearsalDesk
    identities: dict[str, Identity] = field(default_factory=dict)
    sessions: dict[str, PartySession] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.identities = passing_identities([*self.spec.parties, "lab"])

    def start(self, *names: str) -> None:
        for name in names or self.spec.parties:
            if name in self.sessions:
                self.sessions[name].close()
            self.sessions[name] = PartySession(self.identities[name], self.root / name, self.desk(name))

    def stop(self) -> None:
        for session in self.sessions.values():
            session.close()

    def transport(self, wrap: Callable[[str, Callable[[bytes], bytes]], Callable[[bytes], bytes]] | None = None) -> Any:
        handlers = {name: lambda data, name=name: self.sessions[name].handle(data) for name in self.spec.parties}
        return InProcess({name: handler if wrap is None else wrap(name, handler) for name, handler in handlers.items()})

    def coordinate(self, transport: Any = None, **options: Any) -> Any:
        desk = options.pop("desk", None) or self.desk("")
        session = CoordinatorSession(self.spec, self.root / "lab", desk, **options)
        return session.run(transport or self.transport())


@pytest.fixture
def stage(tmp_path: Path) -> Any:
    made: list[Stage] = []

    def make(
        secure_sum: bool = True, rounds: int = 4, run: str = "trial-1", desk: Callable[[str], Any] = RehearsalDesk
    ) -> Stage:
        spec = RunSpec(run, "rehearsal", PARTIES, {"rows": 40, "rounds": rounds}, secure_sum)
        one = Stage(tmp_path / str(len(made)), spec, desk)
        one.start()
        made.append(one)
        return one

    yield make
    for one in made:
        one.stop()
