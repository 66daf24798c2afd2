"""penstock.ray on a real local cluster: two raylets, replicas and actors that are killed. Skipped without Ray; scripts/test_python
installs it into an environment of its own."""
import asyncio
import collections
import concurrent.futures
import json
import os
import signal
import socket
import threading
import time
import tracemalloc
import urllib.error
import urllib.parse
import urllib.request

import pytest

import penstock
from conftest import SMALL

ray = pytest.importorskip("ray")
pytest.importorskip("ray.serve")
pytest.importorskip("ray.data")

from ray import serve  # noqa: E402
from ray.cluster_utils import Cluster  # noqa: E402

from penstock._openai_server import _free_port  # noqa: E402
from penstock.ray.data import ProcessorConfig, build_processor  # noqa: E402
from penstock.ray.prefix_router import LOST_AFTER, PIECE, PrefixRouter, chain  # noqa: E402
from penstock.ray.serve import LLMConfig, build_app, prompt_beginning, target_of  # noqa: E402
from penstock.ray.split import Known, SplitConfig, SplitIngress, build_app as build_split_app  # noqa: E402


@pytest.fixture(scope="module")
def cluster():
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 4, "object_store_memory": 100 << 20})
    made.add_node(num_cpus=4, object_store_memory=100 << 20)
    ray.init(address=made.address, log_to_driver=False, logging_level="ERROR",
             runtime_env={"env_vars": {"PYTHONPATH": os.path.dirname(__file__)}})
    yield made
    serve.shutdown()
    ray.shutdown()
    made.shutdown()


@pytest.fixture(scope="module")
def url(cluster):
    port = _free_port()
    # One proxy: those of two nodes would share the port, and hear of routes at different times.
    serve.start(proxy_location="HeadOnly", http_options={"host": "127.0.0.1", "port": port})
    serve.run(build_app(LLMConfig(model=SMALL, num_replicas=2, num_cpus=1, drain_seconds=5,
                                  options={"served_model_name": "stories", "max_num_seqs": 16})), name="penstock")
    address = f"http://127.0.0.1:{port}"
    deadline = time.monotonic() + 120
    while not _answers(address + "/v1/models") and time.monotonic() < deadline:  # the proxy hears of routes some time later
        time.sleep(0.2)
    yield address


def _answers(url):
    try:
        with urllib.request.urlopen(url, timeout=20) as reply:
            return reply.status == 200
    except OSError:
        return False


def post(url, path, body, timeout=60):
    request = urllib.request.Request(url + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=timeout) as reply:
            return reply.status, json.load(reply)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def complete(url, prompt, **more):
    return post(url, "/v1/completions", {"model": "stories", "prompt": prompt, "temperature": 0, "max_tokens": 12, **more})


def server_pids():
    """Of every replica's server."""
    handle = serve.get_deployment_handle("penstock-replica", "penstock")
    found = set()
    deadline = time.monotonic() + 20
    while len(found) < 2 and time.monotonic() < deadline:
        found.add(handle.pid.remote().result(timeout_s=20))
    return found


def test_routes(url):
    with urllib.request.urlopen(url + "/v1/models", timeout=20) as reply:
        assert json.load(reply)["data"][0]["id"] == "stories"
    with penstock.LLM(SMALL) as llm:
        expected = llm.generate("Once upon a time", penstock.SamplingParams(temperature=0, max_tokens=12), use_tqdm=False)
    status, reply = complete(url, "Once upon a time")
    assert status == 200 and reply["choices"][0]["text"] == expected[0].outputs[0].text
    status, reply = complete(url, "x", temperature=-1)
    assert status == 400 and "temperature" in reply["error"]["message"]
    assert post(url, "/v1/nowhere", {})[0] == 404


