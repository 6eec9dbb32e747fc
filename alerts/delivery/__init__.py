"""From due notices to the workers of channels."""
