"""Who looks, and what of the records they may see."""
