"""Rewrites names and arguments that JAX, NumPy, optax and chex have removed: the table of `hkx.run`, as edits."""

from __future__ import annotations

import builtins
import functools
import inspect
import re
from collections.abc import Iterator, Mapping
from typing import Any, cast

import libcst as cst
from libcst import metadata
from libcst.helpers import get_full_name_for_node

from hkx.migrate.expressions import Edit, evaluated, with_values
from hkx.migrate.rewrite import Finding, Result, bound_by
from hkx.run.table import ARGUMENTS, MODULES, NAMES, Name

_PACKAGES = ("jax", "jaxlib", "numpy", "optax", "chex")
_METHODS = {row.attribute: row for row in NAMES.values() if row.owner == "jax.Array"}
_DISTINCT = {"to_py", "device_buffer", "device_buffers", "block_host_until_ready", "unsafe_raw_array"}
# Modules of which nothing is left: an import of one goes when all that was read from it is rewritten.
_GONE = {row.owner for row in NAMES.values()} & {
    *("jax.abstract_arrays", "jax.ad_util", "jax.config", "jax.prng", "jax.util", "jaxlib.xla_extension"),
    *("jax.lib.xla_bridge", "jax.lib.xla_client", "jax.lib.xla_extension"),
    *(f"jax.experimental.{name}" for name in ("global_device_array", "host_callback", "maps", "x64_context")),
}
# Modules that their package does not import by itself.
_SUBMODULES = re.compile(
    r"jax\.(extend|example_libraries|scipy)\.\w+|jax\.experimental\.compilation_cache\.\w+|numpy\.lib\.\w+"
)
_PATH = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+")


_OPERATIONS = (
    *(cst.UnaryOperation, cst.BinaryOperation, cst.BooleanOperation, cst.Comparison, cst.ComparisonTarget),
    *(cst.Attribute, cst.Call, cst.Subscript),
)


def migrate_jax_names(code: str, keep_lines: bool = False) -> Result:
    """Rewrites removed names in one program; with `keep_lines`, adds no lines.

    Raises `libcst.ParserSyntaxError` if the text is not Python.
    """
    if not any(package in code for package in _PACKAGES):
        return Result(code, [])
    wrapper = metadata.MetadataWrapper(cst.parse_module(code), unsafe_skip_copy=True)
    plan = _Plan()
    wrapper.visit(plan)
    new = wrapper.module.visit(_Apply(plan, keep_lines))
    where = cast(Mapping[cst.CSTNode, metadata.CodeRange], wrapper.resolve(metadata.PositionProvider))
    return Result(new.code, sorted({Finding(where[node].start.line, reason) for node, reason in plan.found}))


@functools.cache
def _today(path: str) -> str:
    """The path, with the modules in it that moved as a whole, and `jax.config` for all its names."""
    parts = path.split(".")
    for end in range(len(parts), 0, -1):
        prefix = ".".join(parts[:end])
        row = MODULES.get(prefix) or (NAMES.get(prefix) if end < len(parts) else None)
        new = row.new.removesuffix(".*") if row and row.signature is None else ""
        if new and (row in MODULES.values() or new == "jax.config" or new.startswith("jax.interpreters")):
            return _today(".".join([new, *parts[end:]]))
    return path


