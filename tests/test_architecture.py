"""The rules of the layout that a program can check, read from the sources."""

from __future__ import annotations

import ast
import functools
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCES = sorted(p for package in ("jaxrl", "envs") for p in (ROOT / package).rglob("*.py"))
ALL_FILES = sorted({*SOURCES, *(p for d in ("tests", "configs") for p in (ROOT / d).rglob("*.py"))})
MAX_LINES = 400
MAX_LINES_OF_PACKAGES = 340
# One job, the face of a run: parting it would send readers back and forth.
LONGER = {"jaxrl/training/trainer.py"}

# The rooms of jaxrl, from the lowest to the highest: a room imports from those below it, and never from
# another one of its own line. `envs`, a link to the folder beside the package, imports none of the others.
ROOMS = (
    ("envs",),
    ("types", "config"),
    ("metrics", "parallel"),
    ("networks", "reporting"),
    ("algorithms",),
    ("experience", "runs"),
    ("evaluation",),
    ("programs", "inference"),
    ("training",),
    ("population",),
    ("search", "comparison", "diagnostics"),
    ("experiments", "pipeline"),
    ("commands",),
    ("main", "__main__"),
)
# Arrows: ordered pairs of rooms of which the first imports from the second (docs/design/0013-rooms.md).
# A change that needs one more says there what for; one that needs fewer lowers the bound.
MOST_ARROWS = 92
RANK = {room: rank for rank, line in enumerate(ROOMS) for room in line}
TOP_FILES = {"__init__.py", "__main__.py", "main.py", "types.py", "py.typed", "launch", "docs"}

MESH_NAMES = set(
    "Mesh NamedSharding PartitionSpec make_mesh pmap process_count process_index shard_map".split()
)
MESH_MODULES = ("jax.distributed.", "jax.experimental.multihost_utils.")
# Not among the core dependencies, or imported only where an environment of theirs is made.
OPTIONAL = set(
    "brax clu craftax envpool fpdf gcsfs gymnasium h5py httptools IPython jaxmarl jinja2 jumanji matplotlib "
    "mlflow mpe2 msgpack mujoco_playground navix neptune onnx onnxruntime openskill optuna pettingzoo pgx "
    "PIL plotly popgym_arcade prometheus_client pynvml pytest rlax s3fs safetensors scipy seaborn sklearn "
    "starlette tensorboard tensorflow torch uvicorn uvloop wandb xminigrid xprof".split()
)


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@functools.cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(), str(path))


@functools.cache
def nodes_of(path: Path) -> tuple[ast.AST, ...]:
    return tuple(ast.walk(tree_of(path)))


@functools.cache
def imports_of(path: Path) -> tuple[str, ...]:
    return tuple(imports(nodes_of(path)))


