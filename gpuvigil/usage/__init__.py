"""Where the GPU-hours went: counted in buckets of 15 minutes, added up by one function for everybody."""

from .model import BUCKET, Bucket, Seconds, Share, Usage, share_percent

__all__ = ["BUCKET", "Bucket", "Seconds", "Share", "Usage", "share_percent"]
