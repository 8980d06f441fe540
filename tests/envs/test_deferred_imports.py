"""Modules that are only stood in for: loaded by use, and not before."""

import importlib
import subprocess
import sys

import pytest

from jaxrl.envs.adapters.suite import deferred_imports


@pytest.fixture
def drawing(tmp_path, monkeypatch):
    """A package that imports a heavy module and draws with it."""
    (tmp_path / "heavy_one.py").write_text("LOADED = True\ndef line(): return 'a line'\n")
    (tmp_path / "drawing.py").write_text("import heavy_one as h\ndef draw(): return h.line()\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield "drawing"
    for name in ("heavy_one", "drawing"):
        sys.modules.pop(name, None)


def test_a_deferred_module_is_loaded_by_its_first_use(drawing):
    with deferred_imports("heavy_one"):
        module = importlib.import_module(drawing)
    assert "heavy_one" not in sys.modules
    assert module.draw() == "a line"
    assert sys.modules["heavy_one"].LOADED


def test_a_module_that_is_loaded_stays(drawing):
    loaded = importlib.import_module("heavy_one")
    with deferred_imports("heavy_one"):
        module = importlib.import_module(drawing)
    assert module.h is loaded


def test_a_module_in_a_deferred_package_is_loaded_by_its_first_use(tmp_path, monkeypatch):
    package = tmp_path / "heavy_package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "pencil.py").write_text("def line(): return 'a line'\n")
    (tmp_path / "sketch.py").write_text(
        "import heavy_package.pencil as p\nfrom heavy_package import pencil\n"
        "def draw(): return p.line(), pencil.line()\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    names = ("heavy_package", "heavy_package.pencil")
    with deferred_imports(*names):
        sketch = importlib.import_module("sketch")
        assert sketch.draw() == ("a line", "a line")  # by use inside the block
    real = sys.modules["heavy_package"]
    assert real.__file__ == str(package / "__init__.py")
    for name in (*names, "sketch"):
        del sys.modules[name]
    with deferred_imports(*names):
        sketch = importlib.import_module("sketch")
    assert not {*names} & {*sys.modules}
    assert sketch.draw() == ("a line", "a line")
    for name in (*names, "sketch"):
        del sys.modules[name]


def test_nobody_else_sees_the_stand_in_even_after_an_error(drawing):
    with pytest.raises(ImportError), deferred_imports("heavy_one"):
        importlib.import_module("no_such_module_of_ours")
    assert importlib.import_module("heavy_one").LOADED


@pytest.mark.slow
def test_gymnax_comes_without_its_drawing_libraries():
    code = """
import sys
from jaxrl.envs.adapters import gymnax
assert "CartPole-v1" in gymnax.names()
print([name for name in ("seaborn", "matplotlib", "pandas", "scipy.stats") if name in sys.modules])
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120
    )
    assert done.stdout.strip() == "[]"
