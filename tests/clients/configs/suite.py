"""What `tinyagent config` prints, read by a parser of each host's format and then started.

For each host stand here the keys that its documentation names and how it fills a variable in. An entry passes
when the parser gives exactly those keys and the program that it names serves under what the host makes of it.
"""

import json
import os
import re
import subprocess
import tempfile
import tomllib

import yaml

from support.processes import none_left
from support.relay import Relay
from support.report import Suite, expect, expect_equal
from support.session import KEY_VARIABLE, PROGRAM, READ_TOOLS, Key

INITIALIZE = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "configs", "version": "0"},
}
# Characters that a careless writer of JSON, YAML or TOML gets wrong.
AWKWARD = "it's a \"log\" #1: {x} [y] & *z !t %d @u `v` \\w café 🌱 - ? |>.jsonl"


class Launch:
    """What a host starts: command, arguments and the variables that the entry adds to its own filtered ones."""

    def __init__(self, entry, variables, command="command"):
        self.command, self.arguments, self.variables = entry[command], entry["args"], variables


def only(parsed, *path):
    """The value under these keys, each of which must be the only one at its place."""
    for key in path:
        expect_equal(sorted(parsed), sorted({key, *({"inputs"} if key == "servers" else ())}), "keys")
        parsed = parsed[key]
    return parsed


def keys(entry, *wanted):
    """Insists on exactly these keys of an entry."""
    expect_equal(sorted(entry), sorted(wanted), "keys of the entry")


def filled(entry, form, values):
    """The entry's variables as a host makes them of its placeholders, which must have its own form."""
    for name, value in entry["env"].items():
        expect_equal(value, form % name, f"placeholder of {name}")
    return {name: values[name] for name in entry["env"]}


def claude(text, values):
    entry = only(json.loads(text), "mcpServers", "tiny")
    keys(entry, "type", "command", "args", "env")
    expect_equal(entry["type"], "stdio", "type")
    return Launch(entry, filled(entry, "${%s}", values))


def cursor(text, values):
    entry = only(json.loads(text), "mcpServers", "tiny")
    keys(entry, "type", "command", "args", "env")
    expect_equal(entry["type"], "stdio", "type")
    return Launch(entry, filled(entry, "${env:%s}", values))


def vscode(text, values):
    parsed = json.loads(text)
    entry = only(parsed, "servers", "tiny")
    keys(entry, "type", "command", "args", "env")
    expect_equal(entry["type"], "stdio", "type")
    (asked,) = parsed["inputs"]
    keys(asked, "type", "id", "description", "password")
    expect_equal((asked["type"], asked["password"]), ("promptString", True), "input")
    expect_equal(list(entry["env"].values()), ["${input:%s}" % asked["id"]], "placeholder")
    return Launch(entry, {name: values[name] for name in entry["env"]})


def zed(text, values):
    entry = only(json.loads(text), "context_servers", "tiny")
    keys(entry, "source", "command", "args", "env")
    expect_equal((entry["source"], entry["env"]), ("custom", {}), "source and variables")
    # Zed fills nothing in; it passes its own environment on.
    return Launch(entry, values)


def codex(text, values):
    entry = only(tomllib.loads(text), "mcp_servers", "tiny")
    keys(entry, "command", "args", "env_vars")
    return Launch(entry, {name: values[name] for name in entry["env_vars"]})


def hermes(text, values):
    entry = only(yaml.safe_load(text), "mcp_servers", "tiny")
    keys(entry, "command", "args", "env", "keepalive_interval")
    expect(5 <= entry["keepalive_interval"] < 180, "the interval is below Hermes' floor or above its default")
    return Launch(entry, filled(entry, "${%s}", values))


def goose(text, values):
    entry = only(yaml.safe_load(text), "extensions", "tiny")
    keys(entry, "name", "description", "type", "enabled", "cmd", "args", "env_keys", "envs", "timeout")
    expect_equal((entry["type"], entry["enabled"], entry["envs"]), ("stdio", True, {}), "type and variables")
    expect(isinstance(entry["timeout"], int), "the timeout is no number of seconds")
    return Launch(entry, {name: values[name] for name in entry["env_keys"]}, command="cmd")


HOSTS = {
    "hermes": hermes,
    "claude": claude,
    "cursor": cursor,
    "vscode": vscode,
    "zed": zed,
    "codex": codex,
    "goose": goose,
}


