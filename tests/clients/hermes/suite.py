"""Hermes Agent's own MCP client against `tinyagent mcp`.

Each scenario is a fresh Hermes home whose config.yaml is what `tinyagent config hermes` prints, so that the
filtered environment, `${VAR}` from its .env, the watchdog, the reconnects and the breaker are Hermes' own.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading

from signature import nostr
from support.processes import eventually, none_left, programs
from support.relay import Relay
from support.report import Suite, expect, expect_equal
from support.session import KEY_VARIABLE, PROGRAM, READ_TOOLS, Key

DRIVER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "driver.py")
# Hermes' floor for its keepalive, in seconds; scenarios that wait for it ask for this one.
KEEPALIVE_SECONDS = 5
# The interval that `tinyagent config` prints, and what Hermes needs besides to notice and to connect.
PRINTED_KEEPALIVE_SECONDS = 30
NOTICE_SECONDS = 15
# How long a ping may take, also while a call runs (contract, section 2), with room for a busy machine.
PING_SECONDS = 1.0
# How long Hermes may need to end the server (issue: under half a second).
SHUTDOWN_SECONDS = 0.5
# A variable of the host that must not be passed on.
HOST_VARIABLE = "HOST_ONLY_VARIABLE"


class Hermes:
    """One Hermes process with one configured server; keywords take the place of what its entry says. A context
    manager."""

    def __init__(self, relay, dotenv, *options, **entry):
        self.relay = relay
        self.home = tempfile.mkdtemp(prefix="hermes-home-")
        config = subprocess.check_output(
            [PROGRAM, "config", "hermes", "--relay", relay.url, *options], text=True, stderr=subprocess.DEVNULL
        )
        kept = [line for line in config.splitlines() if line.split(":")[0].strip() not in entry]
        self._write("config.yaml", "\n".join(kept + [f"    {n}: {v}" for n, v in entry.items()]) + "\n")
        self._write(".env", "".join(f"{name}={value}\n" for name, value in dotenv.items()))
        environment = {n: v for n, v in os.environ.items() if not n.startswith(("TINY", "HERMES"))}
        environment |= {"HERMES_HOME": self.home, "HOME": self.home, HOST_VARIABLE: "1"}
        self._process = subprocess.Popen(
            [sys.executable, DRIVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, text=True
        )

    def _write(self, name, text):
        with open(os.path.join(self.home, name), "w") as file:
            file.write(text)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._process.stdin.close()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        shutil.rmtree(self.home, ignore_errors=True)

    def ask(self, *command):
        """The driver's answer to a command."""
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def call(self, tool, **arguments_):
        """What the model is shown: {"result", "structuredContent"} or {"error"}."""
        return self.ask("call", tool, arguments_)

    def call_meanwhile(self, tool, **arguments_):
        """Starts a call; the returned function waits for its answer."""
        answers = []
        thread = threading.Thread(target=lambda: answers.append(self.call(tool, **arguments_)))
        thread.start()

        def wait():
            thread.join(60)
            expect(bool(answers), "the call in flight was never answered")
            return answers[0]

        return wait

    def stderr_log(self):
        """What the servers wrote to stderr."""
        with open(os.path.join(self.home, "logs", "mcp-stderr.log")) as file:
            return file.read()

    def one(self, program):
        """The pid of the one process of this program."""
        (pid,) = programs(self.relay.url, program)
        return pid


def whole_session(suite, relay, key):
    """From the start to the end."""
    with Hermes(relay, {KEY_VARIABLE: key.nsec}, "--allow-writes") as hermes:
        with suite.case("hermes: connects by the entry that `tinyagent config` prints, with the key from its .env"):
            seen = hermes.ask("discover")
            expect_equal(seen["errors"], {}, "errors")
            expect_equal((seen["server"], seen["revision"]), ("tinyagent", "2025-11-25"), "handshake")
        with suite.case("hermes: registers the tools under its own names"):
            expect("mcp__tiny__post_message" in seen["tools"], "post_message is missing")
            expect("mcp__tiny__tiny_diagnose" in seen["tools"], "tiny_diagnose is missing")
            expect("mcp__tiny__publish_event" not in seen["tools"], "publish_event is offered")
            expect(all(len(name) <= 64 for name in seen["tools"]), "a name is too long for some models")
        with suite.case("hermes: passes the filtered environment on, and neither process keeps the key"):
            for program in ("tinyagent", "tinyagent-signer"):
                with open(f"/proc/{hermes.one(program)}/environ", "rb") as file:
                    environment = file.read()
                expect(HOST_VARIABLE.encode() not in environment, f"{program} got the host's variable")
                expect(key.nsec.encode() not in environment, f"{program} keeps the key")
        with suite.case("hermes: reads a room"):
            room = hermes.call("read_room", id="general")["structuredContent"]
            expect_equal(room["id"], "general", "room")
        with suite.case("hermes: posts a message and reads it back"):
            posted = hermes.call("post_message", room="general", content="Hello from Hermes.")
            expect_equal(posted["structuredContent"]["accepted"], True, "accepted")
            newest = hermes.call("read_room", id="general", limit=1)["structuredContent"]["messages"][0]
            expect_equal((newest["content"], newest["pubkey"]), ("Hello from Hermes.", key.public), "newest")
            (call,) = relay.published("post_message")
            nostr.verify_event(call.arguments["event"])
        with suite.case("hermes: tiny_diagnose says ok"):
            report = hermes.call("tiny_diagnose", rooms=["general"], kinds=[9])
            expect_equal(report["structuredContent"]["verdict"], "ok", "verdict")
        with suite.case("hermes: shuts the server down in under half a second, and leaves no process"):
            took = hermes.ask("shutdown")["seconds"]
            expect(took < SHUTDOWN_SECONDS, f"it took {took:.2f} s")
            expect(none_left(relay.url), "a process is left")


