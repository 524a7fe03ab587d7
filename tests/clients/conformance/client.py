"""One client scenario of the conformance suite: `client.py URL`, called by the suite's own runner.

The scenarios exercise the half of tinyagent that talks to the relay. Their tools have names that tinyagent
never offers, so a proxy gives each the name of one that it does on the way in and its own on the way out;
nothing else is touched. Proofs are not checked here.
"""

import json
import os
import subprocess
import sys
from urllib.parse import urlsplit

from support.proxy import Proxy
from support.session import PROGRAM, Key, arguments

# The tools of the scenarios, by the name under which tinyagent sees them.
ALIASES = {
    "list_repositories": "add_numbers",
    "read_repository": "test_headers",
    "list_issues": "my-hyphenated-tool",
    "read_issue": "test_custom_headers",
    "list_pull_requests": "test_custom_headers_null",
    "read_pull_request": "lookup_user",
    "list_files": "json_schema_2020_12_tool",
    "read_file": "json_schema_echo",
    "read_attachment": "valid_tool",
    "list_rooms": "invalid_empty_header",
    "read_room": "invalid_object_header",
    "read_thread": "invalid_array_header",
    "list_wiki": "invalid_number_header",
    "read_wiki_page": "invalid_duplicate_same_case",
    "list_jobs": "invalid_duplicate_diff_case",
    "read_job": "invalid_space_in_name",
    "read_status": "invalid_colon_in_name",
    "create_issue": "invalid_null_header",
    "comment": "invalid_non_ascii_name",
    "react": "invalid_control_char_name",
}
ALIAS_OF = {name: alias for alias, name in ALIASES.items()}


class Renaming(Proxy):
    """Stands before the scenario's server and renames its tools."""

    def __init__(self, url):
        self._target = urlsplit(url)
        super().__init__(self._target.netloc)

    def outgoing(self, exchange):
        replaced = {"host": self._target.netloc}
        headers, body = exchange.headers, exchange.body
        if exchange.tool in ALIASES:
            name = ALIASES[exchange.tool]
            replaced["mcp-name"] = name
            body = body.replace(_named(exchange.tool), _named(name), 1)
            replaced["content-length"] = str(len(body))
        headers = [(n, replaced.get(n.lower(), v)) for n, v in headers]
        return self._target.path or "/", headers, body

    def incoming(self, answer):
        for alias, name in ALIASES.items():
            answer = answer.replace(_named(name), _named(alias))
        return answer


def _named(tool):
    return f'"name":"{tool}"'.encode()


class Server:
    """A running `tinyagent mcp` with a host's end of its pipes."""

    def __init__(self, url):
        self._id = 0
        self._process = subprocess.Popen(
            [PROGRAM, *arguments(url, "--allow-writes")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={"PATH": os.environ["PATH"], **Key().environment()},
            text=True,
        )

    def ask(self, method, **params):
        """The result of one request."""
        self._id += 1
        message = {"jsonrpc": "2.0", "id": self._id, "method": method, "params": params}
        self._process.stdin.write(json.dumps(message) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())["result"]

    def close(self):
        self._process.stdin.close()
        return self._process.wait(10)


def calls(tools):
    """What the scenario wants called: {its tool name: arguments}, in order."""
    context = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}")
    wanted = {call["name"]: call["arguments"] for call in context.get("toolCalls", [])}
    wanted |= {"add_numbers": {"a": 5, "b": 3}, "lookup_user": {"id": "a"}}
    focal = tools.get("json_schema_2020_12_tool")
    if focal:
        wanted["json_schema_echo"] = {"schema": focal["inputSchema"]}
    return {name: wanted.get(name, {"region": "us-west1"}) for name in tools}


def main():
    with Renaming(sys.argv[1]) as proxy:
        server = Server(proxy.url)
        hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
        server.ask("initialize", **hello)
        listed = server.ask("tools/list")["tools"]
        tools = {ALIASES[tool["name"]]: tool for tool in listed if tool["name"] in ALIASES}
        for name, arguments_ in calls(tools).items():
            server.ask("tools/call", name=ALIAS_OF[name], arguments=arguments_)
        if not tools:
            server.ask("tools/call", name="list_rooms", arguments={})
        sys.exit(server.close())


if __name__ == "__main__":
    main()
