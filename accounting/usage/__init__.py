"""Where the GPU-hours went: counted in buckets of 15 minutes, added up by one function for everybody."""

from .amounts import Place, Seconds, Share, share_percent
from .model import BUCKET, Bucket, Usage

__all__ = ["BUCKET", "Bucket", "Place", "Seconds", "Share", "Usage", "share_percent"]
