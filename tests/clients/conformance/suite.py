"""The official conformance suite, as far as it fits a server on stdin and stdout that offers tools only.

The server scenarios reach `tinyagent mcp` through a bridge from HTTP to stdio; the client scenarios look at
what tinyagent sends to a relay (see client.py). Which scenarios do not fit is said in the README beside this.
"""

import glob
import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import tempfile

from support.processes import eventually, none_left
from support.relay import Relay
from support.report import Skip, Suite, expect
from support.session import PROGRAM, Key, arguments

NODE = os.environ["NODE"]
BIN = os.path.join(os.environ["NODE_MODULES"], ".bin")
CLIENT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "client.py")

SERVER_SCENARIOS = ["server-initialize", "ping", "tools-list"]
CLIENT_SCENARIOS = [
    "tools_call",
    "request-metadata",
    "http-standard-headers",
    "http-custom-headers",
    "http-invalid-tool-headers",
    "json-schema-ref-no-deref",
    "json-schema-2020-12-preservation",
]
# The one revision that tinyagent speaks to a relay.
RELAY_REVISION = "2026-07-28"


def run_scenario(role, scenario, *details):
    """Runs one scenario, and fails with the checks that failed."""
    with tempfile.TemporaryDirectory() as results:
        command = [NODE, os.path.join(BIN, "conformance"), role, "--scenario", scenario, "-o", results, *details]
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120
        )
        print(done.stdout, file=sys.stderr)
        checks = []
        for path in glob.glob(os.path.join(results, "**", "checks.json"), recursive=True):
            with open(path) as file:
                checks += json.load(file)
    failed = [c for c in checks if c["status"] in ("FAILURE", "WARNING")]
    expect(any(c["status"] == "SUCCESS" for c in checks), f"no check ran: {done.stdout[-300:]}")
    expect(not failed, "; ".join(f"{c['name']}: {c.get('errorMessage') or c['description']}" for c in failed))
    expect(done.returncode == 0, f"status {done.returncode}: {done.stdout[-300:]}")


def free_port():
    """A port that was free a moment ago; the bridge cannot choose one itself."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def is_listening(port):
    """Whether something accepts connections on this port."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def server_half(suite, key):
    """Through the bridge."""
    with Relay() as relay:
        port = free_port()
        server = shlex.join([PROGRAM, *arguments(relay.url)])
        command = [
            NODE, os.path.join(BIN, "supergateway"), "--stdio", server, "--outputTransport", "streamableHttp",
            "--stateful", "--port", str(port), "--streamableHttpPath", "/mcp", "--logLevel", "none",
        ]
        bridge = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=sys.stderr, env=os.environ | key.environment(),
            start_new_session=True,
        )
        try:
            expect(eventually(lambda: is_listening(port), 60), "the bridge does not listen")
            for scenario in SERVER_SCENARIOS:
                with suite.case(f"conformance: server scenario {scenario}"):
                    run_scenario("server", scenario, "--url", f"http://127.0.0.1:{port}/mcp")
        finally:
            os.killpg(bridge.pid, signal.SIGTERM)
            bridge.wait()
        with suite.case("conformance: no process is left when the bridge is ended"):
            expect(none_left(relay.url), "a process is left")


def main():
    suite, key = Suite(), Key()
    if not os.access(NODE, os.X_OK):
        with suite.case("conformance"):
            raise Skip("no package brings a new enough Node for this machine")
        suite.end()
    with suite.section("conformance: the server half"):
        server_half(suite, key)
    for scenario in CLIENT_SCENARIOS:
        with suite.case(f"conformance: client scenario {scenario}"):
            command = shlex.join([sys.executable, CLIENT])
            run_scenario("client", scenario, "--command", command, "--spec-version", RELAY_REVISION)
    suite.end()


if __name__ == "__main__":
    main()
