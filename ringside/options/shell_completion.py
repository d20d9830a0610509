"""Scripts that complete the command in bash and zsh. They hold all words and start no program."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal

from ringside.options.option import Option
from shared.text import flag_of

Shell = Literal["bash", "zsh"]

_TABLE = """\
# Words that may come next: $1 is the task, $2 the word before. Sets _ringside_words, and _ringside_files where
# a path may come.
_ringside_table() {
    _ringside_words= _ringside_files=
    case "$1 $2" in
VALUES
    esac
    case "$1" in
FLAGS
    esac
}
"""
_BASH = """\
_ringside() {
    local word=${COMP_WORDS[COMP_CWORD]} task=start
    [ "$COMP_CWORD" -gt 1 ] && task=$(_ringside_task "${COMP_WORDS[1]}" "${COMP_WORDS[2]}" "$COMP_CWORD")
    _ringside_table "$task" "${COMP_WORDS[COMP_CWORD-1]}"
    COMPREPLY=($(compgen -W "$_ringside_words" -- "$word"))
    [ -n "$_ringside_files" ] && COMPREPLY+=($(compgen -f -- "$word"))
}
_ringside_python() {
    local i
    for ((i = 1; i < COMP_CWORD; i++)); do
        if [ "${COMP_WORDS[i]##*/}" = launch.py ]; then
            COMP_WORDS=("${COMP_WORDS[@]:i}")
            COMP_CWORD=$((COMP_CWORD - i))
            _ringside
            return
        fi
    done
    [ -n "$_ringside_former" ] && "$_ringside_former" "$@"
}
case "$(complete -p python 2>/dev/null)" in
*_ringside_python*) ;;
*" -F "*) _ringside_former=$(complete -p python | sed 's/.* -F \\([^ ]*\\) .*/\\1/') ;;
esac
complete -o filenames -F _ringside launch.py ringside
complete -o bashdefault -o default -o filenames -F _ringside_python python python3
"""
_ZSH = """\
_ringside() {
    local task=start
    (( CURRENT > 2 )) && task=$(_ringside_task "$words[2]" "$words[3]" $((CURRENT - 1)))
    _ringside_table "$task" "$words[CURRENT-1]"
    [ -n "$_ringside_words" ] && compadd -- ${=_ringside_words}
    [ -n "$_ringside_files" ] && _files
    return 0
}
_ringside_python() {
    local i
    for ((i = 2; i < CURRENT; i++)); do
        if [ "${words[i]##*/}" = launch.py ]; then
            words=("${(@)words[i,-1]}")
            (( CURRENT -= i - 1 ))
            _ringside
            return
        fi
    done
    if [ -n "$_ringside_former" ]; then "$_ringside_former" "$@"; else _files; fi
}
[ "${_comps[python]}" = _ringside_python ] || _ringside_former=${_comps[python]}
compdef _ringside launch.py ringside
compdef _ringside_python python python3
"""
_TASK = """\
# The task of a command: $1 and $2 are its first words, $3 the place of the word that is completed.
_ringside_task() {
    case "$1" in
    bench) if [ "$3" -gt 2 ]; then echo "bench $2"; else echo bench; fi ;;
    TASKS) echo "$1" ;;
    *) echo train ;;
    esac
}
"""


def script(
    shell: Shell,
    tasks: Mapping[str, Sequence[Option]],
    benchmarks: Mapping[str, Sequence[Option]],
    named: Mapping[str, Sequence[str]],
) -> str:
    """Completion script for a shell.

    Args:
        tasks: options by task; `train` is the task of a command that names none.
        benchmarks: options by benchmark.
        named: values that --help does not list, by option: games, say.
    """
    tables = dict(tasks) | {f"bench {name}": options for name, options in benchmarks.items()}
    flags = {
        task: [*(flag for option in options for flag in _flags(option)), "--help"] for task, options in tables.items()
    }
    flags |= {"start": [*tasks, "bench", *flags["train"]], "bench": list(benchmarks)}
    takes_paths = {task for task, options in tables.items() if any(option.positional for option in options)}
    lines = [
        f'    "{task}") _ringside_words="{" ".join(words)}"{"; _ringside_files=yes" if task in takes_paths else ""} ;;'
        for task, words in flags.items()
    ]
    table = _TABLE.replace("VALUES", "\n".join(_value_lines(tables, named))).replace("FLAGS", "\n".join(lines))
    return table + _TASK.replace("TASKS", "|".join(tasks)) + (_BASH if shell == "bash" else _ZSH)


def _flags(option: Option) -> list[str]:
    if option.positional:
        return []
    return [option.flag, flag_of(f"no_{option.name}")] if option.kind is bool else [option.flag]


def _value_lines(tables: Mapping[str, Sequence[Option]], named: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Cases of the shell for the values of options; tasks whose option has the same values share one."""
    cases: dict[tuple[str, str, bool], list[str]] = {}
    for task, options in tables.items():
        for option in options:
            if option.kind is not bool and not option.positional:
                words = " ".join(option.choices or named.get(option.name, ()))
                cases.setdefault((option.flag, words, option.kind is Path), []).append(task)
                if task == "train":
                    cases[option.flag, words, option.kind is Path].append("start")
    for (flag, words, is_path), of in cases.items():
        pattern = "|".join(f'"{task} {flag}"' for task in of)
        yield f'    {pattern}) _ringside_words="{words}"{"; _ringside_files=yes" if is_path else ""}; return ;;'
