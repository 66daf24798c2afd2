"""A Hugging Face hub of a test's own: the protocol that huggingface_hub speaks, and what goes wrong in it.

Small files come from the hub itself, large ones (*.gguf, *.safetensors) by a redirect to a second server, at another address, under
an address that is signed and expires. Only the standard library, only loopback.
"""
import hashlib
import http.server
import json
import re
import secrets
import ssl
import threading
import time
import urllib.parse


def git_sha1(content):
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


class Repo:
    """Files of one commit. token: who may read it; gated: with a reason that no token helps against."""

    def __init__(self, files, token=None, gated=False):
        self.files, self.token, self.gated = dict(files), token, gated
        self.refs = {"main": self.commit}

    @property
    def commit(self):
        listed = sorted((path, hashlib.sha1(content).hexdigest()) for path, content in self.files.items())
        return hashlib.sha1(json.dumps(listed).encode()).hexdigest()

    @staticmethod
    def large(path):
        return path.endswith((".gguf", ".safetensors"))

    def entry(self, path):
        content = self.files[path]
        entry = {"type": "file", "path": path, "size": len(content), "oid": git_sha1(content)}
        if self.large(path):
            sha256 = hashlib.sha256(content).hexdigest()
            pointer = f"version https://git-lfs.github.com/spec/v1\noid sha256:{sha256}\nsize {len(content)}\n".encode()
            entry["oid"] = git_sha1(pointer)
            entry["lfs"] = {"oid": sha256, "size": len(content), "pointerSize": len(pointer)}
        return entry


class Fault:
    """What happens to the next `times` requests whose 'hub|cdn METHOD path' matches, instead of the usual or to it.

    status, headers, body: this answer. cut: the connection ends after so many bytes of content. rate: bytes a second.
    alter: content -> content. length: Content-Length lies. no_ranges: 200 with everything. hang: seconds before the answer.
    """

    def __init__(self, match, times=1, **what):
        self.match, self.times, self.what = re.compile(match), times, what


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def handle_error(self, request, client_address):
        pass  # a client that goes away is what some tests are about


