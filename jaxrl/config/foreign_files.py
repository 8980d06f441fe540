"""Files and folders of other trainers in place of a run or a config of this one."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path

from jaxrl.config.data_files import LARGEST_FILE
from jaxrl.config.local_files import is_remote

_SB3 = "_stable_baselines3_version"  # a file in what `model.save` writes
_WEIGHTS = (".pt", ".pth", ".cleanrl_model", ".safetensors")


def described(path: str) -> str:
    """In words what a path holds, and what to do instead; "" if it is nothing known."""
    if is_remote(path) or not os.path.exists(path):
        return ""
    if os.path.isdir(path):
        if os.path.isfile(os.path.join(path, ".hydra", "config.yaml")):
            return (
                "is the folder of a run that Hydra configured: its parameters cannot be read here; the "
                "settings are in .hydra/config.yaml (docs/coming_from.md)"
            )
        return ""
    if path.endswith(_WEIGHTS):
        return "holds the parameters of another trainer's network, which cannot be read here; train again"
    if _is_sb3(path):
        return (
            "is a model of Stable-Baselines3, which cannot be read here; train again with "
            "its settings, or clone episodes that it plays (docs/coming_from.md, "
            "docs/imitation.md)"
        )
    return ""


def in_place_of_run(path: str) -> str:
    """As `described`, of what stands where the folder of a run should."""
    if found := described(path):
        return found
    if os.path.isfile(os.path.join(path, "policy.json")):
        return "is an exported policy, without the run: docs/export.md has how each format acts"
    if os.path.isfile(path):
        return "is a file, and a run is a folder; settings are read by jaxrl train --config=FILE"
    return "" if is_remote(path) else _beside_runs(Path(path))


def _beside_runs(path: Path) -> str:
    """As `in_place_of_run`, of a folder that is inside of a run, or holds some."""
    if not path.exists():
        return "is no folder"
    parents = path.absolute().parents
    for name, above in ((path.name, parents[0]), (parents[0].name, parents[1] if parents[1:] else path)):
        if name == "checkpoints" and _is_run(above):
            return f"is inside of the run {above}: name that"
    below = (file.parent for pattern in ("*", "*/*") for file in sorted(path.glob(f"{pattern}/config.json")))
    for run in filter(_is_run, below):
        return f"holds runs, such as {run}: name one of them"
    return ""


def _is_run(folder: Path) -> bool:
    return (folder / "config.json").is_file() and (folder / ".run").is_file()


def _is_sb3(path: str) -> bool:
    if os.path.getsize(path) > LARGEST_FILE:
        return path.endswith(".zip")
    try:
        with zipfile.ZipFile(path) as archive:
            return _SB3 in archive.namelist()
    except (OSError, ValueError, NotImplementedError, zipfile.BadZipFile):
        return False
