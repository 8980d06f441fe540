"""The page of a server's paths for people: spaces, limits, and commands that can be copied."""

from __future__ import annotations

import html
import json
import shlex
from collections.abc import Mapping
from typing import Any

# The page runs nothing and loads nothing.
POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)
_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #1b1f24; }
body { max-width: 56rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.3rem; overflow-wrap: anywhere; } h2 { font-size: 1rem; margin-top: 1.6rem; }
pre { background: #f6f8fa; padding: .7rem .9rem; border-radius: 6px; overflow-x: auto; font-size: .85rem; }
p { color: #57606a; margin: .2rem 0 .6rem; }
"""


def page(facts: Mapping[str, Any], document: Mapping[str, Any], example: Any, has_token: bool) -> str:
    """The page, as HTML.

    Args:
      facts: the content of /spec.
      document: the OpenAPI document.
      example: an observation, as JSON values; None if it would fill pages.
      has_token: if requests must have a token.
    """
    parts = [f"<h1>{html.escape(str(facts['model']))}</h1>"]
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            parts.append(f"<h2>{method.upper()} {html.escape(path)}</h2>")
            parts.append(f"<p>{html.escape(operation['summary'])}</p>")
            parts.append(_block(_command(path, method, facts, example, has_token)))
    parts.append("<h2>Spaces and limits</h2>")
    parts.append(_block(json.dumps({name: facts[name] for name in ("spaces", "limits")}, indent=2)))
    parts.append("<p>The same for programs: /spec, and /openapi.json (OpenAPI 3.1).</p>")
    title = html.escape(str(facts["model"]))
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f"<style>{_STYLE}</style></head><body>{''.join(parts)}</body></html>"
    )


def _command(path: str, method: str, facts: Mapping[str, Any], example: Any, has_token: bool) -> str:
    """A curl command for a path; the address of the server is the variable `SERVER`."""
    words = ["curl"]
    if has_token:
        words.append('-H "Authorization: Bearer $JAXRL_SERVE_TOKEN"')
    if method == "post":
        body: dict[str, Any] = {"session": "me"} if path == "/reset" or facts["remembers"] else {}
        if path == "/act":
            # This one request is enough; later ones of the same episode leave `reset` out.
            body |= {"obs": example, **({"reset": True} if facts["remembers"] else {})}
        large = path == "/act" and example is None
        words.append("-H 'Content-Type: application/json'")
        words.append(f"-d {'@request.json' if large else shlex.quote(json.dumps(body))}")
    return " ".join([*words, f"$SERVER{path}"])


def _block(text: str) -> str:
    return f"<pre>{html.escape(text)}</pre>"
