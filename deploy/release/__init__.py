"""Everything that a release consists of: `make release`."""
