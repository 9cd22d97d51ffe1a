"""The gRPC transport: long messages and several runs at once, and who is refused. The protocol: test_protocol.py."""

from __future__ import annotations

import json
import shutil
import threading
import time

import grpc
import pytest

from dperm.errors import DpermError, InvalidInput, PeerRefused, RunError
from dperm.vertical.identity.keys import Identity, create_authority, create_request, install, revoke, sign_request
from dperm.vertical.methods.connection_test import ConnectionTestHandler
from dperm.vertical.session.coordinator import CoordinatorSession
from dperm.vertical.session.party import PartySession
from dperm.vertical.session.simulate import simulate
from dperm.vertical.session.spec import RunSpec
from dperm.vertical.transport.grpc_hub import CHANNEL_OPTIONS, SERVICE, GrpcHub
from dperm.vertical.transport.grpc_link import GrpcLink

PARTIES = ("site-1", "site-2", "site-3")
OPTIONS = {"rows": 300_000, "rounds": 3}  # more than one chunk per message


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    root = tmp_path_factory.mktemp("keys")
    create_authority(root / "ca")
    for name in (*PARTIES, "stranger", "thief", "simulator_server"):
        create_request(root / name, name)
        hosts = ["localhost", "127.0.0.1"] if name == "simulator_server" else []
        _, path = sign_request(root / "ca", root / name / f"{name}.csr", hosts)
        install(root / name, path, root / "ca" / "ca.crt")
    return root


@pytest.fixture(scope="module")
def expected():
    spec = RunSpec("trial", "connection-test", PARTIES, OPTIONS)
    return simulate(spec, ConnectionTestHandler(), {name: ConnectionTestHandler(name) for name in PARTIES})


def _hub(keys, **options):
    load = lambda: Identity.load(keys / "simulator_server", "simulator_server")  # noqa: E731
    return GrpcHub("127.0.0.1:0", load, (*PARTIES, "thief"), **options)


def _link(keys, hub, name, root, errors, ended=lambda run, why: True, handler=None, **options):
    session = PartySession(Identity.load(keys / name, name), root / name, handler or ConnectionTestHandler(name))
    link = GrpcLink(
        f"127.0.0.1:{hub.port}", lambda: Identity.load(keys / name, name), session.answer, ended, patience=20, **options
    )

    def run():
        try:
            link.run()
        except DpermError as error:
            errors[name] = error
        finally:
            session.close()

    thread = threading.Thread(target=run)
    thread.start()
    return link, thread


@pytest.mark.parametrize("secure_sum", [False, True])
def test_in_process(expected, secure_sum):
    spec = RunSpec("trial", "connection-test", PARTIES, OPTIONS, secure_sum)
    assert simulate(spec, ConnectionTestHandler(), {name: ConnectionTestHandler(name) for name in PARTIES}) == expected


def test_grpc_with_two_runs_at_once(keys, tmp_path, expected):
    hub, errors, over = _hub(keys), {}, {name: set() for name in PARTIES}

    def ended(name):
        def both(run, why):
            over[name].add((run, why))
            return len(over[name]) == 2

        return both

    links = [_link(keys, hub, name, tmp_path, errors, ended(name)) for name in PARTIES]
    results = {}

    def one(run):
        spec = RunSpec(run, "connection-test", PARTIES, OPTIONS, secure_sum=run == "masked")
        session = CoordinatorSession(spec, tmp_path / "lab", ConnectionTestHandler(), patience=30)
        results[run] = session.run(hub.transport(run, PARTIES))

    runs = [threading.Thread(target=one, args=(run,)) for run in ("plain", "masked")]
    for thread in runs:
        thread.start()
    for thread in [*runs, *(thread for _, thread in links)]:
        thread.join(60)
    hub.close()
    assert errors == {}
    assert results == {"plain": expected, "masked": expected}
    assert all(over[name] == {("plain", ""), ("masked", "")} for name in PARTIES)
    assert 'bytes_sent_total{party="site-1"}' in hub.metrics.text()


