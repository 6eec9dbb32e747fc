"""What is measured, and how; the figures lie beside as JSON."""
