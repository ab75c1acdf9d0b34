"""Links between the pages of a site: whether each leads to a file, and to a place in it."""

from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit


class _Page(HTMLParser):
    """What a page links to, and the names of its places."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.places = {"", "top"}  # which every page has
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Take the links and names of a tag."""
        for key, value in attrs:
            if key in ("href", "src"):
                self.links.append(value or "")
            elif key in ("id", "name"):
                self.places.add(value or "")


def dead_links(folder: Path) -> list[str]:
    """Return the links of a built site that lead to no file of it, or to no place of that file.

    Links to other sites are left out.

    Parameters
    ----------
    folder : Path
        Of the built site.

    Returns
    -------
    list of str
        ``PAGE links to LINK``, each once.
    """
    files = [file for file in sorted(folder.rglob("*.html")) if "_static" not in file.parts]
    pages = {file.resolve(): _Page(file.read_text("utf-8")) for file in files}
    dead = dict[str, None]()
    for file, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (file.parent / unquote(parts.path)).resolve() if parts.path else file
            there = pages.get(target)
            found = target.exists() if there is None else unquote(parts.fragment) in there.places
            if not found:
                dead[f"{file.relative_to(folder.resolve())} links to {link}"] = None
    return list(dead)
