"""Keys and certificates: each participant creates its own key; the coordinator's authority signs its certificate.

All keys are ECDSA on P-256, which every TLS library accepts. A private key never leaves the folder it was made in.
"""

from __future__ import annotations

import datetime as dt
import ipaddress
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature, encode_dss_signature
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from dperm.atomic_files import write_atomically
from dperm.errors import InvalidInput, ProtocolError
from dperm.vertical.identity.names import require_safe_name
from dperm.vertical.identity.revocation import RevocationList, revoked_serials

__all__ = [
    "Identity",
    "Trust",
    "certificate_name",
    "create_authority",
    "create_request",
    "fingerprint",
    "install",
    "read_certificate",
    "revoke",
    "sign_request",
]

_PEM = serialization.Encoding.PEM
_DER = serialization.Encoding.DER
_GRACE = dt.timedelta(minutes=5)


def _now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)


def _subject(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def certificate_name(certificate: x509.Certificate | x509.CertificateSigningRequest) -> str:
    """Return the name of the participant in a certificate or signing request."""
    names = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    return str(names[0].value) if len(names) == 1 else ""


def fingerprint(certificate: x509.Certificate | x509.CertificateSigningRequest) -> str:
    """Return a short digest of the public key, for comparison by telephone; signing does not change it."""
    key = certificate.public_key().public_bytes(_DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    h = hashes.Hash(hashes.SHA256())
    h.update(key)
    digits = h.finalize()[:16].hex()
    return "-".join(digits[i : i + 4] for i in range(0, 32, 4))


def _write_key(path: Path, key: ec.EllipticCurvePrivateKey) -> None:
    data = key.private_bytes(_PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    with open(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_EXCL, 0o600), "wb") as handle:
        handle.write(data)


def _read_key(path: Path) -> ec.EllipticCurvePrivateKey:
    try:
        key = serialization.load_pem_private_key(path.read_bytes(), None)
    except FileNotFoundError:
        raise InvalidInput(f"there is no key {path}: create one with `dperm vertical keys`.") from None
    except (ValueError, TypeError):
        raise InvalidInput(f"{path} is not a private key in PEM form without a password.") from None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise InvalidInput(f"{path} is not a P-256 key: create one with `dperm vertical keys`.")
    return key


def read_certificate(path: Path) -> x509.Certificate:
    """Read a certificate in PEM form."""
    try:
        return x509.load_pem_x509_certificate(path.read_bytes())
    except FileNotFoundError:
        raise InvalidInput(f"there is no certificate {path}.") from None
    except ValueError:
        raise InvalidInput(f"{path} is not a certificate in PEM form.") from None


def create_authority(folder: Path, name: str = "dperm-authority", days: int = 1825) -> x509.Certificate:
    """Create the authority that signs all other certificates.

    Keep ``ca.key`` offline. ``ca.crt`` and the empty revocation list ``revoked.pem`` are for every participant.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if (folder / "ca.key").exists():
        raise InvalidInput(f"{folder} already has an authority: with a second one its certificates would be refused.")
    key = ec.generate_private_key(ec.SECP256R1())
    _write_key(folder / "ca.key", key)
    made = (
        x509.CertificateBuilder()
        .subject_name(_subject(require_safe_name(name, "the name of an authority")))
        .issuer_name(_subject(name))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(_now() - _GRACE)
        .not_valid_after(_now() + dt.timedelta(days=days))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(_usage(ca=True), critical=True)
        .sign(key, hashes.SHA256())
    )
    write_atomically(folder / "ca.crt", made.public_bytes(_PEM))
    # written even while empty: a missing list is then always an error
    _write_revoked(folder, key, made, frozenset())
    return made


def _usage(ca: bool) -> x509.KeyUsage:
    return x509.KeyUsage(not ca, False, False, False, False, ca, ca, False, False)


def create_request(folder: Path, name: str, renew: bool = False) -> x509.CertificateSigningRequest:
    """Create a participant's own key and signing request; ``renew`` puts the new key next to the one in use."""
    require_safe_name(name, "the name of a participant")
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    key_path = folder / (f"{name}.key.new" if renew else f"{name}.key")
    if key_path.exists():
        raise InvalidInput(f"{key_path} already exists: use it, or add --renew to prepare a new key.")
    key = ec.generate_private_key(ec.SECP256R1())
    _write_key(key_path, key)
    request = x509.CertificateSigningRequestBuilder().subject_name(_subject(name)).sign(key, hashes.SHA256())
    write_atomically(folder / f"{name}.csr", request.public_bytes(_PEM))
    return request


def sign_request(
    authority: Path, request_path: Path, hosts: Sequence[str] = (), days: int = 90, renew: bool = False
) -> tuple[x509.Certificate, Path]:
    """Sign a request; with ``hosts`` (the coordinator's host names) it becomes a coordinator's certificate.

    A second request for the same name is refused unless ``renew`` is set, because it may come from somebody else. The
    previous certificate is kept as ``issued/NAME.SERIAL.crt``, so that it can be revoked.
    """
    try:
        request = x509.load_pem_x509_csr(request_path.read_bytes())
    except FileNotFoundError:
        raise InvalidInput(f"there is no signing request {request_path}.") from None
    except ValueError:
        raise InvalidInput(f"{request_path} is not a signing request in PEM form.") from None
    if not request.is_signature_valid or not isinstance(request.public_key(), ec.EllipticCurvePublicKey):
        raise InvalidInput(f"{request_path} is not signed by its own P-256 key: ask for another request.")
    name = require_safe_name(certificate_name(request), "the name in a signing request")
    out = authority / "issued" / f"{name}.crt"
    before = read_certificate(out) if out.exists() else None
    if before is not None and not renew:
        raise InvalidInput(
            f"{name} already has a certificate with fingerprint {fingerprint(before)}: if {name} itself confirms that "
            f"{fingerprint(request)} is its new key, sign with --renew."
        )
    key, issuer = _read_key(authority / "ca.key"), read_certificate(authority / "ca.crt")
    sans: list[x509.GeneralName] = [_host(host) for host in hosts] or [x509.DNSName(name)]
    usage = ExtendedKeyUsageOID.SERVER_AUTH if hosts else ExtendedKeyUsageOID.CLIENT_AUTH
    made = (
        x509.CertificateBuilder()
        .subject_name(_subject(name))
        .issuer_name(issuer.subject)
        .public_key(request.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(_now() - _GRACE)
        .not_valid_after(_now() + dt.timedelta(days=days))
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(request.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key()), critical=False)
        .add_extension(x509.SubjectAlternativeName(sans), critical=False)
        .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        .add_extension(_usage(ca=False), critical=True)
        .sign(key, hashes.SHA256())
    )
    out.parent.mkdir(exist_ok=True)
    if before is not None:
        write_atomically(out.with_name(f"{name}.{before.serial_number:x}.crt"), before.public_bytes(_PEM))
    return made, write_atomically(out, made.public_bytes(_PEM))


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def install(folder: Path, certificate_path: Path, authority_path: Path) -> x509.Certificate:
    """Put a signed certificate next to its key; a renewed key replaces the previous one."""
    certificate, authority = read_certificate(certificate_path), read_certificate(authority_path)
    name = require_safe_name(certificate_name(certificate), "the name in a certificate")
    Trust(authority).check(certificate, name)
    wanted = fingerprint(certificate)
    for path in (folder / f"{name}.key.new", folder / f"{name}.key"):
        if path.exists() and _key_fingerprint(_read_key(path)) == wanted:
            break
    else:
        raise InvalidInput(f"{certificate_path} does not belong to a key in {folder}: sign the request made there.")
    write_atomically(folder / "ca.crt", authority.public_bytes(_PEM))
    # certificate and key are replaced one after the other; `Identity.load` refuses a pair that does not match
    write_atomically(folder / f"{name}.crt", certificate.public_bytes(_PEM))
    if path.suffix == ".new":
        os.replace(path, folder / f"{name}.key")
    return certificate


def _key_fingerprint(key: ec.EllipticCurvePrivateKey) -> str:
    return fingerprint(x509.CertificateSigningRequestBuilder().subject_name(_subject("x")).sign(key, hashes.SHA256()))


def revoke(authority: Path, certificate: x509.Certificate) -> Path:
    """Add a certificate to the authority's revocation list, ``revoked.pem``."""
    key, issuer = _read_key(authority / "ca.key"), read_certificate(authority / "ca.crt")
    Trust(issuer).check(certificate, certificate_name(certificate), expired_too=True)
    before = revoked_serials(authority / "revoked.pem", issuer)
    return _write_revoked(authority, key, issuer, before | {certificate.serial_number})


def _write_revoked(
    authority: Path, key: ec.EllipticCurvePrivateKey, issuer: x509.Certificate, serials: frozenset[int]
) -> Path:
    builder = x509.CertificateRevocationListBuilder().issuer_name(issuer.subject)
    builder = builder.last_update(_now()).next_update(_now() + dt.timedelta(days=3650))
    for serial in sorted(serials):
        entry = x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(_now()).build()
        builder = builder.add_revoked_certificate(entry)
    return write_atomically(authority / "revoked.pem", builder.sign(key, hashes.SHA256()).public_bytes(_PEM))


@dataclass(frozen=True)
class Trust:
    """Which certificates are accepted: those of one authority and, for pinned participants, only the pinned key.

    The holder of the authority's key can make a certificate for any name. A pin (a fingerprint compared by other means)
    prevents the authority itself from impersonating a party. Certificates on the revocation list ``revoked``, if there
    is one, are refused.
    """

    authority: x509.Certificate
    pins: tuple[tuple[str, str], ...] = ()
    revoked: RevocationList | None = None

    def check(self, certificate: x509.Certificate, name: str, expired_too: bool = False) -> None:
        """Refuse a certificate that is not this participant's."""
        try:
            certificate.verify_directly_issued_by(self.authority)
        except (InvalidSignature, ValueError, TypeError):
            raise ProtocolError(f"the certificate given for {name} is not from this run's authority.") from None
        if certificate_name(certificate) != name:
            raise ProtocolError(f"the certificate given for {name} names another participant.")
        if not (certificate.not_valid_before_utc <= _now() <= certificate.not_valid_after_utc or expired_too):
            raise ProtocolError(f"the certificate of {name} is not valid today: renew it with `dperm vertical keys`.")
        if self.revoked is not None and certificate.serial_number in self.revoked.serials():
            raise ProtocolError(f"the certificate of {name} was revoked: request a new one from the coordinator.")
        pinned = dict(self.pins).get(name)
        if pinned is not None and pinned != fingerprint(certificate):
            raise ProtocolError(f"the key of {name} is not the one pinned here: compare fingerprints with {name}.")

    def check_signature(self, certificate_der: bytes, name: str, signature: bytes, data: bytes) -> None:
        """Refuse a signature that is not by this participant's certified key."""
        try:
            certificate = x509.load_der_x509_certificate(certificate_der)
        except ValueError:
            raise ProtocolError(f"the certificate given for {name} cannot be read.") from None
        self.check(certificate, name)
        key = certificate.public_key()
        try:
            if len(signature) != 64 or not isinstance(key, ec.EllipticCurvePublicKey):
                raise InvalidSignature
            r, s = (int.from_bytes(half, "big") for half in (signature[:32], signature[32:]))
            key.verify(encode_dss_signature(r, s), data, ec.ECDSA(hashes.SHA256()))
        except InvalidSignature:
            raise ProtocolError(f"a signature given for {name} is not by its certified key.") from None


class Identity:
    """A participant's name, key and certificate, and the certificates it trusts."""

    def __init__(self, name: str, key: ec.EllipticCurvePrivateKey, certificate: x509.Certificate, trust: Trust) -> None:
        self.name = name
        self.certificate = certificate
        self.trust = trust
        self._key = key

    @classmethod
    def load(
        cls, folder: Path, name: str, pins: Sequence[tuple[str, str]] = (), revoked: Path | None = None
    ) -> Identity:
        """Read ``name.key``, ``name.crt``, ``ca.crt`` and, if given, the revocation list."""
        key = _read_key(folder / f"{name}.key")
        certificate = read_certificate(folder / f"{name}.crt")
        authority = read_certificate(folder / "ca.crt")
        trust = Trust(authority, tuple(pins), None if revoked is None else RevocationList(revoked, authority))
        if _key_fingerprint(key) != fingerprint(certificate):
            raise InvalidInput(f"{name}.key and {name}.crt in {folder} do not match: install the newest certificate.")
        trust.check(certificate, name)
        return cls(name, key, certificate, trust)

    def with_trust(self, trust: Trust) -> Identity:
        """Return the same participant with other trusted certificates or pins."""
        return Identity(self.name, self._key, self.certificate, trust)

    @property
    def certificate_der(self) -> bytes:
        """The certificate's bytes."""
        return self.certificate.public_bytes(_DER)

    def sign(self, data: bytes) -> bytes:
        """Return a signature of fixed length."""
        r, s = decode_dss_signature(self._key.sign(data, ec.ECDSA(hashes.SHA256())))
        return r.to_bytes(32, "big") + s.to_bytes(32, "big")

    def pem(self) -> tuple[bytes, bytes, bytes]:
        """Return key, certificate and authority for a TLS library."""
        private = self._key.private_bytes(_PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        return private, self.certificate.public_bytes(_PEM), self.trust.authority.public_bytes(_PEM)