def raw_request(url, target, method="GET"):
    """The status of a request whose target is sent as it is, and the reply."""
    host, port = url[len("http://"):].split(":")
    with socket.create_connection((host, int(port)), timeout=20) as client:
        client.sendall(f"{method} {target} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode("latin-1"))
        reply = b"".join(iter(lambda: client.recv(65536), b""))
    head, _, body = reply.partition(b"\r\n\r\n")
    return int(head.split()[1]), body


def test_paths_arrive_as_they_were_written(url):
    """A name may have a slash, a question mark or dots in it, percent-encoded: the server decodes them."""
    assert raw_request(url, "/v1/models/stories")[0] == 200
    for name in ("org%2Fname", "what%3Fmodel=stories", "a%23b", "..%2Fmodels", "a%2520b"):
        status, body = raw_request(url, f"/v1/models/{name}")
        assert status == 404 and urllib.parse.unquote(name) in json.loads(body)["error"]["message"], (name, status, body)


def test_targets():
    def target(raw, root="", query=b""):
        return target_of({"raw_path": raw, "path": urllib.parse.unquote(raw.decode("latin-1")), "root_path": root, "query_string": query})

    assert target(b"/v1/models") == "/v1/models"
    assert target(b"/v1/files/a%2Fb", query=b"x=%3F&y") == "/v1/files/a%2Fb?x=%3F&y"
    assert target(b"/v1/%2e%2e/x%3Fy%23z") == "/v1/%2e%2e/x%3Fy%23z"
    assert target(b"/llm/v1/models", root="/llm") == "/v1/models"
    assert target(b"/llm", root="/llm/") == "/"
    for hostile in (b"@other.example/", b"*", b"", b"http://other.example/x"):
        assert target(hostile).startswith("/")
    assert target(b"/a b\r\nX: y#z\xff?q", query=b"a#\xff\r\n") == "/a%20b%0D%0AX:%20y%23z%FF%3Fq?a%23%FF%0D%0A"
    assert target_of({"path": "/v1/a b", "root_path": ""}) == "/v1/a%20b"


def test_streams(url):
    body = json.dumps({"model": "stories", "prompt": "Once", "temperature": 0, "max_tokens": 12, "stream": True}).encode()
    request = urllib.request.Request(url + "/v1/completions", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=20) as reply:
        lines = [line.decode().strip() for line in reply if line.startswith(b"data: ")]
    assert lines[-1] == "data: [DONE]" and len(lines) > 4
    text = "".join(json.loads(line[6:])["choices"][0]["text"] for line in lines[:-1] if json.loads(line[6:])["choices"])
    assert text == complete(url, "Once")[1]["choices"][0]["text"]


def test_requests_go_where_their_beginning_is(url):
    for story in range(6):
        prompt = f"Story number {story}. " + "The cat sat on the mat and looked at the moon. " * 12
        first = complete(url, prompt)[1]["usage"]
        for end in range(3):
            usage = complete(url, prompt + f" End {end}.")[1]["usage"]
            cached = usage.get("prompt_tokens_details", {}).get("cached_tokens", 0)
            assert cached > first["prompt_tokens"] * 0.7, (story, end, usage)


def test_pieces_and_beginnings():
    text = "a" * (3 * PIECE + 10)
    assert len(chain(text)) == 3 and chain(text)[:2] == chain(text[:2 * PIECE]) and len(set(chain(text))) == 3
    assert prompt_beginning(b'{"prompt": "hello"}') == "hello"
    assert "hello" in prompt_beginning(b'{"messages": [{"role": "user", "content": "hello"}]}')
    for body in (b"", b"not json", b"[1]", b'{"model": "x"}'):
        assert prompt_beginning(body) == ""


def test_bodies_that_cost_much_to_parse():
    """The event loop of all requests reads them."""
    for deep in (b"[" * 100_000, b'{"prompt": ' + b"[" * 100_000, b'{"prompt": ' + b'{"a":' * 5000 + b"1" + b"}" * 5001, b'{"prompt": ' + b"9" * 9000):
        assert prompt_beginning(deep) == ""
    long = json.dumps({"model": "x", "messages": [{"role": "user", "content": "hello " * 300_000}]}).encode()
    assert prompt_beginning(long).startswith('[{"role": "user", "content": "hello ')
    many = b'{"model": "x", "prompt": [' + b"[]," * 8_000_000 + b"[]]}"
    damaged = b"[" + many + b"," * 5_000_000
    tracemalloc.start()
    begin = time.process_time()
    for body in (many, damaged):
        assert prompt_beginning(body).startswith("[[],[]")
    assert time.process_time() - begin < 1
    assert tracemalloc.get_traced_memory()[1] < 32 << 20
    tracemalloc.stop()


class Waiting:
    """A request of Serve's that no replica has yet, as routers see it."""

    def __init__(self, name, prefix=""):
        self.kwargs = {"prefix": prefix}
        self.metadata = type("Metadata", (), {"internal_request_id": name})()


def test_a_burst_is_spread_before_any_of_it_arrives(monkeypatch):
    router = PrefixRouter.__new__(PrefixRouter)
    router.initialize_state(most_ahead=4)
    replicas = [type("Replica", (), {"replica_id": name})() for name in "abc"]

    def choose(name, prefix=""):
        ranks = asyncio.run(router.choose_replicas(replicas, Waiting(name, prefix)))
        assert sorted(replica.replica_id for rank in ranks for replica in rank) == ["a", "b", "c"]
        return ranks[0][0].replica_id

    counts = collections.Counter(choose(str(number)) for number in range(30))
    assert counts == {"a": 10, "b": 10, "c": 10}
    story = "x" * 3 * PIECE
    home = choose("first", story)
    assert [choose(f"next {number}", story) for number in range(4)] == [home] * 4  # most_ahead
    assert choose("too much", story) != home
    # Refused by the first choice, taken by another; the refusal is told last.
    chosen = choose("refused")
    other = next(name for name in "abc" if name != chosen)
    before = router._busy[other]
    router.on_request_routed(Waiting("refused"), other, None)
    router.on_request_completed(chosen, "refused")
    assert router._busy[other] == before + 1
    router.on_request_completed(other, "refused")
    router.on_request_completed(other, "refused")
    assert router._busy[other] == before
    # What was cancelled before it was sent is forgotten some day.
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now + LOST_AFTER + 1)
    choose("last")
    assert sum(router._busy.values()) == 1 and len(router._given) == 1


