#!/usr/bin/env python3
"""Reads the documentation that the program serves at /docs, in headless Chromium."""
import pathlib
import re
import unittest

from browser import Browser
from web_server import BUILD, SOURCE, Serving

SHOTS = BUILD / "web-screenshots"
DOCS = SOURCE / "docs"
SHOWN = "document.querySelector('#page h3') !== null && document.querySelector('#page h3').textContent === arguments[0]"


def pages():
    return sorted(str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md") if not path.is_relative_to(DOCS / "adr"))


class Docs(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        SHOTS.mkdir(parents=True, exist_ok=True)
        cls.server = cls.enterClassContext(Serving("--api-key", "k"))  # pages need no key
        cls.server.key = None
        cls.browser = Browser()
        cls.addClassCleanup(cls.browser.close)

    def tearDown(self):
        self.assertEqual(self.browser.console_errors(), [])

    def test_files_are_those_of_this_version(self):
        size = 0
        for page in pages():
            status, headers, body = self.server.get(f"/docs/{page}")
            self.assertEqual((page, status, headers.get_content_type()), (page, 200, "text/markdown"))
            self.assertEqual(body, (DOCS / page).read_bytes())
            size += len(body)
        for picture in DOCS.glob("images/*.svg"):
            status, headers, body = self.server.get(f"/docs/images/{picture.name}")
            self.assertEqual((status, headers.get_content_type(), body), (200, "image/svg+xml", picture.read_bytes()))
            size += len(body)
        self.assertLess(size, 1 << 20, "what the documentation adds to the program")
        self.server.key = "k"  # what is no page is told as any path
        self.addCleanup(setattr, self.server, "key", None)
        for path in ("/docs/", "/docs/../CMakeLists.txt", "/docs/%2e%2e/README.md", "/docs/guide/", "/docs/guide/nothing.md",
                     "/docs/guide/../guide/run.md", "/docs//etc/passwd", "/docs/app.js", "/ui/guide/run.md"):
            self.assertEqual((path, self.server.get(path)[0]), (path, 404))

    def test_pages_and_links(self):
        browser = self.browser
        browser.size(1280, 860)
        browser.open(self.server.url + "/docs")
        browser.wait(SHOWN, "Penstock")
        browser.screenshot(SHOTS / "docs.png")
        browser.click('#page a[href="#guide/run.md"]')
        first = (DOCS / "guide" / "run.md").read_text()
        browser.wait(SHOWN, re.search(r"^# (.*)", first, re.M)[1])
        heading = "what-does-a-file-hold-and-what-memory-does-it-need"
        browser.open(self.server.url + "/docs")
        browser.wait(SHOWN, "Penstock")
        browser.click(f'#page a[href="#guide/run.md#{heading}"]')
        browser.wait("Math.abs(document.getElementById(arguments[0])?.getBoundingClientRect().top ?? 1e9) < 200", heading)
        self.assertEqual(browser.run("return document.getElementById(arguments[0]).textContent", heading),
                         "What does a file hold, and what memory does it need?")
        browser.open(self.server.url + "/docs#design.md")
        browser.wait("document.querySelector('#page img')?.naturalWidth > 0")

    # Every link of every page that is within the documentation leads to a heading that is there.
    def test_every_link_leads_somewhere(self):
        browser = self.browser
        browser.open(self.server.url + "/docs")
        browser.wait(SHOWN, "Penstock")
        wrong = browser.run("""const pages = arguments[0];
            const settle = async (page) => {
              location.hash = page;
              for (const begin = performance.now(); performance.now() - begin < 60000;) {
                await new Promise((done) => setTimeout(done, 5));
                if (document.querySelector("#page").dataset.page === page) return;
              }
              throw new Error(`${page} did not show`);
            };
            return (async () => {
              const ids = {}, links = [], wrong = [];
              for (const page of pages) {
                await settle(page);
                ids[page] = [...document.querySelectorAll("#page [id]")].map((node) => node.id);
                for (const a of document.querySelectorAll("#page a[href^='#']")) links.push([page, a.getAttribute("href")]);
              }
              for (const [page, href] of links) {
                const [to, heading] = href.slice(1).split("#");
                if (!(to in ids) || (heading && !ids[to].includes(decodeURIComponent(heading)))) wrong.push(`${page}: ${href}`);
              }
              return [links.length, wrong];
            })();""", pages())
        self.assertGreater(wrong[0], 200)
        self.assertEqual(wrong[1], [])

    def test_search(self):
        browser = self.browser
        browser.open(self.server.url + "/docs")
        browser.wait(SHOWN, "Penstock")
        browser.type("#words", "first-token")
        browser.wait("document.querySelector('#found a') !== null")
        self.assertIn("run.md", browser.text("#found"))
        browser.click("#found a")
        browser.wait("document.querySelector('#found').hidden && !document.querySelector('#page').hidden")
        browser.type("#words", "the")
        browser.wait("document.querySelectorAll('#found li').length === 40")
        browser.type("#words", " qqzzxx")
        browser.wait("document.querySelector('#found').textContent.includes('Nothing has')")

    def test_phone_and_dark(self):
        browser = self.browser
        browser.size(375, 700)
        browser.dark(True)
        self.addCleanup(browser.dark, False)
        browser.open(self.server.url + "/docs#guide/run.md")
        browser.wait("document.querySelector('#page h4') !== null")
        self.assertLessEqual(browser.run("return document.documentElement.scrollWidth"), 375)
        browser.screenshot(SHOTS / "docs-phone.png")


if __name__ == "__main__":
    unittest.main(verbosity=2)
