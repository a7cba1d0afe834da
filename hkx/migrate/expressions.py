"""Expressions of the table of removed names, with the arguments of a call in them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, cast

import libcst as cst

_SIMPLE = (
    *(cst.Name, cst.Attribute, cst.Call, cst.Subscript, cst.BaseNumber, cst.BaseString),
    *(cst.List, cst.Tuple, cst.Dict, cst.Set, cst.ListComp, cst.GeneratorExp),
)


class Edit(NamedTuple):
    """The replacement of a node: an expression, in which the names of `values` stand for arguments of a call."""

    code: str
    values: Mapping[str, Any]
    inside: bool = False  # whether it is part of an operation, in which it may need parentheses


def evaluated(code: cst.BaseExpression, name: str, value: cst.BaseExpression) -> cst.BaseExpression:
    """An expression of one argument, computed if the argument is True, False or None."""
    literal = value.value if isinstance(value, cst.Name) else ""
    if isinstance(code, cst.Name) or literal not in ("True", "False", "None"):
        return with_values(Edit(cst.Module([]).code_for_node(code), {name: 0}), [cst.Arg(value)])
    return cst.parse_expression(repr(eval(cst.Module([]).code_for_node(code), {name: {"True": True}.get(literal)})))


def with_values(edit: Edit, args: Any) -> cst.BaseExpression:
    """The expression of an edit, with the arguments of the call in it."""
    new = cast(cst.BaseExpression, cst.parse_expression(edit.code).visit(_Values(edit.values, list(args))))
    return _in_parentheses(new) if edit.inside else new


def _in_parentheses(node: cst.BaseExpression) -> cst.BaseExpression:
    if node.lpar or isinstance(node, _SIMPLE):
        return node
    return node.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])


class _Values(cst.CSTTransformer):
    """Puts arguments of a call into an expression: `values` are their indices, their defaults as text, or None."""

    def __init__(self, values: Mapping[str, Any], args: list[cst.Arg]) -> None:
        super().__init__()
        self.values = values
        self.args = args

    def leave_Arg(self, original_node: cst.Arg, updated_node: cst.Arg) -> Any:
        value = original_node.value
        name = value.value if isinstance(value, cst.Name) else ""
        updated_node = updated_node.with_changes(keyword=original_node.keyword)
        if name in self.values and original_node.star and not isinstance(self.values[name], int):
            comma = cst.Comma(whitespace_after=cst.SimpleWhitespace(" "))
            return cst.FlattenSentinel([cst.Arg(self.args[i].value, comma=comma) for i in self.values[name] or ()])
        if name in self.values and self.values[name] is None:
            return cst.RemoveFromParent()  # the default of the present function is the same
        if isinstance(self.values.get(name), int):
            return updated_node.with_changes(value=self.args[self.values[name]].value)
        return updated_node

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.Call:
        if len(original_node.args) == len(updated_node.args) or not updated_node.args:
            return updated_node
        last = updated_node.args[-1].with_changes(comma=cst.MaybeSentinel.DEFAULT)
        return updated_node.with_changes(args=[*updated_node.args[:-1], last])

    def leave_Attribute(self, original_node: cst.Attribute, updated_node: cst.Attribute) -> cst.Attribute:
        return updated_node.with_changes(attr=original_node.attr)

    def leave_Name(self, original_node: cst.Name, updated_node: cst.Name) -> cst.BaseExpression:
        value = self.values.get(original_node.value)
        if isinstance(value, str):
            return cst.parse_expression(value)
        return _in_parentheses(self.args[value].value) if isinstance(value, int) else updated_node