@pytest.mark.parametrize("what", ["server", "actor"])
def test_a_replica_dies_under_load(url, what):
    stop = threading.Event()
    results, lock = [], threading.Lock()

    def work(number):
        i = 0
        while not stop.is_set():
            status, reply = complete(url, f"Tale {number} {i}", max_tokens=60)
            with lock:
                results.append((status, reply))
            i += 1

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    time.sleep(1)
    victim = sorted(server_pids())[0]
    if what == "server":
        os.kill(victim, signal.SIGKILL)
    else:
        with open(f"/proc/{victim}/stat") as file:
            os.kill(int(file.read().rsplit(")", 1)[1].split()[1]), signal.SIGKILL)  # its parent, the actor
    time.sleep(6)
    stop.set()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive(), "a request hangs"
    bad = [reply for status, reply in results if status != 200]
    assert len(results) > 20
    assert all(reply["error"]["message"] for reply in bad) and len(bad) <= len(results) * 0.05
    deadline = time.monotonic() + 240  # a busy machine takes its time to begin a process
    while time.monotonic() < deadline and len(server_pids() - {victim}) < 2:
        time.sleep(0.5)
    assert len(server_pids() - {victim}) == 2  # the replica is back
    if what == "actor":
        deadline = time.monotonic() + 30
        while os.path.exists(f"/proc/{victim}") and time.monotonic() < deadline:
            time.sleep(0.2)
        assert not os.path.exists(f"/proc/{victim}")  # and no server is left without one


def rows(n):
    return ray.data.from_items([{"id": i, "text": f"Number {i} is"} for i in range(n)], override_num_blocks=8)


def ask(row):
    return {"id": row["id"], "prompt": row["text"], "sampling_params": {"max_tokens": 4, "temperature": 0}}


def test_batches(cluster):
    processor = build_processor(ProcessorConfig(model=SMALL, batch_size=16, concurrency=2), ask,
                                lambda row: {"id": row["id"], "text": row["generated_text"], "n": row["num_generated_tokens"]})
    answers = {row["id"]: row for row in processor(rows(100)).take_all()}
    assert sorted(answers) == list(range(100))
    with penstock.LLM(SMALL) as llm:
        expected = llm.generate([f"Number {i} is" for i in range(100)], penstock.SamplingParams(max_tokens=4, temperature=0),
                                use_tqdm=False)
    assert [answers[i]["text"] for i in range(100)] == [output.outputs[0].text for output in expected]


def test_rows_that_fail_are_reported(cluster):
    def some_bad(row):
        asked = ask(row)
        if row["id"] % 10 == 3:
            asked["sampling_params"]["temperature"] = -1
        if row["id"] % 10 == 4:
            asked["prompt"] = "word " * 5000
        return asked

    answers = build_processor(ProcessorConfig(model=SMALL, batch_size=16), some_bad)(rows(40)).take_all()
    by_id = {row["id"]: row for row in answers}
    assert len(answers) == len(by_id) == 40
    for i, row in by_id.items():
        if i % 10 in (3, 4):
            assert row["generated_text"] is None and row["finish_reason"] == "error"
            assert ("temperature" if i % 10 == 3 else "512") in row["error"]
        else:
            assert row["error"] is None and row["num_generated_tokens"] == 4


