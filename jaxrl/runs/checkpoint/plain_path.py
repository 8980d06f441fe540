"""A path in plain characters for a folder whose own path Orbax or tensorstore would misread."""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
from collections.abc import Iterator

from etils import epath

from jaxrl.runs import storage

# Orbax looks for its files with `glob`, which takes brackets and backslashes for a pattern, and tensorstore
# takes UTF-8 only.
_PLAIN = re.compile(r"[\w./ +,=@~^-]*")


@contextlib.contextmanager
def plain_path(folder: epath.Path) -> Iterator[epath.Path]:
    """A path to `folder` in plain characters during the block: its own, or a symbolic link to it."""
    if storage.is_remote(folder) or _PLAIN.fullmatch(os.fspath(folder)):
        yield folder
        return
    with tempfile.TemporaryDirectory(prefix="jaxrl-") as place:
        link = os.path.join(place, "folder")
        os.symlink(os.path.abspath(folder), link)
        yield epath.Path(link)
