"""Datasets of levels: a folder for each category, checked before anything is trained."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from jaxrl.config import ConfigError
from jaxrl.envs.native.platformer.level import CATEGORIES
from jaxrl.envs.native.platformer.level_files import PARTS, read_levels

_MAKE = "jaxrl prepare-data --env=jaxrl:Platformer --output=data/levels makes data/levels/train and /test"
_GAME = "jaxrl:Platformer"
_EVERYTHING = "observation=('state', 'local', 'global', 'graph')"


def with_all_parts(environment: str) -> str:
    """The platform game with all that the networks of experiments see, unless a name selects what it shows.

    What learns from episodes takes the parts that its own environment shows. Other names stay as they are.
    """
    name, _, arguments = environment.partition("(")
    if name != _GAME or "observation" in arguments:
        return environment
    given = arguments.removesuffix(")").strip().rstrip(",")
    return f"{name}({f'{given}, ' if given else ''}{_EVERYTHING})"


def absolute(place: str) -> str:
    """A file or folder that exists by its absolute path; others, and parts of the package, as they are."""
    return place if place in ("", *PARTS) or not Path(place).exists() else str(Path(place).absolute())


@dataclass(frozen=True)
class LevelDataset:
    """Levels of the platform game, of all categories.

    Attributes:
      folder: of `Platformer(levels=...)`: a folder, or train and test of the package.
    """

    folder: str
    categories: tuple[str, ...]

    @classmethod
    def of(cls, flag: str, given: str) -> LevelDataset:
        """Reads every level once; ConfigError says in one line what is missing, and how to make it."""
        given_as = f"`{flag}` (={given!r})"
        known = ", ".join(CATEGORIES)
        if given.endswith(".pkl"):
            raise ConfigError(
                f"{given_as} is a pickle, which could run any code and is never read: save its arrays "
                'as .npz (numpy.savez(file, rows=[...], category="simple", seed=0, solution=""))'
            )
        place = Path(given).expanduser()
        if given not in PARTS:
            if not place.is_dir():
                raise ConfigError(f"{given_as} is no folder: looked for {known} in it; {_MAKE}")
            pickles = sorted(place.rglob("*.pkl"))
            if pickles:
                raise ConfigError(
                    f"{given_as} holds {pickles[0]}, a pickle, which is never read: save it as .npz"
                )
            missing = [name for name in CATEGORIES if not (place / name).is_dir()]
            if len(missing) == len(CATEGORIES):
                raise ConfigError(f"{given_as} has no folder of a category ({known}); {_MAKE}")
            if missing:
                raise ConfigError(f"{given_as} lacks the folder {place / missing[0]}; {_MAKE}")
            given = str(place.resolve())
        try:
            for name in CATEGORIES:
                read_levels("", given, name)
        except ValueError as error:
            raise ConfigError(f"{given_as}: {error}; {_MAKE}") from error
        return cls(given, CATEGORIES)

    def environment(self) -> str:
        """The platform game with all that it shows, on all levels."""
        return with_all_parts(f"{_GAME}(levels={self.folder!r}, category='all')")

    def suite(self, name: str, episodes: int) -> str:
        """A suite of all categories, in YAML: tasks of one environment, which is compiled once."""
        lines = [
            f"name: {name}",
            f"episodes: {episodes}",
            "modes: [greedy, sampled]",
            "success: info.success",
            "cost: mine_contacts",
            "categories:",
        ]
        for category in self.categories:
            lines += [f"  {category}:", f'    - {{env: "{self.environment()}", tasks: category={category}}}']
        return "\n".join(lines) + "\n"
