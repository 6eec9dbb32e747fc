"""Tools of the house: what make calls."""
