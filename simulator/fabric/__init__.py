"""The switches of simulated clusters, which hosts and fleets hang at."""
