"""`sandal repl`: a prompt on a context, in any language of the sandbox."""

from __future__ import annotations

import codeop
import getpass
import re
from typing import Callable, Optional

from .._errors import SandalError
from .._results import InputChunk
from .._sync.sandbox import Context
from .show import Shower, end_of

# What hides brackets, and brackets. What is `open` goes on over the end of a line, and has no end yet.
TOKENS = {
    "r": re.compile(r"""#[^\n]*|(?P<open>(["'`])(?:\\.|(?!\2)[^\\])*\\?\Z)|(["'`])(?:\\.|(?!\3)[^\\])*\3|[][(){}]""", re.S),
    "": re.compile(r"""//[^\n]*|(?P<open>`(?:\\.|[^`\\])*\\?\Z|/\*(?:(?!\*/).)*\Z)|/\*.*?\*/|`(?:\\.|[^`\\])*`|(["'])(?:\\.|(?!\2)[^\\\n])*\2"""
                   r"|[][(){}]", re.S),
}


def unfinished(code: str, language: str) -> bool:
    """Whether more lines must come: as Python's own prompt in Python, elsewhere as long as a bracket or a text of lines is open."""
    if language == "python":
        if code.lstrip().startswith(("%", "!", "?")):
            return False
        try:
            return codeop.compile_command(code, symbol="exec") is None
        except (SyntaxError, ValueError, OverflowError):
            return False
    depth = 0
    for token in (TOKENS.get(language) or TOKENS[""]).finditer(code):
        if token["open"]:
            return True
        depth += {"(": 1, "[": 1, "{": 1, ")": -1, "]": -1, "}": -1}.get(token[0], 0)
    return depth > 0


def answer(chunk: InputChunk) -> str:
    return getpass.getpass(chunk.prompt) if chunk.password else input(chunk.prompt)


def repl(context: Context, shower: Shower, ask: Callable[[str], str] = input) -> None:
    """Until the end of input."""
    completion(context, shower)
    while True:
        try:
            code = read(context.language, ask)
        except EOFError:
            shower.text("\n")
            return
        except KeyboardInterrupt:
            shower.text("\n")
            continue
        if not code.strip():
            continue
        try:
            end_of(context.run_code(code, timeout=0, on_stdout=shower.text, on_stderr=shower.error_text,
                                    on_result=shower.result, on_error=shower.error, on_input=answer))
        except KeyboardInterrupt:
            shower.error_text("interrupted\n")
        except SandalError as error:
            shower.error_text(f"sandal: {error}\n")


def read(language: str, ask: Callable[[str], str]) -> str:
    lines = [ask(f"{language}> ")]
    indent = " " * (len(language) - 1) + ".. > "
    while unfinished("\n".join(lines), language) or (language == "python" and len(lines) > 1 and lines[-1].strip()):
        lines.append(ask(indent))
    return "\n".join(lines)


def completion(context: Context, shower: Shower) -> None:
    """Tab asks the kernel, where this Python has readline. Ctrl-C leaves a slow one; a fault is told once."""
    try:
        import readline
    except ImportError:
        return
    matches: list[str] = []
    told: set[str] = set()

    def complete(text: str, state: int) -> Optional[str]:
        if state == 0:
            matches.clear()
            line, end = readline.get_line_buffer(), readline.get_endidx()
            try:
                found = context.complete(line, end)
                # readline replaces what is after its own last delimiter.
                head = line[found.start:end - len(text)] if found.start <= end - len(text) else ""
                matches.extend(m[len(head):] for m in found.matches if m.startswith(head))
            except KeyboardInterrupt:
                pass  # the line stays as it is
            except SandalError as error:
                if str(error) not in told:
                    told.add(str(error))
                    shower.error_text(f"\nsandal: Tab: {error}\n{context.language}> {line}")
        return matches[state] if state < len(matches) else None

    readline.set_completer(complete)
    readline.parse_and_bind("tab: complete")
