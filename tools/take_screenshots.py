#!/usr/bin/env python3
"""Takes the pictures of the web page in docs/images from the running program.

    tools/take_screenshots.py [PROGRAM]      PROGRAM: build/release/penstock; needs chromium and chromedriver (scripts/install_packages web)

With Pillow at hand the files are made smaller.
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

try:
    from PIL import Image
except ImportError:
    Image = None

ROOT = pathlib.Path(__file__).resolve().parent.parent
PROGRAM = sys.argv[1] if len(sys.argv) > 1 else str(ROOT / "build/release/penstock")
os.environ["PENSTOCK"], os.environ["PENSTOCK_SOURCE"] = PROGRAM, str(ROOT)
sys.path.insert(0, str(ROOT / "tests/e2e"))
from browser import KEYS, Browser  # noqa: E402
from web_server import STORY_MODEL, Serving, with_chat_template  # noqa: E402

IMAGES = ROOT / "docs/images"
READY = "document.querySelector('#server-pill').dataset.state === 'ready'"
PROMPT = "Once upon a time, there was a little boat who wanted to see the sea."


def save(browser, name):
    file = IMAGES / f"{name}.png"
    browser.run("return document.fonts.ready.then(() => new Promise(requestAnimationFrame)).then(() => true)")
    browser.screenshot(file)
    if Image is not None:
        Image.open(file).convert("RGB").quantize(128, dither=Image.Dither.NONE).save(file, optimize=True)
    print(file.relative_to(ROOT), file.stat().st_size, "bytes")


def open_page(browser, server, path, width, height):
    browser.size(width, height)
    browser.dark(False)
    browser.open(server.url + path)
    browser.wait(READY)


def story(browser):
    with Serving(model=STORY_MODEL) as server:
        open_page(browser, server, "/", 1120, 680)
        browser.type("#prompt", PROMPT + KEYS["Enter"])
        browser.wait("document.querySelectorAll('.tok').length > 40 && document.querySelector('.story').textContent.length > 200")
        browser.wait("[...document.querySelectorAll('button')].some((one) => one.textContent.includes('Regenerate') && one.offsetParent)")
        browser.hover(".tok:nth-child(28)")
        browser.wait("!document.querySelector('#tooltip').hidden")
        save(browser, "story")


def team(folder):
    """The flags of a server with several models, a route and a store."""
    with_chat_template(STORY_MODEL, folder / "chat.gguf")
    small = ROOT / "models/penstock-stories-1m-q8_0.gguf"
    models = [{"name": "small", "model": str(small), "price": {"input": 0.1, "output": 0.4}},
              {"name": "large", "model": str(STORY_MODEL), "price": {"input": 1, "output": 4}},
              {"name": "talker", "model": str(folder / "chat.gguf"), "load": "first use"},
              {"name": "vectors", "model": str(ROOT / "tests/golden/sentences/mean_normalized"), "runner": "pooling"}]
    routes = [{"name": "auto", "small": "small", "large": "large", "rules": [{"if": {"min_characters": 100}, "use": "large"}], "otherwise": "small"}]
    (folder / "models.json").write_text(json.dumps({"models": models, "routes": routes}))
    return ["--models-config", folder / "models.json", "--data-dir", folder / "data", "--max-model-len", "256"]


def batch(server, n):
    """Sends a batch of n requests and returns its id."""
    line = lambda i: json.dumps({"custom_id": f"r{i}", "method": "POST", "url": "/v1/completions",
                                 "body": {"model": "large", "prompt": "Once", "max_tokens": 60, "ignore_eos": True}})
    body = ("--x\r\nContent-Disposition: form-data; name=\"purpose\"\r\n\r\nbatch\r\n--x\r\nContent-Disposition: form-data; name=\"file\"; "
            "filename=\"in.jsonl\"\r\n\r\n" + "\n".join(map(line, range(n))) + "\r\n--x--\r\n")
    upload = subprocess.run(["curl", "-sS", "--noproxy", "*", f"{server.url}/v1/files", "-H", "Content-Type: multipart/form-data; boundary=x",
                             "--data-binary", "@-"], input=body, capture_output=True, text=True, check=True)
    asked = {"input_file_id": json.loads(upload.stdout)["id"], "endpoint": "/v1/completions", "completion_window": "24h"}
    return json.loads(server.request("/v1/batches", asked)[2])["id"]


def several_models(browser):
    with tempfile.TemporaryDirectory() as scratch, Serving(*team(pathlib.Path(scratch))) as server:
        open_page(browser, server, "/", 1100, 760)
        browser.click("#settings-button")
        browser.wait("document.querySelector('#model-state').textContent.startsWith('Loaded')")
        save(browser, "choose-model")
        for i in range(40):
            server.request("/v1/completions", {"model": "auto", "prompt": f"{i}: " + "Once upon a time " * (12 if i % 4 == 0 else 1), "max_tokens": 40})
        for name in ("A text", "Another"):
            server.request("/v1/embeddings", {"model": "vectors", "input": [name] * 5})
        done, running = batch(server, 30), None
        browser.size(1000, 1100)
        browser.open(server.url + "/dashboard")
        browser.wait(f"document.querySelector('[data-id=\"{done}\"]')?.textContent.includes('completed')")
        running = batch(server, 3000)
        browser.wait(f"document.querySelector('[data-id=\"{running}\"] progress')?.value > 200")
        browser.run("document.querySelector('#use').scrollIntoView()")
        save(browser, "dashboard-lists")


def main():
    browser = Browser()
    try:
        story(browser)
        several_models(browser)
    finally:
        browser.close()


if __name__ == "__main__":
    main()
