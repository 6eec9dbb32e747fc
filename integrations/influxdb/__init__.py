"""What gpuvigil concluded, for a site's own InfluxDB."""
