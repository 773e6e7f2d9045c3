"""Certificate authorities of the tests' own, and what servers and clients make of them."""

from __future__ import annotations

import datetime as dt
import ipaddress
import ssl
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

HERE: Final = ("localhost", "127.0.0.1")
_DAY: Final = dt.timedelta(days=1)


@dataclass(frozen=True)
class Issued:
    """A certificate with its key and what stands between it and its root."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey
    chain: tuple[x509.Certificate, ...] = ()


def issue(
    *names: str,
    by: Issued | None = None,
    authority: bool = False,
    days: tuple[int, int] = (-1, 1),
    common_name: str = "test",
    usage: x509.ObjectIdentifier = ExtendedKeyUsageOID.SERVER_AUTH,
) -> Issued:
    """A certificate for `names`, valid over those days from now, signed by itself unless `by` another."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
    issuer = subject if by is None else by.certificate.subject
    now = dt.datetime.now(dt.UTC)
    builder = (
        x509.CertificateBuilder(issuer, subject, key.public_key(), x509.random_serial_number())
        .not_valid_before(now + days[0] * _DAY)
        .not_valid_after(now + days[1] * _DAY)
        .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
    )
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName([_name(name) for name in names]), critical=False)
    if not authority:
        builder = builder.add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
    signed = builder.sign(key if by is None else by.key, hashes.SHA256())
    return Issued(
        signed, key, () if by is None or by.certificate.subject == by.certificate.issuer else (by.certificate,)
    )


@cache
def root() -> Issued:
    """The authority that clients of these tests trust."""
    return issue(authority=True, common_name="root")


@cache
def trusting() -> ssl.SSLContext:
    """A client's context: the authority above and nothing else, otherwise as the transports make it."""
    context = ssl.create_default_context(cadata=_pem(root().certificate).decode())
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.hostname_checks_common_name = False
    context.set_alpn_protocols(["http/1.1"])
    return context


def serving(issued: Issued, *, chain: bool = True) -> ssl.SSLContext:
    """A server's context that shows that certificate, with what stands between unless not `chain`."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    private = issued.key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory, "server.pem")
        between = issued.chain if chain else ()
        file.write_bytes(private + b"".join(_pem(each) for each in (issued.certificate, *between)))
        context.load_cert_chain(file)
    return context


@cache
def good() -> ssl.SSLContext:
    """A server's context for this host that clients trust."""
    return serving(issue(*HERE, by=root()))


def _name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)
