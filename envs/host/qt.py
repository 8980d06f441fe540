"""Qt 5 for Procgen, which draws with it: from the system, or from the wheel PyQt5-Qt5."""

from __future__ import annotations

import ctypes
import importlib.util
import sys
from pathlib import Path

# In the order in which they need one another.
_LIBRARIES = ("libicudata.so.56", "libicuuc.so.56", "libicui18n.so.56", "libQt5Core.so.5", "libQt5Gui.so.5")


def load(label: str) -> bool:
    """Makes sure that the process has Qt, from the system or else from the wheel; outside Linux does nothing.

    Returns:
      Whether the wheel's was loaded just now, so that an import that failed before can succeed.

    Raises:
      ImportError: neither is installed; the message names what to install.
    """
    if not sys.platform.startswith("linux") or _load(["libQt5Gui.so.5"]):  # the wheel's too, if loaded before
        return False
    try:
        spec = importlib.util.find_spec("PyQt5.Qt5")
    except ModuleNotFoundError:
        spec = None
    folders = [Path(folder, "lib") for folder in (spec.submodule_search_locations or ())] if spec else []
    if not any(_load([str(folder / name) for name in _LIBRARIES]) for folder in folders):
        raise ImportError(
            f"{label} needs the libraries of Qt 5: pip install PyQt5-Qt5, "
            "or on Debian and Ubuntu: apt install libqt5gui5"
        )
    return True


def _load(libraries: list[str]) -> bool:
    try:
        for library in libraries:
            ctypes.CDLL(library, ctypes.RTLD_GLOBAL)
    except OSError:
        return False
    return True
