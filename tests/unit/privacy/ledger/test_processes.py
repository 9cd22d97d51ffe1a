"""Several processes and threads at once, a crash in between, and forks."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from dperm.errors import BudgetRefused, DpermError, LedgerError
from dperm.privacy.accounting.budget import Budget
from dperm.privacy.accounting.events import Gaussian, Repeat
from dperm.privacy.ledger import Cap, Ledger, ReleaseRecord

BUDGET = Budget(1.0, 1e-6)
Child = Callable[..., "subprocess.Popen[str]"]

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="this platform has no fork")


def multiplier(fits: float) -> float:
    """Noise of a release of which ``fits`` fill the cap."""
    cap = Cap.of(BUDGET)
    return math.sqrt(cap.order * fits / (2.0 * cap.limit))


RACER = """
import sys
from dperm.errors import BudgetRefused
from dperm.privacy.accounting.events import Gaussian
from dperm.privacy.ledger import Ledger, ReleaseRecord
ledger = Ledger(sys.argv[1])
event = Gaussian(float(sys.argv[2]))
print("ready", flush=True)
for line in sys.stdin:
    passed = 0
    mine = ledger.for_dataset(line.strip())
    for _ in range(2):
        try:
            made = mine.reserve(event, "replace-one", "race")
        except BudgetRefused:
            continue
        made.settle([ReleaseRecord("g", event)])
        passed += 1
    print(passed, flush=True)
