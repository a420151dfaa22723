"""The page for wrong addresses, 404.html. A server shows it in place of any page,
however deep its address, and the site may stand in any folder: so the page finds out
where that is, in the reader's browser, before it asks for a style.
"""

import html
import re
from urllib.parse import urlparse

# For each folder of the address, the deepest first, document.write() has the browser
# ask for _static/root.js, and wait. Links of the page then start where it was found.
# Those to a place on the page itself stay there.
SCRIPT = """\
<script>
{
  const parts = location.pathname.replace(/["<>]/g, "").split("/").slice(0, -1);
  while (parts.length) {
    document.write(`<script src="${parts.join("/")}/_static/root.js"><\\/script>`);
    parts.pop();
  }
}
</script>
<script>
if (window.siteRoot) document.write(`<base href="${siteRoot}">`);
else document.documentElement.classList.add("astray");
addEventListener("DOMContentLoaded", () => {
  for (const link of document.querySelectorAll("a[href^='#']")) {
    link.href = location.pathname + link.getAttribute("href");
  }
});
</script>
<style>
.astray body { font: 1.1rem/1.5 sans-serif; margin: 3rem auto; max-width: 36rem;
               padding: 0 1rem; }
.astray :is(body > :not(.page), aside, header, footer, label, svg, .back-to-top,
  .content-icon-container, h1 + p) { display: none; }
html:not(.astray) .published { display: none; }
</style>
<noscript><style>svg { height: 1.2em; width: 1.2em; }
html .published { display: block !important; }</style></noscript>
"""
# where neither is: the site that is known
PUBLISHED = '<p class="published">The course begins at <a href="{0}">{0}</a>.</p>'


def finish(page, site):
    """Let the page that Sphinx has written, whose addresses are those of `site`, work
    in any folder.
    """
    text = page.read_text(encoding="utf-8")
    folder = re.escape(urlparse(site).path.rstrip("/") + "/")
    text = re.sub(rf'(\b(?:href|src|action)="){folder}', r"\1", text)
    begin = '<meta charset="utf-8">'
    text = text.replace(begin, f"{begin}{SCRIPT}", 1)
    link = PUBLISHED.format(html.escape(site))
    text = text.replace("</article>", f"{link}</article>", 1)
    page.write_text(text, encoding="utf-8")
