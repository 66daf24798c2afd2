"""What the site changes in pages: links that leave docs/ become the paths they lead to, and pages that the navigation does not name are added."""
import os
import pathlib
import re

DOCS = pathlib.Path(__file__).resolve().parents[2] / "docs"
LINK = re.compile(r"(?<!!)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^()\s]+)\)")
SECTIONS = {"guide": "Use", "design": "Understand", "adr": "Decisions"}  # for pages that are not named


def named(nav):
    """The pages of a navigation."""
    for entry in nav:
        if isinstance(entry, str):
            yield entry
        else:
            for pages in entry.values():
                yield from [pages] if isinstance(pages, str) else named(pages)


def on_config(config):
    """Adds the pages of guides, design and decisions that no section names."""
    known = set(named(config.nav))
    for folder, title in SECTIONS.items():
        others = sorted(path.relative_to(DOCS).as_posix() for path in (DOCS / folder).glob("*.md"))
        others = [page for page in others if page not in known]
        section = next((entry for entry in config.nav if title in entry), None)
        if section is None:
            config.nav.append({title: others})
        else:
            section[title] += others
    return config


def on_page_markdown(markdown, page, **_):
    """Links to files of the sources, which the site does not have, and to folders become text."""
    def shown(link):
        text, target = link[1], link[2]
        if re.match(r"[a-z]+:|#|/", target):
            return link[0]
        path = (DOCS / page.file.src_uri).parent / target.split("#")[0]
        where = os.path.relpath(path, DOCS.parent)
        if where.startswith("docs/") and path.is_file():
            return link[0]
        return text if where.startswith("docs/") or text.strip("`").rstrip("/") == where else f"{text} (`{where}`)"
    parts = re.split(r"(^```.*?^```$|`[^`\n]+`(?!\]))", markdown, flags=re.M | re.S)
    return "".join(part if part.startswith("`") else LINK.sub(shown, part) for part in parts)
