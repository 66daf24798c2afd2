#!/usr/bin/env python3
"""Uses the web page as a visitor would, in headless Chromium. Screenshots are kept in the build folder's web-screenshots/."""
import concurrent.futures
import json
import pathlib
import tempfile
import time
import unittest

import script_model
from browser import KEYS, Browser
from web_server import BUILD, SOURCE, STORY_MODEL, Serving, with_chat_template

SHOTS = BUILD / "web-screenshots"
PROMPT = "Once upon a time, there was a fox who"
READY = "document.querySelector('#server-pill').dataset.state === 'ready'"
IDLE = "document.querySelector('#log').getAttribute('aria-busy') === 'false'"
BUSY = "document.querySelector('#log').getAttribute('aria-busy') === 'true'"
# The plain C++ kernels on one core keep the model slow enough to be stopped on any machine.
SLOW = {"PENSTOCK_ISA": "scalar"}


def setUpModule():
    SHOTS.mkdir(parents=True, exist_ok=True)


class Page(unittest.TestCase):
    """A server and a browser per class; a fresh page with nothing stored per test."""
    before = ()
    flags, env, model = ["--served-model-name", "penstock-stories-15m,river-base", "--threads", "1"], SLOW, None

    @classmethod
    def setUpClass(cls):
        cls.server = cls.enterClassContext(Serving(*cls.flags, env=cls.env, model=cls.model, before=cls.before))
        cls.browser = Browser()
        cls.addClassCleanup(cls.browser.close)

    def setUp(self):
        self.browser.size(1280, 860)
        self.browser.dark(False)
        self.browser.open(self.server.url)
        # A page that is still connecting would store its settings again.
        self.browser.wait("['ready', 'key'].includes(document.querySelector('#server-pill').dataset.state)")
        self.browser.run("localStorage.clear(); sessionStorage.clear()")
        self.browser.console_errors()
        self.open()

    def tearDown(self):
        self.assertEqual(self.browser.console_errors(), [])

    def open(self, path="/", state=READY):
        self.browser.open(self.server.url + path)
        self.browser.wait(state)

    def shot(self, name):
        self.browser.run("return document.fonts.ready.then(() => new Promise(requestAnimationFrame)).then(() => true)")
        self.browser.screenshot(SHOTS / f"{name}.png")

    def settings(self, **values):
        """Fills fields of the settings panel by id."""
        if self.browser.run("return document.querySelector('#settings').hidden"):
            self.browser.click("#settings-button")
        for name, value in values.items():
            self.browser.run("""const [id, value] = arguments, field = document.getElementById(id);
                field.value = value;
                for (const name of ["input", "change"]) field.dispatchEvent(new Event(name, {bubbles: true}));""",
                             name.replace("_", "-") if name == "api_key" else name, str(value))

    def write(self, text):
        self.browser.type("#prompt", text + KEYS["Enter"])

    def api(self, path, body):
        status, _, data = self.server.request(path, body)
        self.assertEqual(status, 200, data)
        return json.loads(data)

    def story(self):
        return self.browser.text(".story")