def test_refused_parties_learn_the_reason(keys, tmp_path):
    hub, errors = _hub(keys, revoked=keys / "ca" / "revoked.pem"), {}
    revoke(keys / "ca", Identity.load(keys / "thief", "thief").certificate)
    for name in ("stranger", "thief"):
        _, thread = _link(keys, hub, name, tmp_path, errors)
        thread.join(20)
    with pytest.raises(InvalidInput, match="not on the roster"):
        hub.transport("r", ["stranger"])
    hub.close()
    assert isinstance(errors["stranger"], PeerRefused)
    assert "not on the coordinator's roster" in str(errors["stranger"])
    assert "was revoked" in str(errors["thief"])


def test_a_coordinator_of_another_authority_is_refused(keys, tmp_path):
    hub, errors = _hub(keys), {}
    create_authority(tmp_path / "ca")
    create_request(tmp_path / "site-1", "site-1")
    _, path = sign_request(tmp_path / "ca", tmp_path / "site-1" / "site-1.csr")
    install(tmp_path / "site-1", path, tmp_path / "ca" / "ca.crt")
    _, thread = _link(tmp_path, hub, "site-1", tmp_path / "runs", errors)
    thread.join(20)
    hub.close()
    assert isinstance(errors["site-1"], RunError)
    assert "did not prove to be the coordinator" in str(errors["site-1"])


def test_a_party_that_starts_first_logs_once_that_it_waits(keys, tmp_path):
    hub, errors, said = _hub(keys), {}, []
    hub.close()
    link, thread = _link(keys, hub, "site-1", tmp_path, errors, log=said.append)
    time.sleep(1.5)
    link.stop()
    thread.join(20)
    assert said == [f"waiting for the coordinator at 127.0.0.1:{hub.port}"]


def _raw(keys, hub, name, *frames):
    """Send raw frames to a hub."""
    key, certificate, authority = Identity.load(keys / name, name).pem()
    credentials = grpc.ssl_channel_credentials(authority, key, certificate)
    with grpc.secure_channel(f"127.0.0.1:{hub.port}", credentials, options=CHANNEL_OPTIONS) as channel:
        answers = channel.stream_stream(f"/{SERVICE}/Join")(iter(frames))
        try:
            return next(answers), None
        except grpc.RpcError as error:
            return None, error


def test_streams_without_a_greeting_delay_no_party(keys, tmp_path, monkeypatch):
    """Seventy streams of one party without a greeting: others connect at once, and so does the party itself."""
    monkeypatch.setattr("dperm.vertical.transport.grpc_hub._GREETING_SECONDS", 1.0)
    hub, errors, calls = _hub(keys), {}, []
    key, certificate, authority = Identity.load(keys / "thief", "thief").pem()
    credentials = grpc.ssl_channel_credentials(authority, key, certificate)
    silence = threading.Event()

    def nothing():
        silence.wait()
        yield from ()

    with grpc.secure_channel(f"127.0.0.1:{hub.port}", credentials, options=CHANNEL_OPTIONS) as channel:
        join = channel.stream_stream(f"/{SERVICE}/Join")
        calls = [join(nothing()) for _ in range(70)]
        spec = RunSpec("trial", "connection-test", (*PARTIES, "thief"), {"rows": 5, "rounds": 1})
        links = [_link(keys, hub, name, tmp_path, errors) for name in spec.parties]
        session = CoordinatorSession(spec, tmp_path / "lab", ConnectionTestHandler(), patience=15)
        session.run(hub.transport("trial", spec.parties))
        for _, thread in links:
            thread.join(20)
        ends = time.monotonic() + 5.0
        while any(call.is_active() for call in calls) and time.monotonic() < ends:
            time.sleep(0.05)
        assert not any(call.is_active() for call in calls)
        silence.set()
    hub.close()
    assert errors == {}


