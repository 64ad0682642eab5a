"""Handlers, as a user's module has them. What they have seen goes to files that the measuring process reads."""
