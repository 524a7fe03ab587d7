"""Reads protocol/vectors and computes again, from the contract alone, what can be computed: event ids, bodies,
their hashes, proofs, and the signatures where there are some. It shares no code with the programs.

    python3 tests/clients/vectors/check.py [FOLDER]

Prints one PASS or FAIL line a case and the counts at the end; the status is 1 when anything failed.
"""

import base64
import hashlib
import json
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from signature import nostr  # noqa: E402

VECTORS = HERE.parents[2] / "protocol" / "vectors"
REVISION = "2026-07-28"


def raw_member(text, name):
    """The text of a member of a JSON object exactly as it is written; None where there is none."""
    decoder = json.JSONDecoder()
    at = text.index("{") + 1
    while True:
        while text[at] in " \t\r\n,":
            at += 1
        if text[at] == "}":
            return None
        key, at = decoder.raw_decode(text, at)
        while text[at] in " \t\r\n:":
            at += 1
        _, end = decoder.raw_decode(text, at)
        if key == name:
            return text[at:end]
        at = end


def quoted(text):
    """A string as NIP-01 writes it, which is how every text of ours stands in a body."""
    return nostr._text(text)


def meta(version):
    return (
        '"_meta":{"io.modelcontextprotocol/protocolVersion":"%s","io.modelcontextprotocol/clientInfo":'
        '{"name":"tinyagent","version":"%s"},"io.modelcontextprotocol/clientCapabilities":{}}'
        % (REVISION, version)
    )


def event_json(event):
    tags = "[" + ",".join("[" + ",".join(map(quoted, tag)) + "]" for tag in event["tags"]) + "]"
    return (
        f'{{"id":"{event["id"]}","pubkey":"{event["pubkey"]}","created_at":{event["created_at"]},'
        f'"kind":{event["kind"]},"tags":{tags},"content":{quoted(event["content"])},"sig":"{event["sig"]}"}}'
    )


def build_body(request, version, event=None):
    """The body that a request to the signer leads to (contract 4)."""
    name = next(iter(json.loads(request)))
    fields = json.loads(request)[name]
    inner = raw_member(request, name)
    if name == "browse_grant":
        asked = []
        if "rooms" in fields:
            asked.append('"rooms":[' + ",".join(map(quoted, fields["rooms"])) + "]")
        if "kinds" in fields:
            asked.append('"kinds":[' + ",".join(map(str, fields["kinds"])) + "]")
        return '{"method":"browsegrant","params":[{' + ",".join(asked) + "}]}"
    method = "tools/list" if name == "list_tools" else "tools/call"
    head = f'{{"jsonrpc":"2.0","id":{fields["id"]},"method":"{method}","params":{{'
    if name == "list_tools":
        cursor = f'"cursor":{quoted(fields["cursor"])},' if "cursor" in fields else ""
        return head + cursor + meta(version) + "}}"
    arguments = raw_member(inner, "arguments")
    if event is not None:
        comma = "," if json.loads(arguments) else ""
        arguments = f'{arguments[:-1]}{comma}"event":{event_json(event)}}}'
    return f'{head}"name":"{fields["tool"]}",{meta(version)},"arguments":{arguments}}}}}'


def unsigned(request, pubkey, now):
    """The event that a publish request asks for, without id and signature."""
    template = json.loads(request)["publish"]["template"]
    return {
        "pubkey": pubkey, "created_at": template.get("created_at", now), "kind": template["kind"],
        "tags": template["tags"], "content": template["content"],
    }


def proof_of(body, url, pubkey, nonce, now):
    tags = [["u", url], ["method", "POST"], ["payload", hashlib.sha256(body.encode()).hexdigest()], ["nonce", nonce]]
    return {"pubkey": pubkey, "created_at": now, "kind": nostr.HTTP_AUTH_KIND, "tags": tags, "content": ""}


def equal(seen, expected, what):
    if seen != expected:
        raise AssertionError(f"{what}: {seen!r} is not {expected!r}")


def check_event(event, fields, what):
    equal({name: event[name] for name in fields}, fields, what)
    nostr.verify_event(event)


def event_ids(file):
    for case in file["cases"]:
        yield case["name"], lambda case=case: equal(nostr.event_id(case), case["id"], "id")


def signatures(file):
    for case in file["cases"]:
        def check(case=case):
            valid = True
            try:
                nostr.verify_event(case["event"])
            except nostr.Invalid:
                valid = False
            equal(valid, case["valid"], "valid")
        yield case["name"], check


def bodies(file):
    for case in file["cases"]:
        def check(case=case):
            event = case.get("event")
            if event is not None:
                check_event(event, unsigned(case["request"], file["pubkey"], file["now"]), "event")
            equal(build_body(case["request"], file["version"], event), case["body"], "body")
            equal(hashlib.sha256(case["body"].encode()).hexdigest(), case["payload"], "payload")
            fields = proof_of(case["body"], case["url"], file["pubkey"], file["nonce"], file["now"])
            check_event(case["proof"], fields, "proof")
            token = base64.b64encode(event_json(case["proof"]).encode()).decode()
            equal(case["authorization"], f"Nostr {token}", "authorization")
        yield case["name"], check


READERS = {"event-ids.json": event_ids, "signatures.json": signatures, "bodies.json": bodies}


def main():
    folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else VECTORS
    counts = {"PASS": 0, "FAIL": 0}
    for name, reader in READERS.items():
        file = json.loads((folder / name).read_text(encoding="utf-8"))
        for case, check in reader(file):
            try:
                check()
                word, why = "PASS", ""
            except (AssertionError, KeyError, TypeError, ValueError, nostr.Invalid) as error:
                word, why = "FAIL", f": {type(error).__name__}: {error}"
            counts[word] += 1
            print(f"{word} vectors: {name}: {case}{why}")
    print(f"{counts['PASS']} passed, {counts['FAIL']} failed")
    return 1 if counts["FAIL"] or not counts["PASS"] else 0


if __name__ == "__main__":
    sys.exit(main())
