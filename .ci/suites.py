"""Writes envs/suites.json, the table of `jaxrl environments`: `python .ci/suites.py [SUITE]...`.

Without names, of every suite that is installed. Entries of other suites stay as they are. Gymnasium and
PettingZoo are left out: to describe one of their environments takes a process.
"""

from __future__ import annotations

import dataclasses
import json
import sys
import warnings
from typing import Any

from jaxrl.envs import catalogue, suites


def made(suite: suites.Collection) -> dict[str, Any]:
    """A suite of the table, from what is installed."""
    names = [name for name in catalogue.listed(suite) if name not in suites.registered(suite)]
    return {
        "version": suite.version,
        "environments": {name: _entry(f"{suite.name}:{name}") for name in names},
    }


def _entry(name: str) -> list[Any] | None:
    try:
        return list(dataclasses.astuple(catalogue.entry_of(name)))
    except ValueError as error:
        print(error, file=sys.stderr)
        return None


def text(table: dict[str, Any]) -> str:
    """The file: an environment per line, so that changes can be read."""
    written = []
    for name, suite in sorted(table.items()):
        entries = ",\n".join(
            f"{json.dumps(key)}: {json.dumps(x)}" for key, x in suite["environments"].items()
        )
        version = json.dumps(suite["version"])
        written.append(f'{json.dumps(name)}: {{"version": {version}, "environments": {{\n{entries}}}}}')
    return "{\n" + ",\n".join(written) + "\n}\n"


def main(*names: str) -> None:
    table = json.loads(suites.TABLE.read_text()) if suites.TABLE.exists() else {}
    for suite in map(suites.suite_of, names) if names else suites.SUITES:
        if suite.is_installed and suite.name not in suites.WITHOUT_TABLE:
            table[suite.name] = made(suite)
            print(f"{suite.name} {suite.version}: {len(table[suite.name]['environments'])} environments")
    suites.TABLE.write_text(text(table))


if __name__ == "__main__":
    warnings.simplefilter("ignore")  # of the suites' own
    main(*sys.argv[1:])
