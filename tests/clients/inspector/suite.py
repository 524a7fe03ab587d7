"""The MCP Inspector's command line against `tinyagent mcp`: each command starts a server of its own."""

import json
import os
import subprocess

from support.processes import none_left
from support.relay import Relay
from support.report import Skip, Suite, expect, expect_equal
from support.session import KEY_VARIABLE, PROGRAM, Key, arguments

NODE = os.environ["NODE"]
INSPECTOR = os.path.join(os.environ["NODE_MODULES"], ".bin", "mcp-inspector")


def inspect(relay, key, method, *details):
    """The JSON that the Inspector prints for one request."""
    server = [PROGRAM, *arguments(relay.url, "--allow-writes")]
    command = [NODE, INSPECTOR, "--cli", "-e", f"{KEY_VARIABLE}={key.secret}", *server, "--method", method, *details]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120)
    expect_equal(done.returncode, 0, f"status ({done.stderr[-300:]})")
    expect(none_left(relay.url), "a process is left")
    return json.loads(done.stdout)


def main():
    suite, key = Suite(), Key()
    if not os.access(NODE, os.X_OK):
        with suite.case("inspector"):
            raise Skip("no package brings a new enough Node for this machine")
        suite.end()
    with Relay() as relay:
        with suite.case("inspector: lists the tools, tiny_diagnose last"):
            names = [tool["name"] for tool in inspect(relay, key, "tools/list")["tools"]]
            expect("post_message" in names and "publish_event" not in names, f"{names}")
            expect_equal(names[-1], "tiny_diagnose", "last tool")
        with suite.case("inspector: posts a message"):
            tool = ["--tool-name", "post_message", "--tool-arg", "room=general", "--tool-arg", "content=Hello."]
            expect_equal(inspect(relay, key, "tools/call", *tool)["structuredContent"]["accepted"], True, "accepted")
        with suite.case("inspector: reads the message back"):
            tool = ["--tool-name", "read_room", "--tool-arg", "id=general", "--tool-arg", "limit=1"]
            room = inspect(relay, key, "tools/call", *tool)["structuredContent"]
            expect_equal(room["messages"][0]["content"], "Hello.", "newest message")
    suite.end()


if __name__ == "__main__":
    main()
