"""`gpuvigil check`: what is wrong with this node now, for people, monitoring and schedulers.

look (a child process that may get stuck)  →  Facts  →  rules (pure)  →  Finding
                                                                   →  callers: words and exit codes
"""
