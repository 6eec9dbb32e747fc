"""What a site's own Prometheus shows of its past, before any part of gpuvigil is installed."""
