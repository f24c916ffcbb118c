"""The rules for prose in CONTRIBUTING, as far as a program can check them.

`python -m tests.test_prose [PATH …]` lists what breaks them below these paths.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("src", "tests", "chaos", "bench", "fuzz", "scripts", "examples", "sim")

#: Rule 2: subjects are parts of the system, not persons without a name.
PERSONS = "nobody|somebody|anybody|everybody|whoever|whomever|someone|no one"
#: Rule 3: engineers search for notify, emit, subscribe, encode and timeout.
SPEECH = (
    "tell|tells|told|telling|hear|hears|heard|unheard|say|says|said|saying|spell|spells|spelled|spelt|patience|silence"
    "|ado"
)
#: Rule 4: numbers and nouns are named.
RIDDLES = "so many|so-manieth|how-many-eth|of late|sat out|sit out|sits out|borne|must not be none"
#: Rule 5: images of which the plain word is known.
IMAGES = (
    "ears?|hearts?|desks?|hands|crews?|boards?|aftermath|mailbox|bells?|seats?|seated|doom|dooms|doomed|condemn|condemns"
    "|condemned|guilty|innocent|convicted|mourn|mourns|bury|buries|buried|short ways?|quick ways?|vitals|hired?|hiring"
)
WORDS = re.compile(rf"\b(?:{PERSONS}|{SPEECH}|{RIDDLES}|{IMAGES})\b", re.IGNORECASE)
#: Code in prose is not prose.
CODE = re.compile(r"`[^`]*`|\"[^\"]*\"|'[^' ]*'")

#: Rule 1: a function's first line begins with a verb in the imperative, which none of these is.
NO_VERB = re.compile(
    "a|an|the|what|whether|how|why|where|when|who|which|all|every|each|one|two|those|these|this|that|it|they|its|no|nothing"
    "|only|as|at|in|of|on|for|from|to|by|with|without|if|not|many|both|more|most|other|another|same"
)
VERBS_IN_S = re.compile("pass|process|discuss|access|address|compress|dismiss|express|guess|press|suppress|bypass")
VERBS_IN_ING_OR_ED = re.compile("bring|ping|ring|need|feed|seed|embed|proceed|exceed|speed|shed")
#: Test names and docstrings state behaviour; properties and context values are noun phrases.
DESCRIBING = {"property", "cached_property", "setter", "fixture", "overload", "functools.cached_property"}


def documented(tree: ast.Module) -> Iterator[tuple[ast.AST, str, int]]:
    """Yield every module, class and function with a docstring, and the line on which that begins."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text:
                yield node, text, node.body[0].lineno


def first_line(text: str) -> str:
    return text.split("\n\n")[0].replace("\n", " ").strip()


def form_fault(node: ast.AST, text: str) -> str | None:
    """Return the fault in the form of a docstring's first line, or None."""
    line = first_line(text)
    if line.count(":") - line.count("::") > 1 and "://" not in line and "`" not in line:
        return "has more than one clause after a colon"
    word = re.match(r"[\w'-]*", line.lstrip("`\"'([*")).group().lower()  # pyright: ignore[reportOptionalMemberAccess]
    if word == "what" or re.match(r"(?i)(who|whoever|what)\b", line):
        return f"begins with {word!r}: name the thing"
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return None
    if node.name.startswith("test_") or any(name_of(each) in DESCRIBING for each in node.decorator_list):
        return None
    if NO_VERB.fullmatch(word):
        return f"begins with {word!r}: begin with a verb in the imperative"
    if word.endswith("s") and not VERBS_IN_S.fullmatch(word):
        return f"begins with {word!r}: begin with a verb in the imperative"
    if re.search(r"(ing|ed)$", word) and not VERBS_IN_ING_OR_ED.fullmatch(word):
        return f"begins with {word!r}: begin with a verb in the imperative"
    return None


def name_of(decorator: ast.expr) -> str:
    if isinstance(decorator, ast.Call):
        decorator = decorator.func
    return decorator.attr if isinstance(decorator, ast.Attribute) else getattr(decorator, "id", "")


def word_fault(text: str) -> str | None:
    """Return the first word of a text that the rules replace by a plain one, or None."""
    found = WORDS.search(CODE.sub("", text))
    return f"uses {found.group()!r}" if found else None


def comments_of(path: Path, text: str) -> Iterator[tuple[int, str]]:
    """Yield the comments of a Python, Lua or SQL file by line."""
    if path.suffix == ".py":
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.COMMENT:
                yield token.start[0], token.string
    else:
        for number, line in enumerate(text.splitlines(), 1):
            if "--" in line:
                yield number, line[line.index("--") :]


def faults_in(path: Path) -> Iterator[str]:
    """Yield the faults of a file, a line each."""
    text = path.read_text(encoding="utf-8")
    where = path.relative_to(ROOT)
    for number, comment in comments_of(path, text):
        if fault := word_fault(comment):
            yield f"{where}:{number}: comment {fault}: {comment.strip()[:100]}"
    if path.suffix != ".py":
        return
    for node, doc, number in documented(ast.parse(text)):
        if fault := word_fault(doc):
            yield f"{where}:{number}: docstring {fault}: {first_line(doc)[:100]}"
        if fault := form_fault(node, doc):
            yield f"{where}:{number}: docstring {fault}: {first_line(doc)[:100]}"


def files_below(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    found = [each for each in sorted(path.rglob("*")) if each.suffix in {".py", ".lua", ".sql"} and each.is_file()]
    return [each for each in found if each.name != "test_prose.py" and "/.venv/" not in str(each)]


@pytest.mark.parametrize("folder", FOLDERS)
def test_docstrings_and_comments_keep_the_rules_for_prose(folder: str) -> None:
    """Docstrings and comments name parts of the system in known words; those of functions begin with a verb."""
    faults = [fault for path in files_below(ROOT / folder) for fault in faults_in(path)]
    assert not faults, "\n".join(["", *faults])


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("What a worker holds.", "begins with 'what'"),
        ("The leases of a worker.", "begins with 'the'"),
        ("Renews the leases.", "begins with 'renews'"),
        ("Renewing of leases.", "begins with 'renewing'"),
    ],
)
def test_a_function_that_begins_otherwise_is_found(line: str, why: str) -> None:
    """The first line of a function begins with a verb in the imperative."""
    node = ast.parse(f'def f():\n    """{line}"""').body[0]
    assert why in (form_fault(node, line) or "")


@pytest.mark.parametrize("line", ["Renew the leases.", "Process one batch.", "Feed the parser: one frame per call."])
def test_a_function_that_begins_with_a_verb_passes(line: str) -> None:
    """An imperative first line has no fault."""
    node = ast.parse(f'def f():\n    """{line}"""').body[0]
    assert form_fault(node, line) is None


@pytest.mark.parametrize("text", ["Nobody listens.", "It is told.", "So many jobs.", "The heart of a worker."])
def test_a_word_of_the_old_idiom_is_found(text: str) -> None:
    """Persons without a name, speech, riddles and images are found."""
    assert word_fault(text)


def test_code_in_prose_is_left_alone() -> None:
    """A name between backticks or quotes is no prose."""
    assert word_fault('Push to `heart`, the key of queue "told".') is None


if __name__ == "__main__":
    total = 0
    for argument in sys.argv[1:] or FOLDERS:
        for each in files_below(ROOT / argument):
            for line in faults_in(each):
                total += 1
                print(line)
    print(f"{total} faults")
