"""Selects the incidents and jobs that a person means: matchers, silences and annotations."""
