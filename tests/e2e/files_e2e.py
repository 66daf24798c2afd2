#!/usr/bin/env python3
"""Files over HTTP: kept between runs, seen by their own key only, bounded; SIGKILL at any moment; stores that cannot be used."""
import json
import pathlib
import random
import shutil
import socket
import sqlite3
import tempfile
import threading
import time
import unittest

from serving import SMALL_MODEL, Server

LINES = b'{"custom_id": "a\\r\\n"}\n\x00\xff--\r\n' * 9


def form(content=LINES, name="in.jsonl", purpose="batch", boundary="--a=b"):
    """(body, headers)"""
    parts = []
    if purpose is not None:
        parts.append(b'Content-Disposition: form-data; name="purpose"\r\n\r\n' + purpose.encode())
    if content is not None:
        parts.append(f'Content-Disposition: form-data; name="file"; filename="{name}"\r\nContent-Type: x/y\r\n\r\n'.encode() + content)
    body = b"".join(b"--" + boundary.encode() + b"\r\n" + part + b"\r\n" for part in parts) + f"--{boundary}--\r\n".encode()
    return body, {"Content-Type": f'multipart/form-data; boundary="{boundary}"'}


class Client:
    def __init__(self, server, key=None):
        self.server, self.headers = server, {"Authorization": f"Bearer {key}"} if key else {}

    def call(self, method, path, status=200, body=None, headers=None):
        got, _, reply = self.server.request(method, path, body, {**self.headers, **(headers or {})})
        assert got == status, f"{method} {path}: expected {status}, got {got}: {reply[:500]}"
        return reply

    def json(self, method, path, status=200):
        return json.loads(self.call(method, path, status))

    def upload(self, status=200, **fields):
        body, headers = form(**fields)
        return json.loads(self.call("POST", "/v1/files", status, body, headers))

    def refused(self, status=400, **fields):
        return self.upload(status, **fields)["error"]["message"]

    def content(self, id, status=200):
        return self.call("GET", f"/v1/files/{id}/content", status)

    def ids(self, query=""):
        return [file["id"] for file in self.json("GET", "/v1/files" + query)["data"]]


class Folder(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)

    def serve(self, *flags):
        return Server(SMALL_MODEL, "--data-dir", self.folder / "data", *flags)


class Files(Folder):
    def test_the_life_of_a_file(self):
        with self.serve() as server:
            client = Client(server)
            self.assertEqual(client.json("GET", "/v1/files"), {"object": "list", "data": [], "first_id": None, "last_id": None,
                                                               "has_more": False})
            file = client.upload()
            self.assertEqual((file["object"], file["bytes"], file["filename"], file["purpose"], file["status"]),
                             ("file", len(LINES), "in.jsonl", "batch", "processed"))
            self.assertAlmostEqual(file["created_at"], time.time(), delta=60)
            large = client.upload(content=LINES * 10000)
            self.assertEqual(client.content(large["id"]), LINES * 10000)
        with self.serve() as server:  # with a key that nobody asked for
            client = Client(server, "any")
            self.assertEqual(client.json("GET", f"/v1/files/{file['id']}"), file)
            self.assertEqual(client.content(file["id"]), LINES)
            self.assertEqual(client.call("HEAD", f"/v1/files/{file['id']}/content"), b"")
            self.assertEqual(client.ids(), [large["id"], file["id"]])
            self.assertEqual(client.ids("?limit=1&order=asc"), [file["id"]])
            self.assertTrue(client.json("GET", "/v1/files?limit=1")["has_more"])
            self.assertEqual(client.ids(f"?after={large['id']}&purpose=batch"), [file["id"]])
            for query, word in (("limit=0", "limit"), ("limit=x", "limit"), ("order=up", "order"), ("zzz=1", "zzz")):
                self.assertIn(word, client.json("GET", "/v1/files?" + query, 400)["error"]["message"])
            client.json("GET", "/v1/files?after=file-none", 404)
            self.assertEqual(client.json("DELETE", f"/v1/files/{file['id']}"), {"id": file["id"], "object": "file", "deleted": True})
            for method, path in (("GET", ""), ("DELETE", ""), ("GET", "/content")):
                self.assertIn(file["id"], client.json(method, f"/v1/files/{file['id']}{path}", 404)["error"]["message"])
            self.assertEqual(client.ids(), [large["id"]])

    def test_bad_uploads(self):
        with self.serve("--max-body-bytes", 100_000, "--max-stored-files", 2, "--max-stored-bytes", 90_000) as server:
            client = Client(server)
            for fields, word in (({"purpose": "fine-tune"}, "fine-tune"), ({"purpose": None}, "purpose"), ({"content": None}, "file"),
                                 ({"content": b""}, "empty"), ({"name": ""}, "filename"), ({"name": "x" * 600}, "filename"),
                                 ({"content": b"x" * 95_000}, "90000 bytes")):
                self.assertIn(word, client.refused(**fields))
            self.assertIn("100000", client.refused(413, content=b"x" * 100_000))
            body, headers = form()
            for cut in (body[:-8], b"", b"{}"):
                client.call("POST", "/v1/files", 400, cut, headers)
            client.call("POST", "/v1/files", 400, body, {"Content-Type": "application/json"})
            self.assertIn("text/plain", json.loads(client.call("POST", "/v1/files", 400, body, {"Content-Type": "text/plain"}))["error"]["message"])
            # A page's form needs nobody's leave to be sent, but tells where it comes from.
            for page in ({"Origin": "https://evil.example"}, {"Sec-Fetch-Site": "cross-site"}):
                client.call("POST", "/v1/files", 403, body, {**headers, **page})
            # Announced and never sent: refused by the head alone.
            client.call("POST", "/v1/files", 413, b"", {**headers, "Content-Length": str(2 << 30)})
            # Of no announced length: read to the bound and not beyond it.
            chunks = b"".join(b"10000\r\n" + b"x" * 0x10000 + b"\r\n" for _ in range(40))
            head = (f"POST /v1/files HTTP/1.1\r\nHost: x\r\nContent-Type: {headers['Content-Type']}\r\nTransfer-Encoding: chunked\r\n\r\n").encode()
            with socket.create_connection(("127.0.0.1", server.port), timeout=60) as connection:
                connection.sendall(head + chunks[:150_000])
                self.assertIn(b" 413 ", connection.recv(4096))
            for path in ("../penstock.db", "..%2fpenstock.db", "%00", "x" * 3000):
                client.call("GET", f"/v1/files/{path}/content", 404)
            client.upload()
            client.upload()
            self.assertIn("2 files", client.refused())
            self.assertEqual(len(list((self.folder / "data" / "files").iterdir())), 2)

    def test_owners(self):
        with self.serve("--api-key", "key-one", "--api-key", "key-two") as server:
            one, two = Client(server, "key-one"), Client(server, "key-two")
            id = one.upload()["id"]
            for method, path in (("GET", ""), ("DELETE", ""), ("GET", "/content")):
                message = two.json(method, f"/v1/files/{id}{path}", 404)["error"]["message"]
                other = two.json(method, f"/v1/files/file-none{path}", 404)["error"]["message"]
                self.assertEqual(message.replace(id, "file-none"), other)
            self.assertEqual((one.ids(), two.ids()), ([id], []))
            Client(server).call("GET", "/v1/files", 401)
        with self.serve("--api-key", "key-one") as server:
            self.assertEqual(Client(server, "key-one").content(id), LINES)
        with self.serve() as server:  # whoever may come without a key has no files of one
            Client(server, "key-one").content(id, 404)

    def test_without_a_folder(self):
        with Server() as server:
            self.assertIn("--data-dir", Client(server).refused(404))


