"""The page of silences: what is silenced, by whom, why and until when."""
