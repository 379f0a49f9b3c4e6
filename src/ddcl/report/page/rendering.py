"""A run's contents to one file of HTML that needs nothing else."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

from markupsafe import Markup

from ddcl.report.page.contents import Contents
from ddcl.report.page.dynamics import panels
from ddcl.report.page.heat import draw_heat
from ddcl.report.page.mapping import draw_map, in_frame, spread_colours
from ddcl.report.page.merging import draw_counts, draw_tree
from ddcl.report.page.texts import grouped, listed, percent, short, shown
from ddcl.version import __version__

OPEN_TREE = 60
"""Prototypes up to which the tree of merges is open from the start."""


def render(contents: Contents) -> str:
    """The whole page."""
    try:
        from jinja2 import Environment, PackageLoader, StrictUndefined
    except ImportError as error:
        raise ImportError("a report needs jinja2, which comes with the extra: pip install 'ddcl[report]'") from error
    environment = Environment(
        loader=PackageLoader("ddcl.report", "page"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {one.__name__: one for one in (shown, percent, grouped, short, listed)}
    style, script = (files("ddcl.report.page").joinpath(name).read_text("utf-8") for name in ("page.css", "page.js"))
    drawn_panels = panels(contents.metrics, contents.num_prototypes)
    data, drawn_map = _map(contents)
    data["panels"] = [{"names": panel.legend or (panel.title,), "lines": panel.lines} for panel in drawn_panels]
    data["epochs"] = [line["epoch"] for line in contents.metrics]
    page: str = environment.get_template("page.html.j2").render(
        run=contents,
        panels=drawn_panels,
        map=drawn_map,
        heat=draw_heat(contents.heat, contents.titles) if contents.heat.rows else None,
        counts=None if contents.phases is None else draw_counts(contents.phases),
        tree=None if contents.phases is None else draw_tree(contents.phases, contents.titles),
        open_tree=contents.num_prototypes <= OPEN_TREE,
        colours=data["colours"],
        carded=frozenset(data["cards"]),
        style=Markup(style),
        script=Markup(script),
        policy=_policy(style, script),
        data=_as_data(data),
        version=__version__,
    )
    return page


def _map(contents: Contents) -> tuple[dict[str, Any], Markup | None]:
    """What the script is told of the rows, and the picture as it stands without it."""
    data: dict[str, Any] = {
        "titles": [shown(title, 80) for title in contents.titles],
        "sizes": list(contents.sizes),
        "cards": [card.number for card in contents.cards],
        "colours": [0] * contents.num_prototypes,
        "rows": [],
        "layouts": {},
    }
    if contents.map is None:
        return data, None
    for name in ("tsne", "pca"):
        if contents.map[name] is not None:
            rows, prototypes = in_frame(contents.map[name])
            data["layouts"][name] = {"rows": rows.tolist(), "prototypes": prototypes.tolist()}
    rows, prototypes = in_frame(contents.map["tsne"] or contents.map["pca"])
    colours = data["colours"] = spread_colours(prototypes)
    data["rows"] = [
        {"row": one.row, "text": one.text, "label": one.label, "shares": [(p, round(w, 3)) for p, w in one.shares]}
        for one in contents.mapped
    ]
    nearest = [one.prototype for one in contents.mapped]
    label = f"Map of {len(nearest)} rows and {contents.num_prototypes} prototypes in two dimensions"
    return data, draw_map(rows, prototypes, nearest, colours, label)


def _as_data(data: Mapping[str, Any]) -> Markup:
    """JSON that no parser of HTML takes for anything else: all but ASCII is escaped, and so is what opens a tag."""
    text = json.dumps(data, ensure_ascii=True, separators=(",", ":"))
    return Markup(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))


def _policy(style: str, script: str) -> str:
    """Nothing is fetched, and nothing runs but our own script, known by its hash."""

    def known(text: str) -> str:
        return "'sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() + "'"

    return (
        f"default-src 'none'; style-src {known(style)}; script-src {known(script)}; base-uri 'none'; form-action 'none'"
    )
