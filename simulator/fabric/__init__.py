"""The switches of simulated clusters, to which hosts and fleets are cabled."""
