"""Lines of an import of Wideroom, with ids that are the same in every run."""

import collections
import datetime
import hashlib
import json
import sys
import uuid

NAMESPACE = uuid.UUID("8f6c2a1e-4b0d-5c3a-9e77-5d1f60b2c4e8")
TICKS_BEFORE_1970 = 0x01B21DD213814000


def write(kind, /, **fields):
    """Prints a line. Fields without a value are left out."""
    given = {name: value for name, value in fields.items() if value not in (None, [], False)}
    print(json.dumps({"type": kind, **given}, ensure_ascii=False))


def warn(text):
    print(text, file=sys.stderr)


def conversation_id(members, *names):
    """Id of a conversation by its names in the other system. That of a user with oneself proves to be one: its second half is a
    checksum of the first half and the username."""
    plain = uuid.uuid5(NAMESPACE, "\n".join(names))
    if len(set(members)) != 1:
        return str(plain)
    head = bytearray(plain.bytes[:8])
    head[6] = head[6] & 0x0F | 0x80
    digest = hashlib.sha256(NAMESPACE.bytes + b"oneself" + head + members[0].encode()).digest()
    tail = bytearray(digest[:8])
    tail[0] = tail[0] & 0x3F | 0x80
    return str(uuid.UUID(bytes=bytes(head + tail)))


def message_id(micros, *names):
    """A timeuuid of this time, whose other half is a hash of the names in the other system."""
    ticks = TICKS_BEFORE_1970 + micros * 10
    rest = hashlib.sha256("\n".join(names).encode()).digest()
    fields = (ticks & 0xFFFFFFFF, ticks >> 32 & 0xFFFF, ticks >> 48 | 0x1000, rest[0] & 0x3F | 0x80, rest[1])
    return str(uuid.UUID(fields=(*fields, int.from_bytes(rest[2:8], "big"))))


def moment(micros):
    since = datetime.datetime(1970, 1, 1) + datetime.timedelta(microseconds=micros)
    return since.isoformat() + "Z"


def kind_of(members):
    """One or two users are a direct conversation."""
    return "DIRECT" if len(set(members)) <= 2 else "GROUP"


class Clock:
    """Microseconds of messages that have milliseconds: those of one millisecond keep their order."""

    def __init__(self):
        self.counts = collections.Counter()

    def micros(self, conversation, millis):
        count = self.counts[conversation, millis]
        self.counts[conversation, millis] += 1
        return millis * 1000 + min(count, 999)
