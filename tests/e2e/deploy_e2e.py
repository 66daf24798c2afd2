#!/usr/bin/python3
"""The files of deploy/ against the program they describe: flags, paths, ports, metrics."""
import configparser
import json
import os
import pathlib
import re
import shlex
import shutil
import socket
import subprocess
import tempfile
import time
import unittest
import urllib.error
import urllib.parse
import urllib.request

import yaml

from web_server import PROGRAM, SOURCE, Serving

DEPLOY = SOURCE / "deploy"


def serve_flags():
    text = subprocess.run([PROGRAM, "serve", "--help"], capture_output=True, text=True, check=True).stdout
    return set(re.findall(r"(?<![\w-])--[a-z][a-z0-9-]*", text.split("With no command")[0]))


def endpoints():
    """{path: access} as endpoints.cc lists them."""
    text = (SOURCE / "src" / "server" / "endpoints" / "endpoints.cc").read_text()
    return dict(re.findall(r'\{\s*"[A-Z]+",\s*"(/[^"]*)",\s*Access::(\w+)', text))


def flags_of(arguments):
    return {word for word in arguments if word.startswith("--")}


class Systemd(unittest.TestCase):
    UNIT = DEPLOY / "penstock.service"

    @classmethod
    def setUpClass(cls):
        cls.parser = configparser.ConfigParser(strict=False, interpolation=None, comment_prefixes=("#",), inline_comment_prefixes=())
        cls.parser.optionxform = str
        cls.parser.read(cls.UNIT)

    def test_command_and_config(self):
        """The unit's own command line serves with the unit's own configuration file."""
        command = shlex.split(self.parser["Service"]["ExecStart"])
        self.assertEqual(command, ["/usr/local/bin/penstock", "--config", "/etc/penstock/penstock.toml", "serve"])
        config = (DEPLOY / "penstock.toml").read_text()
        names = re.findall(r"^#? ?([a-z-]+) = ", config, re.M)
        self.assertGreater(len(names), 4)
        self.assertEqual({f"--{name}" for name in names} - serve_flags(), set())
        with tempfile.TemporaryDirectory() as folder, socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
            free.close()
            file = pathlib.Path(folder) / "penstock.toml"
            file.write_text(re.sub(r"^port = \d+", f"port = {port}", config, flags=re.M))
            process = subprocess.Popen([PROGRAM, *command[1:2], file, *command[3:]], stderr=subprocess.PIPE, text=True)
            try:
                lines = iter(process.stderr.readline, "")
                self.assertTrue(any(f"127.0.0.1:{port}" in line for line in lines))
                process.terminate()
                self.assertEqual(process.wait(60), 0)
            finally:
                process.kill()
                process.stderr.close()

    def test_the_kill_comes_after_the_drain(self):
        config = (DEPLOY / "penstock.toml").read_text()
        drain = float(re.search(r"^shutdown-timeout = ([\d.]+)", config, re.M).group(1))
        self.assertGreater(float(self.parser["Service"]["TimeoutStopSec"]), drain + 5)

    def test_verify_and_exposure(self):
        if shutil.which("systemd-analyze") is None:
            self.skipTest("systemd-analyze is not installed")
        with tempfile.TemporaryDirectory() as folder:
            unit = pathlib.Path(folder) / "penstock.service"
            unit.write_text(self.UNIT.read_text().replace("/usr/local/bin/penstock", os.path.realpath(PROGRAM)))
            done = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True)
            mine = [line for line in done.stderr.splitlines() if "penstock.service" in line]
            self.assertEqual(mine, [], done.stderr)
            # 0 is sealed off, 10 is root without limits; a network service with a JIT cannot be much below 2.
            done = subprocess.run(["systemd-analyze", "security", "--offline=yes", "--threshold=20", unit],
                                  capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stdout[-600:] + done.stderr)


