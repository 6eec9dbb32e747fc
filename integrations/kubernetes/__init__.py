"""What a Kubernetes cluster says of itself, watched from one place through its API server."""
