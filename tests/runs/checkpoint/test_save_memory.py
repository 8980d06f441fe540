"""The memory that each save keeps is tensorstore's; docs/troubleshooting.md names it."""

from __future__ import annotations

import sys

import tensorstore as ts


def test_tensorstore_loses_references_to_what_its_json_holds() -> None:
    """Fails once that is mended: then the paragraph in docs/troubleshooting.md can go."""
    (path,) = (x for x in ts.KvStore.Spec({"driver": "file", "path": "/x/y/"}).to_json().values() if "/" in x)
    held = 2  # `path` and the argument of getrefcount; the object around it is gone
    assert sys.getrefcount(path) > held
