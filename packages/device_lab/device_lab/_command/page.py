"""The report as one page of HTML: no scripts, light and dark, on a phone as well."""

import html

from .text import clean, sections

HEAD = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy"
 content="default-src 'none'; style-src 'unsafe-inline'">
<style>
:root { color-scheme: light dark; --ink: #1b1f24; --soft: #5f646b; --ground: #fff;
  --edge: #d5dae0; --bar: #0072b2 }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e8ea; --soft: #a3a8af;
  --ground: #15181b; --edge: #3a3f45; --bar: #56b4e9 } }
body { font: 1rem/1.5 system-ui, sans-serif; max-width: 60rem; margin: 0 auto;
  padding: 1rem; color: var(--ink); background: var(--ground); overflow-wrap: anywhere }
h1 { font-size: 1.3rem } h2 { font-size: 1.1rem; margin: 2rem 0 .5rem }
p { margin: .3rem 0 } code { font: .875rem/1.4 ui-monospace, monospace }
table { border-collapse: collapse; width: 100% }
td { border-top: 1px solid var(--edge); padding: .35rem .6rem .35rem 0;
  vertical-align: top } td:first-child { white-space: nowrap; width: 3.5rem }
td p { color: var(--soft) }
.bars { display: grid; grid-template-columns: auto auto 1fr; gap: .2rem .8rem;
  align-items: center; margin: .6rem 0 }
.bars i { height: .8rem; background: var(--bar) }
</style>
"""


def page(facts):
    """All of the report; what a terminal cuts is whole here."""
    first, *rest = sections(facts)
    title, *said = map(_safe, first.said)
    body = [f"<title>{title}</title>\n<main>\n<h1>{title}</h1>"]
    body += [f"<p>{line}</p>" for line in said]
    for section in rest:
        body.append(f"<h2>{section.title.capitalize()}</h2>")
        body += [f"<p>{_safe(line)}</p>" for line in section.said]
        body += [_bars(section.bars)] if section.bars else []
        body += [_table(section.rows)] if section.rows else []
    return HEAD + "\n".join(body) + "\n</main>\n</html>\n"


def _safe(value):
    return html.escape(clean(value))


def _bars(bars):
    rows = [
        f"<span>{_safe(name)}</span><span>{_safe(value)}, {share:.0%}</span>"
        f'<i style="width: {min(share, 1):.1%}"></i>'
        for name, value, share in bars
    ]
    return "\n".join(['<div class="bars">', *rows, "</div>"])


def _table(rows):
    lines = []
    for row in rows:
        notes = "".join(f"<p>{_safe(note)}</p>" for note in row.notes)
        code = f"<code>{_safe(row.code)}</code>" if row.code else ""
        inside = f" in {_safe(row.inside)}" if row.inside else ""
        cell = f"<b>{_safe(row.place)}</b> {code}{inside}{notes}"
        lines.append(f"<tr><td>{_safe(row.mark)}</td><td>{cell}</td></tr>")
    return "\n".join(["<table>", *lines, "</table>"])
