"""Shows the tree of a program as text and as HTML."""

from __future__ import annotations

import html
from collections.abc import Iterator

from hkx.tools.jaxpr_info import Expression, Module


def _amount(count: int, unit: str) -> str:
    """Formats 12345 as `12.35 kflops`."""
    value = float(count)
    for prefix in ("", "k", "M", "G", "T"):
        if value <= 1000 or prefix == "T":
            break
        value /= 1000
    return f"{value:.4g} {prefix}{unit}"


def _amounts(module: Module) -> list[str]:
    pairs = [(module.flops, "flops"), (module.total_param_size, "params"), (module.total_state_size, "state")]
    return [_amount(count, unit) for count, unit in pairs if count]


def format_module(module: Module, depth: int = 0) -> str:
    """Formats the tree as indented text.

    Args:
      module: the result of `make_model_info`.
      depth: the indentation, in steps of two spaces.

    Returns:
      One line for each module and each operation.

    Example:

      >>> import hkx, jax.numpy as jnp
      >>> info = hkx.experimental.jaxpr_info.make_model_info(jnp.sin)(1.0)
      >>> print(hkx.experimental.jaxpr_info.format_module(info).strip())
      sin
        sin in f32[], out f32[]
    """
    return "".join(f"{'  ' * level}{text}\n" for level, text in _lines(module, depth))


def _lines(module: Module, depth: int) -> Iterator[tuple[int, str]]:
    yield depth, " ".join([module.name, *_amounts(module)])
    for e in module.expressions:
        if e.submodule is not None:
            yield from _lines(e.submodule, depth + 1)
        else:
            count = [_amount(e.flops, "flops")] if e.flops else []
            yield depth + 1, " ".join([e.primitive, *count, *([e.details] if e.details else [])])


def as_html(module: Module, min_flop: int = 1000, outvars: str = "", last: bool = False) -> str:
    """Formats the tree as a piece of HTML in which you can open and close every module.

    Args:
      module: the result of `make_model_info`.
      min_flop: operations with fewer floating-point operations are left out, if these were counted.
      outvars: the names of the results, shown before the name.
      last: whether it is the last of its siblings.

    Returns:
      The HTML; use it with the style sheet `css()`.

    Example:

      >>> import hkx, jax.numpy as jnp
      >>> info = hkx.experimental.jaxpr_info.make_model_info(jnp.sin)(1.0)
      >>> "<summary>" in hkx.experimental.jaxpr_info.as_html(info)
      True
    """
    shown = [e for e in module.expressions if e.flops is None or e.flops >= min_flop or e.submodule is not None]
    items = [_item(e, min_flop, e is shown[-1]) for e in shown]
    result = f'<span class="var">{html.escape(outvars)} =</span> ' if outvars else ""
    amounts = "".join(f' <span class="amount">{html.escape(a)}</span>' for a in _amounts(module))
    infos = [("Parameters", module.param_info), ("State", module.state_info)]
    held = "".join(f"<p>{title}</p>{_held(info)}" for title, info in infos if info)
    return (
        f'<details class="module{" last" if last else ""}"><summary>{result}<b>{html.escape(module.name)}</b>{amounts}'
        f"</summary>{held}<ol>{''.join(items)}</ol></details>"
    )


def _held(info: dict[str, str]) -> str:
    rows = "".join(f"<tr><td>{html.escape(k)}</td><td>{html.escape(v)}</td></tr>" for k, v in info.items())
    return f"<table>{rows}</table>"


def _item(e: Expression, min_flop: int, last: bool) -> str:
    if e.submodule is not None:
        return f"<li>{as_html(e.submodule, min_flop, e.outvars, last)}</li>"
    count = f' <span class="amount">{_amount(e.flops, "flops")}</span>' if e.flops else ""
    title = html.escape("\n".join([e.details, *[f"{k}: {v}" for k, v in e.params.items()]]))
    return (
        f'<li title="{title}"><span class="var">{html.escape(e.outvars)} =</span> <i>{html.escape(e.primitive)}</i> '
        f"{html.escape(e.invars)}{count}</li>"
    )


def as_html_page(module: Module, min_flop: int = 1000) -> str:
    """Formats the tree as a complete HTML page.

    Args:
      module: the result of `make_model_info`.
      min_flop: as for `as_html`.

    Returns:
      The page, for example to save in a file.

    Example:

      >>> import hkx, jax.numpy as jnp
      >>> info = hkx.experimental.jaxpr_info.make_model_info(jnp.sin)(1.0)
      >>> hkx.experimental.jaxpr_info.as_html_page(info).startswith("<!DOCTYPE html>")
      True
    """
    return (
        f'<!DOCTYPE html>\n<html>\n<head>\n<meta charset="utf-8">\n<title>{html.escape(module.name)}</title>\n'
        f"<style>\n{css()}</style>\n<script>\n{js()}</script>\n</head>\n"
        '<body>\n<button onclick="openAll(true)">open all</button>\n'
        '<button onclick="openAll(false)">close all</button>\n'
        f"{as_html(module, min_flop, last=True).replace('<details', '<details open', 1)}\n</body>\n</html>\n"
    )


def css() -> str:
    """The style sheet of `as_html`.

    Example:

      >>> import hkx
      >>> "details" in hkx.experimental.jaxpr_info.css()
      True
    """
    return (
        "body { font: 14px/1.5 system-ui, sans-serif; margin: 2em; }\n"
        "details.module > ol { list-style: none; margin: 0; padding-left: 1.4em; border-left: 1px solid #d0d4da; }\n"
        "details.module > summary { cursor: pointer; }\n"
        "details.module > p { margin: 0.2em 0 0 1.4em; color: #5f6670; }\n"
        "details.module > table { margin-left: 1.4em; font-family: monospace; }\n"
        ".var { color: #5f6670; font-family: monospace; }\n"
        ".amount { color: #2e7d6b; margin-left: 0.6em; }\n"
    )


def js() -> str:
    """The script of `as_html_page`: a function that opens or closes every module.

    Example:

      >>> import hkx
      >>> "openAll" in hkx.experimental.jaxpr_info.js()
      True
    """
    return (
        "function openAll(open) {\n"
        "  for (const d of document.querySelectorAll('details.module')) { d.open = open; }\n"
        "}\n"
    )
