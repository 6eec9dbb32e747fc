"""What GPU-hours and energy cost."""