def test_checkpoints_and_order(cluster, tmp_path):
    folder, log = tmp_path / "kept", tmp_path / "log"
    config = ProcessorConfig(model=SMALL, batch_size=8, checkpoint_path=str(folder))

    def stops(row):
        if row["id"] == 77:
            raise RuntimeError("stop here")
        return ask(row)

    def counted(row):
        with open(log, "a") as file:
            file.write(f"{row['id']}\n")
        return ask(row)

    first = build_processor(config, ask)(rows(50)).take_all()
    assert [row["id"] for row in first] == list(range(50))
    with pytest.raises(Exception, match="stop here"):
        build_processor(config, stops)(rows(100)).take_all()
    kept = len(list(folder.glob("part-*.parquet")))
    again = build_processor(config, counted)(rows(100)).take_all()
    assert [row["id"] for row in again] == list(range(100))
    assert [row["generated_text"] for row in again[:50]] == [row["generated_text"] for row in first]
    assert kept >= 7 and not list(folder.glob("*.tmp"))
    with pytest.raises(Exception, match="'id'"):
        build_processor(config, lambda row: {"prompt": "x"})(rows(3)).take_all()


def test_an_actor_dies_in_a_job(cluster):
    def long(row):
        return {**ask(row), "sampling_params": {"max_tokens": 40, "temperature": 0, "ignore_eos": True}}

    processor = build_processor(ProcessorConfig(model=SMALL, batch_size=8, concurrency=2), long,
                                lambda row: {"id": row["id"], "n": row["num_generated_tokens"]})

    def kill():
        from ray.util.state import list_actors
        for _ in range(200):
            time.sleep(0.1)
            try:
                actors = [actor for actor in list_actors(filters=[("state", "=", "ALIVE")], detail=True)
                          if "MapWorker" in actor.class_name]
            except Exception:
                continue
            if actors:
                time.sleep(0.5)
                os.kill(actors[0].pid, signal.SIGKILL)
                return

    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        killed = pool.submit(kill)
        answers = processor(rows(400)).take_all()
        killed.result()
    assert sorted(row["id"] for row in answers) == list(range(400))
    assert all(row["n"] == 40 for row in answers)


# --- Prefill and decode apart: the last tests, since they take the first application's place.

STORY = "The cat sat on the mat and looked at the moon, and the moon looked back at the cat. " * 8


@pytest.fixture(scope="module")
def split(url, tmp_path_factory):
    serve.delete("penstock")
    store = f"{tmp_path_factory.mktemp('store')}:256M"
    serve.run(build_split_app(SplitConfig(
        model=SMALL, kv_store=store, least_new=PIECE, accept_seconds=5, options={"served_model_name": "stories", "batch_invariant": True},
        prefill={"num_replicas": 1, "drain_seconds": 5}, decode={"num_replicas": 2, "drain_seconds": 5})), name="split", route_prefix="/")
    deadline = time.monotonic() + 120
    while complete(url, "Once")[0] != 200 and time.monotonic() < deadline:
        time.sleep(0.2)
    return url


def outcomes():
    return serve.get_deployment_handle("penstock", "split").counts.remote().result(timeout_s=20)


def comes_true(what, seconds=60):
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline, "not in time"
        time.sleep(0.1)


def pids_of(role, n):
    handle = serve.get_deployment_handle(f"penstock-{role}-replica", "split")
    found = set()
    deadline = time.monotonic() + 60
    while len(found) < n and time.monotonic() < deadline:
        found.add(handle.pid.remote().result(timeout_s=60))
    return found


