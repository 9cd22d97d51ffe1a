"""A copy of the repository in which mutants are made: the work tree stays as it is, and may be edited meanwhile."""

from __future__ import annotations

import compileall
import os
import py_compile
import shutil
import subprocess
from pathlib import Path

TOOLS = Path(__file__).resolve().parents[2]

#: one thread each, so that the processor seconds of a test mean the same everywhere
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")


def copy_tree(root: Path, tree: Path) -> None:
    """Make the copy equal to the files that git knows or would add; files that are equal keep their time."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=root,
        capture_output=True,
        check=True,
    ).stdout.decode()
    wanted = {name for name in listed.split("\0") if name and (root / name).is_file()}
    for name in wanted:
        old, new = root / name, tree / name
        if not new.is_file() or new.read_bytes() != old.read_bytes():
            new.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(old, new)
    for path in sorted(tree.rglob("*.py")):
        if path.relative_to(tree).as_posix() not in wanted:
            path.unlink()
    # compiled files that are compared by content: a mutant may have the size and the time of the original
    compileall.compile_dir(tree / "src", quiet=1, invalidation_mode=py_compile.PycInvalidationMode.CHECKED_HASH)


def environment(tree: Path) -> dict[str, str]:
    """Return the environment of a process that shall import dperm from the copy."""
    paths = os.pathsep.join([str(tree / "src"), str(TOOLS)])
    # no test needs a plugin of another package, and finding them takes a second each time
    return {**os.environ, **ONE_THREAD, "PYTHONPATH": paths, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}


def sources(tree: Path) -> dict[str, str]:
    """Return the text of every file of the library, by its path below ``src/dperm``."""
    source = tree / "src" / "dperm"
    return {path.relative_to(source).as_posix(): path.read_text("utf-8") for path in sorted(source.rglob("*.py"))}
