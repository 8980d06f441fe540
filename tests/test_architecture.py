"""The rules of the layout, read from the sources: what may import what, and how long a file may be."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCES = sorted(p for package in ("jaxrl", "envs") for p in (ROOT / package).rglob("*.py"))
ALL_FILES = sorted({*SOURCES, *(p for d in ("tests", "configs") for p in (ROOT / d).rglob("*.py"))})
MAX_LINES = 400
MAX_MAIN_LINES = 60

# Modules of jaxrl from the lowest layer to the highest. A module may import from its own layer and from
# those below; `envs` lies below all of them. Packages count as one module.
LAYERS = (
    ("fields", "interrupt", "processes", "schema", "config", "tpu_slices", "types"),
    (
        "advantage",
        "agreement",
        "clock",
        "compiling",
        "distributions",
        "hlo",
        "losses",
        "metrics",
        "normalize",
        "optim",
        "pipeline",
        "profiling",
        "recorded",
        "resources",
        "rows",
        "sequences",
        "storage",
        "traced",
        "traces",
        "watchdog",
    ),
    ("networks", "sharding"),
    ("checkpoint", "rollout", "run_folder", "update"),
    (
        "evaluation",
        "functional",
        "host_evaluation",
        "host_program",
        "iteration",
        "keeper",
        "nonfinite",
        "sharded",
        "trained",
        "warm_start",
    ),
    ("host_runtime",),
    ("runtimes",),
    ("comparison", "fitting", "inference", "learner", "timing", "watching"),
    ("suites",),
    (
        "benchmark",
        "cli",
        "compare",
        "doctor",
        "evaluate",
        "export",
        "health",
        "inference_benchmark",
        "main",
        "preflight",
        "profile_summary",
        "run",
        "sync",
        "trial",
        "verify_checkpoint",
        "watch",
    ),
)
RANK = {module: rank for rank, layer in enumerate(LAYERS) for module in layer}

SHARDING_NAMES = set(
    "Mesh NamedSharding PartitionSpec make_mesh pmap process_count process_index shard_map".split()
)
# Not among the core dependencies, or imported only where an environment of theirs is made.
OPTIONAL = set(
    "brax clu craftax envpool fpdf gcsfs gymnasium jaxmarl jinja2 jumanji matplotlib mlflow navix neptune "
    "onnx onnxruntime pgx PIL pynvml pytest rlax s3fs safetensors scipy seaborn tensorboard tensorflow "
    "torch wandb xminigrid xprof".split()
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


def module_of(path: Path) -> str:
    """`jaxrl/networks/cores.py` is of `networks`, `jaxrl/config.py` is `config`."""
    return path.relative_to(ROOT / "jaxrl").parts[0].removesuffix(".py")


def parts_of_jaxrl(names: Iterator[str]) -> set[str]:
    return {name.split(".")[1] for name in names if name.startswith("jaxrl.")}


JAXRL_FILES = [p for p in SOURCES if p.parts[len(ROOT.parts)] == "jaxrl" and p != ROOT / "jaxrl/__init__.py"]


@pytest.mark.parametrize("path", JAXRL_FILES, ids=relative)
def test_imports_point_downward(path: Path) -> None:
    module = module_of(path)
    assert module in RANK, f"give jaxrl.{module} a layer in {relative(Path(__file__))}"
    # Also inside functions: a lazy import upward is still one.
    for imported in parts_of_jaxrl(imports(tree_of(path))):
        assert imported in RANK or imported.startswith("__"), f"jaxrl.{imported} has no layer"
        if imported in RANK:
            assert RANK[imported] <= RANK[module], f"jaxrl.{module} is below jaxrl.{imported}"


def test_no_two_modules_import_each_other() -> None:
    """Within a layer too: the graph of modules has no cycle."""
    graph: dict[str, set[str]] = {}
    for path in JAXRL_FILES:
        module = module_of(path)
        graph.setdefault(module, set()).update(parts_of_jaxrl(imports(tree_of(path))) - {module})
    while leaves := [m for m, needs in graph.items() if not needs & graph.keys()]:
        for leaf in leaves:
            del graph[leaf]
    assert not graph, f"cycle among {sorted(graph)}"


@pytest.mark.parametrize("path", [p for p in SOURCES if p.parts[len(ROOT.parts)] == "envs"], ids=relative)
def test_environments_never_import_the_trainer(path: Path) -> None:
    assert not [name for name in imports(tree_of(path)) if name.split(".")[0] == "jaxrl"]


@pytest.mark.parametrize("path", [p for p in SOURCES if relative(p) != "jaxrl/sharding.py"], ids=relative)
def test_only_sharding_knows_the_mesh(path: Path) -> None:
    tree = tree_of(path)
    used = {n.attr for n in ast.walk(tree) if isinstance(n, ast.Attribute)}
    used |= {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)}
    used |= {name.split(".")[-1] for name in imports(tree)}
    assert not used & SHARDING_NAMES
    for name in [*imports(tree), *(ast.unparse(n) for n in ast.walk(tree) if isinstance(n, ast.Attribute))]:
        assert not f"{name}.".startswith(("jax.distributed.", "jax.experimental.multihost_utils."))


@pytest.mark.parametrize("path", SOURCES, ids=relative)
def test_optional_packages_are_imported_where_they_are_used(path: Path) -> None:
    roots = {name.split(".")[0] for name in top_level_imports(tree_of(path))}
    assert not roots & OPTIONAL


@pytest.mark.parametrize("path", ALL_FILES, ids=relative)
def test_file_fits_in_one_sitting(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= MAX_LINES


def test_main_only_parses_and_calls() -> None:
    assert len((ROOT / "jaxrl/main.py").read_text().splitlines()) < MAX_MAIN_LINES


def test_rules_catch_what_they_forbid() -> None:
    """The parsers above see each form of import; without this a typing mistake would pass everything."""
    tree = ast.parse(
        "import jaxrl.learner\n"
        "from jaxrl import update\n"
        "from jaxrl.networks.cores import CORES\n"
        "from typing import TYPE_CHECKING\n"
        "if TYPE_CHECKING:\n    import wandb\n"
        "def f():\n    import envpool\n"
        "try:\n    import brax\nexcept ImportError:\n    pass\n"
        "class C:\n    import clu\n    def f(self):\n        import torch\n"
    )
    assert parts_of_jaxrl(imports(tree)) == {"learner", "update", "networks"}
    roots = {name.split(".")[0] for name in top_level_imports(tree)}
    assert roots & OPTIONAL == {"brax", "clu"}
