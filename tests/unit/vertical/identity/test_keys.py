"""Keys: own key, signed request, renewal, revocation; certificates of others are refused."""

from __future__ import annotations

import stat

import pytest
from click.testing import CliRunner

from dperm.cli.vertical.keys import keys
from dperm.errors import InvalidInput, ProtocolError
from dperm.solvers.vertical.protocol import Message
from dperm.vertical.identity.keys import (
    Identity,
    create_authority,
    create_request,
    fingerprint,
    install,
    read_certificate,
    revoke,
    sign_request,
)
from dperm.vertical.identity.revocation import RevocationList, revoked_serials
from dperm.vertical.methods.alignment import AlignParty, IdentifierColumn
from dperm.vertical.views.secure_sum import MaskKey


@pytest.fixture
def authority(tmp_path):
    create_authority(tmp_path / "ca")
    return tmp_path / "ca"


def _member(authority, name, renew=False, **options):
    folder = authority.parent / name
    create_request(folder, name, renew)
    _, path = sign_request(authority, folder / f"{name}.csr", **options)
    install(folder, path, authority / "ca.crt")
    return folder


def test_a_private_key_stays_in_the_folder_where_it_was_created(authority):
    folder = _member(authority, "org-a")
    assert stat.S_IMODE((folder / "org-a.key").stat().st_mode) == 0o600
    identity = Identity.load(folder, "org-a")
    assert b"PRIVATE" not in (folder / "org-a.csr").read_bytes()
    assert len(identity.sign(b"x")) == 64
    identity.trust.check_signature(identity.certificate_der, "org-a", identity.sign(b"x"), b"x")


def test_renewal_keeps_the_old_key_until_the_new_certificate_is_installed(authority):
    folder = _member(authority, "org-a")
    before = Identity.load(folder, "org-a")
    create_request(folder, "org-a", renew=True)
    assert fingerprint(Identity.load(folder, "org-a").certificate) == fingerprint(before.certificate)
    _, path = sign_request(authority, folder / "org-a.csr", renew=True)
    install(folder, path, authority / "ca.crt")
    after = Identity.load(folder, "org-a")
    assert fingerprint(after.certificate) != fingerprint(before.certificate)
    assert not (folder / "org-a.key.new").exists()


def test_revocation_is_signed_and_adds_up(authority):
    a, b = (_member(authority, name) for name in ("org-a", "org-b"))
    ca = read_certificate(authority / "ca.crt")
    one, other = read_certificate(a / "org-a.crt"), read_certificate(b / "org-b.crt")
    assert revoked_serials(authority / "revoked.pem", ca) == set()
    revoke(authority, one)
    path = revoke(authority, other)
    assert revoked_serials(path, ca) == {one.serial_number, other.serial_number}
    create_authority(authority.parent / "other")
    with pytest.raises(InvalidInput, match="not signed by the authority"):
        revoked_serials(path, read_certificate(authority.parent / "other" / "ca.crt"))


def test_a_missing_or_damaged_revocation_list_readmits_nobody(authority, tmp_path):
    folder, path = _member(authority, "org-a"), authority / "revoked.pem"
    ca, mine = read_certificate(authority / "ca.crt"), read_certificate(folder / "org-a.crt")
    with pytest.raises(InvalidInput, match="no revocation list"):
        RevocationList(authority / "revokd.pem", ca)
    with pytest.raises(InvalidInput, match="no revocation list"):
        Identity.load(folder, "org-a", revoked=authority / "revokd.pem")
    said = []
    kept = RevocationList(path, ca, said.append)
    assert kept.serials() == frozenset()
    revoke(authority, mine)
    assert kept.serials() == {mine.serial_number}
    whole = path.read_bytes()
    create_authority(tmp_path / "other")
    for change in (whole[:50], b"", None, (tmp_path / "other" / "revoked.pem").read_bytes()):
        path.unlink(missing_ok=True)
        if change is not None:
            path.write_bytes(change)
        assert kept.serials() == {mine.serial_number}
        assert kept.serials() == {mine.serial_number}
    assert len(said) == 4
    assert all("stays in force" in sentence for sentence in said)
    path.unlink()
    with pytest.raises(InvalidInput, match="no revocation list"):
        revoke(authority, mine)  # a new list would forget the others


