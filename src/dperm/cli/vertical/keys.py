"""``dperm vertical keys``: every participant makes its own key; the coordinator's authority signs certificates."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

__all__ = ["keys"]

_FOLDER = click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
_FILE = click.Path(dir_okay=False, path_type=Path)


@click.group()
def keys() -> None:
    """Make, sign, renew and revoke keys."""


@keys.command()
@_FOLDER
def authority(folder: Path) -> None:
    """Make the authority that signs certificates in FOLDER (the coordinator's organisation, once)."""
    from dperm.vertical.identity.keys import create_authority, fingerprint

    made = create_authority(folder)
    click.echo(f"made {folder / 'ca.key'} (keep it offline) and {folder / 'ca.crt'} (give it to every participant)")
    click.echo(f"nobody is revoked yet: the list is {folder / 'revoked.pem'}")
    click.echo(f"fingerprint: {fingerprint(made)}")


@keys.command()
@_FOLDER
@click.option("--name", required=True, help="Name of this participant, as on the coordinator's roster.")
@click.option("--renew", is_flag=True, help="Prepare the successor of a key in use.")
def request(folder: Path, name: str, renew: bool) -> None:
    """Make this participant's own key in FOLDER, and the request to have it signed."""
    from dperm.vertical.identity.keys import create_request, fingerprint

    made = create_request(folder, name, renew)
    click.echo(f"made the key; send {folder / (name + '.csr')} to the coordinator (it contains no secret)")
    click.echo(f"fingerprint, to be compared over the telephone: {fingerprint(made)}")


@keys.command()
@click.argument("authority_folder", type=click.Path(file_okay=False, path_type=Path))
@click.argument("request_file", type=_FILE)
@click.option(
    "--host", "hosts", multiple=True, help="For the coordinator: where parties reach it (repeat for several)."
)
@click.option("--days", default=90, show_default=True, help="How long the certificate is valid.")
@click.option("--renew", is_flag=True, help="Sign the successor of a certificate in use.")
def sign(authority_folder: Path, request_file: Path, hosts: Sequence[str], days: int, renew: bool) -> None:
    """Sign REQUEST_FILE with the authority in AUTHORITY_FOLDER, after comparing fingerprints with its sender."""
    from dperm.vertical.identity.keys import fingerprint, name_of, sign_request

    made, path = sign_request(authority_folder, request_file, hosts, days, renew)
    click.echo(f"signed {name_of(made)}, fingerprint {fingerprint(made)}, valid to {made.not_valid_after_utc:%Y-%m-%d}")
    click.echo(f"send back {path} and {authority_folder / 'ca.crt'}")


@keys.command()
@_FOLDER
@click.argument("certificate", type=_FILE)
@click.argument("authority_certificate", type=_FILE)
def install(folder: Path, certificate: Path, authority_certificate: Path) -> None:
    """Put a signed CERTIFICATE next to its key in FOLDER; a renewed key takes its predecessor's place."""
    from dperm.vertical.identity.keys import fingerprint, name_of
    from dperm.vertical.identity.keys import install as put

    made = put(folder, certificate, authority_certificate)
    click.echo(f"{name_of(made)} is ready, fingerprint {fingerprint(made)}")


@keys.command()
@click.argument("authority_folder", type=click.Path(file_okay=False, path_type=Path))
@click.argument("certificate", type=_FILE)
def revoke(authority_folder: Path, certificate: Path) -> None:
    """Revoke CERTIFICATE: coordinators that read AUTHORITY_FOLDER/revoked.pem cut its owner off within a second."""
    from dperm.vertical.identity.keys import name_of, read_certificate
    from dperm.vertical.identity.keys import revoke as put

    made = read_certificate(certificate)
    click.echo(f"revoked {name_of(made)}; the list is {put(authority_folder, made)}")


@keys.command()
@click.argument("certificate", type=_FILE)
def show(certificate: Path) -> None:
    """Show whose CERTIFICATE this is."""
    from dperm.vertical.identity.keys import fingerprint, name_of, read_certificate

    made = read_certificate(certificate)
    click.echo(f"{name_of(made)}, fingerprint {fingerprint(made)}, valid to {made.not_valid_after_utc:%Y-%m-%d}")
