"""Tests mirror the tree; servers and whole processes have folders of their own."""
