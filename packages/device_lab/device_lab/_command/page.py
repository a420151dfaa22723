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
body { font: 1rem/1.5 system-ui, sans-serif; color: var(--ink); background: var(--ground);
  max-width: 60rem; margin: 0 auto; padding: 1rem; overflow-wrap: anywhere }
h1 { font-size: 1.3rem } h2 { font-size: 1.1rem; margin: 2rem 0 .5rem }
p { margin: .3rem 0 } code { font: .875rem/1.4 ui-monospace, monospace }
table { border-collapse: collapse; width: 100% }
td { border-top: 1px solid var(--edge); padding: .35rem .6rem .35rem 0;
  vertical-align: top } td:first-child { white-space: nowrap; width: 3.5rem }
td p { color: var(--soft) } ol td:first-child { width: auto }
.bars { display: grid; grid-template-columns: auto auto 1fr; gap: .2rem .8rem;
  align-items: center } .bars i { height: .8rem; background: var(--bar) }
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
        body += [_bars(section)] * bool(section.bars) + [_table(section)] * bool(
            section.rows
        )
    return HEAD + "\n".join(body) + "\n</main>\n</html>\n"


def _safe(value):
    return html.escape(clean(value))


def _bars(section):
    rows = [
        f"<span>{_safe(name)}</span><span>{_safe(value)}, {share:.0%}</span>"
        f'<i style="width: {min(max(share, 0), 1):.1%}"></i>'
        for name, value, share in section.bars
    ]
    return '<div class="bars">\n' + "\n".join(rows) + "\n</div>"


def _table(section):
    rows = [
        f"<tr><td>{_safe(row.mark)}</td><td><b>{_safe(row.place)}</b>"
        f" <code>{_safe(row.code)}</code>{''.join(f'<p>{_safe(x)}</p>' for x in row.notes)}"
        "</td></tr>"
        for row in section.rows
    ]
    return "<table>\n" + "\n".join(rows) + "\n</table>"
