"""`gpuvigil switches`: what a site's own Prometheus knows of its switches, by mapping files."""
