"""What the analyzer does beside its passes."""
