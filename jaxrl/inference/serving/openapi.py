"""A server's description of itself: the model, its spaces and limits, the OpenAPI document of its paths."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jaxrl.config.version import __version__
from jaxrl.inference.serving import space_schema
from jaxrl.inference.serving.served_policy import ServedPolicy
from jaxrl.inference.serving.server_options import ServerOptions


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
    obs = space_schema.schema(spaces["observation"])
    action = space_schema.schema(spaces["action"])
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
        "/act": {
            "post": _operation(
                "Chooses actions", space_schema.object_of(asked, required), space_schema.object_of(answered)
            )
        },
        "/reset": {
            "post": _operation(
                "Begins an episode, in a new session or in the one that is named; with `end` ends it",
                space_schema.object_of({"session": name, "end": {"type": "boolean"}}),
                space_schema.object_of({"session": name, "model": {"type": "string"}}),
            )
        },
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


def _operation(summary: str, asked: dict[str, Any], answered: dict[str, Any]) -> dict[str, Any]:
    error = space_schema.object_of({"error": {"type": "string"}})
    return {
        "summary": summary,
        "requestBody": {"content": {"application/json": {"schema": asked}}},
        "responses": {
            "200": {"description": "done", "content": {"application/json": {"schema": answered}}},
            "4XX": {
                "description": "refused, in one line",
                "content": {"application/json": {"schema": error}},
            },
        },
    }
