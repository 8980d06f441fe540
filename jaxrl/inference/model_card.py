"""MODEL.md: what a model is, how good it is and where it comes from, in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jaxrl.config import Config
from jaxrl.config.text import count, number, one_line
from jaxrl.evaluation.result import cut


def text(record: Mapping[str, Any], config: Config) -> str:
    """The card, in Markdown, of the content of model.json."""
    origin = record["provenance"]
    environment = record["environment"]
    facts = {
        "environment": environment["name"],
        "wrappers": ", ".join(environment["wrappers"]) or "none",
        "algorithm": record["algorithm"],
        "network": f"{config.network.encoder} encoder, {config.network.core} core",
        "licence": record["licence"],
        "run": origin["run"],
        "identity of the run": origin["identity"] or "unknown",
        "step": f"{origin['step']:,}",
        "seed": origin["seed"],
        "commit": _commit(origin["trained_from"]),
        "data": _data(origin["data"]),
        "deployed by": f"{origin['command']} on {origin['host']}",
    }
    lines = ["# Model card", "", "| | |", "|---|---|"]
    lines += [f"| {name} | {_cell(value)} |" for name, value in facts.items()]
    lines += ["", "## Evaluation", ""]
    if record["evaluation"]:
        lines += ["| metric | value |", "|---|---|"]
        lines += [f"| {_cell(name)} | {_number(value)} |" for name, value in record["evaluation"].items()]
        lines += ["", "Greedy episodes in the environment above, played before the deployment."]
        if said := cut(record["evaluation"].get("unfinished", 0), record["evaluation"]["episodes"]):
            lines += ["", f"{said}. Their returns are of what was played."]
    else:
        lines.append("None was made.")
    if record["gates"]:
        lines += ["", f"Conditions that held: {_cell(', '.join(record['gates']))}."]
    lines += [
        "",
        "## Formats",
        "",
        "| format | files | observations | differing actions |",
        "|---|---|---|---|",
    ]
    for kind, form in record["forms"].items():
        check = record["checks"][kind]
        rows = check["steps"] * check["environments"]
        lines.append(f"| {kind} | {', '.join(form['files'])} | {rows} | {check['different_actions']} |")
    for kind, why in record["left_out"].items():
        lines += ["", f"No {kind}: {_cell(why)}"]
    lines += [
        "",
        "`policy.json` and `spaces.json` describe the files and their arguments; `checksums.json` has the",
        "SHA-256 of each. `jaxrl serve` answers by whichever format is fastest.",
        "",
    ]
    return "\n".join(lines)


def _commit(found: Mapping[str, Any]) -> str:
    said = [
        f"{place} {entry.get('commit')}{'' if entry.get('clean') else ' with changes'}"
        for place, entry in found.items()
        if isinstance(entry, Mapping)
    ]
    return "; ".join(said) or "unknown"


def _data(found: Mapping[str, Any]) -> str:
    """The demonstrations that were learnt from, as `clones.data_of` has them."""
    if not found:
        return "none recorded"
    said = [f"{count(found[name])} {name}" for name in ("episodes", "steps") if name in found]
    said += [f"played by {', '.join(map(str, found['players']))}"] if found.get("players") else []
    said += [f"digest {found['digest']}"] if "digest" in found else []
    return ", ".join([found["folder"], *said, f"learnt in {found['run']}"])


def _number(value: float) -> str:
    return count(value) if float(value).is_integer() else number(value)


def _cell(value: object) -> str:
    """Text of anyone in one cell, without Markdown or HTML of its own."""
    shown = one_line(value)
    for character, escaped in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ("|", "\\|"), ("`", "\\`")):
        shown = shown.replace(character, escaped)
    return shown
