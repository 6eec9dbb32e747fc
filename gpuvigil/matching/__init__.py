"""Which incidents and jobs a person means: matchers and silences."""
