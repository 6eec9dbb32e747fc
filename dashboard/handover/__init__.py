"""The shift handover page."""
