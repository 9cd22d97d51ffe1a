"""Programs that tests run: a Chromium for those that look at pages, a JavaScript engine for the browser module.

``python tests/programs.py`` installs a Chromium unless there is one. Tried in this order: what is on the path or was
installed by playwright; the system's packages, if we may install them; playwright's own download.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")


def find_chromium() -> str | None:
    """Return the path of a Chromium, or None."""
    for name in _NAMES:
        if found := shutil.which(name):
            return found
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        return None
    with sync_playwright() as player:
        path = Path(player.chromium.executable_path)
    return str(path) if path.exists() else None


def find_node() -> str | None:
    """Return the path of a JavaScript engine, the machine's own or the one inside playwright, or None."""
    if found := shutil.which("node"):
        return found
    try:
        from playwright._impl._driver import compute_driver_executable
    except ImportError:
        return None
    return str(compute_driver_executable()[0])


def _may_install_packages() -> bool:
    return shutil.which("apt-get") is not None and hasattr(os, "geteuid") and os.geteuid() == 0


def _quietly(*command: str) -> bool:
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    return subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, check=False).returncode == 0


def main() -> int:
    if find_chromium():
        return 0
    if _may_install_packages():
        print("installing Chromium for the tests that look at pages", flush=True)
        _quietly("apt-get", "-qq", "update")
        _quietly("apt-get", "-qq", "install", "--yes", "--no-install-recommends", "chromium")
    if not find_chromium():
        _quietly(sys.executable, "-m", "playwright", "install", "chromium")
    if not find_chromium():
        print("no Chromium could be installed: tests that look at pages will be skipped", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
