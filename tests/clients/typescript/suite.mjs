// The official TypeScript client against `tinyagent mcp`: the 1.x package, and the 2.x package in each of its
// modes. The server is started by the client's own stdio transport, with its stderr on a pipe that nobody reads.

import { execFileSync, spawn } from "node:child_process";
import { readdirSync, readFileSync } from "node:fs";
import { createInterface } from "node:readline";

import { Client as Client1 } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport as Stdio1 } from "@modelcontextprotocol/sdk/client/stdio.js";
import { Client as Client2 } from "@modelcontextprotocol/client";
import { StdioClientTransport as Stdio2 } from "@modelcontextprotocol/client/stdio";

const program = process.env.TINYAGENT;
const version2 = (mode) => ({ Client: Client2, Stdio: Stdio2, options: { versionNegotiation: { mode } } });
const clients = {
  "1.x": { Client: Client1, Stdio: Stdio1, options: {} },
  "2.x legacy": version2("legacy"),
  "2.x auto": version2("auto"),
};
// The tools that only read, without `tiny_diagnose` (contract, section 3).
const readTools = 17;
// How long the server may take to end (contract, section 2), in milliseconds; the client waits for 2000.
const closeLimit = 1500;
// How long a ping may take while a call runs, in milliseconds, with room for a busy machine.
const pingLimit = 1000;

let failed = 0;

async function check(name, body) {
  try {
    await body();
    console.log(`PASS typescript ${name}`);
  } catch (error) {
    failed += 1;
    console.log(`FAIL typescript ${name}: ${String(error.message ?? error).replaceAll(/\s+/g, " ").slice(0, 500)}`);
    console.error(error);
  }
}

function expect(condition, what) {
  if (!condition) throw new Error(what);
}

async function rejection(promise) {
  try {
    await promise;
  } catch (error) {
    return error;
  }
  throw new Error("it succeeded");
}

/** The relay with its proxy, whose answers to `read_room` take this many seconds. */
async function startRelay(slow) {
  const child = spawn("python3", ["-m", "support.relay", ...(slow ? [`read_room=${slow}`] : [])], {
    stdio: ["pipe", "pipe", "inherit"],
  });
  for await (const line of createInterface({ input: child.stdout })) {
    return { url: JSON.parse(line).url, stop: () => child.stdin.end() };
  }
  throw new Error("the relay did not start");
}

/** The processes of the session of the relay at this URL, as lists of arguments. */
function processes(url) {
  return readdirSync("/proc")
    .filter((name) => /^\d+$/.test(name))
    .flatMap((pid) => {
      try {
        return [readFileSync(`/proc/${pid}/cmdline`, "utf8").split("\0")];
      } catch {
        return [];
      }
    })
    .filter((argv) => argv.some((argument) => argument.includes(url)));
}

