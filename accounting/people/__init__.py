"""Who is looking, and which records and names they may see."""
