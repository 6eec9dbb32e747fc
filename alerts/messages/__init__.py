"""The content of messages, and the interface of the channels that carry them."""
