"""Participants in this process, with keys in memory and folders of their own."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dperm.privacy.ledger import Ledger
from dperm.solvers.vertical import TASKS
from dperm.solvers.vertical.protocol import Message
from dperm.vertical.identity.keys import Identity, Trust
from dperm.vertical.methods.connection_test import ConnectionTestHandler
from dperm.vertical.methods.registry import coordinator_handler, spec_from_config
from dperm.vertical.participant.config import read_config
from dperm.vertical.participant.policy import PartyPolicy
from dperm.vertical.participant.tables import LabelTable, PartyTable
from dperm.vertical.session.coordinator import CoordinatorSession
from dperm.vertical.session.party import PartySession
from dperm.vertical.session.simulate import temporary_identities
from dperm.vertical.session.spec import RunSpec
from dperm.vertical.transport.base import InProcess
from dperm.vertical.transport.envelope import FIRST, RENEWAL, REPLY, REQUEST, Envelope, next_digest, refusal_error
from dperm.vertical.transport.wire import encode

PARTIES = ("org-a", "org-b", "org-c")


@dataclass
class Simulation:
    """A coordinator and parties that can be stopped and started again on the same folders."""

    root: Path
    spec: RunSpec
    handler: Callable[[str], Any] = ConnectionTestHandler
    identities: dict[str, Identity] = field(default_factory=dict)
    sessions: dict[str, PartySession] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.identities = temporary_identities([*self.spec.parties, "lab"])

    def start(self, *names: str) -> None:
        for name in names or self.spec.parties:
            if name in self.sessions:
                self.sessions[name].close()
            self.sessions[name] = PartySession(self.identities[name], self.root / name, self.handler(name))

    def stop(self) -> None:
        for session in self.sessions.values():
            session.close()

    def transport(self, wrap: Callable[[str, Callable[[bytes], bytes]], Callable[[bytes], bytes]] | None = None) -> Any:
        handlers = {name: lambda data, name=name: self.sessions[name].handle(data) for name in self.spec.parties}
        return InProcess({name: handler if wrap is None else wrap(name, handler) for name, handler in handlers.items()})

    def coordinate(self, transport: Any = None, **options: Any) -> Any:
        handler = options.pop("handler", None) or self.handler("")
        session = CoordinatorSession(self.spec, self.root / "lab", handler, **options)
        return session.run(transport or self.transport())


@pytest.fixture
def simulation(tmp_path: Path) -> Any:
    made: list[Simulation] = []

    def make(
        secure_sum: bool = True,
        rounds: int = 4,
        run: str = "trial-1",
        handler: Callable[[str], Any] = ConnectionTestHandler,
    ) -> Simulation:
        spec = RunSpec(run, "connection-test", PARTIES, {"rows": 40, "rounds": rounds}, secure_sum)
        one = Simulation(tmp_path / str(len(made)), spec, handler)
        one.start()
        made.append(one)
        return one

    yield make
    for one in made:
        one.stop()


PAIR = ("org-a", "org-b")
ROWS = 40
COMMON = {"epsilon": 1.0, "delta": 1e-6, "loss": "squared", "penalty": "none", "loss_options": {"residual_clip": 2.0}}
TARGET = {"kind": "number", "low": 0, "high": 1}
WITHOUT_GUARANTEE = {"exact-admm-sharing", "printed-frank-wolfe", "sgd-over-parties"}

_CONFIG = """
name = "{name}"
{address}
[data]
file = "table.csv"
[ledger]
file = "ledger.db"
dataset = "people"
{cap}
"""
_COLUMN = '[columns.{name}]\nkind = "number"\nlow = -2\nhigh = 2\n'


def options_of(method: str, length: int = 2) -> dict[str, Any]:
    """Small options of a task."""
    task = TASKS[method]
    rounds = "n_steps" if "n_steps" in task.__dataclass_fields__ else "n_rounds"
    return {**COMMON, "view": task.views[0], rounds: length, **({"n_sketch": 8} if "sketched" in method else {})}


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {_toml(one)}" for key, one in value.items()) + "}"
    return json.dumps(value)


class Organisations:
    """The folders of all participants; sessions can be stopped and started again."""

    def __init__(
        self,
        root: Path,
        method: str = "admm-sharing",
        options: dict[str, Any] | None = None,
        secure_sum: bool = True,
        caps: dict[str, str] | None = None,
        allow: str = "",
    ) -> None:
        self.root, self.names = root, PAIR
        self.identities = temporary_identities([*PAIR, "lab", "ghost"])
        self.sessions: dict[str, PartySession] = {}
        self.options = options_of(method) if options is None else options
        rng = np.random.default_rng(0)
        caps = {"lab": "", **(caps or dict.fromkeys(PAIR, "" if method in WITHOUT_GUARANTEE else "epsilon = 2.0"))}
        for name in (*PAIR, "lab"):
            folder = root / name
            folder.mkdir(parents=True)
            columns = ["y"] if name == "lab" else ["u", "v"]
            rows = rng.uniform(0, 1, (ROWS, len(columns)))
            lines = [",".join(columns), *(",".join(f"{value:.4f}" for value in row) for row in rows)]
            (folder / "table.csv").write_text("\n".join(lines) + "\n")
            address = 'listen = "localhost:0"' if name == "lab" else 'coordinator = "localhost:1"'
            text = _CONFIG.format(name=name, address=address, cap=caps[name])
            if name == "lab":
                text += '[target]\ncolumn = "y"\n' + "".join(f"{k} = {json.dumps(v)}\n" for k, v in TARGET.items())
                run = {"name": "fit-1", "method": method, "parties": list(PAIR), "secure_sum": secure_sum}
                text += "[run]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in run.items())
                text += 'out = "model.json"\n[run.options]\n'
                text += "".join(f"{key} = {_toml(value)}\n" for key, value in self.options.items())
            else:
                insecure = "insecure = true\n" if method in WITHOUT_GUARANTEE else ""
                methods = json.dumps([*TASKS, "connection-test", "align"])
                text += f"[allow]\nmethods = {methods}\nepsilon = 1.0\n{insecure}{allow}\n"
                text += "".join(_COLUMN.format(name=column) for column in columns)
            (folder / "config.toml").write_text(text)

    def spec(self) -> RunSpec:
        return spec_from_config(read_config(self.root / "lab" / "config.toml"))

    def policy(self, name: str, pins: tuple[tuple[str, str], ...] = ()) -> PartyPolicy:
        one = self.identities[name]
        identity = one.with_trust(Trust(one.trust.authority, pins))
        return PartyPolicy(read_config(self.root / name / "config.toml"), identity)

    def start(self, *names: str) -> None:
        self.stop(*names)
        for name in names or PAIR:
            policy = self.policy(name)
            self.sessions[name] = PartySession(self.identities[name], self.root / name / "state" / "runs", policy)

    def stop(self, *names: str) -> None:
        for name in names or PAIR:
            if name in self.sessions:
                self.sessions.pop(name).close()

    def coordinate(self, transport: Any = None) -> Any:
        config = read_config(self.root / "lab" / "config.toml")
        handler = coordinator_handler(config, self.identities["lab"])
        session = CoordinatorSession(self.spec(), config.state / "runs", handler)
        return session.run(transport or self.transport())

    def transport(self, kind: Any = InProcess) -> Any:
        return kind({name: lambda data, name=name: self.sessions[name].handle(data) for name in PAIR})

    def ledger(self, name: str) -> Ledger:
        return Ledger(self.root / name / "ledger.db", dataset="people")

    def kinds(self, name: str) -> list[str]:
        return [entry["kind"] for entry in self.ledger(name).entries()]

    def cheat(self, party: str = "org-a") -> CheatingCoordinator:
        return CheatingCoordinator(self, party)


class CheatingCoordinator:
    """A coordinator that departs from the protocol: it sends one party arbitrary messages."""

    def __init__(self, org: Organisations, party: str) -> None:
        self.org, self.run, self.party = org, "fit-1", party
        self.step, self.state = 0, FIRST
        self.nonces: dict[str, bytes] = {}

    def ask(self, message: Message, attempt: int = 0) -> Message:
        """Ask for the next step; a refusal is raised."""
        nonces = b"".join(self.nonces.get(name, bytes(16)) for name in PAIR)
        where = (self.run, self.party, self.step, attempt, self.state)
        asked = Envelope(REQUEST, *where, encode(message), None, nonces)
        said = self.org.sessions[self.party].answer(asked)
        if said.kind == RENEWAL:
            self.nonces[self.party] = said.nonces
            return self.ask(message, attempt + 1)
        if said.kind != REPLY:
            raise refusal_error(said)
        self.nonces[self.party] = said.nonces or self.nonces.get(self.party, bytes(16))
        reply = said.message()
        self.state = next_digest(self.state, self.step, asked.content, reply)
        self.step += 1
        return reply

    def begin(self, spec: RunSpec) -> None:
        joined = self.ask(Message("join", {"spec": spec.to_array()}))
        facts = spec.with_facts(dict.fromkeys(spec.parties, joined.facts))
        self.ask(Message("check", {"spec": facts.to_array()}))
        self.ask(Message("start"))


@pytest.fixture
def organisations(tmp_path: Path) -> Any:
    made: list[Organisations] = []

    def make(method: str = "admm-sharing", **settings: Any) -> Organisations:
        made.append(Organisations(tmp_path / f"organisations-{len(made)}", method, **settings))
        made[-1].start()
        return made[-1]

    yield make
    for one in made:
        one.stop()


_WITH_IDS = """
name = "{name}"
{address}
[data]
file = "table.csv"
id = "person"
[ledger]
file = "ledger.db"
dataset = "people"
epsilon = 5.0
"""
_OF_PARTY = """
[allow]
methods = ["align", "admm-sharing"]
epsilon = 1.0
[columns.x]
kind = "number"
low = 0
high = 100
"""
_OF_LAB = """
[target]
column = "y"
kind = "classes"
classes = ["no", "yes"]
[run]
name = "fit-1"
method = "admm-sharing"
parties = ["org-a", "org-b"]
[run.options]
epsilon = 0.5
delta = 1e-6
n_rounds = 2
"""


class Crash(BaseException):
    """Stands for a process that dies."""


class _Dying(InProcess):
    """Crashes before the requests of a step are sent."""

    before: int | None = None

    def send(self, party: str, envelope: Envelope) -> bool:
        if envelope.step == self.before:
            raise Crash
        return super().send(party, envelope)


class People:
    """Tables with identifiers: each has other people too, in its own order; x and y identify a person."""

    def __init__(self, root: Path) -> None:
        self.root, self.sessions = root, {}
        self.identities = temporary_identities([*PAIR, "lab"])
        for name, low, high in (("org-a", 1, 60), ("org-b", 11, 70), ("lab", 6, 65)):
            (root / name).mkdir()
            address = 'listen = "localhost:0"' if name == "lab" else 'coordinator = "localhost:1"'
            text = _WITH_IDS.format(name=name, address=address) + (_OF_LAB if name == "lab" else _OF_PARTY)
            (root / name / "config.toml").write_text(text)
            numbers = list(range(low, high))
            random.Random(name).shuffle(numbers)
            self.write(name, numbers)

    def write(self, name: str, numbers: Iterable[int], value: Callable[[int], Any] | None = None) -> None:
        value = value or ((lambda n: ["no", "yes"][n % 2]) if name == "lab" else int)
        rows = [f"{n * 0x9E3779B97F4A7C15 % 2**64:016x},{value(n)}\n" for n in numbers]
        (self.root / name / "table.csv").write_text(f"person,{'y' if name == 'lab' else 'x'}\n" + "".join(rows))

    def config(self, name: str) -> Any:
        return read_config(self.root / name / "config.toml")

    def policy(self, name: str) -> PartyPolicy:
        return PartyPolicy(self.config(name), self.identities[name])

    def tables(self) -> Any:
        parties = [PartyTable.read(self.config(name), self.config(name).data) for name in PAIR]
        return parties, LabelTable.read(self.config("lab"), self.config("lab").data)

    def order(self, name: str) -> Path:
        return self.root / name / "state" / "order-data.json"

    def start(self, *names: str) -> None:
        for name in names or PAIR:
            if name in self.sessions:
                self.sessions[name].close()
            runs = self.root / name / "state" / "runs"
            self.sessions[name] = PartySession(self.identities[name], runs, self.policy(name))

    def stop(self) -> None:
        for session in self.sessions.values():
            session.close()

    def run(self, before: int | None = None, restart: bool = True, **changes: Any) -> Any:
        """Carry out a run, or the part before a step; all parties are restarted unless ``restart`` is False."""
        if restart:
            self.start()
        config = self.config("lab")
        config = replace(config, run=replace(config.run, **changes))
        transport = _Dying({name: lambda data, name=name: self.sessions[name].handle(data) for name in PAIR})
        transport.before = before
        handler = coordinator_handler(config, self.identities["lab"])
        return CoordinatorSession(spec_from_config(config), config.state / "runs", handler).run(transport)

    def align(self, name: str = "al-1", **how: Any) -> Any:
        return self.run(name=name, method="align", options={}, **how)

    def reserved(self, name: str) -> int:
        entries = Ledger(self.root / name / "ledger.db", dataset="people").entries()
        return [entry["kind"] for entry in entries].count("reserve")


@pytest.fixture
def people(tmp_path: Path) -> Any:
    made = People(tmp_path)
    yield made
    made.stop()


@pytest.fixture
def crash() -> type[BaseException]:
    return Crash
