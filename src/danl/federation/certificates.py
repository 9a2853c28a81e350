"""Certificates and keys for a federation on this machine: an authority, a server's certificate, a key for every node.

For machines that are not this one, docs/federated.md has the openssl commands; what they make is the same.
"""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

VALID_DAYS = 30
"""For trying things out: long enough for that, and too short to be forgotten somewhere."""


@dataclass(frozen=True)
class Certificates:
    """Where the files are."""

    authority: Path
    certificate: Path
    key: Path


def make_certificates(folder: Path, hosts: Sequence[str] = ("localhost", "127.0.0.1")) -> Certificates:
    """Make an authority, and a certificate it signed for a server of these names and addresses."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec

    folder.mkdir(parents=True, exist_ok=True)
    begin = datetime.datetime.now(datetime.UTC) - datetime.timedelta(minutes=5)
    end = begin + datetime.timedelta(days=VALID_DAYS)
    authority_key, server_key = ec.generate_private_key(ec.SECP384R1()), ec.generate_private_key(ec.SECP384R1())
    authority_name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "danl federation authority")])

    def signed(name: Any, key: Any, *extensions: tuple[Any, bool]) -> Any:
        builder = x509.CertificateBuilder().subject_name(name).issuer_name(authority_name)
        builder = builder.public_key(key).serial_number(x509.random_serial_number())
        builder = builder.not_valid_before(begin).not_valid_after(end)
        for extension, critical in extensions:
            builder = builder.add_extension(extension, critical=critical)
        return builder.sign(authority_key, hashes.SHA256())

    issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key())
    authority = signed(
        authority_name,
        authority_key.public_key(),
        (x509.BasicConstraints(ca=True, path_length=0), True),
        (x509.SubjectKeyIdentifier.from_public_key(authority_key.public_key()), False),
        (_usage(x509, key_cert_sign=True, crl_sign=True), True),
    )
    server = signed(
        x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, hosts[0])]),
        server_key.public_key(),
        (x509.BasicConstraints(ca=False, path_length=None), True),
        (x509.SubjectAlternativeName([_host(x509, host) for host in hosts]), False),
        (x509.ExtendedKeyUsage([x509.ExtendedKeyUsageOID.SERVER_AUTH]), False),
        (issuer, False),
    )
    made = Certificates(folder / "ca.crt", folder / "server.crt", folder / "server.key")
    made.authority.write_bytes(_pem(authority))
    made.certificate.write_bytes(_pem(server))
    _write_key(made.key, server_key)
    return made


def make_node_key(stem: Path) -> tuple[Path, Path]:
    """A node's key pair: the private key it keeps, and the public one that is registered at the SuperLink."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    stem.parent.mkdir(parents=True, exist_ok=True)
    key = ec.generate_private_key(ec.SECP384R1())
    private, public = stem.with_suffix(".key"), stem.with_suffix(".pub")
    _write_key(private, key, openssh=True)
    public.write_bytes(
        key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    )
    return private, public


def _pem(certificate: Any) -> bytes:
    from cryptography.hazmat.primitives import serialization

    data: bytes = certificate.public_bytes(serialization.Encoding.PEM)
    return data


def _write_key(path: Path, key: Any, *, openssh: bool = False) -> None:
    """A private key that only its owner can read."""
    from cryptography.hazmat.primitives import serialization

    form = serialization.PrivateFormat.OpenSSH if openssh else serialization.PrivateFormat.PKCS8
    path.touch(mode=0o600)
    path.chmod(0o600)
    path.write_bytes(key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()))


def _host(x509: Any, host: str) -> Any:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _usage(x509: Any, **allowed: bool) -> Any:
    names = (
        "digital_signature",
        "content_commitment",
        "key_encipherment",
        "data_encipherment",
        "key_agreement",
        "key_cert_sign",
        "crl_sign",
        "encipher_only",
        "decipher_only",
    )
    return x509.KeyUsage(**{name: allowed.get(name, False) for name in names})
