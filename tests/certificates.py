"""Certificates for tests, made by the openssl command: an authority, a server on this machine, clients."""

import ssl
import subprocess
from pathlib import Path


class Authority:
    """A certificate authority in a folder of its own; its certificate is ``<name>.pem``."""

    def __init__(self, folder: Path, name: str = "ca") -> None:
        self.folder = folder
        self.certificate = folder / f"{name}.pem"
        self._key = folder / f"{name}.key"
        # Python 3.13 verifies to the letter of RFC 5280.
        constraints = ("-addext", "basicConstraints=critical,CA:TRUE", "-addext", "keyUsage=critical,keyCertSign")
        _openssl("-x509", "-subj", f"/CN={name}", "-keyout", self._key, "-out", self.certificate, *constraints)

    def issue(self, name: str, *alternative_names: str) -> tuple[Path, Path]:
        """Paths of a certificate and its key; names as openssl writes them, such as ``DNS:localhost``."""
        certificate, key = self.folder / f"{name}.pem", self.folder / f"{name}.key"
        names = ("-addext", f"subjectAltName={','.join(alternative_names)}") if alternative_names else ()
        signed = ("-CA", self.certificate, "-CAkey", self._key, "-addext", "basicConstraints=CA:FALSE")
        _openssl("-x509", "-subj", f"/CN={name}", "-keyout", key, "-out", certificate, *signed, *names)
        return certificate, key

    def server(self, *lines: str) -> str:
        """A web configuration that serves TLS on 127.0.0.1, with more lines of its TLS section."""
        certificate, key = self.issue("server", "IP:127.0.0.1", "DNS:localhost")
        section = (f"cert_file: {certificate.name}", f"key_file: {key.name}", *lines)
        return "tls_server_config:\n" + "".join(f"  {line}\n" for line in section)


def trusting_context(folder: Path, client: tuple[Path, Path] | None = None) -> ssl.SSLContext:
    """How a client connects that trusts the authority of a folder and may have a certificate of its own."""
    context = ssl.create_default_context(cafile=folder / "ca.pem")
    if client is not None:
        context.load_cert_chain(*client)
    return context


def _openssl(*arguments: str | Path) -> None:
    command = ("openssl", "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2")
    subprocess.run([*command, *arguments], check=True, capture_output=True)
