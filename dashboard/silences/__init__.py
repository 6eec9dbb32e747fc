"""What is silenced: by whom, why and until when."""