class Story(Page):
    def test_streams_a_story(self):
        browser = self.browser
        self.assertIn("story begin", browser.text(".welcome h1"))
        self.shot("story-welcome")
        self.settings(**{"param-temperature": 0, "param-max_tokens": 120})
        browser.click("#settings-button")
        self.write(PROMPT)
        lengths = [browser.wait("document.querySelector('.theirs')?.textContent.length > arguments[0] && "
                                "document.querySelector('.theirs').textContent.length", n) for n in (0, 40)]
        self.assertTrue(browser.run(f"return {BUSY}"), "the text came in one piece")
        self.shot("story-streaming")
        browser.wait(IDLE)
        whole = self.api("/v1/completions", {"prompt": PROMPT, "temperature": 0, "max_tokens": 120})
        text = whole["choices"][0]["text"]
        self.assertGreater(len(text), lengths[-1])
        self.assertEqual(self.story(), PROMPT + text)
        self.assertIn(f"{whole['usage']['completion_tokens']} tokens", browser.text(".foot .stats"))
        self.assertEqual(browser.text("#context-use"), f"{whole['usage']['total_tokens']} of 512 tokens of context")

    def test_suggestions_suit_the_model(self):
        browser = self.browser
        examples = "return [...document.querySelectorAll('.examples button')].map((one) => one.textContent)"
        story = browser.run(examples)
        self.settings(model="river-base")
        self.assertIn("continue", browser.text(".welcome h1"))
        base = browser.run(examples)
        self.assertEqual((len(story), len(base), set(story) & set(base)), (6, 6, set()))
        browser.click("#settings-button")
        self.shot("base-welcome")
        # The empty state fills the page's middle and cuts nothing off.
        room = browser.run("""const box = (name) => document.querySelector(name).getBoundingClientRect();
            const log = box("#log"), list = box(".examples"), title = box(".welcome h1");
            return [(list.bottom - title.top) / log.height, list.width / log.width, title.top - log.top, log.bottom - list.bottom];""")
        self.assertGreater(room[0], 0.4)
        self.assertGreater(room[1], 0.75)
        self.assertLess(abs(room[2] - room[3]), 30)

    def test_token_probabilities(self):
        browser = self.browser
        self.settings(**{"param-temperature": 0, "param-max_tokens": 24})
        browser.click("#settings-button")
        self.write(PROMPT)
        browser.wait("document.querySelectorAll('.tok').length > 8 && " + IDLE)
        reply = self.api("/v1/completions", {"prompt": PROMPT, "temperature": 0, "max_tokens": 24, "logprobs": 5})
        logprobs = reply["choices"][0]["logprobs"]
        self.assertEqual(browser.run("return [...document.querySelectorAll('.tok')].map((t) => t.textContent)"),
                         logprobs["tokens"])
        browser.hover(".tok:nth-child(5)")
        browser.wait("!document.querySelector('#tooltip').hidden")
        rows = browser.run("return [...document.querySelectorAll('#tooltip li code')].map((c) => c.textContent)")
        top = sorted(logprobs["top_logprobs"][4].items(), key=lambda item: -item[1])
        self.assertEqual(rows, [text.replace(" ", "␣").replace("\n", "⏎") for text, _ in top])
        shown = float(browser.text("#tooltip .chosen span:last-child").split()[0])
        self.assertAlmostEqual(shown / 100, 2.718281828459045 ** logprobs["token_logprobs"][4], delta=0.001)
        columns = browser.run("""return ["#tooltip .chosen", "#tooltip li"].map((row) => [
            document.querySelector(row + " code").getBoundingClientRect().left,
            document.querySelector(row + " > span:last-child").getBoundingClientRect().right])""")
        for left, right in zip(*columns):
            self.assertAlmostEqual(left, right, delta=0.5)
        self.shot("token-hover")
        # The keyboard gets there too, and back.
        browser.run("document.querySelector('[data-inspect]').focus()")
        browser.press("Enter")
        browser.press("ArrowRight")
        self.assertEqual(browser.run("return document.activeElement.textContent"), logprobs["tokens"][1])
        self.assertFalse(browser.run("return document.querySelector('#tooltip').hidden"))
        browser.press("Escape")
        self.assertTrue(browser.run("return document.activeElement.matches('[data-inspect]')"))
        browser.run("document.querySelector('#heat').click()")
        self.assertNotEqual(browser.run("return getComputedStyle(document.querySelector('.tok.p0, .tok.p1, .tok.p2, .tok.p3'))"
                                        ".backgroundColor"), "rgba(0, 0, 0, 0)")
        self.shot("token-colours")

    def test_stop_regenerate_and_versions(self):
        browser = self.browser
        self.settings(extra='{"ignore_eos": true}', **{"param-max_tokens": 480})
        browser.click("#settings-button")
        self.write(PROMPT)
        browser.wait("document.querySelectorAll('.tok').length > 5")
        self.assertTrue(browser.run("return document.querySelector('#send-button').hidden"))
        browser.click("#stop-button")
        browser.wait(IDLE)
        first = self.story()
        self.assertIn("stopped", browser.text(".foot .stats"))
        browser.wait("fetch('v1/metrics').then((r) => r.json()).then((m) => m.num_requests_running === 0)")
        self.assertLess(browser.run("return document.querySelectorAll('.tok').length"), 470)
        browser.run("[...document.querySelectorAll('.foot button')].find((b) => b.textContent === 'Regenerate').click()")
        browser.wait(f"document.querySelectorAll('.tok').length > 5 && {BUSY}")
        browser.press("Escape")  # the keyboard's way to stop
        browser.wait(IDLE)
        second = self.story()
        self.assertNotEqual(first, second)
        self.assertIn("2 / 2", browser.text(".variants"))
        browser.click("[aria-label='Previous version']")
        self.assertEqual(self.story(), first)
        browser.click("[aria-label='Next version']")
        self.assertEqual(self.story(), second)

    def test_taking_turns(self):
        browser = self.browser
        self.settings(**{"param-temperature": 0, "param-max_tokens": 12})
        browser.click("#settings-button")
        self.write(PROMPT)
        browser.wait(f"document.querySelector('.foot .stats') && {IDLE}")
        one = self.story()
        self.write("Suddenly")  # joined by the space that is missing
        browser.wait(f"document.querySelectorAll('.theirs').length === 2 && {IDLE}")
        self.assertTrue(self.story().startswith(one + " Suddenly"), self.story())
        two = self.story()
        reply = self.api("/v1/completions", {"prompt": one + " Suddenly", "temperature": 0, "max_tokens": 12})
        self.assertEqual(two, one + " Suddenly" + reply["choices"][0]["text"])
        self.write("")  # nothing: go on
        browser.wait(f"document.querySelectorAll('.theirs').length === 3 && {IDLE}")
        self.assertTrue(self.story().startswith(two))
        browser.click("[aria-label='Take back the last part']")
        self.assertEqual(self.story(), two)
        browser.devtools("Browser.grantPermissions", permissions=["clipboardReadWrite", "clipboardSanitizedWrite"])
        browser.click("[aria-label='Copy the story']")
        browser.wait("navigator.clipboard.readText().then((text) => text === arguments[0])", two)
        browser.click("[aria-label='Edit the story']")
        browser.run("const area = document.querySelector('.editor textarea'); area.value = 'A new text. '; area.focus()")
        browser.press("Control", "Enter")
        self.assertEqual(self.story(), "A new text. ")

    def test_conversations_are_kept(self):
        browser = self.browser
        self.settings(**{"param-max_tokens": 8})
        browser.click("#settings-button")
        self.write("The first story")
        browser.wait(f"document.querySelector('.foot .stats') && {IDLE}")
        first = self.story()
        browser.click("#new-button")
        self.assertEqual(browser.run("return document.querySelectorAll('.welcome').length"), 1)
        self.write("Another story")
        browser.wait(f"document.querySelector('.foot .stats') && {IDLE}")
        second = self.story()
        self.open()
        self.assertEqual(self.story(), second)
        self.assertGreater(browser.run("return document.querySelectorAll('.tok').length"), 0)
        self.assertEqual(browser.run("return [...document.querySelectorAll('.history-item b')].map((b) => b.textContent)"),
                         ["Another story", "The first story"])
        browser.click(".history-list li:nth-child(2) .history-item")
        self.assertEqual(self.story(), first)
        browser.hover(".history-list li:nth-child(2)")
        browser.click("[aria-label='Delete “The first story”']")
        browser.wait("document.querySelectorAll('.history-item').length === 1 && document.querySelector('.welcome')")

    def test_errors_are_shown(self):
        browser = self.browser
        self.settings(extra='{"temperature": "warm"}')
        self.write(PROMPT)
        browser.wait("document.querySelector('.failure')")
        self.assertIn("temperature", browser.text(".failure"))
        self.settings(extra="{")
        self.assertIn("Not sent", browser.text("#extra-error"))
        self.settings(extra="")
        self.settings(**{"param-max_tokens": 5})
        browser.run("[...document.querySelectorAll('.foot button')].find((b) => b.textContent === 'Regenerate').click()")
        browser.wait(f"document.querySelectorAll('.tok').length === 5 && {IDLE}")
        self.assertEqual(browser.run("return document.querySelectorAll('.failure, .variants').length"), 0)
        errors = browser.console_errors()  # the refused request itself
        self.assertTrue(errors and all("400" in error for error in errors), errors)

    def test_phone(self):
        browser = self.browser
        browser.size(390, 844, phone=True)
        self.open()
        name = browser.run("""const node = document.querySelector("#server-text"), box = node.getBoundingClientRect();
            return [node.textContent, box.width > 100, box.height > 12, node.scrollWidth <= node.clientWidth, box.left >= 0, box.right <= innerWidth]""")
        self.assertEqual(name, ["penstock-stories-15m", True, True, True, True, True])
        self.shot("phone-welcome")
        self.settings(**{"param-max_tokens": 60})
        self.shot("phone-settings")
        self.assertTrue(browser.run("return document.querySelector('#main').inert"))
        browser.press("Escape")
        self.assertTrue(browser.run("return document.querySelector('#settings').hidden"))
        self.assertEqual(browser.run("return document.activeElement.id"), "settings-button")
        browser.type("#prompt", PROMPT)
        browser.click("#send-button")
        browser.wait(f"document.querySelector('.foot .stats') && {IDLE}")
        self.fits()
        browser.tap(".tok:nth-child(4)")
        browser.wait("!document.querySelector('#tooltip').hidden")
        self.shot("phone-story")
        browser.tap("#context-use")
        browser.wait("document.querySelector('#tooltip').hidden")
        browser.click("#history-button")
        self.shot("phone-history")
        browser.click("#history [data-close]")
        browser.click("#dashboard-tab")
        browser.wait("document.querySelectorAll('.curve').length > 0")
        self.fits()
        self.shot("phone-dashboard")
        browser.size(320, 568, phone=True)
        self.fits()

    def fits(self):
        wide = self.browser.run("return document.documentElement.scrollWidth - document.documentElement.clientWidth")
        self.assertEqual(wide, 0, "the page scrolls sideways")
        small = self.browser.run("""return [...document.querySelectorAll("button, select, a[data-page]")]
            .filter((node) => node.checkVisibility({visibilityProperty: true}))
            .map((node) => [node.id || node.getAttribute("aria-label") || node.textContent, node.getBoundingClientRect().height])
            .filter(([, height]) => height < 30)""")
        self.assertEqual(small, [], "too small for a finger")

    def test_dark_mode_and_contrast(self):
        browser = self.browser
        self.settings()
        lightness = {}
        for dark in (False, True):
            browser.dark(dark)
            lightness[dark] = browser.run(CONTRAST + "return luminance(getComputedStyle(document.body).backgroundColor)")
            for ink, ground in (("ink", "ground"), ("ink", "surface"), ("ink-soft", "surface"), ("ink-soft", "ground"),
                                ("ink-soft", "sunken"), ("accent", "surface"), ("accent-ink", "accent"), ("warn", "warn-wash"),
                                ("bad", "bad-wash"), ("ink", "accent-wash")):
                self.assertGreaterEqual(browser.run(CONTRAST + "return contrast(...arguments)", ink, ground), 4.5, (dark, ink, ground))
        self.assertGreater(lightness[False], 0.8)
        self.assertLess(lightness[True], 0.05)
        self.shot("dark-settings")
        # The button chooses against the system's theme, and is remembered.
        browser.dark(False)
        browser.click("#theme-button")
        browser.click("#theme-button")
        self.assertEqual(browser.run("return document.querySelector('#theme-button').ariaLabel"), "Theme: dark")
        self.open()
        self.assertLess(browser.run(CONTRAST + "return luminance(getComputedStyle(document.body).backgroundColor)"), 0.05)

    def test_accessible_names(self):
        browser = self.browser
        self.settings()
        self.write(PROMPT)
        browser.wait(f"document.querySelector('.foot .stats') && {IDLE}")
        nodes = browser.devtools("Accessibility.getFullAXTree")["nodes"]
        roles = {"button", "textbox", "combobox", "link", "checkbox", "slider", "spinbutton", "log", "main", "complementary"}
        seen = [(node["role"]["value"], node.get("name", {}).get("value", "")) for node in nodes
                if not node["ignored"] and node["role"]["value"] in roles]
        self.assertGreaterEqual({role for role, _ in seen}, roles - {"slider"})
        self.assertEqual([entry for entry in seen if entry[1] == ""], [])
        self.assertEqual(browser.run("return document.querySelector('#log').ariaLive"), "polite")

    def test_keyboard(self):
        browser = self.browser
        browser.run("document.activeElement.blur()")
        browser.press("/")
        self.assertEqual(browser.run("return document.activeElement.id"), "prompt")
        browser.press("Shift", "Enter")
        self.assertEqual(browser.run("return [document.querySelector('#prompt').value, document.querySelectorAll('.story').length]"),
                         ["\n", 0])
        # Tab reaches every control of the bar in order, none by a detour.
        browser.run("document.activeElement.blur(); document.querySelector('.skip').focus()")
        order = []
        for _ in range(7):
            browser.press("Tab")
            order.append(browser.run("return document.activeElement.id || document.activeElement.className"))
        self.assertEqual(order, ["history-button", "brand", "chat-tab", "dashboard-tab", "server-pill", "theme-button",
                                 "settings-button"])