class Docker(unittest.TestCase):
    TEXT = (DEPLOY / "Dockerfile").read_text()

    @classmethod
    def setUpClass(cls):
        joined = re.sub(r"\\\n", " ", re.sub(r"^#.*\n", "", cls.TEXT, flags=re.M))
        cls.steps = [line.split(None, 1) for line in joined.splitlines() if line.strip()]

    def values(self, name):
        return [value for step, value in self.steps if step == name]

    def test_instructions(self):
        known = {"FROM", "RUN", "COPY", "WORKDIR", "ENV", "USER", "EXPOSE", "HEALTHCHECK", "STOPSIGNAL", "ENTRYPOINT"}
        self.assertEqual({step for step, _ in self.steps} - known, set())
        self.assertEqual(len(self.values("FROM")), 2)
        self.assertRegex(self.values("USER")[-1], r"^[1-9]\d+:[1-9]\d+$")
        for value in self.values("COPY"):
            source = value.split()[-2]
            if not value.startswith("--from"):
                self.assertTrue((SOURCE / source).exists(), source)

    def test_flags(self):
        self.assertEqual(flags_of(json.loads(self.values("ENTRYPOINT")[-1])) - serve_flags(), set())

    def test_shell_steps_parse(self):
        for step in self.values("RUN"):
            done = subprocess.run(["bash", "-n", "-c", step], capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stderr)

    def test_runtime_packages_are_those_the_program_links(self):
        """Every shared library that the program names belongs to a package of the image, or of the base system."""
        needed = subprocess.run(["readelf", "-d", PROGRAM], capture_output=True, text=True, check=True).stdout
        linked = subprocess.run(["ldd", PROGRAM], capture_output=True, text=True, check=True).stdout
        owners = set()
        for name in re.findall(r"\(NEEDED\).*\[(lib.*)\]", needed):
            path = re.search(rf"{re.escape(name)} (?:=> )?(/\S+)", linked).group(1)
            for candidate in (path, os.path.realpath(path), re.sub("^/lib", "/usr/lib", path)):
                done = subprocess.run(["dpkg-query", "-S", candidate], capture_output=True, text=True)
                if done.returncode == 0:
                    owners.add(done.stdout.split(":")[0])
                    break
            else:
                self.fail(f"no package owns {path}")
        packages = next(run for run in self.values("RUN") if "no-install-recommends" in run).split("recommends")[1].split("&&")[0]
        listed = set(re.findall(r"\blib[a-z0-9.-]+\b", packages))
        base = {"libc6", "libgcc-s1", "libstdc++6"}
        self.assertEqual(owners - base, listed)

    def test_health_check(self):
        """The image's own check, on the running program and on nothing."""
        command = json.loads(re.search(r"CMD (\[.*\])", self.values("HEALTHCHECK")[-1]).group(1))
        with Serving("--api-key", "secret") as server:
            check = lambda: subprocess.run([part.replace("/8000", f"/{server.port}") for part in command],
                                           capture_output=True, timeout=60).returncode
            self.assertEqual(check(), 0)
        self.assertNotEqual(check(), 0)


