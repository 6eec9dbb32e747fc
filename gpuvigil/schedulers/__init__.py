"""Jobs and nodes according to Slurm and Kubernetes, for all services."""
