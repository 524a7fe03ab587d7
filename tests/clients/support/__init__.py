"""What the client suites share: the relay, a recording proxy, process look-ups and reporting."""