"""


def test_racing_for_the_last_of_a_cap(address: str, child: Child) -> None:
    """20 rounds of 4 processes that each ask twice for a third of the cap: exactly three may pass."""
    ledger = Ledger(address)
    racers = [child(RACER, address, repr(multiplier(3.5))) for _ in range(4)]
    for racer in racers:
        assert racer.stdout.readline() == "ready\n", racer.stderr.read()
    for number in range(20):
        name = f"round {number}"
        ledger.for_dataset(name).set_cap(BUDGET)
        for racer in racers:
            racer.stdin.write(f"{name}\n")
            racer.stdin.flush()
        passed = [int(racer.stdout.readline()) for racer in racers]
        assert sum(passed) == 3, passed
        spent = ledger.for_dataset(name).spent()
        assert (spent.n_fits, spent.reserved_unsettled) == (3, 0)
        assert spent.epsilon <= 1.0
    ledger.verify()


CREATOR = """
import sys, time
from dperm.privacy.accounting.events import Gaussian
from dperm.privacy.ledger import Ledger
print("ready", flush=True)
sys.stdin.readline()
made = Ledger(sys.argv[1], dataset=sys.argv[2])
made.reserve(Gaussian(10.0), "replace-one")
print(made.export()["ledger"], flush=True)
"""


def test_racing_to_create_the_ledger(address: str, child: Child) -> None:
    creators = [child(CREATOR, address, f"d{number}") for number in range(4)]
    for creator in creators:
        assert creator.stdout.readline() == "ready\n", creator.stderr.read()
    for creator in creators:
        creator.stdin.write("go\n")
        creator.stdin.flush()
    names = {creator.stdout.readline() for creator in creators}
    assert len(names) == 1
    assert names != {""}
    assert Ledger(address).datasets() == ["d0", "d1", "d2", "d3"]


CRASHER = """
import sys, time
from dperm.privacy.accounting.events import Gaussian, Repeat
from dperm.privacy.ledger import Ledger
made = Ledger(sys.argv[1], dataset="patients").reserve(Repeat(Gaussian(40.0), 4), "replace-one", "will crash")
print(made.id, flush=True)
time.sleep(60)
"""


def test_kill_between_reserve_and_settle(address: str, child: Child) -> None:
    ledger = Ledger(address, dataset="patients")
    ledger.set_cap(BUDGET)
    crasher = child(CRASHER, address)
    name = crasher.stdout.readline().strip()
    assert name, crasher.stderr.read()
    crasher.send_signal(signal.SIGKILL)
    crasher.wait()
    spent = ledger.spent()
    assert spent.reserved_unsettled == 1
    assert spent.epsilon > 0.0
    assert [(one.id, one.purpose) for one in ledger.unsettled()] == [(name, "will crash")]
    again = ledger.resume(name)
    assert again.event == Repeat(Gaussian(40.0), 4)
    again.settle([ReleaseRecord("g", Gaussian(40.0), count=3), ReleaseRecord("g", Gaussian(40.0), forfeited=True)])
    after = ledger.spent()
    assert (after.reserved_unsettled, after.epsilon) == (0, spent.epsilon)


LOCKER = """
import sqlite3, sys, time
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("BEGIN IMMEDIATE")
connection.execute("INSERT INTO dperm_ledger VALUES (99, '', '', '')")
print("locked", flush=True)
time.sleep(60)
"""


def test_kill_in_the_middle_of_a_transaction(tmp_path: object, child: Child) -> None:
    path = f"{tmp_path}/budget.db"
    ledger = Ledger(path)
    locker = child(LOCKER, path)
    assert locker.stdout.readline() == "locked\n"
    assert ledger.spent().n_fits == 0  # reading goes on
    threading.Timer(0.3, locker.kill).start()
    ledger.reserve(Gaussian(10.0), "replace-one")  # waits, and does not see what was never committed
    assert ledger.spent().n_fits == 1
    ledger.verify()


@pytest.mark.parametrize("kind", ["memory", "file", "server"])
def test_threads(kind: str, request: pytest.FixtureRequest, tmp_path: object) -> None:
    address = {"memory": lambda: None, "file": lambda: f"{tmp_path}/budget.db"}.get(
        kind, lambda: request.getfixturevalue("database")
    )()
    ledger = Ledger(address)
    ledger.set_cap(BUDGET)
    event = Gaussian(multiplier(10.5))

    def ask(_: int) -> bool:
        try:
            made = ledger.reserve(event, "replace-one")
        except BudgetRefused:
            return False
        made.settle([ReleaseRecord("g", event)])
        return True

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(ask, range(24))) == 10
    assert ledger.spent().n_fits == 10
    ledger.verify()


def in_fork(work: Callable[[], object]) -> str:
    """Run ``work`` in a forked child and return what it said."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            said = str(work())
        except DpermError as error:
            said = f"{type(error).__name__}: {error}"
        except BaseException as error:
            said = f"unexpected {error!r}"
        os.write(writing, said.encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        said = pipe.read()
    os.waitpid(child, 0)
    return said


@needs_fork
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_forked_children_share_the_ledger(address: str) -> None:
    ledger = Ledger(address)
    ledger.set_cap(BUDGET)
    event = Gaussian(multiplier(2.5))
    ledger.reserve(event, "replace-one")
    assert in_fork(lambda: ledger.reserve(event, "replace-one").charge).startswith("0.2")
    assert ledger.spent().n_fits == 2
    assert in_fork(lambda: ledger.reserve(event, "replace-one")).startswith("BudgetRefused")
    with pytest.raises(BudgetRefused):
        ledger.reserve(event, "replace-one")


@needs_fork
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_ledger_in_memory_stays_in_its_process() -> None:
    ledger = Ledger()
    assert "belongs to the process that made it" in in_fork(lambda: ledger.reserve(Gaussian(9.0), "replace-one"))
    assert "belongs to the process that made it" in in_fork(ledger.spent)
    assert ledger.spent().n_fits == 0


@needs_fork
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_fork_while_another_thread_writes(tmp_path: object) -> None:
    ledger = Ledger(f"{tmp_path}/budget.db")
    stop = threading.Event()
    written: list[int] = []

    def keep_writing() -> None:
        while not stop.is_set():
            ledger.reserve(Gaussian(9.0), "replace-one")
            written.append(1)

    writer = threading.Thread(target=keep_writing)
    writer.start()
    try:
        said = [in_fork(lambda: ledger.reserve(Gaussian(9.0), "replace-one").dataset) for _ in range(15)]
    finally:
        stop.set()
        writer.join()
    assert said == ["default"] * 15
    assert ledger.spent().n_fits == len(written) + 15
    ledger.verify()


@needs_fork
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_full_disk(tmp_path: object) -> None:
    """A real limit on the size of files: the write fails, nothing is released and nothing is lost."""
    import resource

    path = f"{tmp_path}/budget.db"
    ledger = Ledger(path)
    ledger.reserve(Gaussian(9.0), "replace-one")

    def fill() -> object:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        size = os.path.getsize(path)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
        return ledger.reserve(Gaussian(9.0), "replace-one", purpose="x" * 50_000)

    said = in_fork(fill)
    assert said.startswith("LedgerError: ")
    assert "nothing was written" in said
    assert ledger.spent().n_fits == 1
    ledger.verify()


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="another user is needed to be refused")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_files_of_somebody_else() -> None:
    import pwd
    import shutil
    import tempfile

    nobody = pwd.getpwnam("nobody").pw_uid
    folder = tempfile.mkdtemp()
    try:
        os.chmod(folder, 0o755)
        path = f"{folder}/budget.db"
        ledger = Ledger(path)

        def as_nobody(work: Callable[[], object]) -> str:
            return in_fork(lambda: (os.seteuid(nobody), work())[1])

        assert as_nobody(lambda: Ledger(path)).startswith("LedgerUnreadable: ")  # mode 0600
        assert as_nobody(lambda: Ledger(f"{folder}/new.db")).startswith("LedgerUnreadable: ")
        os.chmod(path, 0o644)
        assert as_nobody(lambda: Ledger(path).spent().n_fits) == "0"
        said = as_nobody(lambda: Ledger(path).reserve(Gaussian(9.0), "replace-one"))
        assert said.startswith("LedgerError: ")
        assert "read-only" in said
        assert ledger.spent().n_fits == 0
        assert os.listdir(folder) == ["budget.db"]
    finally:
        shutil.rmtree(folder)


def test_a_busy_ledger_says_so(tmp_path: object, child: Child, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dperm.privacy.ledger.sqlite._BUSY_SECONDS", 0.2)
    path = f"{tmp_path}/budget.db"
    ledger = Ledger(path)
    locker = child(LOCKER, path)
    assert locker.stdout.readline() == "locked\n"
    start = time.monotonic()
    with pytest.raises(LedgerError, match=r"busy for 0\.2 seconds: nothing was written"):
        ledger.reserve(Gaussian(9.0), "replace-one")
    assert time.monotonic() - start < 10
