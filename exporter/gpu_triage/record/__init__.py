"""A machine as a file: recorded, replayed, and written by the flight recorder when something happens."""
