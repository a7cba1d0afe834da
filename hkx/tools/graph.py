"""Draws the computation of a function as a graph in the DOT language, with a box for each module."""

from __future__ import annotations

import dataclasses
import functools
import html
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax
from jax.extend.core import Jaxpr, JaxprEqn, Literal

from hkx.arguments import checked_function
from hkx.base.signatures import like, returning
from hkx.base.tracebacks import leaves_out_own_frames
from hkx.jaxprs.dependence import needed
from hkx.jaxprs.traces import inner_programs, operation_name
from hkx.tools.trace import ArraySpec, MethodInvocation, Trace, all_equations, call_numbers, trace

_COLOURS = {"input": ("#2E7D6B", "#D7EFE8"), "op": ("#8A8F98", "#F4F5F7"), "output": ("#3949AB", "#DDE1F7")}
_BOX = ("#B0B7C3", "#FFFFFF")


@dataclasses.dataclass
class _Node:
    lines: list[str]
    kind: str
    path: tuple[str, ...]
    used_in: list[tuple[str, ...]] = dataclasses.field(default_factory=list)


def to_dot(fun: Callable[..., Any]) -> Callable[..., str]:
    """Draws the computation of a function.

    Args:
      fun: a function; for one that creates modules, the `apply` that `hkx.transform` returns.

    Returns:
      A function of the arguments of `fun` (arrays, or `jax.ShapeDtypeStruct` instead) that returns the graph as text in
      the DOT language. It has a node for each operation, with the shape of its result, and nested boxes for the calls
      of modules, with the shapes of their inputs and outputs. The package `graphviz` can render it, if installed:
      `graphviz.Source(dot).render("model", format="svg")`. The function is not executed.

    Example:

      >>> import hkx, jax, jax.numpy as jnp
      >>> model = hkx.transform(lambda x: hkx.Linear(1)(x))
      >>> params = model.init(jax.random.key(0), jnp.ones([1, 3]))
      >>> dot = hkx.to_dot(model.apply)(params, None, jnp.ones([1, 3]))
      >>> dot.startswith("digraph"), "dot_general" in dot
      (True, True)
    """
    checked_function(fun, "hkx.to_dot", "fun")

    @like(fun, result=returning(str))
    @leaves_out_own_frames
    def dotted(*args: Any, **kwargs: Any) -> str:
        traced = trace(fun, args, kwargs)
        return _Graph(traced).text(getattr(fun, "__name__", type(fun).__name__))

    return dotted


def abstract_to_dot(fun: Callable[..., Any]) -> Callable[..., str]:
    """Draws the computation of a function; the same as `to_dot`, which does not execute the function either.

    Args:
      fun: a function.

    Returns:
      A function of the arguments of `fun`, or of `jax.ShapeDtypeStruct` instead, that returns the graph in DOT.

    Example:

      >>> import hkx, jax, jax.numpy as jnp
      >>> dot = hkx.experimental.abstract_to_dot(jnp.tanh)(jax.ShapeDtypeStruct((2, 3), jnp.float32))
      >>> "tanh" in dot
      True
    """
    return to_dot(fun)


def equation_name(eqn: JaxprEqn) -> str:
    """The name of an equation in drawings: its primitive, or the function that it calls."""
    inner = inner_programs(eqn)
    if "name" in eqn.params and inner:
        return str(eqn.params["name"])
    if len(inner) == 1 and len(inner[0].eqns) == 1 and eqn.primitive.name.startswith("custom_"):
        return equation_name(inner[0].eqns[0])
    return operation_name(eqn)