class Hub:
    """with Hub({"org/name": Repo({...})}) as hub: hub.endpoint"""

    def __init__(self, repos, page=1000, certificate=None):
        """certificate: a folder with cert.pem and key.pem, with which the hub (the other server not) is https."""
        self.repos, self.page, self.faults, self.requests = repos, page, [], []
        self.signatures, self.blobs, self.lock = set(), {}, threading.Lock()
        self.hub = Server(("127.0.0.1", 0), type("HubHandler", (Handler,), {"owner": self, "name": "hub"}))
        self.cdn = Server(("127.0.0.2", 0), type("CdnHandler", (Handler,), {"owner": self, "name": "cdn"}))
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate / "cert.pem", certificate / "key.pem")
            self.hub.socket = context.wrap_socket(self.hub.socket, server_side=True)
        self.endpoint = f"http{'s' if certificate else ''}://127.0.0.1:{self.hub.server_address[1]}"
        self.cdn_address = f"http://127.0.0.2:{self.cdn.server_address[1]}"

    def __enter__(self):
        for server in (self.hub, self.cdn):
            threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        return self

    def __exit__(self, *exc):
        for server in (self.hub, self.cdn):
            server.shutdown()
            server.server_close()

    def fault(self, match, times=1, **what):
        self.faults.append(Fault(match, times, **what))

    def fault_for(self, request):
        with self.lock:
            self.requests.append(request)
            for fault in self.faults:
                if fault.times > 0 and fault.match.search(request):
                    fault.times -= 1
                    return fault.what
        return {}

    def count(self, match):
        return sum(1 for request in self.requests if re.search(match, request))

    def sign(self, content):
        sha256 = hashlib.sha256(content).hexdigest()
        self.blobs[sha256] = content
        signature = secrets.token_hex(8)
        self.signatures.add(signature)
        return f"{self.cdn_address}/blobs/{sha256}?signature={signature}"


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    owner = name = None

    def log_message(self, *args):
        pass

    def do_HEAD(self):
        self.answer()

    def do_GET(self):
        self.answer()

    def answer(self):
        self.path_only, _, query = self.path.partition("?")
        self.query = urllib.parse.parse_qs(query)
        bearer = " with a token" if self.headers.get("Authorization") else ""
        self.what = self.owner.fault_for(f"{self.name} {self.command} {self.path_only} {self.headers.get('Range') or ''}{bearer}")
        time.sleep(self.what.get("hang", 0))
        if "status" in self.what:
            return self.send(self.what["status"], self.what.get("headers", {}), self.what.get("body", b"no"))
        return self.hub() if self.name == "hub" else self.cdn()

    def send(self, status, headers, body=b""):
        self.send_response(status)
        for key, value in headers.items():
            self.send_header(key, value)
        if "Content-Length" not in headers:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.write(body)

    def write(self, body):
        cut, rate = self.what.get("cut"), self.what.get("rate")
        body = body if cut is None else body[:cut]
        if rate is None:
            self.wfile.write(body)
        else:
            for at in range(0, len(body), max(rate // 20, 1)):
                self.wfile.write(body[at:at + max(rate // 20, 1)])
                time.sleep(0.05)
        if cut is not None:
            self.wfile.flush()
            self.close_connection = True
            self.connection.shutdown(2)

    def error(self, status, code=None, message=None):
        headers = {"X-Error-Code": code} if code else {}
        self.send(status, {**headers, **({"X-Error-Message": message} if message else {})}, json.dumps({"error": message}).encode())

    def json(self, value, headers={}):
        self.send(200, {"Content-Type": "application/json", **headers}, json.dumps(value).encode())

    def content(self, content, headers):
        content = self.what.get("alter", lambda same: same)(content)
        wanted = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range") or "")
        status, extra = 200, {"Accept-Ranges": "bytes"}
        if wanted and not self.what.get("no_ranges"):
            begin, end = int(wanted[1]), min(int(wanted[2] or len(content)), len(content) - 1)
            if begin >= len(content):
                return self.send(416, {"Content-Range": f"bytes */{len(content)}"})
            extra["Content-Range"] = f"bytes {begin}-{end}/{len(content)}"
            status, content = 206, content[begin:end + 1]
        if "length" in self.what:
            extra["Content-Length"] = str(self.what["length"])
        self.send(status, {**headers, **extra}, content)

    # --- the hub

    def hub(self):
        path = urllib.parse.unquote(self.path_only)
        match = re.match(r"/(?:api/models/)?((?:[^/]+/)?[^/]+)(?:/(revision|tree|resolve)/([^/]+|refs/[^/]+/[^/]+)(?:/(.*))?)?$",
                         "/" + self.path_only.lstrip("/"))
        repo = self.owner.repos.get(match[1]) if match else None
        bearer = (self.headers.get("Authorization") or "").removeprefix("Bearer ")
        if bearer == "expired":
            return self.error(401, None, "Invalid credentials in Authorization header")
        if repo is None or (repo.token and not repo.gated and bearer != repo.token):
            return self.error(401 if not bearer else 404, "RepoNotFound", "Repository not found")
        if repo.gated and match[2] == "resolve":
            return self.error(403 if bearer else 401, "GatedRepo", "Access to model is restricted")
        revision = urllib.parse.unquote(match[3] or "main")
        commit = revision if revision == repo.commit else repo.refs.get(revision)
        if commit is None:
            return self.error(404, "RevisionNotFound", f"Invalid rev id: {revision}")
        if match[2] == "tree":
            return self.tree(repo)
        if match[2] == "resolve":
            return self.resolve(repo, commit, urllib.parse.unquote(match[4] or ""))
        return self.json({"id": match[1], "modelId": match[1], "sha": commit, "private": False, "tags": [], "downloads": 0,
                          "siblings": [{"rfilename": name} for name in sorted(repo.files)]})

    def tree(self, repo):
        begin = int(self.query.get("cursor", ["0"])[0])
        paths = sorted(repo.files)
        folders = [{"type": "directory", "path": "a folder", "size": 0, "oid": "0" * 40}] if begin == 0 else []
        headers = {}
        if begin + self.owner.page < len(paths):
            headers["Link"] = f'<{self.owner.endpoint}{self.path_only}?recursive=True&cursor={begin + self.owner.page}>; rel="next"'
        self.json(folders + [repo.entry(path) for path in paths[begin:begin + self.owner.page]], headers)

    def resolve(self, repo, commit, path):
        content = repo.files.get(path)
        if content is None:
            return self.error(404, "EntryNotFound", "Entry not found")
        headers = {"X-Repo-Commit": commit}
        if not repo.large(path):
            return self.content(content, {**headers, "ETag": f'"{git_sha1(content)}"'})
        sha256 = self.what.get("etag") or hashlib.sha256(content).hexdigest()
        self.send(302, {**headers, "X-Linked-Size": str(len(content)), "X-Linked-Etag": f'"{sha256}"',
                        "Location": self.owner.sign(content)}, b"see there")

    # --- where large files are

    def cdn(self):
        signature = self.query.get("signature", [""])[0]
        content = self.owner.blobs.get(self.path_only.rsplit("/", 1)[1])
        if content is None or signature not in self.owner.signatures:
            return self.send(403, {}, b"<Error><Code>AccessDenied</Code></Error>")
        return self.content(content, {"ETag": '"of-the-store"'})
