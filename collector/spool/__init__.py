"""Bodies on their way to the hub: kept on disk, sent, and sent again."""