def read_only(suite, relay, key):
    """Without --allow-writes."""
    with Hermes(relay, {KEY_VARIABLE: key.secret}) as hermes:
        with suite.case("hermes: without --allow-writes no write tool is registered"):
            tools = [name for name in hermes.ask("discover")["tools"] if name.startswith("mcp__tiny__")]
            expect_equal(len(tools), READ_TOOLS + 1, "tools")
            expect("mcp__tiny__post_message" not in tools, "post_message is registered")
        hermes.ask("shutdown")


def keepalive(suite, relay, key):
    """A call that takes longer than the keepalive interval."""
    with Hermes(relay, {KEY_VARIABLE: key.secret}, keepalive_interval=KEEPALIVE_SECONDS) as hermes:
        hermes.ask("discover")
        facade = hermes.one("tinyagent")
        with suite.case("hermes: a keepalive ping during a slow call is answered, and the call too"):
            relay.delay("read_room", KEEPALIVE_SECONDS * 1.5)
            answer = hermes.call("read_room", id="general")
            expect("error" not in answer, f"error: {answer}")
            pings = hermes.ask("state")["pings"]
            expect(len(pings) >= 1, "no ping was sent")
            expect(max(pings) < PING_SECONDS, f"pings took {pings}")
            expect_equal(hermes.one("tinyagent"), facade, "the server's process")
        hermes.ask("shutdown")


def ended_between_calls(suite, relay, key):
    """The server ends while no call is made; the entry is as printed."""
    with Hermes(relay, {KEY_VARIABLE: key.secret}) as hermes:
        hermes.ask("discover")
        facade = hermes.one("tinyagent")
        with suite.case("hermes: a server that ended between two calls is started anew by the printed keepalive"):
            os.kill(hermes.one("tinyagent-signer"), signal.SIGKILL)
            expect(eventually(lambda: facade not in programs(relay.url, "tinyagent"), 5), "the server stays")
            seconds = PRINTED_KEEPALIVE_SECONDS + NOTICE_SECONDS
            expect(eventually(lambda: is_fresh(hermes, facade), seconds), "there is no fresh server")
            expect("error" not in hermes.call("list_rooms"), "the next call fails")
        hermes.ask("shutdown")


def is_fresh(hermes, facade):
    """Whether Hermes is connected to another server process than this one."""
    running = programs(hermes.relay.url, "tinyagent")
    return facade not in running and bool(running) and hermes.ask("state")["connected"]


