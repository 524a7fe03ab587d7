"""The verifier itself, against the published BIP-340 vectors and against events with one thing changed."""

from support.report import Suite, expect, expect_equal
from signature import nostr

# From the test vectors of BIP-340, by their index: public key, message, signature, whether it verifies.
VECTORS = [
    (0, "F9308A019258C31049344F85F89D5229B531C845836F99B08601F113BCE036F9", "00" * 32,
     "E907831F80848D1069A5371B402410364BDF1C5F8307B0084C55F1CE2DCA8215"
     "25F66A4A85EA8B71E482A74F382D2CE5EBEEE8FDB2172F477DF4900D310536C0", True),
    (1, "DFF1D77F2A671C5F36183726DB2341BE58FEAE1DA2DECED843240F7B502BA659",
     "243F6A8885A308D313198A2E03707344A4093822299F31D0082EFA98EC4E6C89",
     "6896BD60EEAE296DB48A229FF71DFE071BDE413E6D43F917DC8DCF8C78DE3341"
     "8906D11AC976ABCCB20B091292BFF4EA897EFCB639EA871CFA95F6DE339E4B0A", True),
    (5, "EEFDEA4CDB677750A420FEE807EACF21EB9898AE79B9768766E4FAA04A2D4A34",
     "243F6A8885A308D313198A2E03707344A4093822299F31D0082EFA98EC4E6C89",
     "6CFF5C3BA86C69EA4B7376F31A9BCB4F74C1976089B2D9963DA2E5543E177769"
     "69E89B4C5564D00349106B8497785DD7D1D713A8AE82B32FA79D5F7FC407D39B", False),
    (6, "DFF1D77F2A671C5F36183726DB2341BE58FEAE1DA2DECED843240F7B502BA659",
     "243F6A8885A308D313198A2E03707344A4093822299F31D0082EFA98EC4E6C89",
     "FFF97BD5755EEEA420453A14355235D382F6472F8568A18B2F057A1460297556"
     "3CC27944640AC607CD107AE10923D9EF7A73C643E166BE5EBEAFA34B1AC553E2", False),
]


def main():
    suite = Suite()
    for index, key, message, signature, valid in VECTORS:
        with suite.case(f"signature: BIP-340 vector {index}"):
            seen = nostr.verify_schnorr(*map(bytes.fromhex, (key, message, signature)))
            expect_equal(seen, valid, "verified")

    _, key, message, signature, _ = VECTORS[1]
    valid = [bytes.fromhex(part) for part in (key, message, signature)]
    with suite.case("signature: one changed bit anywhere is noticed"):
        for part in range(3):
            for at in (0, 31):
                changed = [bytearray(value) for value in valid]
                changed[part][at] ^= 1
                expect(not nostr.verify_schnorr(*map(bytes, changed)), f"part {part}, byte {at}")
    with suite.case("signature: lengths and values out of range are refused"):
        key, message, signature = valid
        expect(not nostr.verify_schnorr(key[:31], message, signature), "short key")
        expect(not nostr.verify_schnorr(key, message, signature[:63]), "short signature")
        expect(not nostr.verify_schnorr(key, message, signature[:32] + nostr.N.to_bytes(32, "big")), "s = n")
        expect(not nostr.verify_schnorr(key, message, nostr.P.to_bytes(32, "big") + signature[32:]), "r = p")
    with suite.case("signature: the event id escapes what NIP-01 names and nothing else"):
        event = {"pubkey": "0" * 64, "created_at": 1, "kind": 9, "tags": [["h", "a\"b\\c"]],
                 "content": "\n\r\t\b\f\x01\x7f\u2028<>&/é"}
        text = ('[0,"' + "0" * 64 + '",1,9,[["h","a\\"b\\\\c"]],'
                '"\\n\\r\\t\\b\\f\\u0001\x7f\u2028<>&/é"]')
        expect_equal(nostr.event_id(event), nostr.hashlib.sha256(text.encode()).hexdigest(), "id")
    suite.end()


if __name__ == "__main__":
    main()
