"""Claude Code's and Codex' own programs read what `tinyagent config` prints for them and use the server.

Each has a home directory of its own and no account; no model is asked. Codex also calls tools, over the protocol
that its editors speak with it.
"""

import glob
import json
import os
import shutil
import subprocess
import tempfile
import threading

from signature import nostr
from support.processes import none_left, programs
from support.relay import Relay
from support.report import Skip, Suite, expect, expect_equal
from support.session import KEY_VARIABLE, PROGRAM, READ_TOOLS, Key, arguments

# How long one run of a host's program may take.
RUN_SECONDS = 60
WRITES = "--allow-writes"


def installed(pattern):
    """The host's program for this machine, or a skip."""
    found = glob.glob(os.path.join(os.environ["NODE_MODULES"], pattern))
    if not found:
        raise Skip("its package brings no program for this machine")
    return found[0]


class Home:
    """A host's home directory, the project's too, with one file in it; a context manager."""

    def __init__(self, key, name=None, text=None):
        self.path = tempfile.mkdtemp(prefix="agent-home-")
        if name:
            with open(os.path.join(self.path, name), "w") as file:
                file.write(text)
        self.environment = {
            "PATH": os.environ["PATH"],
            "HOME": self.path,
            "CODEX_HOME": self.path,
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_TELEMETRY": "1",
        }
        if key:
            self.environment[KEY_VARIABLE] = key.nsec

    def __enter__(self):
        return self

    def __exit__(self, *_):
        shutil.rmtree(self.path, ignore_errors=True)

    def run(self, *command):
        """What a run of the host's program prints."""
        done = subprocess.run(
            command,
            cwd=self.path,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=RUN_SECONDS,
            text=True,
        )
        expect_equal(done.returncode, 0, f"status of {' '.join(command[1:4])}; it said {done.stdout!r}")
        return done.stdout


def config(host, url):
    """The entry as printed."""
    command = [PROGRAM, "config", host, "--relay", url, WRITES]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def claude(suite, relay, key):
    """Claude Code: the file of a project, then the same entry for the user, which it starts."""
    program = installed("@anthropic-ai/claude-code-*/claude")
    entry = config("claude", relay.url)
    with Home(None, ".mcp.json", entry) as home:
        with suite.case("claude: reads the printed file, and shows the key by its variable"):
            shown = home.run(program, "mcp", "get", "tiny")
            for line in (f"Command: {PROGRAM}", f"Args: {' '.join(arguments(relay.url, WRITES))}"):
                expect(line in shown, f"{line!r} is not in {shown!r}")
            expect("%s=${%s}" % (KEY_VARIABLE, KEY_VARIABLE) in shown, f"the variable is not in {shown!r}")
        with suite.case("claude: names the variable that is not set"):
            shown = home.run(program, "mcp", "list")
            expect(f"Missing environment variables: {KEY_VARIABLE}" in shown, f"it said {shown!r}")
    with Home(key) as home:
        with suite.case("claude: takes the entry as the user's, starts it with the key filled in, and connects"):
            text = json.dumps(json.loads(entry)["mcpServers"]["tiny"])
            home.run(program, "mcp", "add-json", "--scope", "user", "tiny", text)
            shown = home.run(program, "mcp", "list")
            expect("Connected" in shown and "Failed" not in shown, f"it said {shown!r}")
            with open(os.path.join(home.path, ".claude.json")) as file:
                expect(key.nsec not in file.read(), "Claude Code wrote the key down")
        with suite.case("claude: leaves no process"):
            expect(none_left(relay.url), "a process is left")
    with Home(None) as home:
        with suite.case("claude: without the key it says that it could not connect, and the relay is not asked"):
            before = len(relay.exchanges)
            home.run(program, "mcp", "add-json", "--scope", "user", "tiny", text)
            shown = home.run(program, "mcp", "list")
            expect("Connected" not in shown, f"it said {shown!r}")
            expect_equal(len(relay.exchanges), before, "requests that reached the relay")


