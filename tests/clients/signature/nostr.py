"""Checks Nostr events with nothing but integers and SHA-256: the id (NIP-01) and the signature (BIP-340).

Written from the two documents alone, so that the programs' own event code cannot vouch for itself. It only
verifies: it holds no key and makes no signature.
"""

import base64
import hashlib
import json

# secp256k1 (SEC 2, 2.4.1): the field, the group order and the generator.
P = 2**256 - 2**32 - 977
N = 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141
G = (
    0x79BE667EF9DCBBAC55A06295CE870B07029BFCDB2DCE28D959F2815B16F81798,
    0x483ADA7726A3C4655DA4FBFC0E1108A8FD17B448A68554199C47D08FFB10D4B8,
)

# The kind of an HTTP authorization event (NIP-98).
HTTP_AUTH_KIND = 27235


class Invalid(Exception):
    """What is wrong with an event."""


def _add(a, b):
    if a is None or b is None:
        return a or b
    if a[0] == b[0]:
        if (a[1] + b[1]) % P == 0:
            return None
        slope = 3 * a[0] * a[0] * pow(2 * a[1], -1, P) % P
    else:
        slope = (b[1] - a[1]) * pow(b[0] - a[0], -1, P) % P
    x = (slope * slope - a[0] - b[0]) % P
    return x, (slope * (a[0] - x) - a[1]) % P


def _multiply(point, scalar):
    sum_ = None
    while scalar:
        if scalar & 1:
            sum_ = _add(sum_, point)
        point = _add(point, point)
        scalar >>= 1
    return sum_


def _lift_x(x):
    """The point with this x and an even y, or None."""
    if x >= P:
        return None
    square = (pow(x, 3, P) + 7) % P
    y = pow(square, (P + 1) // 4, P)
    if y * y % P != square:
        return None
    return x, y if y % 2 == 0 else P - y


def _challenge(*parts):
    tag = hashlib.sha256(b"BIP0340/challenge").digest()
    return int.from_bytes(hashlib.sha256(tag + tag + b"".join(parts)).digest(), "big") % N


def verify_schnorr(public_key, message, signature):
    """Whether a 64-byte signature over the message is this 32-byte key's (BIP-340, Verification)."""
    if len(public_key) != 32 or len(signature) != 64:
        return False
    point = _lift_x(int.from_bytes(public_key, "big"))
    r, s = int.from_bytes(signature[:32], "big"), int.from_bytes(signature[32:], "big")
    if point is None or r >= P or s >= N:
        return False
    e = _challenge(signature[:32], public_key, message)
    nonce = _add(_multiply(G, s), _multiply(point, N - e))
    return nonce is not None and nonce[1] % 2 == 0 and nonce[0] == r


# The escapes that NIP-01 names; every other character goes as it is, except the remaining control
# characters, which JSON cannot carry unescaped.
_ESCAPES = {"\n": "\\n", '"': '\\"', "\\": "\\\\", "\r": "\\r", "\t": "\\t", "\b": "\\b", "\f": "\\f"}


def _text(value):
    return '"' + "".join(
        _ESCAPES.get(c) or (f"\\u{ord(c):04x}" if c < " " else c) for c in value
    ) + '"'


def event_id(event):
    """The id that the event's fields give, in hex."""
    tags = "[" + ",".join("[" + ",".join(map(_text, tag)) + "]" for tag in event["tags"]) + "]"
    fields = [
        "0", _text(event["pubkey"]), str(event["created_at"]), str(event["kind"]), tags, _text(event["content"]),
    ]
    return hashlib.sha256(("[" + ",".join(fields) + "]").encode()).hexdigest()


def verify_event(event):
    """Raises Invalid unless id and signature are those of the event's own fields."""
    if event_id(event) != event["id"]:
        raise Invalid("the id is not the hash of the fields")
    parts = [bytes.fromhex(event[name]) for name in ("pubkey", "id", "sig")]
    if not verify_schnorr(*parts):
        raise Invalid("the signature is not the key's")


def tag_values(event, name):
    """The first values of the tags with this name."""
    return [tag[1] for tag in event["tags"] if tag[0] == name]


def verify_proof(header, method, url, body):
    """Raises Invalid unless the Authorization header proves a key for this request; returns its event."""
    scheme, _, token = header.partition(" ")
    if scheme != "Nostr":
        raise Invalid("the scheme is not Nostr")
    event = json.loads(base64.b64decode(token, validate=True))
    verify_event(event)
    if event["kind"] != HTTP_AUTH_KIND or event["content"] != "":
        raise Invalid("it is no HTTP authorization event")
    bound = {"u": url, "method": method, "payload": hashlib.sha256(body).hexdigest()}
    for name, value in bound.items():
        if tag_values(event, name) != [value]:
            raise Invalid(f"its {name} is not the request's")
    return event
