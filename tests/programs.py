"""Programs that tests run: a Chromium for those that look at pages, a JavaScript engine for the browser module, Java.

``python tests/programs.py`` installs a Chromium unless there is one. Tried in this order: what is on the path or was
installed by playwright; the system's packages, if we may install them; playwright's own download.
``python tests/programs.py java`` installs the Java that Spark needs, from the system's packages, and fails without it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

#: what Debian and Ubuntu call a Java without a screen; Spark needs 17 or later
_JAVA_PACKAGES = ("openjdk-17-jre-headless", "openjdk-21-jre-headless", "default-jre-headless")
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


def find_java() -> str | None:
    """Return the path of a Java: the one that JAVA_HOME names, as Spark looks for it, or the one on the path."""
    home = os.environ.get("JAVA_HOME")
    return shutil.which("java", path=str(Path(home) / "bin")) if home else shutil.which("java")


def _may_install_packages() -> bool:
    return shutil.which("apt-get") is not None and hasattr(os, "geteuid") and os.geteuid() == 0


def _quietly(*command: str) -> bool:
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    return subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, check=False).returncode == 0


def _install_java() -> int:
    if not find_java() and _may_install_packages():
        print("installing Java for the tests of Spark", flush=True)
        _quietly("apt-get", "-qq", "update")
        for package in _JAVA_PACKAGES:
            if _quietly("apt-get", "-qq", "install", "--yes", "--no-install-recommends", package):
                break
    if find_java():
        return 0
    print("the tests of Spark need Java 17 or later, which could not be installed: install it", file=sys.stderr)
    return 1


def _install_chromium() -> int:
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
    sys.exit(_install_java() if sys.argv[1:] == ["java"] else _install_chromium())
