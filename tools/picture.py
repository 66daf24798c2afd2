"""Pictures of the docs: boxes, arrows and words in SVG, in greys and colours that stand on white and on black pages."""
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
IMAGES = ROOT / "docs/images"
GREY, BLUE, GREEN, AMBER, VIOLET, RED = "#7b828b", "#3d85c6", "#3a9a68", "#c07f16", "#8466c4", "#c5504f"
FILLS = {"text": "#7a5195", "engine": "#2f6f9f", "model": "#2a7f62", "machine": "#8a5a2b", "store": "#5c6670"}  # of blocks, by kind


def escaped(text):
    return text.replace("&", "&amp;").replace("<", "&lt;")


class Picture:
    def __init__(self, width, height, title):
        self.parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
            f'font-family="system-ui, sans-serif" font-size="12" role="img" aria-label="{escaped(title)}"><title>{escaped(title)}</title>'
            f'<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
            f'<path d="M0 0L8 4L0 8z" fill="{GREY}"/></marker></defs>']

    def text(self, x, y, text, at="start", size=12, colour=GREY, bold=False):
        weight = ' font-weight="bold"' if bold else ""
        self.parts.append(f'<text x="{x:g}" y="{y:g}" text-anchor="{at}" font-size="{size}" fill="{colour}"{weight}>{escaped(text)}</text>')

    def note(self, place, text):
        """Words around the middle of a place (x, y)."""
        self.text(*place, text, "middle")

    def box(self, x, y, width, height, colour, text="", solid=False, size=12):
        """A framed box in a light tone of the colour, or a filled one with white text."""
        self.parts.append(f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="3" fill="{colour}" '
                          f'fill-opacity="{1 if solid else 0.16}" stroke="{colour}"/>')
        for i, line in enumerate(text.split("\n") if text else []):
            middle = y + height / 2 + 4 + (i - text.count("\n") / 2) * 15
            self.text(x + width / 2, middle, line, "middle", size, "#ffffff" if solid else GREY)

    def block(self, place, name, lines, kind):
        """A filled box at place (x, y, width, height) with a name and lines below it."""
        x, y, width, height = place
        self.parts.append(f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="6" fill="{FILLS[kind]}"/>')
        top = y + height / 2 - 8.5 * len(lines) + 5
        for i, line in enumerate([name, *lines]):
            self.text(x + width / 2, top + 17 * i, line, "middle", 12 if i else 15, "#ffffff", not i)

    def arrow(self, points, label=None, at=None):
        """A line through points (x, y) with a tip at its end, and perhaps words around a place."""
        path = " ".join(f"{'L' if i else 'M'}{x:g} {y:g}" for i, (x, y) in enumerate(points))
        self.parts.append(f'<path d="{path}" fill="none" stroke="{GREY}" stroke-width="1.5" marker-end="url(#tip)"/>')
        if label:
            self.note(at, label)

    def line(self, x1, y1, x2, y2):
        self.parts.append(f'<line x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}" stroke="{GREY}" stroke-dasharray="2 3"/>')

    def svg(self):
        return "\n".join([*self.parts, "</svg>", ""])


def main(pictures, script):
    """Writes {name: function that draws it} into docs/images; with --check writes nothing. Returns 1 if one differs from what is there."""
    differ = 0
    for name, draw in pictures.items():
        file, text = IMAGES / f"{name}.svg", draw().svg()
        if "--check" not in sys.argv[1:]:
            file.write_text(text)
        elif not file.exists() or file.read_text() != text:
            print(f"{file.relative_to(ROOT)}: not what {pathlib.Path(script).resolve().relative_to(ROOT)} draws")
            differ = 1
    return differ