def test_signatures_by_a_revoked_key_are_refused_if_there_is_a_list(authority):
    a, b = _member(authority, "org-a"), _member(authority, "org-b")
    signer = Identity.load(b, "org-b")
    key = MaskKey().signed("run", signer)
    knows = Identity.load(a, "org-a", revoked=authority / "revoked.pem")
    key.check("run", knows.trust)
    revoke(authority, signer.certificate)
    with pytest.raises(ProtocolError, match="org-b was revoked"):
        key.check("run", knows.trust)
    party, people = AlignParty("r", ("org-b", "org-a"), knows, IdentifierColumn([b"one"], "")), [b"one", b"two"]
    party.answer(Message("multiply", {}, {"owner": "org-a"}))
    first = AlignParty("r", ("org-b", "org-a"), signer, IdentifierColumn(people, "")).answer(
        Message("multiply", {}, {"owner": "org-b"})
    )
    with pytest.raises(ProtocolError, match="org-b was revoked"):
        party.answer(Message("multiply", first.arrays, {"owner": "org-b"}))
    with pytest.raises(ProtocolError, match="was revoked"):
        Identity.load(b, "org-b", revoked=authority / "revoked.pem")


def test_a_second_certificate_for_a_name_needs_renew(authority, tmp_path):
    folder = _member(authority, "org-a")
    before = read_certificate(folder / "org-a.crt")
    create_request(tmp_path / "mallory", "org-a")
    with pytest.raises(InvalidInput, match=rf"already has .*{fingerprint(before)}.*--renew"):
        sign_request(authority, tmp_path / "mallory" / "org-a.csr")
    assert read_certificate(authority / "issued" / "org-a.crt") == before
    asked = [str(authority), str(tmp_path / "mallory" / "org-a.csr")]
    assert isinstance(CliRunner().invoke(keys, ["sign", *asked]).exception, InvalidInput)
    assert CliRunner().invoke(keys, ["sign", *asked, "--renew"]).exit_code == 0
    made = read_certificate(authority / "issued" / "org-a.crt")
    assert fingerprint(made) != fingerprint(before)
    assert read_certificate(authority / "issued" / f"org-a.{before.serial_number:x}.crt") == before


def test_unusable_keys_and_certificates_are_refused_with_a_reason(authority, tmp_path):
    folder = _member(authority, "org-a")
    with pytest.raises(InvalidInput, match="already has an authority"):
        create_authority(authority)
    with pytest.raises(InvalidInput, match="--renew"):
        create_request(folder, "org-a")
    with pytest.raises(InvalidInput, match="letters"):
        create_request(folder, "../org")
    with pytest.raises(InvalidInput, match="no signing request"):
        sign_request(authority, folder / "nobody.csr")
    (tmp_path / "junk").write_text("junk")
    with pytest.raises(InvalidInput, match="not a signing request"):
        sign_request(authority, tmp_path / "junk")
    with pytest.raises(InvalidInput, match="no key"):
        Identity.load(tmp_path, "nobody")
    with pytest.raises(InvalidInput, match="not a certificate"):
        read_certificate(tmp_path / "junk")
    other = _member(authority, "org-b")
    with pytest.raises(InvalidInput, match="does not belong to a key"):
        install(folder, other / "org-b.crt", authority / "ca.crt")
    (folder / "org-a.crt").write_bytes((other / "org-b.crt").read_bytes())
    with pytest.raises(InvalidInput, match="do not match"):
        Identity.load(folder, "org-a")


def test_an_expired_certificate_is_refused(authority):
    folder = authority.parent / "org-a"
    create_request(folder, "org-a")
    _, path = sign_request(authority, folder / "org-a.csr", days=0)
    with pytest.raises(ProtocolError, match="not valid today"):
        install(folder, path, authority / "ca.crt")
