"""A certificate authority of the tests, made by `openssl` for one run, and what it signs."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2")


def missing_openssl() -> str | None:
    """What keeps this machine from making certificates; None when nothing does."""
    return None if shutil.which("openssl") else "certificates need openssl (3 or newer)"


@dataclass(frozen=True)
class Certificate:
    """A certificate and its key, two PEM files."""

    certificate: Path
    key: Path

    def together(self, path: Path) -> Path:
        """Both in one file, as Kafka's PEM key stores want them."""
        path.write_text(self.key.read_text() + self.certificate.read_text())
        return path


class Authority:
    """Signs certificates in `folder`. `name` tells one authority from another."""

    def __init__(self, folder: Path, name: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self.own = self._make(name, "basicConstraints=critical,CA:TRUE")

    def sign(self, name: str, alternative: str | None = None) -> Certificate:
        """A certificate for `name`; `alternative` is what it holds for, e.g. `IP:127.0.0.1`."""
        signed_by = ("-CA", str(self.own.certificate), "-CAkey", str(self.own.key))
        extensions = ["basicConstraints=critical,CA:FALSE"]
        extensions += [f"subjectAltName={alternative}"] if alternative else []
        return self._make(name, *extensions, more=signed_by)

    def _make(self, name: str, *extensions: str, more: tuple[str, ...] = ()) -> Certificate:
        made = Certificate(self._folder / f"{name}.pem", self._folder / f"{name}.key")
        command = ["openssl", "req", "-x509", *_KEY, "-subj", f"/CN={name}", *more]
        command += ["-keyout", str(made.key), "-out", str(made.certificate)]
        for extension in extensions:
            command += ["-addext", extension]
        subprocess.run(command, check=True, capture_output=True, timeout=3000)
        return made


def locked_copy(key: Path, password: str) -> Path:
    """The key behind a password."""
    locked = key.with_suffix(".locked")
    command = ["openssl", "pkey", "-in", str(key), "-aes256", "-passout", f"pass:{password}"]
    subprocess.run([*command, "-out", str(locked)], check=True, capture_output=True, timeout=3000)
    return locked
