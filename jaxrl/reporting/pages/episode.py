"""The page of one episode: self-contained, to be stepped through without a server."""

from __future__ import annotations

import base64
import hashlib
import html
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jaxrl.config.version import __version__

_FOLDER = Path(__file__).parent


def episode_page(facts: Mapping[str, str], rows: Sequence[Mapping[str, Any]]) -> str:
    """The page; `rows` are steps as JSON values, `facts` describe the episode.

    Nothing in it is taken for HTML or a script: texts are escaped, and `<` stands nowhere in the data.
    """
    said = "".join(f"<dt>{html.escape(name)}</dt><dd>{html.escape(x)}</dd>" for name, x in facts.items())
    data = json.dumps(list(rows), separators=(",", ":")).replace("<", "\\u003c")
    page = _page_with_script()
    for name, content in {"FACTS": said, "VERSION": __version__, "DATA": data}.items():
        page = page.replace(f"<!--{name}-->", content, 1)
    return page


def script_source() -> str:
    """The source, in a Content-Security-Policy, that lets the script of these pages run and no other."""
    script = _page_with_script().rpartition("<script>")[2].partition("</script>")[0]
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"


def _page_with_script() -> str:
    script = (_FOLDER / "episode.js").read_text()
    return (_FOLDER / "episode.html").read_text().replace("<!--SCRIPT-->", script, 1)