class _Plan(cst.CSTVisitor):
    """Decides what becomes of each node, and which imports that needs."""

    METADATA_DEPENDENCIES = (metadata.ScopeProvider, metadata.ParentNodeProvider)

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[cst.CSTNode, str]] = []
        self.edits: dict[cst.CSTNode, Edit] = {}
        self.calls: dict[cst.CSTNode, list[tuple[Name, int]]] = {}  # removed arguments, with the index of each
        self.rewritten: set[cst.CSTNode] = set()  # the first names of all paths that are rewritten
        self.dropped: set[tuple[cst.CSTNode, str]] = set()  # imports that nothing needs any longer, by bound name
        self.needed: set[str] = set()
        self.anchor: cst.CSTNode | None = None
        self.globals: metadata.Scope | None = None
        self.scopes: list[metadata.Scope] = []
        self.reads: set[cst.CSTNode] = set()  # the names that are read, without those of attributes and keywords
        self.uses_jax = False

    # Names

    def visit_Module(self, node: cst.Module) -> None:
        self.module = node
        self.statements = [n for n in _nodes(node) if isinstance(n, cst.Import)]
        self.globals = self.get_metadata(metadata.ScopeProvider, node, None)
        self.scopes = [s for s in set(self.metadata[metadata.ScopeProvider].values()) if isinstance(s, metadata.Scope)]
        self.reads = {_first_name(access.node) for scope in self.scopes for access in scope.accesses}

    def path_of(self, node: cst.CSTNode) -> tuple[str, cst.Name] | None:
        """The full path of a dotted name that begins with something imported, and its first name."""
        root = _first_name(node)
        text = get_full_name_for_node(node) if isinstance(node, cst.Attribute | cst.Name) else None
        scope = self.get_metadata(metadata.ScopeProvider, root, None) or self.globals
        if (
            not isinstance(root, cst.Name)
            or root not in self.reads
            or not isinstance(scope, metadata.Scope)
            or text is None
        ):
            return None
        origin = self.origin(scope, root.value)
        if origin is None or origin.partition(".")[0] not in _PACKAGES:
            return None
        return origin + text[len(root.value) :], root

    def origin(self, scope: metadata.Scope, name: str) -> str | None:
        """The path that a name stands for, if only imports bind it, and all to the same."""
        paths = set()
        for assignment in scope[name]:
            node = getattr(assignment, "node", None)
            paths.add(bound_by(node).get(name) if isinstance(node, cst.Import | cst.ImportFrom) else None)
        return paths.pop() if len(paths) == 1 else None

    def visit_Attribute(self, node: cst.Attribute) -> bool:
        parent = self.get_metadata(metadata.ParentNodeProvider, node)
        called = isinstance(parent, cst.Call) and parent.func is node and not parent.args
        distinct = node.attr.value in _DISTINCT or (node.attr.value == "device" and called)
        if self.uses_jax and distinct and self.path_of(node) is None:
            self.found.append((node, f"of an array of JAX: {_METHODS[node.attr.value].edit}"))
        return self.plan_name(node)

    def visit_Name(self, node: cst.Name) -> None:
        self.plan_name(node)

    def plan_name(self, node: cst.Attribute | cst.Name) -> bool:
        """Plans the rewriting of a path that is read; returns whether its parts are to be visited."""
        found = self.path_of(node)
        if found is None:
            return True
        path, root = found
        row = NAMES.get(_today(path))
        parent = self.get_metadata(metadata.ParentNodeProvider, node)
        called = isinstance(parent, cst.Call) and parent.func is node
        if row is None:
            moved = _today(path)
            renamed = path in MODULES and isinstance(node, cst.Attribute) and moved != path
            return not (renamed and self.plan(node, root, moved, {}))
        deleted = row.new == "None" and row.signature is not None
        if row.by or deleted or (row.owner == "jax.config" and row.new != "jax.config"):
            self.found.append((node, f"{row.edit}: rewrite it by hand"))
            if _today(path) != path:
                self.plan(node, root, _today(path), {})
        elif row.signature is None:
            self.plan(node, root, row.new, {})
        elif not (called and self.plan_call(cast(cst.Call, parent), row, root)):
            self.found.append((node, f"{row.edit}: rewrite it by hand"))
        return False

    def plan(self, node: cst.CSTNode, root: cst.Name, code: str, values: Mapping[str, Any]) -> bool:
        scope = self.get_metadata(metadata.ScopeProvider, root, None) or self.globals
        modules = [code] if code.isidentifier() and code not in values and not hasattr(builtins, code) else []
        self.needed.update(modules)
        text = _PATH.sub(lambda m: m[0] if m[0].partition(".")[0] in values else self.reference(m[0], scope), code)
        if "?" in text:
            self.found.append((node, f"write {code} here: the name {text.partition('?')[2]} is in use in this file"))
            return False
        inside = isinstance(self.get_metadata(metadata.ParentNodeProvider, node), _OPERATIONS)
        self.edits[node] = Edit(text, values, inside)
        self.rewritten.add(root)
        return True

    def reference(self, path: str, scope: Any) -> str:
        """The path as this file can write it, by what it imports; plans an import if it must."""
        package = path.partition(".")[0]
        if hasattr(builtins, package):
            return path
        module = _SUBMODULES.match(path)
        whole = {_today(alias.evaluated_name) for node in self.statements for alias in node.names if not alias.asname}
        for name, bound in sorted(self.imported().items(), key=lambda item: -len(item[1])):
            inside = path.startswith(f"{bound}.") and (
                module is None or bound.startswith(module[0]) or module[0] in whole
            )
            if inside and self.origin(scope, name) == bound:
                return name + path[len(bound) :]
        if list(scope[package]) and self.origin(scope, package) != package:
            return f"?{package}"
        self.needed.add(module[0] if module else package)
        return path

    def imported(self) -> dict[str, str]:
        """The modules that the file imports at its top level and still has afterwards, by name."""
        found = {}
        for assignment in self.globals.assignments if isinstance(self.globals, metadata.Scope) else ():
            node = getattr(assignment, "node", None)
            path = bound_by(node).get(assignment.name) if isinstance(node, cst.Import | cst.ImportFrom) else None
            if path is not None and _today(path) == path and path not in NAMES and path not in _GONE:
                found[assignment.name] = path
        return found

    # Calls

    def visit_Call(self, node: cst.Call) -> None:
        found = self.path_of(node.func)
        path = _today(found[0]) if found else ""
        if path == "jax.config.update":
            option = node.args[0].value if node.args else None
            row = NAMES.get(f"jax.config.{option.evaluated_value}") if isinstance(option, cst.SimpleString) else None
            if row is not None:
                self.found.append((node, f"{row.edit}: delete this call"))
        for row in ARGUMENTS.get(path, []):
            index = next((i for i, arg in enumerate(node.args) if _is_argument(arg, i, row)), None)
            if index is not None and not any(arg.star for arg in node.args[: index + 1]):
                self.calls.setdefault(node, []).append((row, index))

    def plan_call(self, node: cst.Call, row: Name, root: cst.Name) -> bool:
        """Plans `f(x, y)` as the expression of a row, if the arguments are those of its signature."""
        if any(arg.star for arg in node.args):
            return False
        by_position = [i for i, arg in enumerate(node.args) if arg.keyword is None]
        by_keyword = {arg.keyword.value: i for i, arg in enumerate(node.args) if arg.keyword is not None}
        try:
            bound = inspect.signature(eval(f"lambda {row.signature}: 0")).bind(*by_position, **by_keyword)
        except TypeError:
            return False
        # An argument that is not given is its default; the present functions have the same where it is empty or False.
        given = [p for p in bound.signature.parameters.values() if p.default and p.default is not p.empty]
        defaults = dict.fromkeys(bound.signature.parameters) | {p.name: _written(p.default) for p in given}
        return self.plan(node, root, row.new, defaults | bound.arguments)

    # Imports

    def visit_Import(self, node: cst.Import) -> bool:
        empty = {alias.evaluated_name for alias in node.names} & {path for path, row in MODULES.items() if not row.new}
        self.found += [(node, f"{path} did nothing, and no longer exists: delete its import") for path in empty]
        self.visit_statement(node)
        return False

    def visit_ImportFrom(self, node: cst.ImportFrom) -> bool:
        if node.module is None or get_full_name_for_node(node.module) != "__future__":
            self.visit_statement(node)
        return False

    def visit_statement(self, node: cst.Import | cst.ImportFrom) -> None:
        ours = any(path.partition(".")[0] in _PACKAGES for path in bound_by(node).values())
        self.uses_jax |= any(path.partition(".")[0] == "jax" for path in bound_by(node).values())
        if self.anchor is None and ours and self.get_metadata(metadata.ScopeProvider, node, None) is self.globals:
            self.anchor = node

    def leave_Module(self, original_node: cst.Module) -> None:
        for scope in self.scopes:
            for assignment in scope.assignments:
                node = getattr(assignment, "node", None)
                if isinstance(node, cst.Import | cst.ImportFrom):
                    self.drop(node, assignment)

    def drop(self, node: cst.Import | cst.ImportFrom, assignment: metadata.BaseAssignment) -> None:
        """Drops an import of what no longer exists, if each reading of it has been rewritten."""
        path = _today(bound_by(node).get(assignment.name, ""))
        whole = {alias.evaluated_name for alias in node.names} if isinstance(node, cst.Import) else set()
        if path not in NAMES and path not in _GONE and not whole & _GONE:
            return
        left = {_first_name(access.node) for access in assignment.references} - self.rewritten
        if not left or (whole & _GONE and path not in _GONE):
            self.dropped.add((node, assignment.name))
        elif left - {_first_name(found) for found, _ in self.found}:
            self.found.append((node, f"{path} no longer exists: rewrite what reads it by hand"))