class AppServer:
    """Codex as an editor runs it: one JSON-RPC message a line."""

    def __init__(self, home, program):
        self._next = 0
        self._process = subprocess.Popen(
            [program, "app-server"],
            cwd=home.path,
            env=home.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        # Reading a program that says nothing more ends with it.
        self._watch = threading.Timer(RUN_SECONDS, self._process.kill)
        self._watch.start()
        self.ask("initialize", clientInfo={"name": "suite", "title": "suite", "version": "0"})
        self._send({"method": "initialized"})

    def _send(self, message):
        self._process.stdin.write(json.dumps(message) + "\n")
        self._process.stdin.flush()

    def ask(self, method, **params):
        """The result of a request."""
        self._next += 1
        self._send({"id": self._next, "method": method, "params": params})
        for line in self._process.stdout:
            message = json.loads(line)
            if message.get("id") == self._next and "method" not in message:
                expect("result" in message, f"{method}: {message.get('error')}")
                return message["result"]
        raise AssertionError(f"Codex ended before it answered {method}")

    def end(self):
        """Its status after the end of its stdin."""
        self._process.stdin.close()
        status = self._process.wait(RUN_SECONDS)
        self._watch.cancel()
        return status


def codex(suite, relay, key):
    """Codex: its listing, and a session that calls tools."""
    program = installed("@openai/codex-*/vendor/*/bin/codex")
    with Home(key, "config.toml", config("codex", relay.url)) as home:
        with suite.case("codex: reads the printed file to the program, its arguments and the variable's name"):
            shown = home.run(program, "mcp", "get", "tiny", "--json")
            transport = json.loads(shown[shown.index("{") :])["transport"]
            expect_equal((transport["type"], transport["command"]), ("stdio", PROGRAM), "program")
            expect_equal(transport["args"], arguments(relay.url, WRITES), "arguments")
            expect_equal((transport["env"], transport["env_vars"]), (None, [KEY_VARIABLE]), "variables")
        codex_session(suite, relay, key, AppServer(home, program))


def codex_session(suite, relay, key, server):
    """Lists, reads, writes, diagnoses, ends."""
    with suite.case("codex: starts the server and lists its tools"):
        (status,) = server.ask("mcpServerStatus/list")["data"]
        expect_equal((status["name"], status["serverInfo"]["name"]), ("tiny", "tinyagent"), "server")
        expect({"post_message", "tiny_diagnose"} <= set(status["tools"]), f"tools {list(status['tools'])}")
        expect(len(status["tools"]) > READ_TOOLS + 1, f"tools {list(status['tools'])}")
    thread = server.ask("thread/start")["thread"]["id"]

    def call(tool, **arguments_):
        return server.ask(
            "mcpServer/tool/call", threadId=thread, server="tiny", tool=tool, arguments=arguments_
        )

    with suite.case("codex: posts a message and reads it back"):
        posted = call("post_message", room="general", content="Hello from Codex.")
        expect_equal(posted["structuredContent"]["accepted"], True, "accepted")
        newest = call("read_room", id="general", limit=1)["structuredContent"]["messages"][0]
        expect_equal((newest["content"], newest["pubkey"]), ("Hello from Codex.", key.public), "newest")
        (published,) = relay.published("post_message")
        nostr.verify_event(published.arguments["event"])
    with suite.case("codex: is shown the relay's error as a tool error, and goes on"):
        expect_equal(call("read_room", id="nowhere")["isError"], True, "isError")
        report = call("tiny_diagnose")["structuredContent"]
        expect_equal(report["verdict"], "ok", "verdict")
    with suite.case("codex: neither process of a server keeps the key in its environment"):
        running = [pid for name in ("tinyagent", "tinyagent-signer") for pid in programs(relay.url, name)]
        expect(len(running) >= 2, f"processes {running}")
        for pid in running:
            with open(f"/proc/{pid}/environ", "rb") as file:
                expect(key.nsec.encode() not in file.read(), f"process {pid} keeps it")
    with suite.case("codex: ends, and leaves no process"):
        expect_equal(server.end(), 0, "status")
        expect(none_left(relay.url, 5.0), "a process is left")


def main():
    suite, key = Suite(), Key()
    for name, host in (("claude", claude), ("codex", codex)):
        with suite.section(name), Relay() as relay:
            try:
                host(suite, relay, key)
            except Skip as reason:
                with suite.case(name):
                    raise reason
    suite.end()


if __name__ == "__main__":
    main()
