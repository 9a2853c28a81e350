"""Certificates and keys for a federation on this machine: an authority, a server's certificate, a key for every node.

For machines that are not this one, docs/federated.md has the openssl commands; what they make is the same.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from danl.checks import check_installed

VALID_DAYS = 30
"""For trying things out: long enough for that, and too short to be forgotten somewhere."""


@dataclass(frozen=True)
class Certificates:
    """Where the files are."""

    authority: Path
    certificate: Path
    key: Path


def make_certificates(folder: Path, hosts: Sequence[str] = ("localhost", "127.0.0.1")) -> Certificates:
    """Make an authority, and a certificate it signed for a server of these names and addresses.

    Nobody keeps the authority's own key: it signs this one certificate and nothing else.
    """
    check_installed("certificates", "trustme", "flower")
    import trustme

    folder.mkdir(parents=True, exist_ok=True)
    begin = datetime.datetime.now(datetime.UTC) - datetime.timedelta(minutes=5)
    end = begin + datetime.timedelta(days=VALID_DAYS)
    authority = trustme.CA(path_length=0, organization_name="danl", organization_unit_name="federation authority")
    server = authority.issue_cert(*hosts, common_name=hosts[0], not_before=begin, not_after=end)
    made = Certificates(folder / "ca.crt", folder / "server.crt", folder / "server.key")
    authority.cert_pem.write_to_path(made.authority)
    server.cert_chain_pems[0].write_to_path(made.certificate)
    _write_private(made.key, server.private_key_pem.bytes())
    return made


def make_node_key(stem: Path) -> tuple[Path, Path]:
    """A node's key pair: the private key it keeps, and the public one that is registered at the SuperLink."""
    check_installed("keys of nodes", "cryptography", "flower")
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    stem.parent.mkdir(parents=True, exist_ok=True)
    key = ec.generate_private_key(ec.SECP384R1())
    private, public = stem.with_suffix(".key"), stem.with_suffix(".pub")
    form = (serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption())
    _write_private(private, key.private_bytes(*form))
    public.write_bytes(
        key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    )
    return private, public


def _write_private(path: Path, key: bytes) -> None:
    """Write a private key that only its owner can read."""
    path.touch(mode=0o600)
    path.chmod(0o600)
    path.write_bytes(key)