class _Graph:
    """The nodes, boxes and edges of one drawing."""

    def __init__(self, traced: Trace):
        self.nodes: list[_Node] = []
        self.edges: list[tuple[int, int]] = []
        self.labels: dict[str, list[str]] = {str(n): _call_lines(call) for n, call in traced.calls.items()}
        program = traced.program.jaxpr
        env: dict[Any, int] = {
            v: self.add([name, _type(v)], "input", ()) for v, name in zip(program.invars, traced.inputs, strict=True)
        }
        env |= {v: self.add(["constant", _type(v)], "input", ()) for v in program.constvars}
        self.run(program, env, ())
        self.mark_outputs(program, env, traced.outputs)
        for node in self.nodes:
            if node.kind == "input" and node.used_in and not node.lines[0].endswith("]"):
                node.path = functools.reduce(_common, node.used_in)
            self.shorten(node, traced)
        self.drawn = [n for n in self.nodes if n.kind != "input" or n.used_in] or self.nodes

    def shorten(self, node: _Node, traced: Trace) -> None:
        """Labels an input, or a state that is an output, with its name in the module whose box contains it."""
        numbers = [int(key) for key in node.path if key.isdecimal()]
        if numbers and numbers[-1] in traced.calls:
            full_name = traced.calls[numbers[-1]].module_details.full_name
            of_input, of_output = f": {full_name}/", f"[{full_name!r}]['"
            for i, line in enumerate(node.lines if node.kind != "op" else ()):
                if of_input in line:
                    node.lines[i] = line.partition(of_input)[2]
                elif of_output in line:
                    node.lines[i] = "output: " + line.partition(of_output)[2].removesuffix("']")

    def orders(self) -> Iterable[tuple[int, int]]:
        """Pairs of nodes; the second is drawn below the first, so that boxes are arranged from top to bottom.

        The first is computed outside of a box and used in it, and the second is an input drawn in that box.
        """
        feeds: dict[tuple[str, ...], int] = {}
        for a, b in self.edges:
            if self.nodes[a].kind == "input":
                continue
            shared = len(_common(self.nodes[a].path, self.nodes[b].path))
            for depth in range(shared + 1, len(self.nodes[b].path) + 1):
                box = self.nodes[b].path[:depth]
                feeds[box] = max(a, feeds.get(box, 0))
        for i, node in enumerate(self.nodes):
            boxes = [node.path[:depth] for depth in range(len(node.path), 0, -1)]
            feed = next((feeds[box] for box in boxes if box in feeds), None)
            if node.kind == "input" and feed is not None:
                yield feed, i

    def add(self, lines: list[str], kind: str, path: tuple[str, ...]) -> int:
        self.nodes.append(_Node(lines, kind, path))
        return len(self.nodes) - 1

    def run(self, program: Jaxpr, env: dict[Any, int], path: tuple[str, ...]) -> None:
        """Adds the equations of a program; `env` contains the nodes of the variables so far."""
        for eqn in needed(program.eqns, program.outvars):
            here = (*path, *[str(n) for n in call_numbers(eqn) if str(n) not in path])
            programs, operands = _drawn_programs(eqn)
            if len(programs) == 1:
                title = equation_name(eqn) + (f" × {n}" if (n := eqn.params.get("length")) else "")
                env.update(zip(eqn.outvars, self.inside(title, programs[0], operands, env, here), strict=True))
                continue
            node = self.add([equation_name(eqn), *map(_type, eqn.outvars)], "op", here)
            sources = eqn.invars[: len(eqn.invars) - len(operands)] if programs else eqn.invars
            from_nodes = [env[v] for v in sources if _in(v, env)]
            if programs:
                box = self.new_box([equation_name(eqn)])
                for i, program in enumerate(programs):
                    from_nodes += self.inside(f"branch {i}", program, operands, env, (*here, box))
            for source in from_nodes:
                self.edges.append((source, node))
                self.nodes[source].used_in.append(here)
            env.update((v, node) for v in eqn.outvars)

    def new_box(self, lines: list[str]) -> str:
        box = f"p{len(self.labels)}"
        self.labels[box] = lines
        return box

    def inside(
        self, title: str, program: Jaxpr, operands: Sequence[Any], env: dict[Any, int], path: tuple[str, ...]
    ) -> list[int]:
        """Adds a program in a box of its own. Returns the nodes of its results."""
        here = (*path, self.new_box([title]))
        known = {b: env[a] for a, b in zip(operands, program.invars, strict=True) if _in(a, env)}
        known |= {v: self.add(["constant", _type(v)], "input", path) for v in program.constvars}
        self.run(program, known, here)
        results: list[Any] = list(program.outvars)
        return [known[v] if _in(v, known) else self.add(["constant", _type(v)], "op", here) for v in results]

    def mark_outputs(self, program: Jaxpr, env: dict[Any, int], names: Sequence[str]) -> None:
        for v, name in zip(program.outvars, names, strict=True):
            source = env.get(v) if not isinstance(v, Literal) else None
            if source is not None and self.nodes[source].kind != "input":
                self.nodes[source].lines.insert(0, name)
                self.nodes[source].kind = "output"
                continue
            if source is None:
                self.add([name, _type(v)], "output", ())
            else:  # an input that is returned, most often a state that has not changed
                self.nodes[source].lines.append("also returned")

    def text(self, name: str) -> str:
        """The drawing in DOT."""
        out = [
            "digraph model {",
            "  rankdir=TB; compound=true; labelloc=t; fontsize=22;",
            f"  label=<<b>{html.escape(name)}</b>>;",
            '  fontname="Helvetica"; node [shape=box, style="rounded,filled", fontname="Helvetica", fontsize=11];',
            '  edge [color="#5F6670", arrowsize=0.6];',
            *self.box((), "  "),
            *[f"  n{a} -> n{b};" for a, b in dict.fromkeys(self.edges)],
            *[f"  n{a} -> n{b} [style=invis];" for a, b in self.orders()],
            "}",
        ]
        return "\n".join(out) + "\n"

    def box(self, path: tuple[str, ...], indent: str) -> Iterable[str]:
        """The nodes and boxes inside one box."""
        depth = len(path)
        for i, node in enumerate(self.nodes):
            if node.path == path and any(node is n for n in self.drawn):
                line, fill = _COLOURS[node.kind]
                yield f'{indent}n{i} [label=<{_label(node.lines)}>, color="{line}", fillcolor="{fill}"];'
        inside = {n.path[depth]: None for n in self.drawn if len(n.path) > depth and n.path[:depth] == path}
        for key in inside:
            yield f"{indent}subgraph cluster_{'_'.join((*path, key))} {{"
            yield f'{indent}  label=<{_label(self.labels.get(key, [key]))}>; style="rounded,filled";'
            yield f'{indent}  color="{_BOX[0]}"; fillcolor="{_BOX[1] if depth % 2 else "#FAFBFD"}"; fontsize=13;'
            yield from self.box((*path, key), indent + "  ")
            yield f"{indent}}}"