def test_a_revocation_list_lost_at_run_time_readmits_nobody(keys, tmp_path):
    shutil.copytree(keys / "ca", tmp_path / "ca")
    listed, said, errors = tmp_path / "ca" / "revoked.pem", [], {}
    revoke(tmp_path / "ca", Identity.load(keys / "thief", "thief").certificate)
    hub = _hub(keys, revoked=listed, notify=said.append)
    listed.write_text("junk")
    _, thread = _link(keys, hub, "thief", tmp_path, errors)
    thread.join(20)
    hub.close()
    assert "was revoked" in str(errors["thief"])
    assert len(said) == 1
    with pytest.raises(InvalidInput, match="not a revocation list"):
        _hub(keys, revoked=listed)


def test_the_certificate_is_replaced_only_when_it_was_renewed(keys, tmp_path):
    """The server's TLS context must not be replaced during the handshakes of other parties."""
    hub = _hub(keys)
    assert hub._certificates() is None
    shutil.copytree(keys / "ca", tmp_path / "ca")
    create_request(tmp_path / "new", "simulator_server")
    _, path = sign_request(tmp_path / "ca", tmp_path / "new" / "simulator_server.csr", ["127.0.0.1"], renew=True)
    install(tmp_path / "new", path, keys / "ca" / "ca.crt")
    hub._load = lambda: Identity.load(tmp_path / "new", "simulator_server")
    hello = b"\x00" + json.dumps({"versions": [1]}).encode()
    assert _raw(keys, hub, "site-1", hello)[1] is None
    assert hub._pem == hub._load().pem()
    assert hub._certificates() is None
    hub.close()


def test_version_negotiation_and_health(keys):
    hub = _hub(keys)
    welcome, _ = _raw(keys, hub, "site-1", b"\x00" + json.dumps({"versions": [1, 7]}).encode())
    assert json.loads(welcome[1:])["version"] == 1
    for hello in (json.dumps({"versions": [99]}).encode(), b"junk", json.dumps({"versions": 3}).encode()):
        _, error = _raw(keys, hub, "site-1", b"\x00" + hello)
        assert error.code() == grpc.StatusCode.FAILED_PRECONDITION
        assert "speaks protocol 1" in error.details()
    key, certificate, authority = Identity.load(keys / "site-1", "site-1").pem()
    credentials = grpc.ssl_channel_credentials(authority, key, certificate)
    with grpc.secure_channel(f"127.0.0.1:{hub.port}", credentials) as channel:
        assert channel.unary_unary("/grpc.health.v1.Health/Check")(b"") == b"\x08\x01"
    hub.close()


def test_the_server_itself_refuses_a_missing_or_foreign_certificate(keys, tmp_path):
    """Without a certificate, or with one of another authority, no service is reached, whatever the client checks."""
    hub = _hub(keys)
    create_authority(tmp_path / "ca")
    create_request(tmp_path / "site-1", "site-1")
    _, path = sign_request(tmp_path / "ca", tmp_path / "site-1" / "site-1.csr")
    install(tmp_path / "site-1", path, tmp_path / "ca" / "ca.crt")
    key, certificate, _ = Identity.load(tmp_path / "site-1", "site-1").pem()
    _, _, authority = Identity.load(keys / "site-1", "site-1").pem()
    for own in ((), (key, certificate)):
        credentials = grpc.ssl_channel_credentials(authority, *own)
        with grpc.secure_channel(f"127.0.0.1:{hub.port}", credentials) as channel:
            for call in (channel.unary_unary("/grpc.health.v1.Health/Check"), channel.unary_unary(f"/{SERVICE}/Join")):
                with pytest.raises(grpc.RpcError) as refused:
                    call(b"", timeout=5)
                assert refused.value.code() == grpc.StatusCode.UNAVAILABLE  # the handshake fails: no service is reached
    assert hub.connected() == frozenset()
    assert hub.metrics.text() == ""
    hub.close()
