"""The scarcest resource of each GPU, and for how long it has been scarce."""