CONTRAST = """
const channels = (color) => {
  const probe = document.createElement("canvas").getContext("2d", {willReadFrequently: true});
  probe.fillStyle = color;
  probe.fillRect(0, 0, 1, 1);
  return [...probe.getImageData(0, 0, 1, 1).data].slice(0, 3);
};
const luminance = (color) => {
  const [r, g, b] = channels(color).map((c) => (c / 255 <= 0.04045 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const variable = (name) => {
  const node = document.body.appendChild(document.createElement("i"));
  node.style.color = `var(--${name})`;
  const color = getComputedStyle(node).color;
  node.remove();
  return color;
};
const contrast = (a, b) => {
  const [low, high] = [luminance(variable(a)), luminance(variable(b))].sort((x, y) => x - y);
  return (high + 0.05) / (low + 0.05);
};
"""


class DashboardPage(Page):
    def test_live_charts(self):
        browser = self.browser
        self.open("/dashboard")
        self.assertEqual(browser.run("return document.title"), "Dashboard · Penstock")
        browser.wait("document.querySelectorAll('.curve').length > 0")
        empty = browser.run("""return [...document.querySelectorAll(".chart")].map((chart) => [chart.querySelector("figcaption").firstChild.textContent,
            chart.querySelectorAll(".curve").length > 0, chart.querySelector(".empty")?.textContent ?? ""])""")
        self.assertEqual({(curves, text) for _, curves, text in empty}, {(True, ""), (False, "no data yet")}, empty)
        self.shot("dashboard-idle")
        # A request that does not wait: the first of the histogram's bounds must lie far below what people call waiting.
        self.api("/v1/completions", {"prompt": PROMPT, "max_tokens": 2})
        wait = "document.querySelectorAll('.chart')[6].querySelector('.legend').textContent"
        browser.wait(f"{wait}.includes('95th') && !{wait}.includes('–')")
        self.assertLess(float(browser.run(f"return {wait}").split()[-1]), 50)
        with concurrent.futures.ThreadPoolExecutor(3) as pool:
            body = {"prompt": PROMPT, "max_tokens": 60, "ignore_eos": True, "n": 3}
            calls = [pool.submit(self.api, "/v1/completions", body) for _ in range(6)]
            browser.wait("document.querySelectorAll('.tile dd')[2].textContent !== '0'")
            browser.wait("parseFloat(document.querySelectorAll('.tile dd')[0].textContent) > 0")
            self.shot("dashboard-busy")
            self.assertIn("cached prompt", browser.text(".chart .legend"))
            for call in calls:
                call.result()
        # Asked for anew each time: a reply can be complete before it is counted.
        browser.wait("fetch('v1/metrics').then((r) => r.json()).then((m) => m.total_requests === 19 && "
                     "parseInt(document.querySelectorAll('.tile dd')[5].textContent) === m.total_requests)")
        labels = browser.run("return [...document.querySelectorAll('.chart svg')].map((chart) => chart.getAttribute('aria-label'))")
        for title in ("Throughput", "Time to first token", "Time between tokens", "Requests", "Batch size", "KV cache"):
            self.assertTrue(any(label.startswith(title) for label in labels), labels)
        # The table of use, asked for again when the page is shown.
        browser.click("#chat-tab")
        browser.click("#dashboard-tab")
        browser.wait("document.querySelector('#use-table tfoot td:nth-child(3)')?.textContent === '7'")
        row = browser.run("return [...document.querySelectorAll('#use-table tbody td')].map((cell) => cell.textContent)")
        self.assertEqual((row[0], row[2], row[5]), ("–", "7", "1,082"))
        self.assertEqual(browser.text("#use-since"), "since the server's start")
        browser.hover(".chart svg")
        browser.wait("document.querySelector('.cross')")
        browser.dark(True)
        self.shot("dashboard-dark")
        browser.click("#chat-tab")
        self.assertEqual(browser.run("return [location.pathname, document.querySelector('#dashboard-page').hidden]"), ["/", True])
        browser.command("POST", "/back")
        browser.wait("location.pathname === '/dashboard' && !document.querySelector('#dashboard-page').hidden")

    def test_charts_and_tiles_fill_their_rows(self):
        browser = self.browser
        self.open("/dashboard")
        browser.wait("document.querySelectorAll('.curve').length > 0")
        self.assertTrue(browser.run("return document.querySelector('#charted').hidden"), "one model of two names, nothing to choose")
        seen = set()
        for width in (390, 620, 700, 859, 860, 999, 1000, 1271, 1272, 1600, 2200):
            browser.size(width, 900)
            for rows in (".charts", ".tiles"):
                row_ends, n = browser.run("""const grid = document.querySelector(arguments[0]), ends = new Map(), edge = grid.getBoundingClientRect();
                    for (const one of [...grid.children].map((node) => node.getBoundingClientRect())) {
                      const row = ends.get(one.top) ?? {width: 0, n: 0};
                      ends.set(one.top, {right: one.right - edge.right, width: row.width + one.width, n: row.n + 1});
                    }
                    return [[...ends.values()].map((row) => [row.right, row.width + (row.n - 1) * parseFloat(getComputedStyle(grid).columnGap) - edge.width]),
                            Math.max(...[...ends.values()].map((row) => row.n))];""", rows)
                for right, spare in row_ends:
                    self.assertAlmostEqual(right, 0, delta=0.6, msg=(rows, width))
                    self.assertAlmostEqual(spare, 0, delta=0.6, msg=(rows, width))
                seen.add((rows, n))
        self.assertEqual(seen, {(".charts", n) for n in (1, 2, 3)} | {(".tiles", n) for n in (2, 3, 6)})
        for width, name in ((1300, "wide"), (1000, "middle")):
            browser.size(width, 1100)
            self.shot(f"dashboard-{name}")

    def test_readings(self):
        """The arithmetic of the charts, on numbers computed by hand."""
        exposition = lambda counts, total: "\n".join(
            [f'penstock:t_seconds_bucket{{le="{bound}"}} {count}' for bound, count in zip(("0.1", "0.2", "+Inf"), counts)] +
            [f'penstock:tokens_total{{model_name="a \\"b\\""}} {total}', 'vllm:only_there 7', '# HELP penstock:t x'])
        values = self.browser.run("""const [before, now] = arguments;
            return import("/ui/metrics.js").then(({Reading, quantile, rate, ratio}) => {
              const a = new Reading(before, 10), b = new Reading(now, 12);
              return [quantile(a, b, "t_seconds", 0.5), quantile(a, b, "t_seconds", 0.25), quantile(a, b, "t_seconds", 1),
                      quantile(b, b, "t_seconds", 0.5), rate(a, b, "tokens_total"), b.sum("only_there"),
                      ratio(a, b, "tokens_total", "only_there"), b.all("tokens_total")[0].labels.model_name,
                      b.of('a "b"').sum("tokens_total"), b.of('a "b"').sum("only_there"), b.of("").sum("only_there")];
            });""", exposition((1, 1, 1), 100), exposition((5, 9, 9), 150))
        # Of the 8 new values 4 lie up to 0.1 and 4 from 0.1 to 0.2.
        self.assertEqual(values, [0.1, 0.05, 0.2, None, 25, 7, None, 'a "b"', 150, 0, 7])


