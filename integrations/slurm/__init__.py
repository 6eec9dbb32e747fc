"""What Slurm's controller says of jobs and nodes, asked from one place."""
