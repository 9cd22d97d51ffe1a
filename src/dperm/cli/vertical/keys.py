"""``dperm vertical keys``: every participant creates its own key; the coordinator's authority signs certificates."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click
from cryptography import x509

__all__ = ["keys"]

_FOLDER = click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
_FILE = click.Path(dir_okay=False, path_type=Path)


@click.group()
def keys() -> None:
    """Create, sign, renew and revoke keys."""


def _description(certificate: x509.Certificate) -> str:
    from dperm.vertical.identity.keys import certificate_name, fingerprint

    until = f"{certificate.not_valid_after_utc:%Y-%m-%d}"
    return f"{certificate_name(certificate)}, fingerprint {fingerprint(certificate)}, valid to {until}"


@keys.command()
@_FOLDER
def authority(folder: Path) -> None:
    """Create in FOLDER the authority that signs certificates (the coordinator's organisation, once)."""
    from dperm.vertical.identity.keys import create_authority, fingerprint

    made = create_authority(folder)
    click.echo(f"created {folder / 'ca.key'} (keep it offline) and {folder / 'ca.crt'} (give it to every participant)")
    click.echo(f"created the empty revocation list {folder / 'revoked.pem'}")
    click.echo(f"fingerprint: {fingerprint(made)}")


@keys.command()
@_FOLDER
@click.option("--name", required=True, help="Name of this participant, as on the coordinator's roster.")
@click.option("--renew", is_flag=True, help="Prepare a new key beside the one in use.")
def request(folder: Path, name: str, renew: bool) -> None:
    """Create this participant's own key and its signing request in FOLDER."""
    from dperm.vertical.identity.keys import create_request, fingerprint

    made = create_request(folder, name, renew)
    click.echo(f"created the key; send {folder / (name + '.csr')} to the coordinator (it contains no secret)")
    click.echo(f"fingerprint, to compare by telephone: {fingerprint(made)}")


@keys.command()
@click.argument("authority_folder", type=click.Path(file_okay=False, path_type=Path))
@click.argument("request_file", type=_FILE)
@click.option(
    "--host", "hosts", multiple=True, help="For the coordinator: where parties reach it (repeat for several)."
)
@click.option("--days", default=90, show_default=True, help="How long the certificate is valid.")
@click.option("--renew", is_flag=True, help="Sign a new certificate for a name that has one.")
def sign(authority_folder: Path, request_file: Path, hosts: Sequence[str], days: int, renew: bool) -> None:
    """Sign REQUEST_FILE with the authority in AUTHORITY_FOLDER, after comparing fingerprints with its sender."""
    from dperm.vertical.identity.keys import sign_request

    made, path = sign_request(authority_folder, request_file, hosts, days, renew)
    click.echo(f"signed {_description(made)}")
    click.echo(f"send {path} and {authority_folder / 'ca.crt'} back to the participant")


@keys.command()
@_FOLDER
@click.argument("certificate", type=_FILE)
@click.argument("authority_certificate", type=_FILE)
def install(folder: Path, certificate: Path, authority_certificate: Path) -> None:
    """Put a signed CERTIFICATE next to its key in FOLDER; a renewed key replaces the previous one."""
    from dperm.vertical.identity.keys import certificate_name, fingerprint
    from dperm.vertical.identity.keys import install as put

    made = put(folder, certificate, authority_certificate)
    click.echo(f"{certificate_name(made)} is ready, fingerprint {fingerprint(made)}")


@keys.command()
@click.argument("authority_folder", type=click.Path(file_okay=False, path_type=Path))
@click.argument("certificate", type=_FILE)
def revoke(authority_folder: Path, certificate: Path) -> None:
    """Revoke CERTIFICATE: coordinators that read AUTHORITY_FOLDER/revoked.pem disconnect its owner within a second."""
    from dperm.vertical.identity.keys import certificate_name, read_certificate
    from dperm.vertical.identity.keys import revoke as put

    made = read_certificate(certificate)
    click.echo(f"revoked {certificate_name(made)}; the list is {put(authority_folder, made)}")


@keys.command()
@click.argument("certificate", type=_FILE)
def show(certificate: Path) -> None:
    """Show the owner, fingerprint and expiry date of CERTIFICATE."""
    from dperm.vertical.identity.keys import read_certificate

    made = read_certificate(certificate)
    click.echo(_description(made))