class Kills(Folder):
    def test_what_was_acknowledged_is_there_after_sigkill(self):
        kept, lock = {}, threading.Lock()

        def upload_until_it_dies(client, worker):
            for number in range(10_000):
                content = f"{worker} {number} ".encode() * random.randrange(1, 20_000)
                try:
                    id = client.upload(content=content)["id"]
                except OSError:
                    return
                except Exception:  # half a reply
                    return
                with lock:
                    kept[id] = content

        for _ in range(8):
            server = self.serve("--max-stored-files", 100_000, "--max-stored-bytes", 1 << 40)
            client = Client(server)
            workers = [threading.Thread(target=upload_until_it_dies, args=(client, i)) for i in range(3)]
            for worker in workers:
                worker.start()
            time.sleep(random.uniform(0.05, 0.5))
            server.process.kill()
            for worker in workers:
                worker.join()
            server.stop()
        with self.serve() as server:
            client = Client(server)
            self.assertGreater(len(kept), 8)
            files = client.json("GET", "/v1/files")["data"]
            self.assertLessEqual(set(kept), {file["id"] for file in files})
            self.assertEqual({file["id"] for file in files}, {path.name for path in (self.folder / "data" / "files").iterdir()})
            for file in files:  # also those whose reply got lost are whole
                content = client.content(file["id"])
                self.assertEqual(len(content), file["bytes"])
                self.assertEqual(content, kept.get(file["id"], content))


class BrokenStores(Folder):
    def refused_with(self, word):
        with self.serve() as server:
            said = Client(server).refused(500)
            self.assertIn(word, said)
            self.assertNotIn(str(self.folder), said)  # folders are for the log
            server.post("/v1/completions", {"prompt": "Once", "max_tokens": 2})
            self.assertIn(word, "".join(server.log))

    def test_one_clear_error_and_the_rest_is_served(self):
        data = self.folder / "data"
        data.write_text("a file")
        self.refused_with("Not a directory")
        data.unlink()
        with self.serve() as server:
            Client(server).upload()
        database = data / "penstock.db"
        with sqlite3.connect(database) as connection:
            connection.execute("PRAGMA user_version = 99")
        connection.close()
        self.refused_with("newer")
        database.write_bytes(b"no database" * 1000)
        self.refused_with("not a database")

    def test_two_servers_in_one_folder(self):
        with self.serve() as first:
            self.refused_with("another process")
            Client(first).upload()

    def test_a_content_that_was_cut_behind_its_back(self):
        with self.serve() as server:
            client = Client(server)
            id = client.upload()["id"]
            path = self.folder / "data" / "files" / id
            path.write_bytes(b"x")
            self.assertIn(f"{id}: expected", said := client.json("GET", f"/v1/files/{id}/content", 500)["error"]["message"])
            self.assertNotIn(str(self.folder), said)
            client.json("DELETE", f"/v1/files/{id}")


if __name__ == "__main__":
    unittest.main(verbosity=2)
