"""What a site's own Prometheus tells of its past, before anything of gpuvigil is installed."""