def test_long_prompts_are_computed_apart(split):
    with penstock.LLM(SMALL, batch_invariant=True) as llm:
        expected = [llm.generate(f"{i} {STORY}", penstock.SamplingParams(temperature=0, max_tokens=12), use_tqdm=False)[0].outputs[0].text
                    for i in range(4)]
    before = outcomes().get("stored", 0)
    for i, text in enumerate(expected):
        status, reply = complete(split, f"{i} {STORY}")
        assert status == 200 and reply["choices"][0]["text"] == text
        if i == 0:  # the first prompt that a decode replica looks up is read; later ones may be computed sooner
            assert reply["usage"]["prompt_tokens_details"]["cached_tokens"] >= 0.8 * reply["usage"]["prompt_tokens"]
    comes_true(lambda: outcomes()["stored"] == before + 4)  # they may be counted behind the replies
    complete(split, "2 " + STORY + "Then")  # little of it is new
    complete(split, "A short one")
    status, reply = complete(split, "9 " + STORY, temperature=-1)
    assert status == 400 and "temperature" in reply["error"]["message"]
    comes_true(lambda: outcomes().get("refused", 0) >= 1)
    assert outcomes()["stored"] == before + 4
    body = json.dumps({"model": "stories", "prompt": "1 " + STORY, "temperature": 0, "max_tokens": 12, "stream": True}).encode()
    request = urllib.request.Request(split + "/v1/completions", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=20) as reply:
        lines = [line.decode().strip() for line in reply if line.startswith(b"data: ")]
    assert lines[-1] == "data: [DONE]"
    assert "".join(one["choices"][0]["text"] for one in map(json.loads, (line[6:] for line in lines[:-1])) if one["choices"]) == expected[1]


@pytest.mark.parametrize("role", ["prefill", "decode"])
def test_a_side_dies_under_load(split, role):
    stop = threading.Event()
    results, lock = {}, threading.Lock()
    pids_before = pids_of(role, 1 if role == "prefill" else 2)

    def work(number):
        i = 0
        while not stop.is_set():
            prompt = f"{role} {number} {i} {STORY}"
            reply = complete(split, prompt)
            with lock:
                results[prompt] = reply
            i += 1

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    time.sleep(1)
    victim = sorted(pids_before)[0]
    os.kill(victim, signal.SIGKILL)
    time.sleep(8)
    stop.set()
    for thread in threads:
        thread.join(90)
        assert not thread.is_alive(), "a request hangs"
    bad = [reply for status, reply in results.values() if status != 200]
    assert len(results) > 10 and len(bad) <= (0 if role == "prefill" else 0.05 * len(results)), bad[:3]
    some = [prompt for prompt, (status, _) in results.items() if status == 200][-40:]
    with penstock.LLM(SMALL, batch_invariant=True) as llm:
        outputs = llm.generate(some, penstock.SamplingParams(temperature=0, max_tokens=12), use_tqdm=False)
    for prompt, output in zip(some, outputs):
        assert results[prompt][1]["choices"][0]["text"] == output.outputs[0].text
    n = 1 if role == "prefill" else 2
    deadline = time.monotonic() + 240
    while time.monotonic() < deadline and len(pids_of(role, n) - {victim}) < n:
        time.sleep(0.5)
    assert len(pids_of(role, n) - {victim}) == n  # the replica is back
    before, deadline = outcomes().get("stored", 0), time.monotonic() + 120
    for i in range(1000):
        assert complete(split, f"again {role} {i} {STORY}")[0] == 200
        if outcomes().get("stored", 0) > before or time.monotonic() > deadline:
            break
        time.sleep(0.5)
    assert outcomes().get("stored", 0) > before  # and prompts are computed apart again


def n_replicas(application):
    """How many replicas of both roles run."""
    deployments = serve.status().applications[application].deployments
    return tuple(deployments[f"penstock-{role}-replica"].replica_states.get("RUNNING", 0) for role in ("prefill", "decode"))


def test_groups_scale_apart(split, tmp_path):
    serve.delete("split")
    quick = {"metrics_interval_s": 0.2, "look_back_period_s": 1, "upscale_delay_s": 0.5, "downscale_delay_s": 1}
    config = SplitConfig(model=SMALL, kv_store=f"{tmp_path}:256M", least_new=PIECE, accept_seconds=30, options={"served_model_name": "stories"},
                         prefill={"max_replicas": 2, "target_ongoing_requests": 1, "drain_seconds": 5, "autoscaling": quick},
                         decode={"max_replicas": 2, "target_ongoing_requests": 100, "drain_seconds": 5, "autoscaling": quick})
    serve.run(build_split_app(config), name="scaled", route_prefix="/")
    comes_true(lambda: complete(split, "Once")[0] == 200)
    assert n_replicas("scaled") == (1, 1)
    stop = threading.Event()
    seen, failed = set(), []

    def work(number):
        i = 0
        while not stop.is_set():
            status, reply = complete(split, [f"{number} {i} {j} {STORY}" for j in range(16)], max_tokens=1)
            if status != 200:
                failed.append(reply)
            i += 1

    def grown():
        seen.add(n_replicas("scaled"))
        return (2, 1) in seen

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    try:
        comes_true(grown, 120)
    finally:
        stop.set()
        for thread in threads:
            thread.join(90)
    assert not failed, failed[:1]
    comes_true(lambda: n_replicas("scaled") == (1, 1), 120)
    assert {decode for _, decode in seen} == {1}
    assert complete(split, f"after it {STORY}")[0] == 200