class Team(Page):
    """Several models and a store: choosing among them, and the dashboard's lists."""

    @classmethod
    def setUpClass(cls):
        folder = pathlib.Path(cls.enterClassContext(tempfile.TemporaryDirectory()))
        with_chat_template(STORY_MODEL, folder / "chat.gguf")
        models = [{"name": "river", "model": str(STORY_MODEL), "price": {"input": 100, "output": 400}},
                  {"name": "talker", "model": str(folder / "chat.gguf"), "load": "first use", "price": {"input": 1000, "output": 4000}},
                  {"name": "vectors", "model": str(SOURCE / "tests" / "golden" / "sentences" / "mean_normalized"), "runner": "pooling"},
                  {"name": "broken", "model": str(folder / "nothing.gguf"), "load": "first use"}]
        (folder / "nothing.gguf").write_bytes(b"GGUF" + bytes(60))
        routes = [{"name": "auto", "small": "river", "large": "talker", "rules": [{"if": {"min_characters": 500}, "use": "large"}], "otherwise": "small"}]
        (folder / "models.json").write_text(json.dumps({"models": models, "routes": routes}))
        cls.flags = ["--models-config", folder / "models.json", "--data-dir", folder / "data", "--threads", "1", "--max-model-len", "256"]
        cls.model = None
        super().setUpClass()

    def options(self):
        return self.browser.run("return [...document.querySelectorAll('#model option')].map((one) => [one.value, one.textContent, one.disabled])")

    def test_models_are_chosen(self):
        browser = self.browser
        self.assertEqual(self.options(), [["river", "river", False], ["talker", "talker · unloaded", False], ["vectors", "vectors · vectors", True],
                                          ["broken", "broken · unloaded", False], ["auto", "auto", False]])
        self.assertIn("continue", browser.text(".welcome h1"))
        self.assertEqual(browser.text("#model-state"), "Loaded, 256 tokens of context")
        self.settings(model="talker")
        browser.wait("document.querySelector('#model-state').textContent.startsWith('Loaded')")
        browser.wait("document.querySelector('.welcome h1').textContent.includes('know')")  # it has a template: a chat
        self.assertEqual(self.options()[1], ["talker", "talker", False])
        self.shot("models")
        self.settings(**{"param-max_tokens": 5})
        self.write("One day Tom")
        browser.wait(f"document.querySelectorAll('.message').length === 2 && {IDLE}")
        served = json.loads(self.server.get("/v1/models")[2])["data"]
        self.assertEqual([(one["id"], one["state"], one.get("runner")) for one in served],
                         [("river", "loaded", "generate"), ("talker", "loaded", "generate"), ("vectors", "loaded", "pooling"), ("broken", "unloaded", None), ("auto", "loaded", None)])
        self.settings(model="broken")
        browser.wait("!document.querySelector('#notice').hidden")
        self.assertIn("nothing.gguf", browser.text("#notice"))
        browser.wait("document.querySelector('#model-state').textContent.startsWith('Cannot be loaded')")
        browser.console_errors()  # the refused request is one
        self.settings(model="river")
        browser.wait(READY)

    def test_charts_follow_the_chosen_model(self):
        browser = self.browser
        self.open("/dashboard")
        self.assertEqual(browser.text("#server-text"), "5 models")
        browser.wait("!document.querySelector('#charted').hidden")
        names = browser.run("return [...document.querySelectorAll('#charted-model option')].map((one) => one.textContent)")
        self.assertEqual([name for name in names if name != "talker"], ["all models", "river", "vectors"])
        finished = lambda: browser.run("return document.querySelectorAll('.tile dd')[5].firstChild.textContent")
        throughput = "document.querySelector('.chart svg').getAttribute('aria-label')"

        def choose(name):
            browser.run("""const field = document.querySelector("#charted-model");
                field.value = arguments[0];
                field.dispatchEvent(new Event("change"));""", name)

        browser.wait("document.querySelectorAll('.curve').length > 0")
        choose("vectors")
        before = finished()
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            call = pool.submit(self.api, "/v1/completions", {"model": "river", "prompt": PROMPT, "max_tokens": 200, "ignore_eos": True})
            choose("river")
            browser.wait(f"!{throughput}.includes('generated 0,') && !{throughput}.includes('–')")
            label = browser.run(f"return {throughput}")
            choose("vectors")  # the curve of the other model is not there
            self.assertIn("generated 0, prompt 0", browser.run(f"return {throughput}"), label)
            choose("")
            self.assertNotIn("generated 0,", browser.run(f"return {throughput}"), label)
            choose("river")
            self.shot("dashboard-model")
            call.result()
        browser.wait("document.querySelectorAll('.tile dd')[5].firstChild.textContent !== '0'")
        choose("vectors")
        self.assertEqual(finished(), before)
        # Several engines that are busy all the time are 100 % busy together.
        self.assertEqual(self.browser.run("""const text = (seconds) => ["a", "b"].map((name) => `penstock:step_seconds_total{model_name="${name}"} ${seconds}`).join("\\n");
            return import("/ui/metrics.js").then(({Reading, mean_rate}) => mean_rate(new Reading(text(1), 0), new Reading(text(3), 2), "step_seconds_total"));"""), 1)
        browser.size(320, 568, phone=True)
        self.assertTrue(browser.run("return document.documentElement.scrollWidth <= innerWidth"))

    def test_routes(self):
        browser = self.browser
        self.open("/dashboard")
        browser.wait("!document.querySelector('#routes-section').hidden")
        self.api("/v1/completions", {"model": "auto", "prompt": PROMPT, "max_tokens": 3})
        self.api("/v1/completions", {"model": "auto", "prompt": PROMPT * 20, "max_tokens": 3})
        cells = "[...document.querySelectorAll('#routes-rows tr > *')].map((one) => one.textContent)"
        browser.wait(f"{cells}[1]?.includes('talker 1')")
        deadline = time.monotonic() + 20
        while True:  # a request is counted before its cost
            counted = json.loads(self.server.get("/v1/metrics")[2])
            name, requests, abandoned, *costs = browser.run(f"return {cells}")
            costs = [one.split()[0] for one in costs]
            expected = [f"{counted['route_cost']:.4f}", f"{counted['route_cost_saved']:.4f}"]
            if costs == expected or time.monotonic() > deadline:
                break
            time.sleep(0.2)
        self.assertEqual((name, requests, abandoned, costs), ("auto", "river 1, talker 1", "0", expected))
        self.assertGreater(counted["route_cost_saved"], 0)

    def test_batches(self):
        browser = self.browser
        line = lambda i: json.dumps({"custom_id": f"r{i}", "method": "POST", "url": "/v1/completions",
                                     "body": {"model": "river", "prompt": PROMPT, "max_tokens": 40, "ignore_eos": True}})
        body = ("--x\r\nContent-Disposition: form-data; name=\"purpose\"\r\n\r\nbatch\r\n--x\r\n"
                "Content-Disposition: form-data; name=\"file\"; filename=\"in.jsonl\"\r\n\r\n" + "\n".join(map(line, range(300))) + "\r\n--x--\r\n")
        self.open("/dashboard")
        browser.wait("document.querySelectorAll('#models-rows tr').length === 5")
        browser.wait("!document.querySelector('#batches-section').hidden")
        self.assertIn("upload a file", browser.text("#batches-none"))
        upload = browser.run("""return fetch("v1/files", {method: "POST", body: arguments[0], headers: {"Content-Type": "multipart/form-data; boundary=x"}})
            .then((reply) => reply.json())""", body)
        batch = self.api("/v1/batches", {"input_file_id": upload["id"], "endpoint": "/v1/completions", "completion_window": "24h"})
        row = f"document.querySelector('[data-id=\"{batch['id']}\"]')"
        browser.wait(f"{row} && {row}.querySelector('progress').value > 0")
        self.assertEqual(browser.run(f"return {row}.querySelector('progress').max"), 300)
        self.assertIn("of 300", browser.run(f"return {row}.textContent"))
        self.shot("dashboard-batches")
        browser.run(f"{row}.querySelector('button').click()")
        browser.wait(f"{row}.querySelector('.state').textContent === 'cancelled'")
        self.assertIsNone(browser.run(f"return {row}.querySelector('button')"))
        done = json.loads(self.server.get(f"/v1/batches/{batch['id']}")[2])
        self.assertEqual(done["status"], "cancelled")
        self.assertLess(done["request_counts"]["completed"], 300)
        self.assertIn(f"{done['request_counts']['completed']} of 300", browser.run(f"return {row}.textContent"))
        self.browser.size(390, 780)
        self.assertTrue(browser.run("return document.documentElement.scrollWidth <= innerWidth"))


