"""Certificates of tests, from authorities of their own."""

import datetime
import ipaddress
from dataclasses import dataclass, field

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

A_DAY = datetime.timedelta(days=1)


@dataclass(frozen=True)
class Issued:
    certificate: bytes
    key: bytes

    @property
    def in_one(self) -> bytes:
        return self.certificate + self.key


@dataclass
class Authority:
    name: str
    _key: ec.EllipticCurvePrivateKey = field(default_factory=lambda: ec.generate_private_key(ec.SECP256R1()))

    @property
    def certificate(self) -> bytes:
        builder = self._builder(self.name, self._key, A_DAY)
        authority = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        return _pem(authority.sign(self._key, hashes.SHA256()))

    def issue(self, *hosts: str, valid_for: datetime.timedelta = A_DAY) -> Issued:
        """For these names and addresses; valid since two days ago and until `valid_for` from now."""
        key = ec.generate_private_key(ec.SECP256R1())
        names = x509.SubjectAlternativeName([_alternative(host) for host in hosts])
        builder = self._builder("issued", key, valid_for).add_extension(names, critical=False)
        return Issued(_pem(builder.sign(self._key, hashes.SHA256())), _key_pem(key))

    def _builder(
        self, name: str, key: ec.EllipticCurvePrivateKey, valid_for: datetime.timedelta
    ) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(_name(name))
            .issuer_name(_name(self.name))
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - 2 * A_DAY)
            .not_valid_after(now + valid_for)
        )


def encrypted(key: bytes) -> bytes:
    loaded = serialization.load_pem_private_key(key, None)
    return loaded.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"a passphrase"),
    )


def _alternative(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
