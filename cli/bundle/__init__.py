"""Bundles for somebody outside, without secrets and with hashed names: a support case, a pilot's evidence."""
