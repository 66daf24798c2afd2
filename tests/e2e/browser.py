"""Drives Chromium through chromedriver: the W3C WebDriver protocol is JSON over HTTP, which the standard library speaks."""
import base64
import json
import pathlib
import shutil
import subprocess
import tempfile
import time
import urllib.error
import urllib.request

ELEMENT = "element-6066-11e4-a52e-4f735466cecf"
KEYS = {"Enter": "\ue007", "Escape": "\ue00c", "Tab": "\ue004", "ArrowUp": "\ue013", "ArrowRight": "\ue014",
        "ArrowLeft": "\ue012", "Shift": "\ue008", "Control": "\ue009"}


class Browser:
    def __init__(self, profile=None):
        self.folder = tempfile.TemporaryDirectory()
        driver = shutil.which("chromedriver")
        binary = shutil.which("chromium")
        assert driver and binary, "chromium and chromedriver are needed: scripts/install_packages web"
        self.process = subprocess.Popen([driver, "--port=0"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        port = None
        for line in self.process.stdout:
            if "on port" in line and "successfully" in line:
                port = line.rsplit("port", 1)[1].strip(" .\n")
                break
        assert port, "chromedriver did not start"
        self.root = f"http://127.0.0.1:{port}"
        # Containers run as root and have a small /dev/shm: without these two Chromium does not start there.
        flags = ["--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--hide-scrollbars",
                 "--force-color-profile=srgb", "--window-size=1280,860", f"--user-data-dir={self.folder.name}/profile"]
        session = self.call("POST", "/session", {"capabilities": {"alwaysMatch": {
            "browserName": "chrome", "goog:chromeOptions": {"binary": binary, "args": flags},
            "goog:loggingPrefs": {"browser": "ALL"}}}})
        self.session = f"/session/{session['sessionId']}"

    def close(self):
        try:
            self.call("DELETE", self.session)
        finally:
            self.process.terminate()
            self.process.wait(20)
            self.process.stdout.close()
            self.folder.cleanup()

    def call(self, method, path, body=None):
        data = None if method == "GET" or method == "DELETE" else json.dumps(body or {}).encode()
        request = urllib.request.Request(self.root + path, data=data, method=method,
                                         headers={"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=60) as reply:
                return json.load(reply)["value"]
        except urllib.error.HTTPError as error:
            with error:
                raise AssertionError(f"{method} {path}: {json.load(error)['value']['message']}") from None

    def command(self, method, path, body=None):
        return self.call(method, self.session + path, body)

    def devtools(self, name, **params):
        return self.command("POST", "/goog/cdp/execute", {"cmd": name, "params": params})

    def open(self, url):
        self.command("POST", "/url", {"url": url})

    def run(self, script, *arguments):
        """Runs JavaScript in the page; a promise's value is waited for."""
        return self.command("POST", "/execute/sync", {"script": script, "args": list(arguments)})

    def find(self, selector):
        return self.command("POST", "/element", {"using": "css selector", "value": selector})[ELEMENT]

    def click(self, selector):
        self.command("POST", f"/element/{self.find(selector)}/click")

    def type(self, selector, text):
        self.command("POST", f"/element/{self.find(selector)}/value", {"text": text})

    def press(self, *keys):
        """Keys go to the focused element; held together when several are given."""
        codes = [KEYS.get(key, key) for key in keys]
        actions = [{"type": "keyDown", "value": code} for code in codes]
        actions += [{"type": "keyUp", "value": code} for code in reversed(codes)]
        self.command("POST", "/actions", {"actions": [{"type": "key", "id": "keyboard", "actions": actions}]})

    def hover(self, selector):
        origin = {ELEMENT: self.find(selector)}
        move = {"type": "pointerMove", "duration": 0, "x": 0, "y": 0, "origin": origin}
        self.command("POST", "/actions", {"actions": [{"type": "pointer", "id": "mouse", "actions": [move]}]})

    def tap(self, selector):
        actions = [{"type": "pointerMove", "duration": 0, "x": 0, "y": 0, "origin": {ELEMENT: self.find(selector)}},
                   {"type": "pointerDown", "button": 0}, {"type": "pointerUp", "button": 0}]
        finger = {"type": "pointer", "id": "finger", "parameters": {"pointerType": "touch"}, "actions": actions}
        self.command("POST", "/actions", {"actions": [finger]})

    def text(self, selector):
        return self.run("return document.querySelector(arguments[0])?.textContent ?? ''", selector)

    def wait(self, script, *arguments, timeout=60):
        """The first truthy value of the expression."""
        end = time.monotonic() + timeout
        while True:
            value = self.run(f"return ({script})", *arguments)
            if value:
                return value
            if time.monotonic() > end:
                raise AssertionError(f"never true: {script}")
            time.sleep(0.05)

    def size(self, width, height, phone=False):
        self.devtools("Emulation.setDeviceMetricsOverride", width=width, height=height,
                      deviceScaleFactor=2 if phone else 1, mobile=phone)
        self.devtools("Emulation.setTouchEmulationEnabled", enabled=phone)

    def dark(self, on):
        self.devtools("Emulation.setEmulatedMedia",
                      features=[{"name": "prefers-color-scheme", "value": "dark" if on else "light"}])

    def screenshot(self, path):
        pathlib.Path(path).write_bytes(base64.b64decode(self.command("GET", "/screenshot")))

    def console_errors(self):
        """What the page complained about since the last call: exceptions, refused policies, failed requests."""
        entries = self.command("POST", "/se/log", {"type": "browser"})
        return [entry["message"] for entry in entries if entry["level"] == "SEVERE"]
