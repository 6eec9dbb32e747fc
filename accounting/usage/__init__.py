"""Where the GPU-hours went: counted in buckets of 15 minutes, and added up by one function for all callers."""

from .amounts import Place, Seconds, Share, share_percent
from .model import BUCKET, Bucket, Usage

__all__ = ["BUCKET", "Bucket", "Place", "Seconds", "Share", "Usage", "share_percent"]