class Kubernetes(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.objects = {one["kind"]: one for one in yaml.safe_load_all((DEPLOY / "kubernetes" / "penstock.yaml").read_text())}
        cls.pod = cls.objects["Deployment"]["spec"]["template"]["spec"]
        cls.container = cls.pod["containers"][0]

    def test_shape(self):
        self.assertEqual({kind: one["apiVersion"] for kind, one in self.objects.items()},
                         {"Deployment": "apps/v1", "Service": "v1", "PodDisruptionBudget": "policy/v1",
                          "NetworkPolicy": "networking.k8s.io/v1"})
        labels = self.objects["Deployment"]["spec"]["template"]["metadata"]["labels"]
        self.assertEqual(self.objects["Deployment"]["spec"]["selector"]["matchLabels"], labels)
        self.assertEqual(self.objects["Service"]["spec"]["selector"], labels)
        self.assertEqual(self.objects["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"], labels)
        self.assertTrue(self.pod["securityContext"]["runAsNonRoot"])
        self.assertEqual(self.container["securityContext"]["capabilities"]["drop"], ["ALL"])
        volumes = {one["name"] for one in self.pod["volumes"]}
        self.assertEqual({one["name"] for one in self.container["volumeMounts"]} - volumes, set())

    def test_probes_reach_open_routes(self):
        port = self.container["ports"][0]["name"]
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            get = self.container[probe]["httpGet"]
            self.assertEqual((get["port"], endpoints()[get["path"]]), (port, "kOpen"))
        with Serving("--api-key", "secret") as server:
            for path in ("/live", "/ready"):
                self.assertEqual(server.get(path)[0], 200)

    def test_flags_and_drain(self):
        arguments = self.container["args"]
        self.assertEqual(flags_of(arguments) - serve_flags(), set())
        drain = int(arguments[arguments.index("--shutdown-timeout") + 1])
        before = self.container["lifecycle"]["preStop"]["sleep"]["seconds"]
        self.assertGreater(self.pod["terminationGracePeriodSeconds"], before + drain + 5)


class SplitKubernetes(unittest.TestCase):
    def test_servers_start_with_these_arguments(self):
        objects = list(yaml.safe_load_all((DEPLOY / "kubernetes" / "split.yaml").read_text()))
        pods = {one["metadata"]["name"]: one["spec"]["template"]["spec"] for one in objects if one["kind"] == "Deployment"}
        self.assertEqual(set(pods), {"penstock-blocks", "penstock-prefill", "penstock-decode"})
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        # the same program under the name of another (tests/engine/redis_server.h)
        arguments = [one.replace("$(PASSWORD)", "pw") for one in pods["penstock-blocks"]["containers"][0]["args"]]
        redis = subprocess.Popen([*arguments, "--port", str(port), "--bind", "127.0.0.1"], executable="/usr/bin/redis-check-rdb",
                                 stdout=subprocess.DEVNULL)
        try:
            for role in ("prefill", "decode"):
                pod = pods[f"penstock-{role}"]
                container = pod["containers"][0]
                self.assertEqual(flags_of(container["args"]) - serve_flags(), set())
                drain = int(container["args"][container["args"].index("--shutdown-timeout") + 1])
                self.assertGreater(pod["terminationGracePeriodSeconds"], container["lifecycle"]["preStop"]["sleep"]["seconds"] + drain + 5)
                for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
                    self.assertEqual(endpoints()[container[probe]["httpGet"]["path"]], "kOpen")
                names = [one["name"] for one in container["env"]]
                self.assertEqual(names, ["PENSTOCK_API_KEY", "PENSTOCK_REDIS_PASSWORD"])
                flags = (one.replace("penstock-blocks:6379", f"127.0.0.1:{port}") for one in container["args"])
                with Serving(*flags, env={"PENSTOCK_REDIS_PASSWORD": "pw"}) as server:
                    status, _, reply = server.request("/v1/completions", {"prompt": "Once upon a time " * 20, "max_tokens": 2})
                    self.assertEqual(status, 200)
                    found = json.loads(reply)
                    n = found["stored_tokens"] if role == "prefill" else found["usage"]["prompt_tokens_details"]["cached_tokens"]
                    self.assertGreater(n, 0)
        finally:
            redis.kill()
            redis.wait()


class SeveralHosts(unittest.TestCase):
    """The examples of docs/guide/gpus-and-ranks.md."""
    TEXT = (SOURCE / "docs" / "guide" / "gpus-and-ranks.md").read_text()

    def block(self, start):
        """The first fenced block that begins so."""
        return next(text for text in re.findall(r"^```\w+\n(.*?)^```$", self.TEXT, re.M | re.S) if text.startswith(start))

    def check_command(self, command, n_ranks):
        program = next(i for i, word in enumerate(command) if word == "penstock")
        self.assertEqual(command[program + 1], "serve")
        self.assertEqual(flags_of(command[program:]) - serve_flags(), set())
        self.assertEqual(int(command[command.index("--tensor-parallel-size") + 1]), n_ranks)

    def test_slurm(self):
        script = self.block("#!/bin/bash")
        done = subprocess.run(["bash", "-n", "-c", script], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        options = dict(re.findall(r"--([\w-]+)=(\S+)", "".join(re.findall(r"^#SBATCH (.*)$", script, re.M))))
        command = next(shlex.split(line) for line in script.splitlines() if line.startswith("srun"))
        self.check_command(command, int(options["nodes"]) * int(options["ntasks-per-node"]))
        self.assertEqual(command[command.index("--threads") + 1], options["cpus-per-task"])

    def test_leader_worker_set(self):
        one = yaml.safe_load(self.block("apiVersion: leaderworkerset"))
        self.assertEqual((one["apiVersion"], one["kind"]), ("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet"))
        template = one["spec"]["leaderWorkerTemplate"]
        self.assertEqual(set(template), {"size", "restartPolicy", "leaderTemplate", "workerTemplate"})
        leader, worker = (template[f"{kind}Template"]["spec"]["containers"][0] for kind in ("leader", "worker"))
        self.assertEqual(leader["image"], worker["image"])
        self.check_command(leader["command"], template["size"])
        # Pods are called NAME-GROUP-NUMBER.NAME; the leader knows its own as a variable.
        name = one["metadata"]["name"]
        hosts = leader["command"][leader["command"].index("--hosts") + 1].split(",")
        self.assertEqual(hosts, ["$(LWS_LEADER_ADDRESS)", *(f"{name}-0-{i}.{name}" for i in range(1, template["size"]))])
        self.assertEqual(endpoints()[leader["readinessProbe"]["httpGet"]["path"]], "kOpen")

    def test_mpirun(self):
        for line in self.TEXT.splitlines():
            if re.match(r"\$ (mpirun|srun) ", line):
                command = shlex.split(line[2:])
                n = int(re.search(r"(?:-n |--ntasks=)(\d+)", line)[1])
                self.check_command(command, n)


def exported_metrics():
    """{name: its labels} of a server that has answered a request."""
    with Serving() as server:
        status, _, _ = server.request("/v1/completions", {"prompt": "Once", "max_tokens": 3, "ignore_eos": True})
        assert status == 200
        text, end = "", time.monotonic() + 60
        while not re.search(r"\npenstock:generation_tokens_total\S* 3\n", text) and time.monotonic() < end:
            text = server.get("/metrics")[2].decode()  # a reply can be there before it is counted
    exported = {}
    for line in text.splitlines():
        match = re.match(r"([a-zA-Z_:][\w:]*)(?:\{(.*)\})? ", line)
        if match:
            exported.setdefault(match[1], set()).update(re.findall(r'(\w+)="', match[2] or ""))
    return exported


def check_queries(test, queries, exported, labels_of_prometheus=frozenset()):
    """Names and labels of queries are exported ones. Returns the names."""
    used = set()
    for query in queries:
        test.assertEqual(query.count("("), query.count(")"), query)
        for name, selector in re.findall(r"\b((?:penstock:|vllm:|process_)\w+)(?:\{([^}]*)\})?", query):
            used.add(name)
            test.assertIn(name, exported, query)
            labels = set(re.findall(r"(\w+)\s*[=!]~?", selector))
            for by in re.findall(r"by \(([\w, ]+)\)", query):
                labels |= set(by.replace(" ", "").split(","))
            test.assertEqual(labels - exported[name] - labels_of_prometheus, set(), query)
    return used


def board_queries():
    """The dashboard's queries under each prefix of names."""
    board = json.loads((DEPLOY / "grafana" / "penstock.json").read_text())
    queries = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    prefixes = next(one for one in board["templating"]["list"] if one["name"] == "prefix")["query"].split(",")
    return board, [query.replace("${prefix}", prefix) for prefix in prefixes for query in queries]


def alert_rules():
    [group] = yaml.safe_load((DEPLOY / "prometheus" / "alerts.yaml").read_text())["groups"]
    return group["rules"]


class Grafana(unittest.TestCase):
    def test_queries_use_exported_metrics(self):
        board, queries = board_queries()
        definitions = [one["definition"] for one in board["templating"]["list"] if "definition" in one]
        queries += [definition.replace("${prefix}", prefix) for definition in definitions for prefix in ("penstock", "vllm")]
        self.assertGreater(len(queries), 40)
        used = check_queries(self, queries, exported_metrics())
        self.assertGreater(sum(name.startswith("penstock:") for name in used), 30)
        self.assertGreater(sum(name.startswith("vllm:") for name in used), 20)
        ids = [panel["id"] for panel in board["panels"]]
        self.assertEqual(len(ids), len(set(ids)))


class Prometheus(unittest.TestCase):
    """Prometheus' own programs, of Debian's package."""
    PROGRAMS = SOURCE / "build" / "prometheus" / "usr" / "bin"
    OF_TARGETS = frozenset({"job", "instance"})

    @classmethod
    def setUpClass(cls):
        done = subprocess.run([SOURCE / "scripts" / "install_prometheus"], capture_output=True, text=True)
        if done.returncode != 0:
            raise unittest.SkipTest(f"Debian's Prometheus cannot be had: {done.stderr.strip()[-500:]}")

    def test_alerts_use_exported_metrics(self):
        rules = alert_rules()
        used = check_queries(self, [rule["expr"] for rule in rules], exported_metrics(), self.OF_TARGETS)
        self.assertGreater(len(used), 15)
        flags = {flag for rule in rules for flag in re.findall(r"--[a-z-]+", rule["annotations"].get("description", ""))}
        self.assertEqual(flags - serve_flags(), set())

    def test_alerts_fire_when_they_should(self):
        cases = SOURCE / "tests" / "e2e" / "alerts.yaml"
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "cases.yaml"
            file.write_text(cases.read_text().replace("ALERTS", str(DEPLOY / "prometheus" / "alerts.yaml")))
            done = subprocess.run([self.PROGRAMS / "promtool", "test", "rules", file], capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        firing = {test["alertname"] for one in yaml.safe_load(cases.read_text())["tests"] for test in one["alert_rule_test"] if test["exp_alerts"]}
        self.assertEqual(firing, {rule["alert"] for rule in alert_rules()})

    def test_a_prometheus_reads_a_server(self):
        """Every query of the dashboard and every alert is evaluated; of an idle server none fires."""
        with tempfile.TemporaryDirectory() as folder, Serving("--api-key", "k") as server:
            server.key = "k"
            self.assertEqual(server.request("/v1/completions", {"prompt": "Once", "max_tokens": 3})[0], 200)
            with socket.create_server(("127.0.0.1", 0)) as free:
                port = free.getsockname()[1]
            config = pathlib.Path(folder) / "prometheus.yml"
            config.write_text(json.dumps({
                "global": {"scrape_interval": "1s", "evaluation_interval": "1s"}, "rule_files": [str(DEPLOY / "prometheus" / "alerts.yaml")],
                "scrape_configs": [{"job_name": "penstock", "authorization": {"credentials": "k"},
                                    "static_configs": [{"targets": [f"127.0.0.1:{server.port}"]}]}]}))
            with open(pathlib.Path(folder) / "log", "w+") as log:
                process = subprocess.Popen([self.PROGRAMS / "prometheus", f"--config.file={config}", f"--storage.tsdb.path={folder}/data",
                                            f"--web.listen-address=127.0.0.1:{port}"], stdout=log, stderr=log)
                try:
                    self.check_prometheus(f"http://127.0.0.1:{port}/api/v1/", log)
                finally:
                    process.terminate()
                    try:
                        process.wait(30)
                    finally:
                        process.kill()
                        process.wait()

    def check_prometheus(self, base, log):
        def get(path, **parameters):
            try:
                with urllib.request.urlopen(base + path + "?" + urllib.parse.urlencode(parameters), timeout=10) as reply:
                    return json.load(reply)["data"]
            except urllib.error.HTTPError as error:
                with error:
                    if error.code == 503:  # it starts
                        return {"result": []}
                    self.fail(f"{parameters}: {error.read().decode()}")

        def counted():
            try:
                return [float(one["value"][1]) for one in get("query", query="penstock:generation_tokens_total")["result"]] == [3]
            except OSError:
                return False
        end = time.monotonic() + 60
        while not counted():
            log.seek(0)
            self.assertLess(time.monotonic(), end, log.read()[-2000:])
            time.sleep(0.2)
        for query in board_queries()[1]:
            filled = query.replace("$__rate_interval", "1m").replace("${model:regex}", ".*").replace("$model", ".*")
            self.assertNotIn("$", filled)
            self.assertIn("result", get("query", query=filled), query)
        evaluated, end = [], time.monotonic() + 60
        while len(evaluated) < len(alert_rules()) and time.monotonic() < end:
            time.sleep(0.2)
            evaluated = [rule for group in get("rules")["groups"] for rule in group["rules"] if rule["health"] == "ok"]
        self.assertEqual([(rule["name"], rule["state"]) for rule in evaluated], [(rule["alert"], "inactive") for rule in alert_rules()])


if __name__ == "__main__":
    unittest.main(verbosity=2)
