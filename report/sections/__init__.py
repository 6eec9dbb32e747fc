"""What a report says, section by section, and the function that builds them all from its inputs."""
