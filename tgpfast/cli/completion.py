"""``tgpfast completion``: a script that completes commands and options in a shell."""

from __future__ import annotations

import argparse

from .options import Command

SHELLS = ("bash", "zsh")
ZSH_START = "autoload -U +X bashcompinit && bashcompinit\n"  # lets zsh run completions of bash


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=SHELLS, help="the shell to write a script for")


def _run(arguments: argparse.Namespace) -> None:
    print((ZSH_START if arguments.shell == "zsh" else "") + make_script(arguments.parsers), end="")


def make_script(parsers: dict[str, argparse.ArgumentParser]) -> str:
    """A script for bash.

    It completes the names of commands, options, and the choices of options. Otherwise the shell
    completes names of files.

    Parameters
    ----------
    parsers : dict of str to ArgumentParser
        The parser of each command.
    """
    choices, options = [], []
    for name, parser in parsers.items():
        flags = " ".join(flag for action in parser._actions for flag in action.option_strings)
        options.append(f'            "{name} "*" -"*) words="{flags}" ;;')
        for action in parser._actions:
            if action.choices is not None:
                words = " ".join(map(str, action.choices))
                for word in action.option_strings or [name]:  # a choice may follow the command
                    choices.append(f'            "{name} {word} "*) words="{words}" ;;')
    return "\n".join([
        "_tgpfast() {",
        '    local word="${COMP_WORDS[COMP_CWORD]}" words=""',
        '    local before="${COMP_WORDS[COMP_CWORD-1]}"',
        '    if [ "$COMP_CWORD" -eq 1 ]; then',
        f'        words="{" ".join(parsers)} --help --version"',
        "    else",
        '        case "${COMP_WORDS[1]} $before $word" in',
        *choices,
        *options,
        "        esac",
        "    fi",
        '    COMPREPLY=($(compgen -W "$words" -- "$word"))',
        "}",
        "complete -o default -F _tgpfast tgpfast",
        "",
    ])  # fmt: skip


COMMAND = Command(
    "completion",
    "print a script that completes commands in a shell",
    "Prints a script that completes the names of commands, options and choices. Put the line "
    '"source <(tgpfast completion bash)" into ~/.bashrc, or the same with zsh into ~/.zshrc.',
    ("tgpfast completion bash",),
    _add_options,
    _run,
)
