"""Hermes Agent's own MCP client as a program: one JSON command a line on stdin, one JSON answer a line.

It calls what Hermes calls to discover, call and shut down its servers, in a process of its own, because that
client keeps its state in module globals. Only the keepalive is looked at from inside: each ping is timed.
"""

import json
import os
import sys
import time

# Hermes may print; the answers have the real stdout to themselves.
ANSWERS = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)

from mcp import ClientSession  # noqa: E402
from tools import mcp_tool  # noqa: E402
from tools.registry import registry  # noqa: E402

SERVER = "tiny"
PINGS = []

_send_ping = ClientSession.send_ping


async def _timed_ping(session):
    started = time.monotonic()
    answer = await _send_ping(session)
    PINGS.append(time.monotonic() - started)
    return answer


ClientSession.send_ping = _timed_ping


def discover():
    """Reads config.yaml, starts the server, lists its tools and registers them."""
    names = mcp_tool.discover_mcp_tools()
    server = mcp_tool._servers.get(SERVER)
    hello = server and server.initialize_result
    return {
        "tools": names,
        "server": hello and hello.serverInfo.name,
        "revision": hello and hello.protocolVersion,
        "errors": {name: str(error) for name, error in mcp_tool._server_connect_errors.items()},
    }


def call(tool, arguments):
    """What the model would be shown."""
    return json.loads(registry.dispatch(mcp_tool.mcp_prefixed_tool_name(SERVER, tool), arguments))


def state():
    """The pings so far in seconds, the failures that the breaker has counted, and whether there is a session."""
    server = mcp_tool._servers.get(SERVER)
    return {
        "pings": PINGS,
        "failures": mcp_tool._server_error_counts.get(SERVER, 0),
        "connected": server is not None and server.session is not None,
    }


def shutdown():
    """Ends the server as Hermes does when it quits; the seconds that took."""
    started = time.monotonic()
    mcp_tool.shutdown_mcp_servers()
    return {"seconds": time.monotonic() - started}


COMMANDS = {"discover": discover, "call": call, "state": state, "shutdown": shutdown}


def main():
    for line in sys.stdin:
        name, *arguments = json.loads(line)
        ANSWERS.write(json.dumps(COMMANDS[name](*arguments)) + "\n")
        ANSWERS.flush()


if __name__ == "__main__":
    main()
