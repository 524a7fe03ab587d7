"""The official Python client against `tinyagent mcp`, in each of its three modes.

The server is started by the client's own stdio transport with the environment that it passes on. What
reached the relay is checked against the recorded bytes with the independent verifier.
"""

import time
from contextlib import asynccontextmanager

import anyio
from mcp import Client, MCPError, StdioServerParameters
from pydantic import ValidationError

from signature import nostr
from support.processes import none_left, programs
from support.relay import Relay
from support.report import Skip, Suite, expect, expect_equal
from support.session import PROGRAM, READ_TOOLS, Key, arguments

# Each mode and the revision that it ends with: `auto` falls back to the handshake.
MODES = {"auto": "2025-11-25", "legacy": "2025-11-25", "2026-07-28": "2026-07-28"}
# How long what was read may still take to be answered after the end of stdin (contract, section 2).
CLOSE_SECONDS = 1.5
# Every escape of NIP-01, and characters that a lax encoder would escape too.
MESSAGE = "Hello \"room\"\\ \n\r\t\b\f \x01 \x7f \u2028 <b>&amp;</b> caf\u00e9 \U0001f331"


class Session:
    """A relay, and what one client session with it needs."""

    def __init__(self, relay, key, mode):
        self.relay, self.key, self.mode = relay, key, mode
        self.strays = []

    @asynccontextmanager
    async def connect(self, *options):
        """A connected client; messages that answer no request are kept in `strays`."""

        async def keep(message):
            self.strays.append(message)

        server = StdioServerParameters(
            command=PROGRAM, args=arguments(self.relay.url, *options), env=self.key.environment()
        )
        async with Client(
            server, mode=self.mode, read_timeout_seconds=20, message_handler=keep
        ) as client:
            yield client


async def write_and_read_back(suite, session):
    """A whole session with writes: list, post, read, diagnose, close."""
    relay, mode = session.relay, session.mode
    async with session.connect("--allow-writes") as client:
        with suite.case(f"python {mode}: connects"):
            expect_equal(client.protocol_version, MODES[mode], "revision")
            if mode != "2026-07-28":
                expect_equal(client.server_info.name, "tinyagent", "server name")
        with suite.case(f"python {mode}: lists the tools, tiny_diagnose last"):
            names = [tool.name for tool in (await client.list_tools()).tools]
            expect("post_message" in names, "post_message is missing")
            expect("publish_event" not in names, "publish_event is offered")
            expect_equal(names[-1], "tiny_diagnose", "last tool")
        with suite.case(f"python {mode}: posts a message"):
            result = await client.call_tool("post_message", {"room": "general", "content": MESSAGE})
            expect(not result.is_error, f"tool error: {result.content}")
            expect_equal(result.structured_content["accepted"], True, "accepted")
        with suite.case(f"python {mode}: reads the message back from the room"):
            result = await client.call_tool("read_room", {"id": "general", "limit": 1})
            expect(not result.is_error, f"tool error: {result.content}")
            shown = result.structured_content["messages"][0]
            sent = relay.published("post_message")[-1].arguments["event"]
            nostr.verify_event(sent)
            expect_equal(shown["content"], MESSAGE, "content")
            expect_equal((sent["pubkey"], sent["kind"]), (session.key.public, 9), "author and kind")
            expect_equal(nostr.event_id({**shown, "pubkey": session.key.public}), sent["id"], "id")
        with suite.case(f"python {mode}: tiny_diagnose says ok and shows the isolation"):
            result = await client.call_tool("tiny_diagnose", {"rooms": ["general"], "kinds": [9]})
            expect(not result.is_error, f"tool error: {result.content}")
            expect_equal(result.structured_content["verdict"], "ok", "verdict")
            expect_equal(result.structured_content["pubkey"], session.key.public, "public key")
        with suite.case(f"python {mode}: a bad argument is the relay's error, and the session goes on"):
            result = await client.call_tool("read_room", {"id": "nowhere"})
            expect(result.is_error, "the call succeeded")
            result = await client.call_tool("list_rooms", {})
            expect(not result.is_error, f"tool error: {result.content}")
        started = time.monotonic()
    with suite.case(f"python {mode}: closes before the client has to end it, and leaves no process"):
        took = time.monotonic() - started
        expect(took < CLOSE_SECONDS, f"closing took {took:.2f} s")
        expect(none_left(relay.url), "a process is left")
    with suite.case(f"python {mode}: every request carries a proof for exactly its bytes, used once"):
        proofs = [
            nostr.verify_proof(e.header("Authorization"), e.method, relay.url + e.path, e.body)
            for e in relay.exchanges
            if e.method == "POST"
        ]
        expect(len(proofs) >= 6, f"only {len(proofs)} proofs")
        expect_equal({proof["pubkey"] for proof in proofs}, {session.key.public}, "signing keys")
        expect_equal(len({proof["id"] for proof in proofs}), len(proofs), "distinct proofs")
        expect_equal([e.status for e in relay.exchanges if e.status != 200], [], "refusals")


