#!/usr/bin/env python3
"""Grammars that would stop the engine: every request ends, with its text or a clear error, and the others go on meanwhile."""
import os
import random
import sys
import threading
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from live_server import Server, in_threads, wait_for  # noqa: E402

REGEXES = 'root ::= e\ne ::= e e | e "*" | "(" e ")" | [a-z]*'


def ring(n, form="gbnf"):
    """a{i} ::= a{i+1}* "c" | a{i+2}, all of them in a circle."""
    root, mark = ("root", "::=") if form != "lark" else ("start", ":")
    rules = "\n".join(f'a{i} {mark} a{(i + 1) % n}* "c" | a{(i + 2) % n}' for i in range(n))
    return f"{root} {mark} a0\n{rules}"


ATTACKS = {
    "regular expressions": REGEXES,
    "regular expressions in EBNF": 'root ::= e\ne ::= (e e) | (e "*") | ("(" e ")") | ([a-z])*',
    "regular expressions in Lark": 'start: e\ne: e e | e "*" | "(" e ")" | /[a-z]*/',
    "a ring": ring(40),
    "a ring in Lark": ring(40, "lark"),
    "a ring of letters": "root ::= a0\n" + "\n".join(f"a{i} ::= a{(i + 1) % 40}* [a-z ]+ | a{(i + 2) % 40}" for i in range(40)),
    "everything twice": 'root ::= s\ns ::= s s | s s s | [a-z .,A-Z]* | ""',
    "nullable, left and right": 'root ::= n root n | n\nn ::= m* | [a-z ]\nm ::= n? root? "x" | ""',
    "parts of parts": "root ::= w{2,1000}\nw ::= (v | w){2,900}\nv ::= [a-z ]+ | (v v)*",
    "optional ends": 'root ::= s\ns ::= [a-z ] s "b"? | s s |',
}


def sample(fields, **more):
    return {"prompt": "Once upon a time", "max_tokens": 24, "temperature": 1, "seed": 3, "guided_grammar": fields, **more}


class GrammarAbuse(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server("--no-log-requests", "--max-num-seqs", "16")

    @classmethod
    def tearDownClass(cls):
        code = cls.server.stop()
        log = cls.server.log()
        cls.server.__exit__()
        assert code == 0, f"exit code {code}: {log[-3000:]}"

    def tearDown(self):
        self.assertIsNone(self.server.process.poll(), self.server.log()[-3000:])
        self.assertEqual(self.server.generate().status, 200)
        self.assertTrue(wait_for(lambda: self.server.metric("penstock:num_requests_running") == 0), "sequences go on running")

    def check_reply(self, name, reply):
        body = reply.json()
        if reply.status == 200:
            reason = body["choices"][0]["finish_reason"]
            self.assertIn(reason, ("stop", "length"), name)
        else:
            self.assertEqual(reply.status, 400, (name, body))
            self.assertRegex(body["error"]["message"], "too much (work|memory) to follow|too_large", name)

    def test_each_attack_ends(self):
        for name, grammar in ATTACKS.items():
            self.check_reply(name, self.server.post("/v1/completions", sample(grammar)))

    def test_others_go_on(self):
        """Tokens of a healthy client come while all attacks run at once."""
        done, served = threading.Event(), []

        def healthy():
            while not done.is_set():
                served.append(self.server.generate().status)

        thread = threading.Thread(target=healthy)
        thread.start()
        attacks = list(ATTACKS.items())
        replies = in_threads(len(attacks), lambda i: self.server.post("/v1/completions", sample(attacks[i][1], max_tokens=60)))
        done.set()
        thread.join()
        for (name, _), reply in zip(attacks, replies):
            self.check_reply(name, reply)
        self.assertGreater(len(served), 1)
        self.assertEqual(set(served), {200})

    def test_random_grammars(self):
        draw = random.Random(5)

        def part(depth):
            what = draw.randrange(8 if depth > 0 else 5)
            if what < 3:
                return draw.choice(['"a"', "[a-z ]", "[a-z ]*", '"the "'])
            if what < 5:
                return f"r{draw.randrange(4)}"
            return f"({choice(depth - 1)}){draw.choice(['*', '+', '?', '{2,80}'])}"

        def choice(depth):
            return " | ".join(" ".join(part(depth) for _ in range(draw.randrange(4))) or '""' for _ in range(draw.randrange(1, 4)))

        for _ in range(25):
            grammar = "root ::= r0\n" + "\n".join(f"r{i} ::= {choice(2)}" for i in range(4))
            reply = self.server.post("/v1/completions", sample(grammar, max_tokens=12))
            if reply.status != 400 or "no text matches" not in reply.json()["error"]["message"]:
                self.check_reply(grammar, reply)

    def test_clients_that_leave(self):
        for grammar in ATTACKS.values():
            sock = self.server.stream(sample(grammar, stream=True, max_tokens=300, ignore_eos=True))
            sock.close()
        self.assertTrue(wait_for(lambda: self.server.metric("penstock:num_requests_running") == 0), "sequences go on running")

    def test_check_of_grammars(self):
        for name, grammar in ATTACKS.items():
            reply = self.server.post("/v1/grammar/check", {"guided_grammar": grammar})
            self.assertEqual(reply.status, 200, (name, reply.body))


class Shutdown(unittest.TestCase):
    def test_sigterm_amid_attacks(self):
        with Server("--no-log-requests", "--max-num-seqs", "16", "--shutdown-timeout", "1") as server:
            for grammar in ATTACKS.values():
                server.stream(sample(grammar, stream=True, max_tokens=300, ignore_eos=True))
            self.assertTrue(wait_for(lambda: server.metric("penstock:num_requests_running") > 0))
            self.assertEqual(server.stop(), 0, server.log()[-3000:])


if __name__ == "__main__":
    unittest.main(verbosity=2)
