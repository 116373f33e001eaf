"""What a host was like when it was well: recorded once, compared with what the collectors read now."""