class Tools(Page):
    """A model that calls a tool of an MCP server; nobody has said that it may."""
    hostile = '<img src="x" onerror="document.title = 1"><script>document.title = 2</script> sun'

    @classmethod
    def setUpClass(cls):
        folder = pathlib.Path(cls.enterClassContext(tempfile.TemporaryDirectory()))
        cls.model = script_model.write(folder / "model")
        cls.notes = folder / "notes"
        fake = SOURCE / "tests" / "support" / "fake_mcp.py"
        (folder / "penstock.toml").write_text(
            f'[mcp.fake]\ncommand = "{fake}"\nallowed_tools = ["get_weather"]\n[mcp.fake.env]\n'
            f'FAKE_MCP_NOTES = "{cls.notes}"\nFAKE_MCP_WEATHER = {json.dumps(cls.hostile)}\n'
            f'[mcp.other]\ncommand = "{fake}"\n')
        cls.before, cls.flags, cls.env = ("--config", folder / "penstock.toml"), ["--served-model-name", "script"], {}
        super().setUpClass()

    def setUp(self):
        super().setUp()
        if self.notes.exists():
            self.notes.unlink()
        self.settings(**{"param-temperature": 0})
        boxes = "[...document.querySelectorAll('#servers label')].map((one) => [one.textContent, one.querySelector('input').checked])"
        self.browser.wait(f"JSON.stringify({boxes}) === JSON.stringify([['fake', true], ['other', true]])")
        self.shot("tools-settings")
        self.browser.run("document.querySelectorAll('#servers input')[1].click()")  # two tools of one name are refused
        self.browser.click("#settings-button")

    def calls(self):
        return [line for line in self.notes.read_text().splitlines() if line.startswith("call ")] if self.notes.exists() else []

    def ask(self, text, n_messages):
        self.write(text)
        self.browser.wait(f"document.querySelectorAll('.message').length === {n_messages} && {IDLE}")

    def items(self):
        return self.browser.run("""return [...document.querySelectorAll(".tool-item")].map((one) => [one.dataset.type, one.dataset.state ?? "",
            one.querySelector("summary, h3").textContent, ...[...one.querySelectorAll("pre")].map((text) => text.textContent),
            one.querySelector(".answered")?.textContent ?? ""])""")

    def test_a_call_is_approved(self):
        browser = self.browser
        self.assertIn("may use tools of fake", browser.text(".welcome p"))
        self.ask("weather", 2)
        arguments = '{\n  "city": "Paris"\n}'
        listed = ["mcp_list_tools", "completed", "fake1 tool", ""]
        asked = ["mcp_approval_request", "", "May get_weather of fake be called?", arguments]
        self.assertEqual(self.items(), [listed, asked + [""]])
        self.assertEqual(browser.run("return [...document.querySelectorAll('.answers button')].map((one) => one.textContent)"), ["Deny", "Approve"])
        self.assertIn("get_weather The weather of a city.", browser.text("[data-type=mcp_list_tools] ul"))
        self.assertEqual(self.calls(), [])
        self.shot("tools-question")
        browser.click(".answers .main-button")
        browser.wait(f"document.querySelectorAll('[data-type=mcp_call]').length === 1 && {IDLE}")
        called = ["mcp_call", "completed", "get_weather of fakedone", arguments, self.hostile, ""]
        self.assertEqual(self.items(), [listed, asked + ["approved"], called])
        self.assertEqual(browser.text(".message.assistant .body"), "It is sunny in Paris.")
        self.assertGreater(browser.run("return document.querySelectorAll('.tok').length"), 1)
        # What a tool says is text.
        self.assertEqual(browser.run("return [document.title, document.querySelectorAll('#log img, #log script').length]"), ["Penstock", 0])
        browser.click("[data-type=mcp_call] summary")
        self.shot("tools-call")
        self.assertEqual(self.calls(), ['call get_weather {"city": "Paris"}'])
        # The items are given back: nothing is listed or called again. They are kept in the browser.
        self.ask("plain", 4)
        self.assertEqual(browser.run("return [...document.querySelectorAll('.message.assistant .body')].at(-1).textContent"), "Hello there!")
        self.assertEqual((len(self.items()), len(self.calls())), (3, 1))
        self.open()
        self.assertEqual(self.items(), [listed, asked + ["approved"], called])
        browser.size(390, 844, phone=True)
        self.assertTrue(browser.run("return document.documentElement.scrollWidth <= innerWidth"))

    def test_a_call_is_denied_or_not_answered(self):
        browser = self.browser
        self.ask("weather", 2)
        browser.click(".answers button")
        browser.wait(f"document.querySelector('.message.assistant .body').textContent !== '' && {IDLE}")
        self.assertEqual(self.items()[1][-1], "denied")
        browser.click("#new-button")
        self.ask("weather", 2)
        self.ask("plain", 4)
        self.assertEqual(self.items()[1][-1], "not answered")
        self.assertEqual(browser.run("return document.querySelectorAll('.answers').length"), 0)
        self.assertEqual(self.calls(), [])

    def test_without_the_server_it_is_a_plain_chat(self):
        self.settings()
        self.browser.run("document.querySelectorAll('#servers input')[0].click()")
        self.browser.click("#settings-button")
        self.ask("plain", 2)
        self.assertEqual(self.items(), [])
        paths = self.browser.run("return performance.getEntriesByType('resource').map((one) => new URL(one.name).pathname)")
        self.assertIn("/v1/chat/completions", paths)
        self.assertNotIn("/v1/responses", paths)
        self.assertEqual(self.browser.text(".message.assistant .body"), "Hello there!")

    def test_failures_are_shown(self):
        items = [{"id": "l", "type": "mcp_list_tools", "server_label": "<b>s</b>", "tools": [], "error": {"message": "<i>lost</i>"}},
                 {"id": "c", "type": "mcp_call", "server_label": "s", "name": "<u>n</u>", "arguments": "{<s>", "error": "<i>went wrong</i>", "output": None},
                 {"id": "r", "type": "mcp_call", "server_label": "s", "name": "n", "arguments": '{"a'}]
        shown = self.browser.run("""const items = arguments[0].map((item) => ({item, done: item.id !== "r", at: 0}));
            return import("/ui/tool_items.js").then(({show_tool_items}) => [true, false].map((running) => {
              const parent = document.createElement("div");
              show_tool_items(parent, items, running, null);
              return [parent.querySelectorAll("b, i, u, s").length, ...[...parent.children].map((one) => one.dataset.state + "|" + one.textContent)];
            }));""", items)
        for running, last in zip(shown, ("in_progress|n of sunder way", "incomplete|n of scut off")):
            self.assertEqual(running, [0, "failed|<b>s</b>failedError<i>lost</i>", "failed|<u>n</u> of sfailedArguments{<s>Error<i>went wrong</i>",
                                       last + 'Arguments{"a'])