async def refused_write(suite, session):
    """Without --allow-writes."""
    mode = session.mode
    with suite.case(f"python {mode}: without --allow-writes a write tool is neither offered nor called"):
        async with session.connect() as client:
            names = [tool.name for tool in (await client.list_tools()).tools]
            expect_equal(len(names), READ_TOOLS + 1, "tools")
            expect("post_message" not in names, "post_message is offered")
            try:
                await client.call_tool("post_message", {"room": "general", "content": "no"})
            except MCPError as error:
                expect_equal((error.code, error.message), (-32602, "Unknown tool: post_message"), "error")
            else:
                raise AssertionError("the call was answered")
        expect_equal(session.relay.calls("post_message"), [], "calls that reached the relay")


async def abandoned_calls(suite, session):
    """Calls that the client gives up, while running and while waiting."""
    relay, mode = session.relay, session.mode
    async with session.connect() as client:
        with suite.case(f"python {mode}: a call that times out leaves the session usable"):
            relay.delay("read_room", 60)
            try:
                await client.call_tool("read_room", {"id": "general"}, read_timeout_seconds=0.5)
            except MCPError:
                pass
            else:
                raise AssertionError("the call did not time out")
            diagnosis = await client.call_tool("tiny_diagnose", {})
            expect_equal(diagnosis.structured_content["verdict"], "ok", "verdict meanwhile")
            relay.release()
            result = await client.call_tool("list_rooms", {})
            expect(not result.is_error, f"tool error: {result.content}")
        with suite.case(f"python {mode}: a cancelled call that still waits never reaches the relay"):
            before = len(relay.calls("list_wiki"))
            relay.delay("read_room", 60)
            async with anyio.create_task_group() as group:
                group.start_soon(client.call_tool, "read_room", {"id": "workshop"})
                with anyio.fail_after(10):
                    while len(relay.calls("read_room")) < 2:
                        await anyio.sleep(0.01)
                with anyio.move_on_after(0.3) as scope:
                    await client.call_tool("list_wiki", {})
                expect(scope.cancelled_caught, "the waiting call was answered")
                # Lines are read in order: once this is answered, the cancellation has been read.
                await client.call_tool("tiny_diagnose", {})
                relay.release()
            result = await client.call_tool("list_rooms", {})
            expect(not result.is_error, f"tool error: {result.content}")
            expect_equal(len(relay.calls("list_wiki")), before, "calls that reached the relay")
        with suite.case(f"python {mode}: no abandoned call was answered"):
            expect_equal(session.strays, [], "messages that answer no request")
        relay.delay("read_room", 60)
        async with anyio.create_task_group() as group:
            group.start_soon(_ignore_errors, client.call_tool, "read_room", {"id": "general"})
            with anyio.move_on_after(10):
                while len(relay.calls("read_room")) < 3:
                    await anyio.sleep(0.01)
            group.cancel_scope.cancel()
        started = time.monotonic()
    with suite.case(f"python {mode}: closes in time with a call in flight, and leaves no process"):
        took = time.monotonic() - started
        expect(took < CLOSE_SECONDS + 0.5, f"closing took {took:.2f} s")
        expect(none_left(relay.url), "a process is left")
    relay.release()


async def _ignore_errors(function, *arguments_):
    try:
        await function(*arguments_)
    except MCPError:
        pass


async def custody(suite, session):
    """Which process holds the key."""
    with suite.case(f"python {session.mode}: neither process keeps the key in its environment"):
        async with session.connect() as client:
            await client.list_tools()
            facade, signer = (
                programs(session.relay.url, name) for name in ("tinyagent", "tinyagent-signer")
            )
            expect_equal((len(facade), len(signer)), (1, 1), "processes")
            for pid in facade + signer:
                with open(f"/proc/{pid}/environ", "rb") as file:
                    expect(session.key.secret.encode() not in file.read(), f"process {pid} holds it")


async def is_understood(suite, key, mode):
    """Whether the client can read the answers of this mode's revision; a pinned one may demand more keys."""
    name, missing = f"python {mode}: a whole session", None
    with Relay() as relay, suite.section(name):
        async with Session(relay, key, mode).connect() as client:
            try:
                await client.list_tools()
            except ValidationError as error:
                missing = sorted(detail["loc"][0] for detail in error.errors())
        if missing is None:
            return True
        with suite.case(f"python {mode}: a client that cannot read the answers leaves no process"):
            expect(none_left(relay.url), "a process is left")
        with suite.case(name):
            raise Skip(f"tinyagent does not serve this revision; its answers lack {', '.join(missing)}")
    return False


async def main():
    suite, key = Suite(), Key()
    for mode in MODES:
        if not await is_understood(suite, key, mode):
            continue
        for run in (write_and_read_back, refused_write, abandoned_calls, custody):
            with suite.section(f"python {mode}: {run.__name__}"), Relay() as relay:
                await run(suite, Session(relay, key, mode))
    suite.end()


if __name__ == "__main__":
    anyio.run(main)
