"""Schedulers that are asked from one place for a whole cluster: Slurm and Kubernetes."""