class Parsing(Page):
    """Modules of the page on their own."""

    def module(self, script, *arguments):
        return self.browser.run(script, *arguments)

    def test_events_survive_any_split(self):
        stream = 'data: {"a": "é"}\r\n\r\n: comment\n\ndata: one\ndata: two\n\nevent: x\ndata:three\n\ndata: unfinished'
        events = self.module("""const bytes = new TextEncoder().encode(arguments[0]);
            return import("/ui/api.js").then(async ({event_data}) => {
              const all = [];
              for (let cut = 0; cut <= bytes.length; ++cut) {
                const stream = new ReadableStream({start(c) {
                  if (cut > 0) c.enqueue(bytes.slice(0, cut));
                  if (cut < bytes.length) c.enqueue(bytes.slice(cut));
                  c.close();
                }});
                const events = [];
                for await (const data of event_data(stream)) events.push(data);
                all.push(JSON.stringify(events));
              }
              return [...new Set(all)];
            });""", stream)
        self.assertEqual([json.loads(one) for one in events], [['{"a": "é"}', "one\ntwo", "three"]])

    RENDER = """const {render_markdown} = await import("/ui/markdown.js");
        const render = (source) => {
          const parent = document.createElement("div");
          render_markdown(parent, source, (a, b, node) => node.append(source.slice(a, b)));
          return parent;
        };"""

    def render(self, source):
        return self.module(f"return (async () => {{ {self.RENDER} return render(arguments[0]).innerHTML; }})(...arguments)"
                           .replace("(async () =>", "(async (...a) =>").replace("arguments[0]", "a[0]"), source)

    def test_markdown(self):
        for source, expected in {
            "a **b** `c*d*` _e_ snake_case_name": "<p>a <strong>b</strong> <code>c*d*</code> <em>e</em> snake_case_name</p>",
            "# T\ntext": "<h3>T</h3><p>text</p>",
            "- a\n  - b\n- c": "<ul><li>a<ul><li>b</li></ul></li><li>c</li></ul>",
            "3. x\n4. y": '<ol start="3"><li>x</li><li>y</li></ol>',
            "> q": "<blockquote>q</blockquote>",
            "|a|b|\n|-|-|\n|1|**2**|": "<table><thead><tr><th>a</th><th>b</th></tr></thead><tbody><tr><td>1</td>"
                                       "<td><strong>2</strong></td></tr></tbody></table>",
            "2 * 3 * 4 and ** alone": "<p>2 * 3 * 4 and ** alone</p>",
            "[x](https://a.b/c)": '<p><a href="https://a.b/c" target="_blank" rel="noopener noreferrer nofollow">x</a></p>',
        }.items():
            self.assertEqual(self.render(source), expected)
        code = self.render("```py\nif a < b:\n    **no**\n```\nafter")
        self.assertIn("<code>if a &lt; b:\n    **no**</code>", code)
        self.assertTrue(code.endswith("<p>after</p>"), code)
        self.assertIn("open", self.render("```\nopen"))

    def test_markdown_is_never_html(self):
        hostile = ("<img src=x onerror=alert(1)> <script>alert(1)</script> [a](javascript:alert(1)) [b](data:text/html,x)\n"
                   "```<b>\n</code><script>x</script>\n```\n| <i>a</i> | b |\n|---|---|\n| <u>c</u> | d |\n**<b>x</b>**")
        html = self.render(hostile)
        counted = self.module("""const box = document.createElement("template");
            box.innerHTML = arguments[0];
            return box.content.querySelectorAll("img, script, a, i, u, b").length;""", html)
        self.assertEqual(counted, 0, html)

    def test_streamed_markdown_equals_whole(self):
        source = "Intro **bold** text\n\n1. one\n   more\n2. two\n   - deep\n\n```js\nlet a = 1;\n\nb\n```\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\nend"
        same = self.module("""return (async (source) => {
            const {render_markdown} = await import("/ui/markdown.js");
            const grown = document.createElement("div"), differ = [];
            for (let n = 1; n <= source.length; ++n) {
              const part = source.slice(0, n), fresh = document.createElement("div");
              for (const node of [grown, fresh]) render_markdown(node, part, (a, b, to) => to.append(part.slice(a, b)));
              if (grown.innerHTML !== fresh.innerHTML) differ.push(n);
            }
            return differ; })(...arguments)""", source)
        self.assertEqual(same, [])

    def test_tokens_lie_over_the_text(self):
        """Characters split over tokens become one piece; dropped leading spaces and cut ends do not shift the rest."""
        pieces = self.module("""return import("/ui/tokens.js").then(({PieceBuilder, PieceMap}) => {
            const map = (text, tokens) => {
              const pieces = [], builder = new PieceBuilder(pieces), node = document.createElement("div");
              for (const token of tokens) builder.add({token, logprob: -1, top: []});
              new PieceMap(text, pieces).emit(0, text.length, node);
              return [node.textContent === text, ...[...node.childNodes].map((n) => [n.nodeName, n.textContent])];
            };
            return [map("€ ok", ["bytes:\\\\xe2\\\\x82", "bytes:\\\\xac", " ok"]), map("Hi you", [" Hi", " you"]),
                    map("one tw", ["one", " two"]), map("other", ["not", "this"]),
                    map("so far", ["</think>", "so", " far"])];
          });""")
        self.assertEqual(pieces, [[True, ["SPAN", "€"], ["SPAN", " ok"]], [True, ["SPAN", "Hi"], ["SPAN", " you"]],
                                  [True, ["SPAN", "one"], ["SPAN", " tw"]], [True, ["#text", "other"]],
                                  [True, ["SPAN", "so"], ["SPAN", " far"]]])


