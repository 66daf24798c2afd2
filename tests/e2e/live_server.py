"""A running `penstock serve` and plain HTTP to it, for the server's tests. Only the standard library, only loopback.

PENSTOCK_BINARY (else PENSTOCK, as ctest sets it) is the program: a sanitizer build can be put under the same tests.
"""
import http.client
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import tempfile
import threading
import time

PROGRAM = os.environ.get("PENSTOCK_BINARY") or os.environ["PENSTOCK"]
SOURCE = pathlib.Path(os.environ.get("PENSTOCK_SOURCE") or pathlib.Path(__file__).resolve().parents[2])
MODEL = SOURCE / "models" / "penstock-stories-1m-q8_0.gguf"
# For tests that must find a request under way: plain C++ on one core makes some 40 tokens a second of the larger model, and no
# machine makes 400 in an instant.
LARGER_MODEL, SLOW_KERNELS = SOURCE / "models" / "penstock-stories-15m-q8_0.gguf", {"PENSTOCK_ISA": "scalar"}
# Sanitizer builds compute some twenty times slower.
SLOW = float(os.environ.get("PENSTOCK_SLOWNESS", "1"))


class Reply:
    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    def json(self):
        return json.loads(self.body)


class Server:
    """with Server("--max-num-seqs", "8") as server: server.post("/v1/generate", {...})"""

    def __init__(self, *args, model=MODEL, env=None, scheme="http", launcher=(), before=()):
        self.log_file = tempfile.NamedTemporaryFile("w+", suffix=".log", errors="replace")
        command = [*launcher, PROGRAM, *before, "serve", *(["-m", str(model)] if model else []), "--port", "0", *map(str, args)]
        if "--host" not in args:
            command += ["--host", "127.0.0.1"]
        if "--kv-cache-memory" not in args:
            command += ["--kv-cache-memory", "64M"]
        self.process = subprocess.Popen(command, stderr=self.log_file, stdout=subprocess.DEVNULL, env={**os.environ, **(env or {})})
        self.scheme, self.socks = scheme, []  # those that a test leaves open are closed with the server
        end = time.monotonic() + 120 * SLOW
        while True:
            found = re.search(r"serving \S+ at \w+://[\d.]+:(\d+)", self.log())
            if found:
                break
            if self.process.poll() is not None or time.monotonic() > end:
                self.process.kill()
                raise AssertionError(f"the server did not start: {self.log()}")
            time.sleep(0.02)
        self.port = int(found.group(1))

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        started = children(self.process)
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        wait_for(lambda: not any(map(is_alive, started)), 10)  # they may write files until they end
        self.log_file.close()
        for sock in self.socks:
            sock.close()

    def log(self):
        self.log_file.flush()
        return pathlib.Path(self.log_file.name).read_text(errors="replace")

    def terminate(self):
        self.process.send_signal(signal.SIGTERM)

    def stop(self, timeout=60):
        """Exit code after SIGTERM."""
        self.terminate()
        return self.process.wait(timeout * SLOW)

    def request(self, method, path, body=None, headers=None, timeout=120):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout * SLOW)
        try:
            if isinstance(body, (dict, list)):
                body = json.dumps(body)
            connection.request(method, path, body, {"Content-Type": "application/json", **(headers or {})})
            reply = connection.getresponse()
            return Reply(reply.status, reply.headers, reply.read())
        finally:
            connection.close()

    def get(self, path, headers=None, **kwargs):
        return self.request("GET", path, None, headers, **kwargs)

    def post(self, path, body, headers=None, **kwargs):
        return self.request("POST", path, body, headers, **kwargs)

    def generate(self, prompt="Once upon a time", headers=None, **fields):
        return self.post("/v1/generate", {"prompt": prompt, "temperature": 0, "max_tokens": 8, **fields}, headers)

    def stream(self, body, path="/v1/completions", headers=None, timeout=120):
        """A socket on which a streamed reply runs, with the request sent."""
        data = json.dumps(body).encode()
        head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(data)}\r\n"
        head += "".join(f"{k}: {v}\r\n" for k, v in (headers or {}).items()) + "\r\n"
        return self.raw(head.encode() + data, timeout)

    def raw(self, data=b"", timeout=30):
        sock = socket.create_connection(("127.0.0.1", self.port), timeout=timeout * SLOW)
        self.socks = [one for one in self.socks if one.fileno() >= 0] + [sock]
        sock.sendall(data)
        return sock

    def metrics(self, headers=None):
        """{"name{labels}": value} of /metrics."""
        text = self.get("/metrics", headers).body.decode()
        return {line.rsplit(" ", 1)[0]: float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if line and line[0] != "#"}

    def metric(self, name, headers=None, **labels):
        """Sum of the values of a metric over its labels, or over those that have these."""
        wanted = [f'{label}="{value}"' for label, value in labels.items()]
        return sum(v for k, v in self.metrics(headers).items() if k.split("{")[0] == name and all(label in k for label in wanted))

    def rss(self):
        """Resident bytes."""
        return int(pathlib.Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def forget_peak(self):
        pathlib.Path(f"/proc/{self.process.pid}/clear_refs").write_text("5")

    def peak(self):
        """The most resident bytes since then."""
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmHWM:\s+(\d+)", status)[1]) * 1024

    def thread_seconds(self, name):
        """Time on a processor of the threads of that name: what others do on the machine does not count."""
        tasks = pathlib.Path(f"/proc/{self.process.pid}/task")
        return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks.iterdir() if (task / "comm").read_text().strip() == name) / 1e9

    def n_files(self):
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def n_threads(self):
        return len(os.listdir(f"/proc/{self.process.pid}/task"))


def slow_server(*args):
    """A server that is slow on every machine."""
    return Server("--threads", 1, *args, model=LARGER_MODEL, env=SLOW_KERNELS)


def read_all(sock):
    """What comes until the other side closes (or resets)."""
    data = b""
    try:
        while piece := sock.recv(65536):
            data += piece
    except ConnectionError:
        pass
    return data


def read_head(sock):
    """The head of a reply and what has come behind it."""
    data = b""
    while b"\r\n\r\n" not in data:
        piece = sock.recv(65536)
        if not piece:
            break
        data += piece
    head, _, rest = data.partition(b"\r\n\r\n")
    return head, rest


def read_until(sock, marker, data=b""):
    while marker not in data:
        piece = sock.recv(65536)
        if not piece:
            raise AssertionError(f"closed before {marker!r}: {data[-300:]!r}")
        data += piece
    return data


def children(process):
    """Processes that this one has started and that are still there."""
    found = []
    for path in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        if int(fields[1]) == process.pid and fields[0] != "Z":
            found.append(int(path.parent.name))
    return found


def is_alive(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


def wait_for(what, timeout=60, step=0.05):
    """Polls until what() is true; its last value."""
    end = time.monotonic() + timeout * SLOW
    while not (value := what()) and time.monotonic() < end:
        time.sleep(step)
    return value


def in_threads(n, function):
    """function(i) for i in range(n) on n threads; the results in order."""
    results = [None] * n

    def run(i):
        try:
            results[i] = function(i)
        except BaseException as error:  # noqa: B902 - it is the result
            results[i] = error
    threads = [threading.Thread(target=run, args=(i,)) for i in range(n)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results