def _drawn_programs(eqn: JaxprEqn) -> tuple[list[Jaxpr], Sequence[Any]]:
    """The programs inside an equation that are drawn in full, if they call modules, and their inputs."""
    inner, operands = inner_programs(eqn), list(eqn.invars)
    if eqn.primitive.name == "cond":
        operands = operands[1:]
    elif eqn.primitive.name == "while":
        body = eqn.params["body_jaxpr"]
        inner, operands = [getattr(body, "jaxpr", body)], operands[eqn.params["cond_nconsts"] :]
    calls = any(call_numbers(e, outer) for program in inner for e, outer in all_equations(program))
    fits = all(len(p.invars) == len(operands) and len(p.outvars) == len(eqn.outvars) for p in inner)
    alike = len(inner) == 1 or eqn.primitive.name == "cond"
    return (inner, operands) if calls and fits and alike else ([], operands)


def _in(variable: Any, known: dict[Any, int]) -> bool:
    return not isinstance(variable, Literal) and variable in known


def _common(a: tuple[str, ...], b: tuple[str, ...]) -> tuple[str, ...]:
    same = 0
    while same < min(len(a), len(b)) and a[same] == b[same]:
        same += 1
    return a[:same]


def _type(variable: Any) -> str:
    aval = variable.aval
    return str(ArraySpec(aval.shape, aval.dtype)) if hasattr(aval, "shape") else str(aval)


def _call_lines(call: MethodInvocation) -> list[str]:
    details = call.module_details
    method = "" if details.method_name == "__call__" else f".{details.method_name}"
    arrays = [str(x) for x in jax.tree.leaves((call.args_spec, call.kwargs_spec)) if isinstance(x, ArraySpec)]
    return [
        f"{details.full_name} ({type(details.module).__name__}{method})",
        f"{', '.join(arrays)} → {call.output_spec}",
    ]


def _label(lines: list[str]) -> str:
    first, *rest = map(html.escape, lines)
    return "<br/>".join([f"<b>{first}</b>", *rest])
