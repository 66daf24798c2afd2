"""huggingface_hub and Penstock on one cache: what one leaves the other finds, and both leave the same.

Run by tests/e2e/hub_clients_e2e.py in the environment of the client tests; PYTHONPATH has tests/e2e.
"""
import hashlib
import json
import os
import pathlib
import subprocess
import sys
import unittest

from hub_e2e import DRAFT, PROGRAM, STORY, Home, checkpoint_files
from hub_server import Hub, Repo

FILES = {"story-Q8_0.gguf": STORY.read_bytes(), "draft-Q4_K_M.gguf": DRAFT.read_bytes(), "README.md": b"a story\n", ".gitattributes": b"x\n"}


def tree(cache):
    """Every file of a cache: what it leads to, or its content; of locks only that they are there."""
    found = {}
    for path in sorted(cache.rglob("*")):
        name = str(path.relative_to(cache))
        if path.is_symlink():
            found[name] = "-> " + os.readlink(path)
        elif path.is_file():
            content = path.read_bytes()
            if name == "CACHEDIR.TAG":
                content = content.splitlines()[0]  # the rest says who made it
            found[name] = "a lock" if name.endswith(".lock") else hashlib.sha256(content).hexdigest()
    return found


class OneCache(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        self.hub = Hub({"org/name": Repo(FILES), "org/checkpoint": Repo(checkpoint_files())}).__enter__()
        self.addCleanup(self.hub.__exit__)
        self.hub.repos["org/name"].refs["refs/pr/1"] = self.hub.repos["org/name"].commit
        self.ours, self.theirs = self.home(), self.home()

    def home(self, **variables):
        home = Home(HF_HUB_OFFLINE="0", HF_ENDPOINT=self.hub.endpoint, HF_HUB_DISABLE_TELEMETRY="1", HF_HUB_DISABLE_XET="1",
                    HF_HUB_DISABLE_PROGRESS_BARS="1", NO_PROXY="*", no_proxy="*", **variables)
        self.addCleanup(home.folder.cleanup)
        return home

    def python(self, home, expression, **variables):
        """The value of an expression with huggingface_hub's names, in a process of its own: it reads the environment at import."""
        code = f"import json, sys\nfrom huggingface_hub import *\nprint(json.dumps({expression}, default=str))"
        done = subprocess.run([sys.executable, "-c", code], env={**home.env, **variables}, capture_output=True, text=True, timeout=120)
        self.assertEqual(done.returncode, 0, done.stderr[-3000:])
        return json.loads(done.stdout.splitlines()[-1])

    def penstock(self, home, *args):
        code, out, err = home.run(*args)
        self.assertEqual(code, 0, err)
        return out.strip()

    def same(self):
        ours, theirs = tree(self.ours.cache), tree(self.theirs.cache)
        if not any(name.endswith(".json") and "/trees/" in name for name in theirs):  # not every version keeps listings
            ours = {name: value for name, value in ours.items() if "/trees/" not in name}
        self.assertEqual(ours, theirs)

    def test_one_file(self):
        for what in ("draft-Q4_K_M.gguf", "README.md"):
            self.penstock(self.ours, "pull", f"org/name:{what}")
            self.python(self.theirs, f"hf_hub_download('org/name', '{what}')")
        self.same()

    def test_revision_with_slashes(self):
        self.penstock(self.ours, "pull", "org/name@refs/pr/1:README.md")
        self.python(self.theirs, "hf_hub_download('org/name', 'README.md', revision='refs/pr/1')")
        self.same()

    def test_one_model_of_many(self):
        self.penstock(self.ours, "pull", "org/name:Q4_K_M")
        self.python(self.theirs, "snapshot_download('org/name', allow_patterns=['*Q4_K_M*'])")
        self.same()

    def test_checkpoint(self):
        self.penstock(self.ours, "pull", "org/checkpoint")
        self.python(self.theirs, "snapshot_download('org/checkpoint', allow_patterns=['config.json', 'model*', 'tokenizer.json'])")
        self.same()

    def test_theirs_is_found(self):
        path = self.python(self.theirs, "hf_hub_download('org/name', 'story-Q8_0.gguf')")
        folder = self.python(self.theirs, "snapshot_download('org/checkpoint')")
        self.theirs.env["HF_HUB_OFFLINE"] = "1"
        models = self.theirs.models()
        self.assertEqual(models["org/name:story-Q8_0.gguf"]["path"], path)
        self.assertEqual(models["org/checkpoint"]["path"], folder)
        self.penstock(self.theirs, "generate", "-m", "org/name", "-p", "Once", "-n", "3")

    def test_ours_is_found(self):
        path = self.penstock(self.ours, "pull", "org/name:Q8_0")
        folder = self.penstock(self.ours, "pull", "org/checkpoint")
        offline = {"HF_HUB_OFFLINE": "1"}
        self.assertEqual(self.python(self.ours, "hf_hub_download('org/name', 'story-Q8_0.gguf')", **offline), path)
        self.assertEqual(self.python(self.ours, "try_to_load_from_cache('org/name', 'story-Q8_0.gguf')"), path)
        self.assertEqual(self.python(self.ours, "snapshot_download('org/checkpoint', allow_patterns=['*.safetensors', 'config.json'])", **offline), folder)
        before = self.hub.count("cdn GET")
        self.assertEqual(self.python(self.ours, "hf_hub_download('org/name', 'story-Q8_0.gguf')"), path)
        self.assertEqual(self.hub.count("cdn GET"), before)
        scanned = self.python(self.ours, "[[r.repo_id, r.size_on_disk] for r in scan_cache_dir().repos] + list(scan_cache_dir().warnings)")
        self.assertIn(["org/name", len(FILES["story-Q8_0.gguf"])], scanned)
        self.assertEqual(len(scanned), 2, scanned)

    def test_locks_are_shared(self):
        sha256 = hashlib.sha256(FILES["story-Q8_0.gguf"]).hexdigest()
        lock = self.ours.cache / ".locks/models--org--name" / f"{sha256}.lock"
        lock.parent.mkdir(parents=True)
        code = f"import time\nfrom huggingface_hub.utils import WeakFileLock\nwith WeakFileLock({str(lock)!r}):\n print(1, flush=True)\n time.sleep(60)"
        holder = subprocess.Popen([sys.executable, "-c", code], env=self.ours.env, stdout=subprocess.PIPE)
        self.addCleanup(holder.stdout.close)
        self.addCleanup(holder.wait)
        self.addCleanup(holder.kill)
        holder.stdout.readline()
        pull = subprocess.Popen([PROGRAM, "pull", "org/name:Q8_0"], env=self.ours.env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        with self.assertRaises(subprocess.TimeoutExpired):
            pull.communicate(timeout=2)
        self.assertEqual(self.hub.count("cdn GET"), 0)
        holder.kill()
        self.assertTrue(pathlib.Path(pull.communicate(timeout=30)[0].decode().strip()).exists())

    def test_removed_is_gone_for_both(self):
        for home in (self.ours, self.theirs):
            self.python(home, "snapshot_download('org/name')")
        self.penstock(self.ours, "rm", "org/name:Q8_0")
        self.assertEqual(self.python(self.ours, "try_to_load_from_cache('org/name', 'story-Q8_0.gguf')"), None)
        self.assertEqual(self.python(self.ours, "[r.nb_files for r in scan_cache_dir().repos] + list(scan_cache_dir().warnings)"), [len(FILES) - 1])
        commit = self.hub.repos["org/name"].commit
        self.penstock(self.ours, "rm", f"org/name@{commit}")
        self.python(self.theirs, f"scan_cache_dir().delete_revisions('{commit}').execute()")
        self.same()


if __name__ == "__main__":
    unittest.main()
