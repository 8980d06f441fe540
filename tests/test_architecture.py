"""The rules of the layout that a program can check, read from the sources."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCES = sorted(p for package in ("jaxrl", "envs") for p in (ROOT / package).rglob("*.py"))
ALL_FILES = sorted({*SOURCES, *(p for d in ("tests", "configs") for p in (ROOT / d).rglob("*.py"))})
MAX_LINES = 400

# The rooms of jaxrl, from the lowest to the highest: a room imports from those below it, and never from
# another one of its own line. `envs` lies below all of them.
ROOMS = (
    ("types", "config"),
    ("networks", "metrics"),
    ("algorithms", "parallel"),
    ("rollout", "runs"),
    ("evaluation",),
    ("training", "inference"),
    ("diagnostics", "experiments"),
    ("commands",),
    ("main", "__main__"),
)
RANK = {room: rank for rank, line in enumerate(ROOMS) for room in line}
TOP_FILES = {"__init__.py", "__main__.py", "main.py", "types.py", "py.typed"}

MESH_NAMES = set(
    "Mesh NamedSharding PartitionSpec make_mesh pmap process_count process_index shard_map".split()
)
# Not among the core dependencies, or imported only where an environment of theirs is made.
OPTIONAL = set(
    "brax clu craftax envpool fpdf gcsfs gymnasium IPython jaxmarl jinja2 jumanji matplotlib mlflow "
    "mujoco_playground navix "
    "neptune onnx onnxruntime optuna pgx PIL popgym_arcade pynvml pytest rlax s3fs safetensors scipy seaborn "
    "sklearn tensorboard tensorflow torch wandb xminigrid xprof".split()
)


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(), str(path))


def imports(node: ast.AST) -> Iterator[str]:
    """Every imported module of absolute imports, `from a import b` as `a.b`."""
    for n in ast.walk(node):
        if isinstance(n, ast.Import):
            yield from (alias.name for alias in n.names)
        elif isinstance(n, ast.ImportFrom):
            assert n.level == 0, "imports are absolute"
            yield from (f"{n.module}.{alias.name}" for alias in n.names)


def top_level_imports(tree: ast.Module | ast.ClassDef) -> Iterator[str]:
    """Imports that run when the module is imported: outside functions and TYPE_CHECKING blocks."""
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        yield from top_level_imports(node) if isinstance(node, ast.ClassDef) else imports(node)


def room_of(path: Path) -> str:
    """`jaxrl/networks/cores.py` is of `networks`."""
    return path.relative_to(ROOT / "jaxrl").parts[0].removesuffix(".py")


def rooms_of(names: Iterator[str]) -> set[str]:
    return {name.split(".")[1] for name in names if name.startswith("jaxrl.")} & RANK.keys()


JAXRL_FILES = [p for p in SOURCES if p.parts[len(ROOT.parts)] == "jaxrl" and p != ROOT / "jaxrl/__init__.py"]
ENVS_FILES = [p for p in SOURCES if p.parts[len(ROOT.parts)] == "envs"]


def test_every_file_is_in_a_room() -> None:
    entries = {p.name for p in (ROOT / "jaxrl").iterdir() if p.name != "__pycache__"}
    assert entries - TOP_FILES == RANK.keys() - {"types", "main", "__main__"}


@pytest.mark.parametrize("path", JAXRL_FILES, ids=relative)
def test_imports_point_downward(path: Path) -> None:
    room = room_of(path)
    # Also inside functions: a lazy import upward is still one.
    for imported in rooms_of(imports(tree_of(path))) - {room}:
        allowed = RANK[imported] < RANK[room] or {room, imported} == {"types", "config"}
        assert allowed, f"jaxrl.{room} must not import jaxrl.{imported}"


@pytest.mark.parametrize("path", ENVS_FILES, ids=relative)
def test_environments_never_import_the_trainer(path: Path) -> None:
    assert not [name for name in imports(tree_of(path)) if name.split(".")[0] == "jaxrl"]


@pytest.mark.parametrize("path", [p for p in SOURCES if "jaxrl/parallel/" not in relative(p)], ids=relative)
def test_only_one_room_knows_the_mesh(path: Path) -> None:
    tree = tree_of(path)
    used = {n.attr for n in ast.walk(tree) if isinstance(n, ast.Attribute)}
    used |= {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)}
    used |= {name.split(".")[-1] for name in imports(tree)}
    assert not used & MESH_NAMES
    for name in [*imports(tree), *(ast.unparse(n) for n in ast.walk(tree) if isinstance(n, ast.Attribute))]:
        assert not f"{name}.".startswith(("jax.distributed.", "jax.experimental.multihost_utils."))


@pytest.mark.parametrize("path", SOURCES, ids=relative)
def test_optional_packages_are_imported_where_they_are_used(path: Path) -> None:
    roots = {name.split(".")[0] for name in top_level_imports(tree_of(path))}
    assert not roots & OPTIONAL


@pytest.mark.parametrize("path", ALL_FILES, ids=relative)
def test_file_fits_in_one_sitting(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= MAX_LINES


def test_class_names_are_unique() -> None:
    homes: dict[str, list[str]] = {}
    for path in SOURCES:
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes.setdefault(node.name, []).append(relative(path))
    assert not {name: found for name, found in homes.items() if len(found) > 1}


@pytest.mark.parametrize(
    "path", [p for p in JAXRL_FILES if "jaxrl/algorithms/ppo/" not in relative(p)], ids=relative
)
def test_only_the_algorithm_knows_its_fields_and_metrics(path: Path) -> None:
    """Nothing else reads `config.ppo` or writes a metric named `ppo/...`."""
    for node in ast.walk(tree_of(path)):
        assert not (isinstance(node, ast.Attribute) and node.attr == "ppo" and room_of(path) != "config")
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            assert not node.value.startswith("ppo/")


def test_rules_catch_what_they_forbid() -> None:
    """The parsers above see each form of import; without this a typing mistake would pass everything."""
    tree = ast.parse(
        "import jaxrl.training.trainer\n"
        "from jaxrl import algorithms\n"
        "from jaxrl.networks.cores import CORES\n"
        "from typing import TYPE_CHECKING\n"
        "if TYPE_CHECKING:\n    import wandb\n"
        "def f():\n    import envpool\n"
        "try:\n    import brax\nexcept ImportError:\n    pass\n"
        "class C:\n    import clu\n    def f(self):\n        import torch\n"
    )
    assert rooms_of(imports(tree)) == {"training", "algorithms", "networks"}
    roots = {name.split(".")[0] for name in top_level_imports(tree)}
    assert roots & OPTIONAL == {"brax", "clu"}