class Chat(Page):
    """The same model with a chat template added: the page is then a chat."""
    flags = [*Page.flags, "--prefix-history", "4096"]

    @classmethod
    def setUpClass(cls):
        folder = cls.enterClassContext(tempfile.TemporaryDirectory())
        cls.model = pathlib.Path(folder) / "chat.gguf"
        with_chat_template(STORY_MODEL, cls.model)
        super().setUpClass()

    def test_chat(self):
        browser = self.browser
        self.assertIn("know", browser.text(".welcome h1"))
        self.settings(system="Tom had a red ball.", **{"param-temperature": 0, "param-max_tokens": 40})
        self.shot("chat-welcome")
        browser.click("#settings-button")
        self.write("One day Tom went to")
        browser.wait(f"document.querySelectorAll('.message').length === 2 && {IDLE}")
        messages = [{"role": "system", "content": "Tom had a red ball."}, {"role": "user", "content": "One day Tom went to"}]
        ask = lambda: self.api("/v1/chat/completions", {"messages": messages, "temperature": 0, "max_tokens": 40})["choices"][0]["message"]["content"]
        first = ask()
        self.assertEqual(browser.text(".message.assistant .body").strip(), first.strip())
        self.assertGreater(browser.run("return document.querySelectorAll('.message.assistant .tok').length"), 10)
        self.write("Then Tom")
        browser.wait(f"document.querySelectorAll('.message').length === 4 && {IDLE}")
        messages += [{"role": "assistant", "content": first}, {"role": "user", "content": "Then Tom"}]
        second = ask()
        self.assertEqual(browser.text(".message.last .body").strip(), second.strip())
        browser.hover(".message.last .tok:nth-child(3)")
        self.shot("chat")
        # Editing an earlier message starts over from there.
        browser.run("document.querySelector(\".message.user [aria-label='Edit']\").click()")
        browser.run("const area = document.querySelector('.editor textarea'); area.value = 'Tom saw a cat. The cat'; area.focus()")
        browser.press("Control", "Enter")
        browser.wait(f"document.querySelectorAll('.message').length === 2 && document.querySelector('.last .stats') && {IDLE}")
        self.assertEqual(browser.text(".message.user .body"), "Tom saw a cat. The cat")
        miss = browser.run("return document.querySelector('.message.last .miss').textContent")
        self.assertRegex(miss, r"^cachePrompt of \d+ tokens: \d+ from memory; \d+ computed in [\d.]+ ms; differs from token \d+, in message 1 \(user\), on: “.*Tom saw.*” was “.*One day")
        # Regenerating keeps both.
        browser.click("[aria-label='Regenerate']")
        browser.wait(f"document.querySelector('.variants')?.textContent.includes('2 / 2') && {IDLE}")

    def test_thoughts_are_folded_away(self):
        """A reasoning model's reply, played by the page's own fetch."""
        self.browser.run("""const parts = [{role: "assistant", content: ""}, {reasoning_content: "Rivers "}, {reasoning_content: "flow."},
                {content: "Down **hill**"}];
            const token = (text) => ({token: text, logprob: -0.5, bytes: null, top_logprobs: []});
            const events = parts.map((delta, i) => ({choices: [{index: 0, delta, finish_reason: i === 3 ? "stop" : null,
                logprobs: i === 3 ? {content: [token("</think>"), token("Down"), token(" **"), token("hill"), token("**")]} : null}]}));
            const body = events.map((event) => `data: ${JSON.stringify(event)}\\n\\n`).join("") + "data: [DONE]\\n\\n";
            const real = window.fetch;
            window.fetch = (url, options) => (String(url).endsWith("/v1/chat/completions") ? Promise.resolve(new Response(body)) : real(url, options));""")
        self.write("Where do rivers flow?")
        self.browser.wait(f"document.querySelectorAll('.message').length === 2 && {IDLE}")
        self.assertEqual(self.browser.run("""const node = document.querySelector(".message.last");
            return [node.querySelector(".thought p").textContent, node.querySelector(".thought").open,
                    node.querySelector(".body").innerText, node.querySelector("strong").textContent,
                    [...node.querySelectorAll(".tok")].map((token) => token.textContent)];"""),
                         ["Rivers flow.", False, "Down hill", "hill", ["Down", " ", "hill"]])

    def test_a_model_without_eyes_takes_no_pictures(self):
        self.assertTrue(self.browser.run("return document.querySelector('#attach-button').hidden"))
        self.browser.run(Pictures.GIVE, "drop", "bm8=", "image/png")
        self.browser.wait("document.querySelector('#notice').textContent.includes('no eyes')")

    def test_story_mode_can_be_chosen(self):
        self.settings(mode="story")
        self.assertIn("story begin", self.browser.text(".welcome h1"))


