"""The rule by which an episode counts as a success, as a configuration or a suite states it."""

from __future__ import annotations

import dataclasses
import operator
import re
from collections.abc import Callable
from typing import Any

from jaxrl.config.errors import ConfigError
from jaxrl.config.fields import shorten

COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
}
_RULE = re.compile(r"(return|length|info\.(?P<key>[^\s<>=]+))\s*(?:(?P<sign>[<>]=?)\s*(?P<bound>\S+))?")


@dataclasses.dataclass(frozen=True)
class Success:
    """The rule of a success: `return >= 195`, `length <= 50`, `info.success`, `info.score > 3`.

    Attributes:
      text: as it was written.
      subject: "return", "length", or a key of the environment's info, whose largest value counts.
      is_info: which of the two.
      compare, bound: without a comparison, more than 0.
    """

    text: str
    subject: str
    is_info: bool
    compare: Callable[[Any, Any], Any]
    bound: float

    @classmethod
    def parse(cls, text: str, where: str) -> Success:
        """Reads a rule.

        Raises:
          ConfigError: it is none; the message begins with the field `where`.
        """
        found = _RULE.fullmatch(text.strip())
        bare = found is not None and found["sign"] is None
        if found is None or (bare and not found["key"]):
            form = "a comparison such as `return >= 195`, `length <= 50` or `info.KEY > 0`, or `info.KEY`"
            raise ConfigError(f"`{where}` (={shorten(text)}) must be {form}")
        try:
            bound = 0.0 if bare else float(found["bound"])
        except ValueError as error:
            raise ConfigError(f"`{where}` (={shorten(text)}) must compare with a number") from error
        compare = operator.gt if bare else COMPARISONS[found["sign"]]
        return cls(text.strip(), found["key"] or found[1], bool(found["key"]), compare, bound)
