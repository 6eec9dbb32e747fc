"""Bundles for somebody outside: a support case, or the evidence of a pilot; no secret, names hashed."""
