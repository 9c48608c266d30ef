"""No import cycles between the files of src, imports inside functions included."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

import networkx as nx

SOURCE = Path(__file__).parents[2] / "src" / "undertow"


def runtime_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """All nodes of a module but those under `if TYPE_CHECKING`."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and isinstance(child.test, ast.Name) and child.test.id == "TYPE_CHECKING":
            continue
        yield child
        yield from runtime_nodes(child)


def imported_modules(text: str, modules: Mapping[str, Path]) -> set[str]:
    """The modules that a file imports, anywhere in it."""
    names: set[str] = set()
    for node in runtime_nodes(ast.parse(text)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            submodules = {f"{node.module}.{alias.name}" for alias in node.names} & set(modules)
            names |= submodules if len(submodules) == len(node.names) else {*submodules, str(node.module)}
    return names & set(modules)


def import_cycles(source: Path) -> list[list[str]]:
    """Sets of modules that import each other, directly or by way of others."""
    modules = {}
    for path in source.rglob("*.py"):
        parts = path.relative_to(source.parent).with_suffix("").parts
        modules[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    imports = nx.DiGraph()
    for name, path in modules.items():
        imports.add_edges_from((name, one) for one in imported_modules(path.read_text(encoding="utf-8"), modules))
    components = (sorted(component) for component in nx.strongly_connected_components(imports))
    return sorted(component for component in components if len(component) > 1)


def test_source_has_no_import_cycles() -> None:
    assert import_cycles(SOURCE) == []
