"""The whole workflow in real processes: draft, confirm, fit twice at once, read the ledger, open the page."""

from __future__ import annotations

import json
import os
import signal
import struct
import subprocess
import sys
import zlib

import numpy as np
import pytest


@pytest.fixture(scope="module")
def journey(tmp_path_factory):
    """A folder with a table, its confirmed schema and a ledger of its own."""
    folder = tmp_path_factory.mktemp("journey")
    rng = np.random.default_rng(0)
    ages, towns = rng.integers(18, 90, 1500), rng.choice(["north", "south", "west"], 1500)
    ill = rng.random(1500) < 1.0 / (1.0 + np.exp(-(ages - 50) / 10.0))
    lines = [f"{age},{town},{'yes' if one else 'no'}" for age, town, one in zip(ages, towns, ill, strict=True)]
    (folder / "people.csv").write_text("\n".join(["age,town,ill", *lines]) + "\n")
    assert run(folder, "schema", "people.csv", "--target", "ill").returncode == 0
    assert run(folder, "schema", "--confirm", "schema.toml", "--yes").returncode == 0
    return folder


def start(folder, *arguments, **variables):
    environment = {**os.environ, "DPERM_HOME": str(folder / "home"), "PYTHONWARNINGS": "error", **variables}
    return subprocess.Popen(
        [sys.executable, "-m", "dperm", *arguments],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run(folder, *arguments):
    process = start(folder, *arguments)
    out, err = process.communicate(timeout=120)
    return subprocess.CompletedProcess(arguments, process.returncode, out, err)


def test_two_fits_at_once_cannot_both_pass_the_cap(journey):
    assert run(journey, "ledger", "cap", "people", "--epsilon", "1", "--yes").returncode == 0
    fit = ("fit", "people.csv", "--epsilon", "0.8", "--schema", "schema.toml", "--json", "--out")
    both = [start(journey, *fit, name) for name in ("one.json", "two.json")]
    said = [process.communicate(timeout=120) for process in both]
    assert sorted(process.returncode for process in both) == [0, 3], said
    refused = next(err for process, (_, err) in zip(both, said, strict=True) if process.returncode == 3)
    assert "is left" in refused
    assert "dperm ledger show people" in refused
    spent = json.loads(run(journey, "ledger", "list", "--json").stdout)["datasets"][0]
    assert spent["n_fits"] == 1
    assert spent["reserved_unsettled"] == 0


def test_a_reader_may_close_the_output_early(journey):
    process = start(journey, "ledger", "export")
    process.stdout.close()
    process.wait(timeout=60)
    assert "Traceback" not in process.stderr.read()
    process.stderr.close()


# Many short sleeps: Python misses a signal that comes between its last look and the start of one long sleep.
_SHORT_SLEEPS = "import time\nfor _ in range(600): time.sleep(0.1)\n"

_WAITS = """
import sys
from importlib.abc import MetaPathFinder

class Waiting(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name == {module!r} and not hasattr(self, "told"):
            self.told = True
            print("here", flush=True)
            exec({waits!r})

sys.meta_path.insert(0, Waiting())
"""


@pytest.mark.parametrize(
    ("module", "arguments", "says"),
    [
        ("dperm.cli.vertical.commands", ("ledger", "list"), "dperm: interrupted; nothing was written.\n"),
        (
            "dperm.privacy.accounting.budget",
            ("fit", "people.csv", "--epsilon", "1", "--schema", "schema.toml"),
            "nothing was spent",
        ),
        (
            "dperm.collect.service.server",
            ("collect", "serve", "speed.json"),
            "dperm: interrupted before the collector started; no report was accepted.\n",
        ),
    ],
)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_while_modules_load_gets_a_sentence_and_exit_code_1(journey, tmp_path, module, arguments, says, number):
    """Also inside ``exec``, after which Python would end the process by the signal although it was caught."""
    (tmp_path / "sitecustomize.py").write_text(_WAITS.format(module=module, waits=_SHORT_SLEEPS))
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    process = start(journey, *arguments, PYTHONPATH=path, DPERM_HOME=str(tmp_path))
    assert process.stdout.readline() == "here\n"
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 1, err
    assert says in err
    assert len(err.strip().splitlines()) == 1


_WAITS_AT_THE_PAGE = """
import os, pathlib
replace = os.replace

def waiting(source, target):
    if pathlib.Path(target).suffix == ".html":
        print("here", flush=True)
        exec({waits!r})
    replace(source, target)

os.replace = waiting
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_killed_fit_reports_what_is_spent_and_leaves_no_partial_files(journey, tmp_path, number):
    (tmp_path / "sitecustomize.py").write_text(_WAITS_AT_THE_PAGE.format(waits=_SHORT_SLEEPS))
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    out = tmp_path / "killed.json"
    fit = ("fit", "people.csv", "--epsilon", "1", "--schema", "schema.toml", "--out", str(out))
    process = start(journey, *fit, PYTHONPATH=path, DPERM_HOME=str(tmp_path / "home"))
    assert process.stdout.readline() == "here\n"
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 1, err
    assert "killed.json was written, and the epsilon 1 that was reserved on data set people stays spent" in err
    assert sorted(one.name for one in tmp_path.iterdir() if one.suffix != ".py" and one.is_file()) == ["killed.json"]


@pytest.mark.parametrize(
    ("closed", "arguments", "code", "says"),
    [
        (">&-", "ledger list", 0, ""),
        (">&-", "ledger list --json", 0, ""),
        (">&-", "ledger show nobody", 2, "dperm: the ledger"),
        ("2>&-", "fit", 2, ""),
        (
            "2>&-",
            "fit people.csv --epsilon 1 --schema schema.toml --ledger closed.db --out closed.json",
            0,
            "Guarantee",
        ),
        ("<&- >&- 2>&-", "ledger verify --ledger closed.db", 0, ""),
    ],
)
def test_closed_streams_change_no_exit_code(journey, closed, arguments, code, says):
    done = subprocess.run(
        ["sh", "-c", f'"$0" -m dperm {arguments} {closed}', sys.executable],
        cwd=journey,
        env={**os.environ, "DPERM_HOME": str(journey / "home")},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == code, done.stderr
    assert says in done.stdout + done.stderr
    assert "unexpected" not in done.stderr


@pytest.fixture(scope="module")
def browser(journey, chromium):
    """A headless Chromium that opens the page of a model, in ``--screenshot`` or ``--print-to-pdf`` mode."""
    fit = ("fit", "people.csv", "--epsilon", "1", "--schema", "schema.toml", "--ledger", "page.db", "--out")
    done = run(journey, *fit, "page.json")
    assert done.returncode == 0, done.stderr

    def look(name, *options):
        arguments = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--user-data-dir={journey}/b"]
        page = (journey / "page.html").as_uri()
        made = subprocess.run(
            [chromium, *arguments, *options, page], cwd=journey, capture_output=True, timeout=90, check=False
        )
        assert (journey / name).exists(), made.stderr[-200:]
        return (journey / name).read_bytes()

    return look


def test_the_page_prints_on_two_sheets(browser):
    pdf = browser("page.pdf", "--print-to-pdf=page.pdf", "--no-pdf-header-footer")
    assert pdf.count(b"/Type /Page\n") == 2


@pytest.mark.parametrize(("scheme", "paper"), [("1", (255, 255, 255)), ("0", (20, 24, 29))])
def test_the_page_follows_the_readers_theme(browser, scheme, paper):
    name = f"scheme-{scheme}.png"
    settings = f"--blink-settings=preferredColorScheme={scheme}"
    picture = browser(name, settings, "--window-size=800,600", f"--screenshot={name}")
    assert first_pixel(picture) == paper


def first_pixel(png):
    """Colour of the upper left corner: no filter of PNG changes the first pixel of the first row."""
    at, data = 8, b""
    while at < len(png):
        (length,), kind = struct.unpack(">I", png[at : at + 4]), png[at + 4 : at + 8]
        if kind == b"IDAT":
            data += png[at + 8 : at + 8 + length]
        at += 12 + length
    return tuple(zlib.decompress(data)[1:4])