class Pictures(Page):
    """A tiny model that sees: pictures are chosen, pasted and dropped."""
    model = SOURCE / "tests" / "golden" / "seeing" / "qwen3_vl"
    flags = ["--served-model-name", "eyes", "--threads", "1", "--max-model-len", "512", "--kv-cache-dtype", "f32"]
    # Hands files to the page: give(how, bytes in base64, type)
    GIVE = """
        const [how, data, type] = arguments, bytes = Uint8Array.from(atob(data), (c) => c.charCodeAt(0));
        const transfer = new DataTransfer();
        transfer.items.add(new File([bytes], "a.png", { type }));
        if (how === "choose") {
          const input = document.querySelector("#picture-files");
          input.files = transfer.files;
          input.dispatchEvent(new Event("change"));
        } else if (how === "paste") {
          document.querySelector("#prompt").dispatchEvent(new ClipboardEvent("paste", { clipboardData: transfer, cancelable: true }));
        } else {
          document.querySelector("#log").dispatchEvent(new DragEvent("drop", { dataTransfer: transfer, bubbles: true, cancelable: true }));
        }"""

    def setUp(self):
        super().setUp()
        talk = json.loads((self.model / "golden.json").read_text())[0]
        self.url = talk["messages"][0]["content"][0]["image_url"]["url"]
        self.picture = self.url.split(",")[1]

    def test_pictures_are_sent(self):
        browser = self.browser
        browser.wait("!document.querySelector('#attach-button').hidden")
        self.settings(**{"param-temperature": 0, "param-max_tokens": 4})
        for n, how in enumerate(["choose", "paste", "drop"], 1):
            browser.run(self.GIVE, how, self.picture, "image/png")
            browser.wait(f"document.querySelectorAll('#pictures .thumbnail').length === {n}")
        self.shot("pictures-composer")
        for n in (2, 1):
            browser.click("#pictures li:last-child button")
            browser.wait(f"document.querySelectorAll('#pictures .thumbnail').length === {n}")
        self.write("What is in this picture?")
        browser.wait(f"document.querySelectorAll('.message').length === 2 && {IDLE}")
        self.assertEqual(browser.run("return document.querySelector('.message.user .thumbnail').src"), self.url)  # as it is
        self.assertTrue(browser.run("return document.querySelector('#pictures').hidden"))
        content = [{"type": "image_url", "image_url": {"url": self.url}}, {"type": "text", "text": "What is in this picture?"}]
        said = self.api("/v1/chat/completions", {"messages": [{"role": "user", "content": content}], "temperature": 0, "max_tokens": 4})
        self.assertEqual(browser.text(".message.assistant .body").strip(), said["choices"][0]["message"]["content"].strip())
        self.shot("pictures")
        self.open()  # and it is kept
        browser.wait("document.querySelector('.message.user .thumbnail')")

    def test_large_pictures_and_what_is_none(self):
        browser = self.browser
        browser.wait("!document.querySelector('#attach-button').hidden")
        browser.run(self.GIVE, "drop", "bm8=", "image/png")
        browser.wait("document.querySelector('#notice').textContent.includes('no picture')")
        browser.run("""const canvas = document.createElement("canvas");
            canvas.width = 4000, canvas.height = 1000;
            canvas.getContext("2d").fillRect(0, 0, 10, 10);
            window.large = canvas.toDataURL("image/png").split(",")[1];""")
        browser.run(self.GIVE, "paste", browser.run("return window.large"), "image/png")
        browser.wait("document.querySelectorAll('#pictures .thumbnail').length === 1")
        browser.wait("document.querySelector('#pictures .thumbnail').naturalWidth === 1536")
        self.assertEqual(browser.run("return document.querySelector('#pictures .thumbnail').naturalHeight"), 384)
        self.assertFalse(browser.run("return document.querySelector('#send-button').disabled"))

    def test_phone(self):
        browser = self.browser
        browser.size(390, 844, phone=True)
        self.open()
        browser.wait("!document.querySelector('#attach-button').hidden")
        browser.run(self.GIVE, "choose", self.picture, "image/png")
        browser.wait("document.querySelectorAll('#pictures .thumbnail').length === 1")
        self.assertLessEqual(browser.run("return document.documentElement.scrollWidth"), 390)
        self.shot("pictures-phone")


class Key(Page):
    flags = ["--served-model-name", "penstock-stories-15m", "--api-key", "open sesame"]
    env = {}

    def setUp(self):
        self.browser.size(1280, 860)
        self.browser.open(self.server.url)
        self.browser.run("localStorage.clear(); sessionStorage.clear()")

    def tearDown(self):
        pass  # refused requests are logged as errors here

    def test_asks_for_the_key(self):
        browser = self.browser
        needs = "document.querySelector('#server-pill').dataset.state === 'key'"
        self.open(state=needs)
        self.assertEqual(browser.run("return document.activeElement.id"), "api-key")
        self.assertIn("API key", browser.text("#notice"))
        self.shot("key")
        self.settings(api_key="wrong")
        browser.wait(needs)
        self.settings(api_key="open sesame")
        browser.wait(READY)
        self.assertTrue(browser.run("return document.querySelector('#notice').hidden"))
        self.settings(**{"param-max_tokens": 6})
        self.write(PROMPT)
        browser.wait(f"document.querySelectorAll('.tok').length === 6 && {IDLE}")
        stored = "return JSON.stringify({...localStorage}).includes('sesame')"
        self.assertFalse(browser.run(stored), "kept for good without being asked to")
        self.open()  # this tab still knows it
        browser.run("document.querySelector('#remember-key').click()")
        browser.run("document.querySelector('#api-key').dispatchEvent(new Event('change'))")
        self.assertTrue(browser.run(stored))


class Files(unittest.TestCase):
    """What the server says about the page's files."""

    @classmethod
    def setUpClass(cls):
        cls.server = cls.enterClassContext(Serving("--api-key", "k"))

    def test_headers(self):
        self.server.key = None
        for path, kind in {"/": "text/html", "/dashboard": "text/html", "/ui/app.js": "text/javascript",
                           "/ui/base.css": "text/css", "/ui/icon.svg": "image/svg+xml"}.items():
            status, headers, body = self.server.get(path)
            self.assertEqual((status, headers.get_content_type()), (200, kind))
            self.assertGreater(len(body), 100)
            policy = dict(part.strip().split(" ", 1) for part in headers["Content-Security-Policy"].split(";"))
            self.assertEqual((policy["default-src"], policy["script-src"], policy["frame-ancestors"]), ("'none'", "'self'", "'none'"))
            self.assertNotIn("unsafe", headers["Content-Security-Policy"])
            self.assertEqual(headers["X-Content-Type-Options"], "nosniff")
            status, again, body = self.server.get(path, headers={"If-None-Match": headers["ETag"]})
            self.assertEqual((status, body), (304, b""))

    def test_only_its_own_files(self):
        self.server.key = "k"
        for path in ("/ui/", "/ui/../routes.cc", "/ui/%2e%2e/CMakeLists.txt", "/ui//etc/passwd", "/ui/nothing.js", "/ui/app.js/"):
            status, headers, body = self.server.get(path)
            self.assertEqual((path, status, headers.get_content_type()), (path, 404, "application/json"))
        self.assertEqual(self.server.request("/", body={}, method="POST")[0], 405)

    def test_page_is_self_contained(self):
        folder = pathlib.Path(__file__).resolve().parents[2] / "src" / "server" / "ui"
        for path in folder.iterdir():
            text = path.read_text()
            self.assertEqual(self.server.get(f"/ui/{path.name}")[2].decode(), text)
            if path.suffix == ".html":
                self.assertNotRegex(text, r"\son\w+=|style=|<script(?! (type=\"module\" )?src=)|https?://")
            if path.suffix == ".js":
                self.assertNotRegex(text, r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function")


if __name__ == "__main__":
    unittest.main(verbosity=2)
