"""What Slurm and Kubernetes say of jobs and nodes, for everybody who asks."""