def imports(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """Every imported module of absolute imports, `from a import b` as `a.b`."""
    for n in nodes:
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
        yield from top_level_imports(node) if isinstance(node, ast.ClassDef) else imports(ast.walk(node))


def room_of(path: Path) -> str:
    """`jaxrl/networks/cores.py` is of `networks`."""
    return path.relative_to(ROOT / "jaxrl").parts[0].removesuffix(".py")


def nodes_that_run(nodes: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """The nodes, parents first, without those that only a type checker reads."""
    left_out: set[ast.AST] = set()
    for node in nodes:
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            left_out.update(ast.walk(node))
        if node not in left_out:
            yield node


def rooms_of(names: Iterable[str]) -> set[str]:
    return {name.split(".")[1] for name in names if name.startswith("jaxrl.")} & RANK.keys()


def breaches(paths: Iterable[Path], rule: Callable[[Path], Iterable[str]]) -> dict[str, list[str]]:
    """The breaches of a rule, by file."""
    return {relative(path): found for path in paths if (found := sorted(rule(path)))}


JAXRL_FILES = [p for p in SOURCES if p.parts[len(ROOT.parts)] == "jaxrl" and p != ROOT / "jaxrl/__init__.py"]
ENVS_FILES = [p for p in SOURCES if p.parts[len(ROOT.parts)] == "envs"]


def test_every_file_is_in_a_room() -> None:
    entries = {p.name for p in (ROOT / "jaxrl").iterdir() if p.name != "__pycache__"}
    assert entries - TOP_FILES == RANK.keys() - {"types", "main", "__main__"}


def test_imports_point_downward() -> None:
    def upward(path: Path) -> set[str]:
        room = room_of(path)
        # Also inside functions: a lazy import upward is still one.
        others = rooms_of(imports_of(path)) - {room}
        return {x for x in others if RANK[x] >= RANK[room]}

    assert not breaches(JAXRL_FILES, upward)


def test_arrows_between_rooms_do_not_grow() -> None:
    arrows = {
        (room_of(path), other)
        for path in JAXRL_FILES
        for other in rooms_of(imports(nodes_that_run(nodes_of(path)))) - {room_of(path)}
    }
    assert ("commands", "training") in arrows
    assert len(arrows) <= MOST_ARROWS, sorted(arrows)


def test_the_layout_names_every_room() -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text()
    layout = page.partition("has a room for each subject")[2].partition("| to find")[0]
    rooms = {room for room in RANK if (ROOT / "jaxrl" / room).is_dir()} - {"envs"}
    assert set(re.findall(r"\b(\w+)/", layout)) == rooms


def test_the_environments_have_one_name() -> None:
    done = subprocess.run([sys.executable, "-c", "import envs"], cwd=ROOT, capture_output=True, text=True)
    assert "imported as `jaxrl.envs`" in done.stderr.splitlines()[-1]


def test_environments_never_import_the_trainer() -> None:
    assert not breaches(
        ENVS_FILES, lambda path: {name for name in imports_of(path) if re.match(r"jaxrl\b(?!\.envs\b)", name)}
    )


def test_only_one_room_knows_the_mesh() -> None:
    def used(path: Path) -> set[str]:
        attributes = [n for n in nodes_of(path) if isinstance(n, ast.Attribute)]
        names = {n.attr for n in attributes} | {n.id for n in nodes_of(path) if isinstance(n, ast.Name)}
        names |= {name.split(".")[-1] for name in imports_of(path)}
        last = {module.split(".")[-2] for module in MESH_MODULES}
        dotted = {*imports_of(path), *(ast.unparse(n) for n in attributes if n.attr in last)}
        return names & MESH_NAMES | {name for name in dotted if f"{name}.".startswith(MESH_MODULES)}

    assert not breaches((p for p in SOURCES if "jaxrl/parallel/" not in relative(p)), used)


def test_optional_packages_are_imported_where_they_are_used() -> None:
    def eager(path: Path) -> set[str]:
        return {name.split(".")[0] for name in top_level_imports(tree_of(path))} & OPTIONAL

    assert not breaches(SOURCES, eager)


def test_files_fit_in_one_sitting() -> None:
    lengths = {relative(path): len(path.read_text().splitlines()) for path in ALL_FILES}
    assert not {name: length for name, length in lengths.items() if length > MAX_LINES}
    packages = {relative(path) for path in SOURCES} - LONGER
    assert not {name: lengths[name] for name in packages if lengths[name] > MAX_LINES_OF_PACKAGES}
    assert not {name for name in LONGER if lengths[name] <= MAX_LINES_OF_PACKAGES}


def test_class_names_are_unique() -> None:
    homes: dict[str, list[str]] = {}
    for path in SOURCES:
        for node in nodes_of(path):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes.setdefault(node.name, []).append(relative(path))
    assert not {name: found for name, found in homes.items() if len(found) > 1}


# Modules or packages, by the registry.
ALGORITHMS = set(
    re.findall(r'"jaxrl\.algorithms\.(\w+)[.:]', (ROOT / "jaxrl/algorithms/registry.py").read_text())
)


def owner_of(path: Path) -> str:
    """`jaxrl/algorithms/ppo/losses.py` is of `ppo`, `jaxrl/algorithms/a2c.py` of `a2c`; else ""."""
    parts = path.relative_to(ROOT).parts
    name = parts[2].removesuffix(".py") if parts[:2] == ("jaxrl", "algorithms") else ""
    return name if name in ALGORITHMS else ""


def private_uses(nodes: Iterable[ast.AST], algorithms: set[str]) -> Iterator[str]:
    """Reads of `config.ALGORITHM`, and metrics named `ALGORITHM/...`."""
    for node in nodes:
        if isinstance(node, ast.Attribute) and node.attr in algorithms:
            yield ast.unparse(node)
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            name, slash, _ = node.value.partition("/")
            if slash and name in algorithms:
                yield node.value


def test_only_an_algorithm_knows_its_fields_and_metrics() -> None:
    """Nothing else reads `config.ppo` or writes a metric named `ppo/...`, nor do other algorithms."""
    assert len(ALGORITHMS) == 8
    packages = {p.parent.name for p in (ROOT / "jaxrl/algorithms").glob("*/__init__.py")}
    assert packages | {"a2c"} <= ALGORITHMS

    def known(path: Path) -> Iterator[str]:
        for used in private_uses(nodes_of(path), ALGORITHMS - {owner_of(path)}):
            # The configuration declares the sections.
            if room_of(path) != "config" or "/" in used:
                yield used

    assert not breaches(JAXRL_FILES, known)


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
    assert rooms_of(imports(ast.walk(tree))) == {"training", "algorithms", "networks"}
    assert "wandb" in set(imports(ast.walk(tree)))
    assert set(imports(nodes_that_run(ast.walk(tree)))) == {*imports(ast.walk(tree))} - {"wandb"}
    roots = {name.split(".")[0] for name in top_level_imports(tree)}
    assert roots & OPTIONAL == {"brax", "clu"}
    tree = ast.parse(
        'clip = self.config.ppo.clip_range\nmetrics["ppo/approx_kl"] = ppo.reports("loss/ppo")\n'
    )
    assert set(private_uses(ast.walk(tree), {"ppo"})) == {"self.config.ppo", "ppo/approx_kl"}
    assert owner_of(ROOT / "jaxrl/algorithms/ppo/losses.py") == "ppo"
    assert owner_of(ROOT / "jaxrl/algorithms/a2c.py") == "a2c"
    for path in ("jaxrl/algorithms/minibatches.py", "jaxrl/config/replay.py"):
        assert owner_of(ROOT / path) == ""
