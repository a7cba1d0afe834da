"""Rewrites the syntax tree of one program, and lists what is left to do."""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping
from typing import Any, NamedTuple, TypeVar, cast

import libcst as cst
from libcst import metadata
from libcst.helpers import get_full_name_for_node

from hkx.migrate.names import NEW, is_private, missing, public_home, translated, why_left

_Path = TypeVar("_Path", bound=cst.BaseExpression | None)

_PATH = re.compile(r"(haiku|rlax)(\.[A-Za-z_]\w*)+")  # a string that consists of a path in one of the packages
_ROOT = re.compile(r"(?<![\w.])(haiku|rlax)(?=\.[A-Za-z_])")  # the beginning of a path in an annotation
_CODE = re.compile(r"\b(import|from)\s+(haiku|rlax)\b")
_MENTION = re.compile(r"(?<![\w./-])(haiku|rlax)\.[A-Za-z_]")
_TAKES_MODULE = {"__import__", "import_module", "importorskip", "find_spec"}
_LOADS = re.compile("import|lazy|load", re.IGNORECASE)
_STAR = "a star import: {} exports other names beside those of {}, which may hide names of this file"
_BOTH = "the file imports {} too: left alone; take one of both by hand, and run this again"
_TAKEN = "the name {} is in use in this file: left alone; give the import of {} another name, as in `import {} as …`"
_JMP = "jmp: its policies work as they are; `hkx.mixed_precision.Policy.parse(…)` reads the same texts without it"
_THROUGH = re.compile(r"[A-Za-z_]\w*(\.\w+)*\.(haiku|rlax)(\.\w+)*")  # a path that may lead through an import
_IN_STRING = "code or a path within a string: rewrite it by hand where it is run"
_BY_NAME = "a path through another module: if that has an `import {0}` without a name of its own, it is {1} there now"
_SIZES = (
    "hkx.Linear(784, 10) is an error, and in Haiku the second number counted as `with_bias`: pass the output size alone"
)


class Finding(NamedTuple):
    """Something for the user to look at."""

    line: int
    reason: str


class Result(NamedTuple):
    """A migrated program, and what is left to do in it."""

    code: str
    findings: list[Finding]


def migrate(code: str) -> Result:
    """Rewrites the uses of Haiku and RLax in one program.

    Raises `libcst.ParserSyntaxError`, or `SyntaxError` for a string in it, if the text is not Python, and `ValueError`
    if the result cannot be written.
    """
    if not re.search("haiku|rlax", code):
        return Result(code, [])
    tree = cst.parse_module(code)
    if tree.code != code:
        raise ValueError("its text cannot be read and written back without a change")
    wrapper = metadata.MetadataWrapper(tree, unsafe_skip_copy=True)
    rewriter = _Rewriter(code)
    with warnings.catch_warnings(action="ignore"):  # warnings about invalid escapes in strings, such as "\."
        new = wrapper.visit(rewriter)
    if not rewriter.found:
        return Result(new.code, [])
    where = cast(Mapping[cst.CSTNode, metadata.CodeRange], wrapper.resolve(metadata.PositionProvider))
    return Result(new.code, sorted({Finding(where[node].start.line, reason) for node, reason in rewriter.found}))


def mentions(text: str) -> bool:
    """True if a text that is not part of the program contains an import of Haiku or RLax, or a path in one of them."""
    return _CODE.search(text) is not None or _MENTION.search(text) is not None


def bound_by(node: cst.Import | cst.ImportFrom) -> dict[str, str]:
    """The full path that each name bound by an import refers to."""
    bound = {}
    base = ""
    if isinstance(node, cst.ImportFrom):
        if node.relative or node.module is None or isinstance(node.names, cst.ImportStar):
            return {}
        base = f"{get_full_name_for_node(node.module)}."
    for alias in node.names if not isinstance(node.names, cst.ImportStar) else ():
        path = base + alias.evaluated_name
        plain = path if base else path.partition(".")[0]
        name = alias.evaluated_alias or plain.rpartition(".")[2]
        bound[name] = path if alias.evaluated_alias else plain
    return bound


def _is_old(path: str) -> bool:
    return path.partition(".")[0] in NEW


def _stays(path: str) -> bool:
    """True if the import of a module is left unchanged, because there is no equivalent."""
    return is_private(path) or missing(path) is not None


