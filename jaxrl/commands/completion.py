"""jaxrl completion SHELL: completes words and values in bash or zsh.

SHELL   bash or zsh; ~/.bashrc or ~/.zshrc then holds a line:
        eval "$(jaxrl completion SHELL)"
"""

from __future__ import annotations

from collections.abc import Sequence

from jaxrl.commands import COMMANDS, arguments_of, command_line
from jaxrl.config import ConfigError, declared_fields
from jaxrl.config.errors import did_you_mean
from jaxrl.config.fields import Field
from jaxrl.config.files import ENDINGS, shipped_names
from jaxrl.envs import suites

# Bash takes `--config=`, `gymnax:` and what follows for words of their own (COMP_WORDBREAKS), and it
# replaces the last.
_BASH = """\
_jaxrl() {
    local line="${COMP_LINE:0:COMP_POINT}" words flag="" ending
    local cur="${line##*[[:space:]]}"
    [[ $cur == *=* ]] && flag="${cur%%=*}="
    if [[ $COMP_CWORD == 1 ]]; then
        words="COMMANDS"
    else
        case "${COMP_WORDS[1]}" in
CASES
        esac
    fi
    case "$flag" in
        --env=|--environment=) COMPREPLY=($(compgen -P "$flag" -W "ENVIRONMENTS" -- "${cur#"$flag"}")) ;;
        *) COMPREPLY=($(compgen -W "$words" -- "$cur")) ;;
    esac
    if [[ $words == *--config.* && ( $flag == --config= || $cur == [^-]* ) ]]; then
        for ending in ENDINGS; do
            COMPREPLY+=($(compgen -P "$flag" -f -X "!*$ending" -- "${cur#"$flag"}"))
        done
    fi
    [[ ${#COMPREPLY[@]} == 0 ]] && COMPREPLY=($(compgen -P "$flag" -f -- "${cur#"$flag"}"))
    [[ ${#COMPREPLY[@]} == 1 && ${COMPREPLY[0]} == *= ]] && compopt -o nospace 2>/dev/null
    [[ $COMP_WORDBREAKS == *=* ]] && COMPREPLY=("${COMPREPLY[@]#"$flag"}")
    [[ $cur == *:* && $COMP_WORDBREAKS == *:* ]] && COMPREPLY=("${COMPREPLY[@]##*:}")
    return 0
}
complete -F _jaxrl jaxrl
"""
_ZSH = "autoload -Uz compinit bashcompinit && compinit && bashcompinit\n"
_SHELLS = {"bash": _BASH, "zsh": _ZSH + _BASH}


def _job(argv: Sequence[str]) -> int:
    shells = argv[1:]
    if len(shells) != 1 or shells[0] not in _SHELLS:
        given = shells[0] if shells else "none"
        raise ConfigError(f"`SHELL` (={given!r}) must be one shell{did_you_mean(given, _SHELLS)}")
    cases = "\n".join(f'            {name}) words="{" ".join(_words(name))}" ;;' for name in COMMANDS)
    # Of the environments, those that are known without importing a suite.
    known = (f"{suite.name}:{name}" for suite in suites.SUITES for name in suites.known(suite) or ())
    script = _SHELLS[shells[0]].replace("COMMANDS", " ".join(COMMANDS)).replace("CASES", cases)
    script = script.replace("ENVIRONMENTS", " ".join(known)).replace("ENDINGS", " ".join(ENDINGS))
    print(script, end="")
    return 0


def _words(command: str) -> list[str]:
    """The words that may follow a command: its flags, and the fields of a config."""
    if command == "completion":
        return list(_SHELLS)
    arguments = arguments_of(command)
    flags = [argument.word for argument in arguments if argument.word]
    if not any(argument.name.startswith("config.") for argument in arguments):
        return flags
    configs = [*shipped_names(), *(f"--config={name}" for name in shipped_names())]
    fields = (word for name, field in declared_fields().items() for word in _choices(name, field))
    return [*flags, *configs, *fields]


def _choices(name: str, field: Field) -> list[str]:
    """The words of a field: with each value if it has few, or without one."""
    few = next((rule.choices for rule in field.rules if rule.choices), ())
    if field.kind is bool:
        few = ("true", "false")
    return [f"--config.{name}={value}" for value in few or ("",)]


main = command_line.Command(__doc__, (), _job)
