"""The encoding of messages: canonical, strict, and of a length that does not depend on values."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dperm.errors import InvalidInput, ProtocolError
from dperm.solvers.vertical.protocol import Message
from dperm.vertical.identity.names import require_safe_name
from dperm.vertical.session.spec import RunSpec
from dperm.vertical.transport.envelope import (
    FIRST,
    REPLY,
    REQUEST,
    Envelope,
    next_digest,
    refusal,
    refusal_error,
)
from dperm.vertical.transport.frames import CHUNK_BYTES, Assembly, chunks, read_control_frame
from dperm.vertical.transport.wire import decode, digest, encode, encoded_size

_NAMES = st.text(min_size=1, max_size=8)
_FACTS = st.dictionaries(
    _NAMES,
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | st.text(max_size=9),
)
_ARRAYS = st.dictionaries(
    _NAMES,
    st.lists(st.integers(-(2**63), 2**63 - 1), max_size=5).map(lambda v: np.array(v, np.int64))
    | st.lists(st.floats(), max_size=4).map(lambda v: np.array(v, np.float64).reshape(-1, 1))
    | st.binary(max_size=9).map(lambda v: np.frombuffer(v, np.uint8))
    | st.just(np.array(2**64 - 1, np.uint64)),
)


@given(_NAMES, _ARRAYS, _FACTS)
def test_round_trip(kind, arrays, facts):
    summed = frozenset(name for name, array in arrays.items() if array.dtype == np.int64)
    message = Message(kind, arrays, facts, summed)
    data = encode(message)
    back = decode(data)
    assert encode(back) == data
    assert len(data) == encoded_size(message)
    assert (back.kind, back.summed, dict(back.facts)) == (kind, summed, facts)
    for name, array in arrays.items():
        assert back.arrays[name].dtype == array.dtype
        assert back.arrays[name].shape == array.shape
        assert back.arrays[name].tobytes() == array.tobytes()


MESSAGE = Message("k", {"b": np.arange(3), "a": np.ones((2, 2))}, {"x": 1, "y": "text"}, frozenset({"b"}))


def test_truncated_or_changed_bytes_are_refused_or_decode_to_another_message():
    data = encode(MESSAGE)
    for end in range(len(data)):
        with pytest.raises(ProtocolError):
            decode(data[:end])
    with pytest.raises(ProtocolError, match="left over"):
        decode(data + b"x")
    for i in range(len(data)):
        other = data[:i] + bytes([data[i] ^ 1]) + data[i + 1 :]
        try:
            assert encode(decode(other)) == other  # one encoding per message, so digests name messages
        except ProtocolError:
            continue


def test_names_out_of_order_are_refused():
    data = encode(Message("k", facts={"a": 1, "b": 2}))
    swapped = data.replace(b"\x01\x00a", b"\x01\x00z")
    with pytest.raises(ProtocolError, match="order"):
        decode(swapped)


def test_length_depends_on_types_and_shapes_only():
    rng = np.random.default_rng(0)
    sizes = {
        encoded_size(Message("k", {"a": rng.normal(size=7) * 10.0**k, "b": rng.integers(-9, 9, 4) << k}, {"f": 10**k}))
        for k in range(10)
    }
    assert len(sizes) == 1


def test_limits():
    with pytest.raises(ProtocolError, match="at most 10"):
        decode(encode(MESSAGE), limit=10)
    with pytest.raises(InvalidInput, match="float32"):
        encode(Message("k", {"a": np.zeros(2, np.float32)}))
    with pytest.raises(InvalidInput, match="whole numbers"):
        encode(Message("k", {"a": np.zeros(2)}, summed=frozenset({"a"})))
    with pytest.raises(InvalidInput, match="64 bits"):
        encode(Message("k", facts={"a": 1 << 63}))
    huge = encode(Message("k", {"a": np.zeros(2)})).replace(
        (2).to_bytes(8, "little"), (1 << 60).to_bytes(8, "little"), 1
    )
    with pytest.raises(ProtocolError, match="larger than"):
        decode(huge)


def test_an_object_array_is_never_encoded():
    with pytest.raises(InvalidInput, match="object"):
        encode(Message("k", {"a": np.array([object()])}))


def test_envelope():
    one = Envelope(REQUEST, "run-1", "org-a", 3, 1, digest(b"state"), encode(MESSAGE))
    back = Envelope.decode(one.encode())
    assert (back.run, back.party, back.step, back.attempt, back.state) == ("run-1", "org-a", 3, 1, digest(b"state"))
    assert encode(back.message()) == one.payload
    with pytest.raises(ProtocolError):
        Envelope.decode(one.encode()[:20])
    with pytest.raises(ProtocolError, match="name of the run or the party"):
        Envelope.decode(Envelope(REQUEST, "../x", "org-a", 0, 0, FIRST, b"").encode())


@pytest.mark.parametrize("name", ["", "../x", "a/b", "a..b", ".a", "a-", "x" * 65, "a b", "é"])
def test_names_of_runs_are_safe_as_file_names(name):
    with pytest.raises(InvalidInput):
        require_safe_name(name, "a name")


def test_a_refusal_never_carries_a_sentence_about_data():
    asked = Envelope(REQUEST, "run-1", "org-a", 3, 1, FIRST, b"")
    said = str(refusal_error(Envelope.decode(refusal(asked, InvalidInput("row 17 has value 3.5")).encode())))
    assert "17" not in said
    assert "org-a refused step 3" in said


def test_state_digest_leaves_out_what_is_masked():
    open_, other = MESSAGE, Message("k", {**MESSAGE.arrays, "b": np.arange(3) + 7}, MESSAGE.facts, MESSAGE.summed)
    assert next_digest(FIRST, 2, FIRST, open_) == next_digest(FIRST, 2, FIRST, other)
    changed = Message("k", {**MESSAGE.arrays, "a": np.zeros((2, 2))}, MESSAGE.facts, MESSAGE.summed)
    assert next_digest(FIRST, 2, FIRST, open_) != next_digest(FIRST, 2, FIRST, changed)
    assert next_digest(FIRST, 2, FIRST, open_) != next_digest(FIRST, 3, FIRST, open_)


def _envelope(payload):
    return Envelope(REQUEST, "run-1", "org-a", 3, 1, FIRST, payload)


@pytest.mark.parametrize("size", [0, 1, CHUNK_BYTES - 79, CHUNK_BYTES, CHUNK_BYTES + 1, 3 * CHUNK_BYTES - 5])
def test_chunks(size):
    one = _envelope(np.random.default_rng(1).bytes(size))
    frames = list(chunks(5, one))
    assembly = Assembly()
    assert [assembly.add(frame) for frame in frames[:-1]] == [None] * (len(frames) - 1)
    whole = assembly.add(frames[-1])
    assert whole.encode() == one.encode()
    assert len(whole) == len(one.encode())


def test_chunks_that_are_lost_swapped_damaged_or_too_many_are_refused():
    frames = list(chunks(1, _envelope(bytes(3 * CHUNK_BYTES))))
    with pytest.raises(ProtocolError, match="missing"):
        Assembly().add(frames[1])
    assembly = Assembly()
    assembly.add(frames[0])
    with pytest.raises(ProtocolError, match="out of order"):
        assembly.add(frames[2])
    with pytest.raises(ProtocolError, match="at most"):
        Assembly(limit=1000).add(frames[0])
    (small,) = chunks(1, _envelope(b"payload"))
    for i in range(len(small)):
        with pytest.raises(ProtocolError):
            Assembly().add(small[:i] + bytes([small[i] ^ 1]) + small[i + 1 :]) if i > 4 else Assembly().add(small[:i])
    with pytest.raises(ProtocolError, match="impossible"):
        Assembly().add(small + b"x")
    with pytest.raises(ProtocolError, match="control frame"):
        read_control_frame(b"\x00not json")


def test_deeply_nested_json_is_refused():
    for deep in (b"[" * 4000, b'{"a":' * 800):
        with pytest.raises(ProtocolError, match="cannot be read"):
            read_control_frame(b"\x03" + deep)
        with pytest.raises(ProtocolError, match="cannot be read"):
            RunSpec.from_array(np.frombuffer(deep * 30, np.uint8))


def test_replies_have_their_own_kind():
    one = Envelope(REQUEST, "run-1", "org-a", 3, 1, FIRST, b"")
    assert one.answer(REPLY, b"x").kind == REPLY
