"""Folders that a registry takes for models: files of any content, with their checksums."""

from __future__ import annotations

import json
from pathlib import Path

from jaxrl.runs.registry import write_checksums


def model(folder: Path, content: str, files: int = 2) -> Path:
    folder.mkdir(parents=True)
    (folder / "model.json").write_text(json.dumps({"content": content}))
    for i in range(files):
        (folder / f"arrays_{i}.bin").write_bytes(content.encode() * 1000)
    write_checksums(folder)
    return folder
