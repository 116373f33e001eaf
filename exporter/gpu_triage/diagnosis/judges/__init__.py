"""What is wrong: each judge looks at one part of a host and names what it finds."""