class _Rewriter(cst.CSTTransformer):
    METADATA_DEPENDENCIES = (metadata.ScopeProvider,)

    def __init__(self, code: str) -> None:
        super().__init__()
        self.found: list[tuple[cst.CSTNode, str]] = []  # what the user has to look at, and why
        self.around: list[cst.CSTNode] = []  # the nodes around the visited one, innermost last
        self.inner: set[cst.CSTNode] = set()  # parts of a path that has been processed as a whole
        self.left: set[str] = set()  # packages that must not be changed in this file
        self.imported = False
        self.jmp: cst.CSTNode | None = None
        self.uses_mixed_precision = False
        self.code = code

    def on_visit(self, node: cst.CSTNode) -> bool:
        deeper = super().on_visit(node)
        self.around.append(node)
        return deeper

    def on_leave(self, original_node: cst.CSTNodeT, updated_node: cst.CSTNodeT) -> Any:
        self.around.pop()
        return super().on_leave(original_node, updated_node)

    def add(self, node: cst.CSTNode, reason: str) -> None:
        self.found.append((node, reason))

    # What the file imports

    def visit_Module(self, node: cst.Module) -> None:
        imports = _Imports(names=any(re.search(rf"\b{new}\b", self.code) for new in NEW.values()))
        node.visit(imports)
        for old, new in NEW.items():
            public = [found for found in imports.found if found[1].partition(".")[0] == old and not _stays(found[1])]
            self.imported |= any(path.partition(".")[0] == old for _, path, _ in imports.found)
            beside = any(path.partition(".")[0] == new for _, path, _ in imports.found)
            plain = [found for found in public if found[2]]
            if public and beside:
                self.left.add(old)
                self.add(public[0][0], _BOTH.format(new))
            elif plain and new in imports.names:
                self.left.add(old)
                self.add(plain[0][0], _TAKEN.format(new, old, old))
        self.jmp = next((found for found, path, _ in imports.found if path.partition(".")[0] == "jmp"), None)

    def leave_Module(self, original_node: cst.Module, updated_node: cst.Module) -> cst.Module:
        if self.jmp is not None and self.uses_mixed_precision:
            self.add(self.jmp, _JMP)
        return updated_node

    def origin(self, node: cst.Name) -> tuple[str, bool] | None:
        """The path in Haiku or RLax to which a name refers where it is read, and whether it is renamed."""
        scope = self.scope_of(node)
        if scope is None:
            return None
        found = [
            bound_by(assignment.node)[node.value]
            for assignment in scope[node.value]
            if isinstance(assignment, metadata.ImportAssignment)
            and isinstance(assignment.node, cst.Import | cst.ImportFrom)
            and node.value in bound_by(assignment.node)
        ]
        old = [path for path in found if _is_old(path)]
        if not old:
            return None
        return old[0], self.renamed(scope, node.value)

    def renamed(self, scope: metadata.Scope, name: str) -> bool:
        """True if `name` is bound by an `import haiku` without `as`, which is itself rewritten."""
        return name not in self.left and any(
            alias.asname is None and alias.evaluated_name.partition(".")[0] == name and not _stays(alias.evaluated_name)
            for assignment in scope[name]
            if isinstance(assignment, metadata.ImportAssignment) and isinstance(assignment.node, cst.Import)
            for alias in assignment.node.names
            if _is_old(alias.evaluated_name)
        )

    # Imports

    def visit_Import(self, node: cst.Import) -> bool:
        for alias in node.names:
            path = alias.evaluated_name
            if _is_old(path) and _stays(path):
                self.add(node, why_left(path))
        return False

    def leave_Import(self, original_node: cst.Import, updated_node: cst.Import) -> cst.Import:
        def renamed(alias: cst.ImportAlias) -> cst.ImportAlias:
            path = alias.evaluated_name
            alias = self.bound_anew(original_node, alias) if alias.asname else alias
            if not _is_old(path) or _stays(path) or path.partition(".")[0] in self.left:
                return alias
            return alias.with_changes(name=_with_root(alias.name))

        return updated_node.with_changes(names=[renamed(alias) for alias in updated_node.names])

    def bound_anew(self, statement: cst.CSTNode, alias: cst.ImportAlias) -> cst.ImportAlias:
        """An import that binds a name under which an `import haiku` of the same scope binds another package."""
        name = alias.evaluated_alias or alias.evaluated_name
        scope = self.scope_of(statement)
        if name not in NEW or scope is None or not self.renamed(scope, name):
            return alias
        asname = alias.asname or cst.AsName(cst.Name(name))
        return alias.with_changes(asname=asname.with_changes(name=cst.Name(NEW[name])))

    def visit_ImportFrom(self, node: cst.ImportFrom) -> bool:
        return False

    def leave_ImportFrom(self, original_node: cst.ImportFrom, updated_node: cst.ImportFrom) -> cst.ImportFrom:
        module = get_full_name_for_node(original_node.module) if original_node.module else None
        if not isinstance(updated_node.names, cst.ImportStar):
            names = [self.bound_anew(original_node, alias) for alias in updated_node.names]
            updated_node = updated_node.with_changes(names=names)
        if original_node.relative or not module or not _is_old(module) or module.partition(".")[0] in self.left:
            return updated_node
        names = original_node.names
        paths = [] if isinstance(names, cst.ImportStar) else [f"{module}.{alias.evaluated_name}" for alias in names]
        home = public_home(paths) if is_private(module) else None
        if home is not None:
            return updated_node.with_changes(module=_dotted(home))
        if isinstance(names, cst.ImportStar) and not _stays(module):
            self.add(original_node, _STAR.format(translated(module), module))
        elif isinstance(names, cst.ImportStar):
            self.add(original_node, why_left(module))
        lacking = [path for path in paths if _stays(path)]
        for path in lacking:
            self.add(original_node, why_left(path))
        if _stays(module) or (paths and len(lacking) == len(paths)):
            return updated_node  # another package of this name, or something that cannot be imported from the new one
        return updated_node.with_changes(module=_with_root(updated_node.module))

    # Names that are read

    def visit_Attribute(self, node: cst.Attribute) -> None:
        if node in self.inner:
            return
        parts, inner = [], node
        while isinstance(inner, cst.Attribute):
            self.inner.add(inner)
            parts.append(inner.attr.value)
            inner = inner.value
        found = self.origin(inner) if isinstance(inner, cst.Name) else None
        if found is not None:
            path = ".".join([found[0], *reversed(parts)])
            self.uses_mixed_precision |= ".mixed_precision" in path
            if not _stays(found[0]) and _stays(path):
                self.add(node, why_left(path))

    def leave_Attribute(self, original_node: cst.Attribute, updated_node: cst.Attribute) -> cst.Attribute:
        if original_node.attr.value not in NEW:
            return updated_node
        return updated_node.with_changes(attr=original_node.attr)  # an attribute, not a name that is read

    def leave_Arg(self, original_node: cst.Arg, updated_node: cst.Arg) -> cst.Arg:
        if original_node.keyword is None or original_node.keyword.value not in NEW:
            return updated_node
        return updated_node.with_changes(keyword=original_node.keyword)

    def leave_Name(self, original_node: cst.Name, updated_node: cst.Name) -> cst.Name:
        if original_node.value not in NEW:
            return updated_node
        found = self.origin(original_node)
        return updated_node.with_changes(value=NEW[original_node.value]) if found and found[1] else updated_node

    def visit_Call(self, node: cst.Call) -> None:
        root = get_full_name_for_node(node.func) or ""
        first, _, rest = root.partition(".")
        inner: cst.CSTNode = node.func
        while isinstance(inner, cst.Attribute):
            inner = inner.value
        found = self.origin(inner) if isinstance(inner, cst.Name) and inner.value == first else None
        path = ".".join(filter(None, [found[0], rest])) if found else ""
        sizes = [arg.value for arg in node.args[:2] if arg.keyword is None and not arg.star]
        if path == "haiku.Linear" and len(sizes) == 2 and all(isinstance(size, cst.Integer) for size in sizes):
            self.add(node, _SIZES)

    # Strings and comments

    def leave_SimpleString(self, original_node: cst.SimpleString, updated_node: cst.SimpleString) -> cst.SimpleString:
        text = original_node.evaluated_value
        if not isinstance(text, str) or not re.search("haiku|rlax", text):
            return updated_node
        if self.in_annotation():
            return updated_node.with_changes(value=self.with_roots(original_node, original_node.value))
        if text.partition(".")[0] in self.left:
            return updated_node  # goes with the imports of the file
        if (_PATH.fullmatch(text) and not _stays(text)) or (text in NEW and self.names_module()):
            return updated_node.with_changes(
                value=re.sub("haiku|rlax", lambda m: NEW[m[0]], original_node.value, count=1)
            )
        if _PATH.fullmatch(text):
            self.add(original_node, f"in a string: {why_left(text)}")
        elif through := _THROUGH.fullmatch(text):
            self.add(original_node, _BY_NAME.format(through[2], NEW[through[2]]))
        elif text in NEW and (self.imported or self.may_load()):
            self.add(original_node, f"the string {text!r}: {NEW[text]!r} where it names the module")
        elif _CODE.search(text) or (_MENTION.search(text) and not isinstance(self.around[-1], cst.Expr)):
            self.add(original_node, _IN_STRING)
        return updated_node

    def visit_FormattedStringText(self, node: cst.FormattedStringText) -> None:
        if mentions(node.value):
            self.add(node, _IN_STRING)

    def leave_Comment(self, original_node: cst.Comment, updated_node: cst.Comment) -> cst.Comment:
        if not re.match(r"#\s*type:", original_node.value):
            return updated_node
        return updated_node.with_changes(value=self.with_roots(original_node, original_node.value))

    def with_roots(self, node: cst.CSTNode, text: str) -> str:
        """An annotation in a string or a comment, with the same renamings as in the code around it."""
        scope = self.scope_of(node)
        return _ROOT.sub(lambda m: NEW[m[1]] if scope and self.renamed(scope, m[1]) else m[1], text)

    def scope_of(self, node: cst.CSTNode) -> metadata.Scope | None:
        """The scope of a node; comments, and the names after `global`, belong to that of their statement."""
        scopes = (self.get_metadata(metadata.ScopeProvider, n, None) for n in (node, *reversed(self.around)))
        return next((scope for scope in scopes if isinstance(scope, metadata.Scope)), None)

    def in_annotation(self) -> bool:
        return any(isinstance(node, cst.Annotation) for node in self.around)

    def may_load(self) -> bool:
        """True if the visited string is an argument of a function such as `LazyLoader` or `lazy.load`."""
        call = self.around[-2]
        return isinstance(call, cst.Call) and _LOADS.search(get_full_name_for_node(call.func) or "") is not None

    def names_module(self) -> bool:
        """True if the visited string is a name or a package for `import_module`, or the key of `sys.modules[…]`."""
        subscript, call, arg = self.around[-3:]
        if isinstance(arg, cst.Index):
            return isinstance(subscript, cst.Subscript) and get_full_name_for_node(subscript.value) == "sys.modules"
        if not isinstance(arg, cst.Arg) or not isinstance(call, cst.Call) or arg not in call.args[:2]:
            return False
        return (get_full_name_for_node(call.func) or "").rpartition(".")[2] in _TAKES_MODULE


