"""What pages ask the hub, shared by all sessions."""