def config(host, *options):
    """The entry as printed."""
    command = [PROGRAM, "config", host, *options]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def serve(launch):
    """Starts what a host would start, with the few variables that every host passes on, and lists its tools."""
    process = subprocess.Popen(
        [launch.command, *launch.arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={"PATH": "/usr/bin:/bin", "HOME": "/"} | launch.variables,
        cwd="/",
        text=True,
    )
    requests = [(0, "initialize", INITIALIZE), (1, "tools/list", {})]
    lines = [json.dumps({"jsonrpc": "2.0", "id": i, "method": m, "params": p}) + "\n" for i, m, p in requests]
    out, err = process.communicate("".join(lines), timeout=30)
    expect_equal(process.returncode, 0, f"status; stderr {err!r}")
    answers = {answer["id"]: answer["result"] for answer in map(json.loads, out.splitlines())}
    return answers[0]["serverInfo"]["name"], [tool["name"] for tool in answers[1]["tools"]]


def entry_is_read_and_starts(suite, host, read, key, relay):
    """The plain entry."""
    with suite.case(f"configs {host}: the entry has the documented keys, an absolute program and no key's value"):
        os.environ[KEY_VARIABLE] = key.nsec
        try:
            text = config(host, "--relay", relay.url, "--allow-writes")
        finally:
            del os.environ[KEY_VARIABLE]
        expect(key.nsec not in text, "the key stands in the entry")
        launch = read(text, {KEY_VARIABLE: key.nsec})
        expect(os.path.isabs(launch.command) and os.access(launch.command, os.X_OK), f"{launch.command}")
        expect_equal(launch.arguments, ["mcp", "--relay", relay.url, "--allow-writes"], "arguments")
        expect_equal(list(launch.variables), [KEY_VARIABLE], "variables")
    with suite.case(f"configs {host}: what the entry says starts and serves"):
        server, tools = serve(launch)
        expect_equal((server, tools[-1]), ("tinyagent", "tiny_diagnose"), "server and last tool")
        expect("post_message" in tools and len(tools) > READ_TOOLS + 1, f"tools {tools}")
        expect(none_left(relay.url), "a process is left")


def options_survive(suite, host, read, key, relay, directory):
    """Every kind of option, with text that needs quoting."""
    with suite.case(f"configs {host}: options come through the format unchanged, and the program takes them"):
        log = os.path.join(directory, f"{host} {AWKWARD}")
        options = ["--tools", "read_room, list_rooms", "--key-env", "agent_Key_2", "--audit-log", log]
        launch = read(config(host, "--relay", relay.url, *options), {"agent_Key_2": key.secret})
        expect_equal(launch.arguments, ["mcp", "--relay", relay.url, *options], "arguments")
        expect_equal(list(launch.variables), ["agent_Key_2"], "variables")
        expect_equal(serve(launch)[1], ["read_room", "list_rooms", "tiny_diagnose"], "tools")
        expect(os.path.exists(log), "there is no audit log under that name")
        expect(none_left(relay.url), "a process is left")


def readme_agrees(suite):
    """The entries that the README shows."""
    root = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "..")
    with open(os.path.join(root, "README.md")) as file:
        blocks = re.findall(r"^```(yaml|json)\n(.*?)^```$", file.read(), re.MULTILINE | re.DOTALL)
    shown = [(yaml.safe_load if kind == "yaml" else json.loads)(text) for kind, text in blocks]
    for host, parse in (("hermes", yaml.safe_load), ("claude", json.loads), ("cursor", json.loads)):
        with suite.case(f"configs {host}: the README shows what is printed"):
            text = config(host, "--relay", "https://relay.example", "--allow-writes")
            printed = parse(text.replace(PROGRAM, "/usr/local/bin/tinyagent"))
            expect(printed in shown, f"the README lacks {printed}")


def main():
    suite, key = Suite(), Key()
    readme_agrees(suite)
    for host, read in HOSTS.items():
        with suite.section(f"configs {host}"), Relay() as relay, tempfile.TemporaryDirectory() as directory:
            entry_is_read_and_starts(suite, host, read, key, relay)
            options_survive(suite, host, read, key, relay, directory)
    suite.end()


if __name__ == "__main__":
    main()
