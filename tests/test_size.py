"""How long things may get before they want a name of their own."""

from __future__ import annotations

import ast
from pathlib import Path

SOURCE = Path(__file__).resolve().parent.parent / "src"
MAX_FILE = 400
MAX_FUNCTION = 50


def test_no_source_file_is_too_long() -> None:
    """No Python, Lua or SQL file has more than 400 lines."""
    files = [path for path in sorted(SOURCE.rglob("*")) if path.suffix in {".py", ".lua", ".sql"}]
    lengths = {str(path.relative_to(SOURCE)): len(path.read_text(encoding="utf-8").splitlines()) for path in files}
    long = [f"{name}: {length} lines" for name, length in lengths.items() if length > MAX_FILE]
    assert not long, "\n".join([f"split what is past {MAX_FILE} lines:", *long])


def test_no_function_is_too_long() -> None:
    """No function has more than 50 lines, from its `def` to its end."""
    long: list[str] = []
    for path in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                length = (node.end_lineno or node.lineno) - node.lineno + 1
                if length > MAX_FUNCTION:
                    long.append(f"{path.relative_to(SOURCE)}:{node.lineno}: {node.name} has {length} lines")
    assert not long, "\n".join([f"split what is past {MAX_FUNCTION} lines:", *long])
