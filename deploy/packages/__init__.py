"""The packages for Debian and Red Hat families: `make packages`."""
