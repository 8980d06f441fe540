"""Additions of `make docs` to the pages of docs/: the reference, from the code, and links that work."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
import textwrap
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

import jaxrl
from jaxrl.commands import COMMANDS, module_of
from jaxrl.config.declarations import declared_fields, section_meanings
from jaxrl.config.fields import Field, describe

ROOT = Path(__file__).parents[1]
CONFIGS = sorted((ROOT / "configs").glob("*.py"))
_SECTION = re.compile(r"^(Args|Attributes|Raises|Returns|Yields):$")
# A page of the site for what lies beside docs/; other files of the checkout are named without a link.
_ELSEWHERE = {
    "README.md": "index.md",
    "configs": "reference/configs.md",
    "CHANGELOG.md": "reference/changelog.md",
}


# The part of the navigation for pages of a folder that mkdocs.yml does not list.
_PARTS = {"design": "Design", "tutorials": "Tutorials", "concepts": "Concepts"}


def on_config(config: MkDocsConfig) -> None:
    """Gives every page a place, since a new one needs no line in mkdocs.yml, and links to the repository."""
    if address := repository((ROOT / "pyproject.toml").read_text()):
        config.repo_url, config.edit_uri = address, "edit/main/docs/"
    parts = {name: pages for part in config.nav for name, pages in part.items()}
    listed = set(_listed(config.nav))
    for path in sorted((ROOT / "docs").rglob("*.md")):
        page = path.relative_to(ROOT / "docs")
        if page.as_posix() not in listed:
            parts[_PARTS.get(page.parts[0], "How-to")].append(page.as_posix())


def repository(pyproject: str) -> str:
    """The address that a pyproject.toml gives for its repository; "" if it gives none."""
    urls = tomllib.loads(pyproject)["project"].get("urls", {})
    return next((url for name, url in urls.items() if name.lower() in ("repository", "source")), "")


def _listed(entry: Any) -> Iterator[str]:
    """The pages under an entry of the navigation."""
    if isinstance(entry, str):
        yield entry
    else:
        for part in entry.values() if isinstance(entry, dict) else entry:
            yield from _listed(part)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages that are made from the code."""
    pages = {
        "fields": fields_page(),
        "commands": commands_page(),
        "python": python_page(),
        "modules": modules_page(),
        "configs": configs_page(),
        "changelog": (ROOT / "CHANGELOG.md").read_text(),
    }
    for name, text in pages.items():
        files.append(File.generated(config, f"reference/{name}.md", content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Points links out of docs/ to a page of the site, or leaves their text."""
    folder = ROOT / "docs" / Path(page.file.src_uri).parent

    def link(found: re.Match[str]) -> str:
        text, target, anchor = found[1], found[2], found[3] or ""
        if "://" in target or not target:
            return found[0]
        path = (folder / target).resolve()
        if path.is_relative_to(ROOT / "docs") or not path.is_relative_to(ROOT):
            return found[0]
        place = _ELSEWHERE.get(path.relative_to(ROOT).parts[0])
        if place is None:
            return text
        up = "../" * len(Path(page.file.src_uri).parent.parts)
        # Headings of the README are not those of the page in its place.
        return f"[{text}]({up}{place}{'' if place == 'index.md' else anchor})"

    return re.sub(r"(?<!!)\[([^\]]*)\]\(([^)#\s]*)(#[^)]*)?\)", link, markdown)


def fields_page() -> str:
    """Every field of the configuration, by section."""
    lines = [
        "# Configuration fields",
        "",
        "Each is set with `--config.NAME=VALUE`, or in a config file. `jaxrl train --help=all` prints all.",
    ]
    meanings, last = section_meanings(), None
    for name, field in declared_fields().items():
        section = name.rpartition(".")[0]
        if section != last:
            title = f"## {section}\n\n{meanings[section]}" if section else "## Without a section"
            lines += ["", title, "", "| field | default | meaning |", "|---|---|---|"]
            last = section
        lines.append(_field_row(name, field))
    return "\n".join(lines)


def _field_row(name: str, field: Field) -> str:
    rules = [f"must {rule.text}" for rule in field.rules]
    kept = ["a resumed run keeps it"] if field.fixed else []
    facts = _cell("; ".join([describe(field.kind), *rules, *kept]))
    return f"| `{name}` | `{field.default!r}` | {_cell(field.help)} <small>({facts})</small> |"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("*", "\\*").replace("<", "&lt;")


def commands_page() -> str:
    """The help of every command."""
    lines = ["# Commands", "", "`jaxrl COMMAND --help` prints the same."]
    for name in COMMANDS:
        lines += ["", f"## {name}", "", "```text", str(module_of(name).__doc__).strip(), "```"]
    return "\n".join(lines)


def configs_page() -> str:
    """The shipped configs, whole."""
    lines = [
        "# Shipped configs",
        "",
        "`jaxrl train NAME` trains one; `--print-config` prints every field of it.",
    ]
    for path in CONFIGS:
        lines += ["", f"## {path.stem}", "", "```python", path.read_text().rstrip(), "```"]
    return "\n".join(lines)


def python_page() -> str:
    """The public names of `import jaxrl`."""
    lines = ["# Python", "", "What `import jaxrl` offers. [Modules](modules.md) lists everything else."]
    for name in jaxrl.__all__:
        thing = getattr(jaxrl, name)
        if isinstance(thing, str):
            continue
        lines += ["", f"## {name}", "", "```python", _signature(name, thing), "```", ""]
        lines += [_documented(inspect.getdoc(thing) or "")]
        if inspect.isclass(thing):
            for method, text in _methods(thing):
                lines += ["", f"### {name}.{method}", "", text]
    return "\n".join(lines)


def _signature(name: str, thing: Any) -> str:
    """`name(a: int, b: str = "x") -> T`, on several lines if it is long."""
    try:
        found = inspect.signature(thing)
    except (TypeError, ValueError):
        return f"{name}(...)"
    parts = [_parameter(parameter) for parameter in found.parameters.values() if parameter.name != "cls"]
    returns = "" if found.return_annotation is found.empty else f" -> {_type(found.return_annotation)}"
    line = f"{name}({', '.join(parts)}){returns}"
    if len(line) <= 88:
        return line
    return f"{name}(\n" + "".join(f"    {part},\n" for part in parts) + f"){returns}"


def _parameter(parameter: inspect.Parameter) -> str:
    stars = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
    text = f"{stars}{parameter.name}"
    if parameter.annotation is not parameter.empty:
        text += f": {_type(parameter.annotation)}"
    if parameter.default is not parameter.empty:
        text += (
            f" = {_type(parameter.default) if inspect.isclass(parameter.default) else parameter.default!r}"
        )
    return text


def _type(annotation: Any) -> str:
    return annotation if isinstance(annotation, str) else getattr(annotation, "__name__", repr(annotation))


def _methods(cls: type) -> Iterator[tuple[str, str]]:
    for method, thing in vars(cls).items():
        inner = getattr(thing, "__func__", thing)
        if method.startswith("_") or not inspect.isfunction(inner) or not inner.__doc__:
            continue
        yield (
            method,
            f"```python\n{_signature(method, inner)}\n```\n\n{_documented(inspect.getdoc(inner) or '')}",
        )


def _documented(text: str) -> str:
    """A docstring as Markdown: its sections become bold words with a list under them."""
    done: list[str] = []
    inside = False
    for line in text.splitlines():
        if found := _SECTION.match(line):
            inside = True
            done += ["", f"**{found[1]}**", ""]
        elif inside and (item := re.match(r"^  (\S[^:]*): (.*)$", line)):
            done.append(f"- `{item[1]}`: {item[2]}")
        elif inside and line.startswith("  "):
            done.append(line)
        else:
            inside = inside and not line
            done.append(line)
    return "\n".join(done)


@dataclasses.dataclass(frozen=True)
class Definition:
    """A public function or class of a module."""

    title: str
    meaning: str


def modules_page() -> str:
    """Every public function and class, by module, from the sources."""
    lines = ["# Modules", "", "Every public function and class, with the first line of its documentation."]
    last = ""
    for package in ("jaxrl", "envs"):
        for path in sorted((ROOT / package).rglob("*.py")):
            name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
            name = name if package == "jaxrl" else f"jaxrl.{name}"
            if "shipped" in name or "__main__" in name:
                continue
            tree = ast.parse(path.read_text())
            found = list(_definitions(tree))
            if not found:
                continue
            room = ".".join(name.split(".")[:2])
            if room != last:
                lines += ["", f"## {room}"]
                last = room
            lines += ["", f"### {name}", "", _first_line(ast.get_docstring(tree)), ""]
            lines += [f"- `{d.title}`" + (f": {d.meaning}" if d.meaning else "") for d in found]
    return "\n".join(lines)


def _definitions(tree: ast.Module) -> Iterator[Definition]:
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield Definition(f"class {node.name}", _first_line(ast.get_docstring(node)))
        elif isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
            arguments = ", ".join(
                a.arg for a in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)
            )
            yield Definition(f"{node.name}({arguments})", _first_line(ast.get_docstring(node)))


def _first_line(text: str | None) -> str:
    paragraph = textwrap.dedent(text or "").strip().partition("\n\n")[0]
    return " ".join(paragraph.split()).replace("<", "&lt;")
