"""The packages for the Debian and Red Hat families: `make release`."""