class _Imports(cst.CSTVisitor):
    """Collects the imports of a file (statement, path, whether it binds the package) and, if requested, its names."""

    def __init__(self, names: bool) -> None:
        super().__init__()
        self.found: list[tuple[cst.CSTNode, str, bool]] = []
        self.names: set[str] = set()
        self.every_name = names

    def on_visit(self, node: cst.CSTNode) -> bool:
        return (self.every_name or not isinstance(node, cst.BaseExpression)) and super().on_visit(node)

    def visit_Import(self, node: cst.Import) -> bool:
        self.found += [(node, alias.evaluated_name, alias.asname is None) for alias in node.names]
        self.names |= bound_by(node).keys()
        return False

    def visit_ImportFrom(self, node: cst.ImportFrom) -> bool:
        if not node.relative and node.module is not None:
            self.found += [(node, path, False) for path in bound_by(node).values()]
        self.names |= bound_by(node).keys()
        return False

    def visit_Attribute(self, node: cst.Attribute) -> bool:
        node.value.visit(self)
        return False

    def visit_Name(self, node: cst.Name) -> None:
        self.names.add(node.value)


def _dotted(path: str) -> cst.Name | cst.Attribute:
    return cst.ensure_type(cst.parse_expression(path), cst.Attribute if "." in path else cst.Name)


def _with_root(path: _Path) -> _Path:
    """A dotted path with its first name translated."""
    if isinstance(path, cst.Attribute):
        return path.with_changes(value=_with_root(path.value))
    return path.with_changes(value=NEW[path.value]) if isinstance(path, cst.Name) else path