async function noneLeft(url) {
  const deadline = Date.now() + 1000;
  while (processes(url).length > 0) {
    expect(Date.now() < deadline, "a process is left");
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
}

function connect({ Client, Stdio, options }, url, ...extra) {
  const client = new Client({ name: "typescript-suite", version: "1" }, options);
  const transport = new Stdio({
    command: program,
    args: ["mcp", "--relay", url, ...extra],
    env: { TINY_PRIVATE_KEY: secret },
    stderr: "pipe",
  });
  client.errors = [];
  client.onerror = (error) => client.errors.push(error);
  return client.connect(transport).then(() => client);
}

const { secret } = JSON.parse(execFileSync(program, ["keygen"], { encoding: "utf8" }));

async function wholeSession(name, kind) {
  const { url, stop } = await startRelay();
  let client;
  await check(`${name}: connects, with one server process`, async () => {
    client = await connect(kind, url, "--allow-writes");
    expect(client.getServerVersion().name === "tinyagent", "another server");
    const facades = processes(url).filter((argv) => argv[0].endsWith("/tinyagent"));
    expect(facades.length === 1, `${facades.length} servers run`);
  });
  if (client) {
    await check(`${name}: lists the tools, tiny_diagnose last`, async () => {
      const names = (await client.listTools()).tools.map((tool) => tool.name);
      expect(names.includes("post_message") && !names.includes("publish_event"), names.join(" "));
      expect(names.at(-1) === "tiny_diagnose", `last is ${names.at(-1)}`);
    });
    await check(`${name}: posts a message and reads it back`, async () => {
      const content = 'Hello from "TypeScript"\n\u2028 \u{1f331}';
      const posted = await client.callTool({ name: "post_message", arguments: { room: "general", content } });
      expect(posted.structuredContent?.accepted === true, JSON.stringify(posted));
      const room = await client.callTool({ name: "read_room", arguments: { id: "general", limit: 1 } });
      expect(room.structuredContent.messages[0].content === content, JSON.stringify(room));
    });
    await check(`${name}: tiny_diagnose says ok`, async () => {
      const report = await client.callTool({ name: "tiny_diagnose", arguments: {} });
      expect(!report.isError && report.structuredContent.verdict === "ok", JSON.stringify(report));
    });
    await check(`${name}: an unknown tool is an error of the protocol`, async () => {
      const error = await rejection(client.callTool({ name: "publish_event", arguments: {} }));
      expect(error.code === -32602, `${error.code} ${error.message}`);
    });
    await check(`${name}: nothing it received was malformed`, async () => {
      expect(client.errors.length === 0, client.errors.join("; "));
    });
    await check(`${name}: closes in time, and leaves no process`, async () => {
      const started = Date.now();
      await client.close();
      expect(Date.now() - started < closeLimit, `it took ${Date.now() - started} ms`);
      await noneLeft(url);
    });
  }
  stop();
}

async function readOnly(name, kind) {
  const { url, stop } = await startRelay();
  await check(`${name}: without --allow-writes a write tool is neither offered nor called`, async () => {
    const client = await connect(kind, url);
    const names = (await client.listTools()).tools.map((tool) => tool.name);
    expect(names.length === readTools + 1 && !names.includes("post_message"), names.join(" "));
    const error = await rejection(client.callTool({ name: "post_message", arguments: { room: "general" } }));
    expect(error.code === -32602, `${error.code} ${error.message}`);
    await client.close();
  });
  stop();
}

async function slowCall(name, kind) {
  const { url, stop } = await startRelay(3);
  await check(`${name}: a ping during a slow call is answered at once, and an aborted call leaves no trace`, async () => {
    const client = await connect(kind, url);
    const read = (options) => client.callTool({ name: "read_room", arguments: { id: "general" } }, ...options);
    // The 1.x client takes the options third, the 2.x client second.
    const withOptions = (options) => read(kind.Client === Client1 ? [undefined, options] : [options]);
    const slow = withOptions({ timeout: 20_000 });
    const started = Date.now();
    await client.ping();
    expect(Date.now() - started < pingLimit, `the ping took ${Date.now() - started} ms`);
    const abort = new AbortController();
    const aborted = rejection(withOptions({ signal: abort.signal }));
    setTimeout(() => abort.abort(), 200);
    await aborted;
    const room = await slow;
    expect(room.structuredContent.id === "general", JSON.stringify(room));
    const rooms = await client.callTool({ name: "list_rooms", arguments: {} });
    expect(!rooms.isError, JSON.stringify(rooms));
    expect(client.errors.length === 0, client.errors.join("; "));
    await client.close();
    await noneLeft(url);
  });
  stop();
}

async function pinned() {
  const { url, stop } = await startRelay();
  await check("2.x pinned to 2026-07-28: fails with an error that says so, and leaves no process", async () => {
    const error = await rejection(connect(version2({ pin: "2026-07-28" }), url));
    expect(/2026-07-28|discover|version|revision/i.test(error.message), error.message);
    await noneLeft(url);
  });
  stop();
}

for (const [name, kind] of Object.entries(clients)) {
  await wholeSession(name, kind);
  await readOnly(name, kind);
  await slowCall(name, kind);
}
await pinned();
process.exit(failed > 0 ? 1 : 0);
