"""Config files: a user's own by path, in Python, YAML or JSON; shipped ones by name."""

from __future__ import annotations

import importlib.util
import inspect
import os
import re
import traceback
from pathlib import Path

from ml_collections import ConfigDict

from jaxrl.config import foreign_files, nested_files
from jaxrl.config.errors import ConfigError, did_you_mean
from jaxrl.config.nested_files import Remarks

ENDINGS = (".py", *nested_files.ENDINGS)  # of config files
_ENVIRONMENT = re.compile(r"^[\w.]+:\w|-v\d+(\(.*\))?$")  # suite:Name, or Name-v1
SHIPPED = Path(__file__).parent / "shipped"  # The folder configs/ of a checkout.


def shipped_names() -> list[str]:
    """Returns the names of the shipped configs, such as "ppo_minatar"."""
    return sorted(path.stem for path in SHIPPED.glob("*.py") if not path.stem.startswith("_"))


def suite_names() -> list[str]:
    """Returns the names of the shipped evaluation suites, such as "cartpole"."""
    return sorted(path.stem for path in (SHIPPED / "suites").glob("*.yaml"))


def suite_file(given: str) -> str:
    """Returns the file of a shipped evaluation suite, such as "cartpole"; any other path as it is."""
    shipped = SHIPPED / "suites" / f"{given}.yaml"
    return str(shipped) if shipped.is_file() and not os.path.exists(given) else given


def curriculum_names() -> list[str]:
    """Returns the names of the shipped curricula, such as "navigation"."""
    return sorted(path.stem for path in (SHIPPED / "curricula").glob("*.yaml"))


def curriculum_file(given: str) -> str:
    """Returns the file of a shipped curriculum, such as "navigation"; any other path as it is."""
    shipped = SHIPPED / "curricula" / f"{given}.yaml"
    return str(shipped) if shipped.is_file() and not os.path.exists(given) else given


def config_path(given: str) -> str:
    """Returns the file of a shipped config, such as "ppo_minatar"; any other path as it is."""
    return str(SHIPPED / f"{given}.py") if given in shipped_names() else given


def pipeline_names() -> list[str]:
    """Returns the names of the shipped pipelines, such as "navigation"."""
    return sorted(_pipelines())


def pipeline_file(given: str) -> str:
    """Returns the file of a shipped pipeline, such as "navigation"; any other path as it is."""
    return given if os.path.exists(given) else str(_pipelines().get(given, given))


def _pipelines() -> dict[str, Path]:
    files = [*(SHIPPED / "pipelines").glob("*.yaml"), SHIPPED / "pipeline_config.yaml"]
    return {path.stem: path for path in files}


def load_config(
    given: str | os.PathLike[str], remarks: Remarks | None = None, quick: bool = False, environment: str = ""
) -> ConfigDict:
    """Returns the `get_config()` of a Python file, or the content of a YAML or JSON file.

    Args:
      given: a path, or the name of a shipped config.
      remarks: takes remarks for the user, such as on keys without a counterpart.
      quick: returns its short form, `get_config(quick=True)`.
      environment: chooses a section of a file of rl-baselines3-zoo, which has one for each.

    Raises:
      ConfigError: there is no such file, it raises, or it does not return a ConfigDict; or it has no short
        form.
    """
    path = _path_of(os.fspath(given) if isinstance(given, os.PathLike) else given)
    described = f"`--config` (={str(given)!r})"
    no_quick = ConfigError(f"{described} has no short form for `--quick`: a get_config(quick)")
    if path.endswith(nested_files.ENDINGS):
        if quick:
            raise no_quick
        return nested_files.load(path, described, _shipped_config, remarks or Remarks(), environment)
    spec = importlib.util.spec_from_file_location("_jaxrl_config_file", path)
    if spec is None or spec.loader is None:
        raise ConfigError(f"{described} must end in {', '.join(ENDINGS)}")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
        get_config = getattr(module, "get_config", lambda: None)
        if quick and "quick" not in inspect.signature(get_config).parameters:
            raise no_quick
        config = get_config(**({"quick": True} if quick else {}))
        if not isinstance(config, ConfigDict):
            raise ConfigError(f"{described} must define get_config() that returns a ConfigDict")
        config.to_dict()  # a reference to a field that does not exist shows here
    except ConfigError:
        raise
    except (Exception, SystemExit) as error:
        raise ConfigError(f"{described} {_explain(error, path)}") from error
    return config


def _shipped_config(name: str) -> ConfigDict:
    if name not in shipped_names():
        raise ConfigError(f"`base` (={name!r}) is no shipped config{did_you_mean(name, shipped_names())}")
    return load_config(name)


def _path_of(given: str) -> str:
    names = shipped_names()
    if not given:
        raise ConfigError(
            "`--config` is missing: name a config file or one of the shipped configs, such as --config=ppo "
            f"({', '.join(names)}), or an environment, such as --env=gymnax:CartPole-v1"
        )
    if given in names:
        return str(SHIPPED / f"{given}.py")
    if foreign := foreign_files.described(given):
        raise ConfigError(f"`--config` (={given!r}) {foreign}")
    if os.path.isfile(given):
        return given
    if _ENVIRONMENT.search(given):
        raise ConfigError(f"`--config` (={given!r}) is an environment: name it by --env={given}")
    folder, file = os.path.split(given)
    stem, ending = os.path.splitext(file)
    if not folder and not ending:
        text = f"`--config` (={given!r}) is neither a file nor a shipped config"
        raise ConfigError(f"{text}{did_you_mean(given, names)}")
    hint = f"; did you mean `{stem}`?" if stem in names else ""
    files = [path.name for path in Path(folder).glob("*.*") if path.suffix in ENDINGS and path.is_file()]
    if not hint and files:
        hint = did_you_mean(file, files, prefix=os.path.join(folder, ""))
    raise ConfigError(f"`--config` (={given!r}) is no file{hint}")


def _explain(error: BaseException, path: str) -> str:
    """The error that the file raised, with its line in the file; a SyntaxError names the line itself."""
    try:
        message = " ".join(str(error).split())
    except Exception:  # the file's own class
        message = "without a message"
    text = f"raised {type(error).__name__}: {message}"
    frames = traceback.extract_tb(error.__traceback__)
    lines = [f for f in frames if f.filename == os.path.abspath(path)]
    return text + (f" (line {lines[-1].lineno}: {lines[-1].line})" if lines else "")
