"""A file of OpenAI's batch lines through a model, without a server of one's own. Usage: batch_jsonl.py IN.jsonl OUT.jsonl [MODEL]

A line is {"custom_id": ..., "url": "/v1/completions" or "/v1/chat/completions", "body": {...}}. Each gets a line with its
custom_id and the reply, or the error.
"""
import concurrent.futures
import json
import sys
import urllib.error
import urllib.request

import penstock


def answer(server, line):
    task = json.loads(line)
    body = json.dumps({"model": server.model, **task["body"]}).encode()
    request = urllib.request.Request(server.base_url.removesuffix("/v1") + task["url"], body, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request) as reply:
            result = {"response": {"status_code": reply.status, "body": json.load(reply)}, "error": None}
    except urllib.error.HTTPError as error:
        result = {"response": {"status_code": error.code, "body": json.load(error)}, "error": None}
    return json.dumps({"id": f"batch-{task['custom_id']}", "custom_id": task["custom_id"], **result})


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    source, target = sys.argv[1:3]
    with penstock.openai_server(*sys.argv[3:4]) as server, open(source) as lines, open(target, "w") as out, \
            concurrent.futures.ThreadPoolExecutor(64) as pool:
        for done in pool.map(lambda line: answer(server, line), filter(str.strip, lines)):
            out.write(done + "\n")


main()