class _Apply(cst.CSTTransformer):
    """Makes the planned edits."""

    def __init__(self, plan: _Plan, keep_lines: bool) -> None:
        super().__init__()
        self.plan = plan
        self.keep_lines = keep_lines

    def leave_Attribute(self, original_node: cst.Attribute, updated_node: cst.Attribute) -> Any:
        return self.expression(original_node, updated_node)

    def leave_Name(self, original_node: cst.Name, updated_node: cst.Name) -> Any:
        return self.expression(original_node, updated_node)

    def expression(self, original: cst.CSTNode, updated: cst.BaseExpression) -> cst.BaseExpression:
        edit = self.plan.edits.get(original)
        return updated if edit is None else with_values(edit, [])

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> Any:
        edit = self.plan.edits.get(original_node)
        if edit is not None:
            return with_values(edit, updated_node.args)
        args = list(updated_node.args)
        removed = []
        for row, index in self.plan.calls.get(original_node, []):
            name, _, code = row.new.partition("=")
            value = args[index].value
            if not name or name.isdigit():
                removed.append((index, int(name) if name else None))
                continue
            arg = cst.parse_expression(f"f({name}={code})")
            new = cst.ensure_type(cst.ensure_type(arg, cst.Call).args[0], cst.Arg)
            args[index] = args[index].with_changes(
                keyword=new.keyword, equal=new.equal, value=evaluated(new.value, row.argument, value)
            )
        taken = sorted((place, args[index].value) for index, place in removed if place is not None)
        args = [arg for i, arg in enumerate(args) if i not in {index for index, _ in removed}]
        for place, value in taken:
            args.insert(place, cst.Arg(value, comma=cst.Comma(whitespace_after=cst.SimpleWhitespace(" "))))
        if removed and args:
            args[-1] = args[-1].with_changes(comma=cst.MaybeSentinel.DEFAULT)
        return updated_node.with_changes(args=args)

    # Imports

    def leave_Import(self, original_node: cst.Import, updated_node: cst.Import) -> Any:
        names = []
        for alias in original_node.names:
            path = alias.evaluated_name
            bound = alias.evaluated_alias or path.partition(".")[0]
            gone = alias.evaluated_name in _GONE
            if gone and (original_node, bound) in self.plan.dropped:
                continue
            names.append(f"import {_today(path)}" + (f" as {bound}" if alias.asname else ""))
        return self.statements(original_node, updated_node, names)

    def leave_ImportFrom(self, original_node: cst.ImportFrom, updated_node: cst.ImportFrom) -> Any:
        paths = bound_by(original_node)
        stays = all(_today(p) == p and (original_node, name) not in self.plan.dropped for name, p in paths.items())
        if stays:
            return self.statements(original_node, updated_node, None)
        module = f"{get_full_name_for_node(cast(cst.BaseExpression, original_node.module))}."
        homes: dict[str, list[str]] = {}
        for name, path in paths.items():
            if (original_node, name) in self.plan.dropped:
                continue
            home, _, last = (path if path in NAMES and not path.startswith(module) else _today(path)).rpartition(".")
            homes.setdefault(home, []).append(last if last == name else f"{last} as {name}")
        lines = [
            f"from {home} import {', '.join(names)}" if home else f"import {names[0]}" for home, names in homes.items()
        ]
        return self.statements(original_node, updated_node, lines)

    def statements(self, original: cst.CSTNode, updated: cst.BaseSmallStatement, lines: list[str] | None) -> Any:
        """An import as it is, or these instead; and what else the file must import, at the first import."""
        extra = [f"import {name}" for name in sorted(self.plan.needed)] if original is self.plan.anchor else []
        if lines is None or lines == [cst.Module([]).code_for_node(updated)]:
            return cst.FlattenSentinel([updated, *map(_statement, extra)]) if extra else updated
        new = list(dict.fromkeys([*lines, *extra]))
        return cst.FlattenSentinel([_statement(line) for line in new]) if new else cst.RemoveFromParent()

    def leave_SimpleStatementLine(
        self, original_node: cst.SimpleStatementLine, updated_node: cst.SimpleStatementLine
    ) -> Any:
        imports = any(isinstance(node, cst.Import | cst.ImportFrom) for node in original_node.body)
        if imports and not updated_node.body:
            alone = original_node not in self.plan.module.body or any(
                line.comment for line in original_node.leading_lines
            )
            return updated_node.with_changes(body=[cst.Pass()]) if alone or self.keep_lines else cst.RemoveFromParent()
        if self.keep_lines or not imports or len(original_node.body) > 1 or len(updated_node.body) == 1:
            return updated_node
        first, *rest = [node.with_changes(semicolon=cst.MaybeSentinel.DEFAULT) for node in updated_node.body]
        lines = [cst.SimpleStatementLine([node]) for node in rest]
        return cst.FlattenSentinel([updated_node.with_changes(body=[first]), *lines])


def _statement(line: str) -> cst.BaseSmallStatement:
    return cst.ensure_type(cst.parse_statement(line), cst.SimpleStatementLine).body[0]


def _nodes(node: cst.CSTNode) -> Iterator[cst.CSTNode]:
    yield node
    for child in node.children:
        yield from _nodes(child)


def _written(default: Any) -> str:
    return default.__name__ if isinstance(default, type) else repr(default)


def _first_name(node: cst.CSTNode) -> cst.CSTNode:
    while isinstance(node, cst.Attribute):
        node = node.value
    return node


def _is_argument(arg: cst.Arg, index: int, row: Name) -> bool:
    if row.argument.startswith("_"):
        return arg.keyword is None and not arg.star and index == int(row.argument[1:])
    return arg.keyword is not None and arg.keyword.value == row.argument