def signer_killed(suite, relay, key, before_the_event):
    """The signer dies while a write is in flight: before the event is signed, or after it was sent."""
    when = "before the event is signed" if before_the_event else "after the event was sent"
    publishes = 0 if before_the_event else 1
    dotenv = {KEY_VARIABLE: key.secret}
    with Hermes(relay, dotenv, "--allow-writes", keepalive_interval=KEEPALIVE_SECONDS) as hermes:
        hermes.ask("discover")
        facade = hermes.one("tinyagent")
        with suite.case(f"hermes: the signer killed {when}: the call in flight is answered"):
            relay.delay("post_message", 60, published=not before_the_event)
            answer = hermes.call_meanwhile("post_message", room="general", content="Once.")
            arrived = relay.calls if before_the_event else relay.published
            expect(eventually(lambda: arrived("post_message"), 20), "the call never reached the relay")
            os.kill(hermes.one("tinyagent-signer"), signal.SIGKILL)
            relay.release()
            seen = answer()
            is_signer_error = seen.get("error", "").startswith("signer: ")
            is_published = seen.get("structuredContent", {}).get("accepted") is True
            expect(is_signer_error or (is_published and not before_the_event), f"{seen}")
        with suite.case(f"hermes: the signer killed {when}: the server ends, and the keepalive starts a fresh one"):
            # Between calls Hermes notices by its keepalive alone; a call made before that may fail once.
            fresh = eventually(lambda: is_fresh(hermes, facade), 4 * KEEPALIVE_SECONDS)
            expect(fresh, "there is no fresh server")
        with suite.case(f"hermes: the signer killed {when}: the call was made once"):
            room = hermes.call("read_room", id="general")
            expect("error" not in room, f"{room}")
            texts = [message["content"] for message in room["structuredContent"]["messages"]]
            expect_equal(texts.count("Once."), publishes, "messages in the room")
            expect_equal(len(relay.published("post_message")), publishes, "publishes")
        hermes.ask("shutdown")
        with suite.case(f"hermes: the signer killed {when}: no process is left at the end"):
            expect(none_left(relay.url), "a process is left")


def placeholder(suite, relay):
    """The .env does not hold the key."""
    with Hermes(relay, {}) as hermes:
        with suite.case("hermes: a key that was not substituted names the variable and the file in its log"):
            seen = hermes.ask("discover")
            expect_equal(seen["tools"], [], "tools")
            log = hermes.stderr_log()
            expect(KEY_VARIABLE in log, f"the variable is not named: {log!r}")
            expect("~/.hermes/.env" in log, f"the file is not named: {log!r}")
            expect_equal(relay.exchanges, [], "requests that reached the relay")
        hermes.ask("shutdown")
    with suite.case("hermes: `tinyagent diagnose` says the same of such a key"):
        done = subprocess.run(
            [PROGRAM, "diagnose", "--relay", relay.url],
            env={KEY_VARIABLE: "${%s}" % KEY_VARIABLE},
            capture_output=True,
            text=True,
        )
        expect_equal((done.returncode, done.stdout), (1, ""), "status and stdout")
        expect(done.stderr in log, f"Hermes' log lacks {done.stderr!r}: {log!r}")


def breaker(suite, relay, key):
    """Three failed calls in a row; the breaker is Hermes', for 60 s, over all tools of the server."""
    with Hermes(relay, {KEY_VARIABLE: key.secret}) as hermes:
        hermes.ask("discover")
        with suite.case("hermes: a success between failures keeps its breaker closed"):
            for _ in range(2):
                expect("error" in hermes.call("read_room", id="nowhere"), "the call succeeded")
            expect("error" not in hermes.call("tiny_diagnose"), "tiny_diagnose is an error")
            expect_equal(hermes.ask("state")["failures"], 0, "failures after tiny_diagnose")
        with suite.case("hermes: three failed calls in a row open its breaker before tinyagent is asked"):
            for _ in range(3):
                expect("error" in hermes.call("read_room", id="nowhere"), "the call succeeded")
            before = len(relay.exchanges)
            blocked = hermes.call("list_rooms")
            expect("unreachable after 3 consecutive failures" in blocked.get("error", ""), f"{blocked}")
            expect_equal(len(relay.exchanges), before, "requests that reached the relay")
        hermes.ask("shutdown")


def diagnosis_is_no_failure(suite, key):
    """tiny_diagnose with every kind of bad news."""
    with suite.section("hermes: diagnosis"), Relay("--members-only") as relay:
        with Hermes(relay, {KEY_VARIABLE: key.secret}) as hermes:
            hermes.ask("discover")
            with suite.case("hermes: tiny_diagnose never counts as a failure, whatever it finds"):
                verdicts = [hermes.call("tiny_diagnose")["structuredContent"]["verdict"]]
                relay.stop()
                verdicts += [hermes.call("tiny_diagnose")["structuredContent"]["verdict"] for _ in range(3)]
                expect_equal(verdicts, ["not-a-member"] + ["unreachable"] * 3, "verdicts")
                expect_equal(hermes.ask("state")["failures"], 0, "failures")
            hermes.ask("shutdown")


def main():
    suite, key = Suite(), Key()
    scenarios = [
        (whole_session, key),
        (read_only, key),
        (keepalive, key),
        (ended_between_calls, key),
        (signer_killed, key, True),
        (signer_killed, key, False),
        (placeholder,),
        (breaker, key),
    ]
    for scenario, *details in scenarios:
        with suite.section(f"hermes: {scenario.__name__}"), Relay() as relay:
            scenario(suite, relay, *details)
    diagnosis_is_no_failure(suite, key)
    suite.end()


if __name__ == "__main__":
    main()
