"""A seeded campaign of random problems, each checked against references that share no code with the library."""