class Pieces:
    """What a prefill replica sends: an answer after each pause; an exception is raised."""

    def __init__(self, *answers):
        self.answers, self.cancelled = list(answers), False

    async def __anext__(self):
        pause, answer = self.answers.pop(0)
        await asyncio.sleep(pause)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def cancel(self):
        self.cancelled = True


def ingress_of(pieces, **settings):
    """A SplitIngress whose prefill replicas answer so."""
    handle = type("Handle", (), {})()
    handle.options = lambda **_: handle
    handle.prefill = type("Method", (), {"remote": staticmethod(lambda *_, **__: pieces)})
    return SplitIngress(handle, handle, SplitConfig(kv_store="/s", least_new=10, **settings))


@pytest.mark.parametrize("answers, settings, wait, outcome", [
    ([(0, (0, b"")), (0.3, (200, b'{"stored_tokens": 16}'))], {}, "2.0", "stored"),
    ([(0, (0, b"")), (0.3, (200, b'{"stored_tokens": 16}'))], {"wait_seconds": 0}, None, "stored"),
    ([(0, (0, b"")), (0, (400, b"{}"))], {}, None, "refused"),
    ([(0, (0, b"")), (0.3, RuntimeError("it died"))], {}, "2.0", "failed"),
    ([(0, RuntimeError("it is dead"))], {}, None, "failed"),
    ([(5, (0, b""))], {"accept_seconds": 0.1}, None, "late"),
    ([(0, (0, b"")), (5, (200, b"{}"))], {"prefill_seconds": 0.2}, "2.0", "late"),
])
def test_a_prompt_is_computed_beside_its_request(answers, settings, wait, outcome):
    async def ask():
        pieces = Pieces(*answers)
        ingress = ingress_of(pieces, **settings)
        headers = {"X-Prefill-Wait": "60", "Other": "1"}
        begun = time.monotonic()
        beside = await ingress.before("POST", "/v1/completions", headers, b'{"prompt": "a long prompt, all of it new"}')
        took = time.monotonic() - begun
        assert headers.pop("x-prefill-wait", None) == wait and headers == {"Other": "1"}
        if wait is not None:
            assert took < 0.25 and not beside.done()
        await asyncio.wait({beside})
        assert await ingress.counts() == {outcome: 1}
        assert pieces.cancelled == (outcome == "late")
        assert await ingress.before("POST", "/v1/completions", headers, b'{"prompt": "short"}') is None
        assert await ingress.before("GET", "/v1/models", headers, b"") is None
        assert headers == {"Other": "1"}

    asyncio.run(ask())


def test_a_prompt_that_nobody_waits_for_is_given_up():
    async def ask():
        pieces = Pieces((0, (0, b"")), (20, (200, b"{}")))
        ingress = ingress_of(pieces)
        beside = await ingress.before("POST", "/v1/completions", {}, b'{"prompt": "a long prompt, all of it new"}')
        beside.cancel()
        await asyncio.wait({beside})
        assert pieces.cancelled and await ingress.counts() == {}

    asyncio.run(ask())


def test_what_is_known_of_prompts():
    known = Known()
    text = "".join(f"{i:08d}" for i in range(200))
    assert known.new_characters(text) == len(text) and known.new_characters("short") == 5
    known.note(text)
    assert known.new_characters(text) < PIECE and known.new_characters(text + "x" * PIECE) < 2 * PIECE
    assert known.new_characters("x" + text) == len(text) + 1
    assert known.new_characters("") == 0
    with pytest.raises(ValueError, match="kv_store"):
        build_split_app({"model": SMALL})
    with pytest.raises(ValueError, match="wait_seconds"):
        build_split_app({"model": SMALL, "kv_store": "/s", "wait_seconds": 61})
    group = SplitConfig(model="m", kv_store="/s", options={"threads": 2}, prefill={"max_replicas": 3, "options": {"block_size": 32}}).group("prefill")
    assert group.options == {"threads": 2, "block_size": 32, "role": "prefill", "kv_store": "/s"}
    assert (group.model, group.max_replicas, group.name) == ("m", 3, "penstock-prefill")
