"""A server's description of itself: model, spaces and limits, OpenAPI document, and a page for people."""

from __future__ import annotations

import html
import json
import shlex
from collections.abc import Mapping
from typing import Any

from jaxrl.config.version import __version__
from jaxrl.inference.serving import ServerOptions
from jaxrl.inference.serving.arrays_of_spaces import object_of, schema
from jaxrl.inference.serving.served_policy import ServedPolicy

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


def describe(policy: ServedPolicy, options: ServerOptions, largest_body: int) -> dict[str, Any]:
    """The content of /spec."""
    facts = policy.facts
    return {
        "model": facts.label,
        "environment": facts.record.get("environment"),
        "provenance": {key: facts.record.get("provenance", {}).get(key) for key in ("identity", "step")},
        "spaces": facts.spaces,
        "remembers": policy.remembers,
        "runtime": policy.timings[0].kind,
        "seconds_a_pass": {t.kind: {str(n): s for n, s in t.seconds.items()} for t in policy.timings},
        "limits": {
            "rows": options.largest_batch,
            "body_bytes": largest_body,
            "sessions": options.sessions,
            "idle_seconds": options.idle_seconds,
        },
    }


def document(facts: Mapping[str, Any]) -> dict[str, Any]:
    """OpenAPI 3.1, of what `describe` returned."""
    spaces = facts["spaces"]
    obs = schema(spaces["observation"])
    action = schema(spaces["action"])
    name = {"type": "string", "maxLength": 128}
    asked: dict[str, Any] = {
        "session": {"oneOf": [name, {"type": "array", "items": name}]},
        "obs": {"oneOf": [obs, {"type": "array", "items": obs, "maxItems": facts["limits"]["rows"]}]},
        "reset": {"oneOf": [{"type": "boolean"}, {"type": "array", "items": {"type": "boolean"}}]},
    }
    if spaces["action_mask"]:
        asked["action_mask"] = {"type": "array", "items": {}}
    answered = {
        "action": {"oneOf": [action, {"type": "array", "items": action}]},
        "model": {"oneOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]},
    }
    required = ["session", "obs"] if facts["remembers"] else ["obs"]
    paths: dict[str, Any] = {
        "/act": _post("Chooses actions", object_of(asked, required), object_of(answered)),
        "/reset": _post(
            "Begins an episode, in a new session or in the one that is named; with `end` ends it",
            object_of({"session": name, "end": {"type": "boolean"}}),
            object_of({"session": name, "model": {"type": "string"}}),
        ),
    }
    for path, summary in (
        ("/healthz", "Answers while the process lives"),
        ("/readyz", "Answers 503 once the server is ending"),
        ("/metrics", "Counters for Prometheus"),
        ("/spec", "The model, its spaces and the limits"),
    ):
        paths[path] = {"get": {"summary": summary, "responses": {"200": {"description": "as said"}}}}
    return {
        "openapi": "3.1.0",
        "info": {"title": facts["model"], "version": __version__},
        "paths": paths,
        "components": {"securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
        "security": [{}, {"token": []}],
    }


def _post(summary: str, asked: dict[str, Any], answered: dict[str, Any]) -> dict[str, Any]:
    def body(schema: dict[str, Any]) -> dict[str, Any]:
        return {"content": {"application/json": {"schema": schema}}}

    refused = body(object_of({"error": {"type": "string"}}))
    responses = {
        "200": {"description": "done", **body(answered)},
        "4XX": {"description": "refused, in one line", **refused},
    }
    return {"post": {"summary": summary, "requestBody": body(asked), "responses": responses}}


def page(facts: Mapping[str, Any], document: Mapping[str, Any], example: Any, has_token: bool) -> str:
    """The page, as HTML, of the content of /spec and the OpenAPI document.

    Args:
      example: an observation, as JSON values; None if it would fill pages.
      has_token: if requests must have a token.
    """
    title = html.escape(str(facts["model"]))
    parts = [f"<h1>{title}</h1>"]
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            parts.append(f"<h2>{method.upper()} {html.escape(path)}</h2>")
            parts.append(f"<p>{html.escape(operation['summary'])}</p>")
            parts.append(_block(_command(path, method, facts, example, has_token)))
    parts.append("<h2>Spaces and limits</h2>")
    parts.append(_block(json.dumps({name: facts[name] for name in ("spaces", "limits")}, indent=2)))
    parts.append("<p>The same for programs: /spec, and /openapi.json (OpenAPI 3.1).</p>")
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
