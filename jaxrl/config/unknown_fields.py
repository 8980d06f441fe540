"""The answer to a field that does not exist: the one that was probably meant."""

from __future__ import annotations

from collections.abc import Collection

from jaxrl.config import words
from jaxrl.config.built_in import BUILT_IN
from jaxrl.config.errors import did_you_mean


def hint(name: str, declared: Collection[str], section: str, prefix: str = "") -> str:
    """Ends an error about the unknown field `name`.

    Several algorithms have fields of one name. So a field of the run's own section comes first if it has the
    name's last part, then the words of other trainers, then the nearest field that the run reads. The section
    that `name` begins with is looked at too, whether or not it is the run's.

    Args:
      name: dotted.
      declared: the names of all fields.
      section: that of the run's algorithm.
      prefix: put before the field that is shown.
    """
    given, _, last = name.rpartition(".")
    if f"{section}.{last}" in declared:
        return f"; did you mean `{prefix}{section}.{last}`?"
    others = BUILT_IN.keys() - {section, given}
    read = [field for field in declared if field.partition(".")[0] not in others]
    return words.field_hint(name, section, declared) or did_you_mean(name, read, prefix=prefix)
