"""Converts rooms of Matrix: `python3 matrix.py FILE [HOMESERVER] | wideroom import -`.

FILE is an answer of `/_matrix/client/v3/sync`, or has the events of one room: an answer of `/messages` (its `chunk` and `state`; the
admin API of Synapse has the same), or the JSON of Element's "Export chat" (its `messages`, which lack reactions, and edited ones have their
last text). A part of a history may lack who is in the room: then its senders are.
HOMESERVER is the URL behind which media are downloaded. Without it they are left out.
"""

import json
import re
import sys
import urllib.parse

from lines import Clock, conversation_id, kind_of, message_id, moment, warn, write

clock = Clock()


def rooms(document):
    """Room ids, each with its events, the oldest first, the receipts of its users, and its name where no event has it."""
    joined = document.get("rooms", {}).get("join", {})
    for room, found in joined.items():
        events = found.get("state", {}).get("events", []) + found.get("timeline", {}).get("events", [])
        yield room, ordered(events), receipts(found.get("ephemeral", {}).get("events", [])), None
    events = document.get("messages") or document.get("chunk")
    if events:
        # An answer with `dir=b` has the newest first, also those of one millisecond.
        if events[0].get("origin_server_ts", 0) > events[-1].get("origin_server_ts", 0):
            events = events[::-1]
        events = document.get("state", []) + events
        room = next(event["room_id"] for event in events if "room_id" in event)
        yield room, ordered(events), receipts(events), document.get("room_name")


def ordered(events):
    # State comes before messages of its millisecond.
    return sorted(events, key=lambda event: (event.get("origin_server_ts", 0), "state_key" not in event))


def receipts(events):
    found = {}
    for event in events:
        if event["type"] == "m.receipt":
            for id, kinds in event["content"].items():
                for kind in ("m.read", "m.read.private"):
                    found |= {user: id for user in kinds.get(kind, {})}
    return found


class Room:
    def __init__(self, room, events, read, name, directs, homeserver):
        self.room, self.events, self.read, self.name, self.homeserver = room, events, read, name, homeserver
        state = {(event["type"], event["state_key"]): event for event in events if "state_key" in event}
        self.state = lambda kind: state.get((kind, ""), {}).get("content", {})
        self.members = {key: event["content"] for (kind, key), event in state.items() if kind == "m.room.member"}
        senders = (event["sender"] for event in events if event["type"] == "m.room.message")
        self.members |= {user: {"membership": "join"} for user in senders if user not in self.members}
        self.joined = [user for user, content in self.members.items() if content.get("membership") == "join"]
        self.creator = self.state("m.room.create").get("creator") or state.get(("m.room.create", ""), {}).get("sender")
        is_direct = room in directs or any(content.get("is_direct") for content in self.members.values())
        self.kind = kind_of(self.joined) if is_direct else "GROUP"
        self.id = conversation_id(self.joined if self.kind == "DIRECT" else [], "matrix", room)
        self.ids, self.edits, self.redacted = {}, {}, {}
        for event in events:
            self.note(event)

    def note(self, event):
        content = event.get("content", {})
        relation = content.get("m.relates_to", {})
        if event["type"] == "m.room.redaction":
            self.redacted[event.get("redacts") or content.get("redacts")] = event["origin_server_ts"]
        elif event["type"] == "m.room.message" and relation.get("rel_type") == "m.replace":
            self.edits[relation["event_id"]] = event
        elif event["type"] == "m.room.message":
            micros = clock.micros(self.room, event["origin_server_ts"])
            self.ids[event["event_id"]] = message_id(micros, self.room, event["event_id"])
            because = event.get("unsigned", {}).get("redacted_because")
            if because:
                self.redacted[event["event_id"]] = because["origin_server_ts"]

    def role(self, user):
        level = self.state("m.room.power_levels").get("users", {}).get(user, 0)
        is_owner = level >= 100 or user == self.creator
        return "OWNER" if is_owner else "ADMIN" if level >= 50 else "MEMBER"

    def write(self):
        newest = list(self.ids.values())[-1:]
        for user in self.joined:
            shown = self.members[user].get("displayname")
            write("user", username=user, displayName=shown)
        participants = []
        for user in self.joined:
            # Everything, where no receipt is known.
            read = self.ids.get(self.read.get(user)) or next(iter(newest), None)
            role = {"role": self.role(user)} if self.kind == "GROUP" else {}
            participants.append({"username": user} | role | ({"readUpTo": read} if read else {}))
        write("conversation", id=self.id, kind=self.kind, name=self.state("m.room.name").get("name") or self.name,
              createdAt=moment(self.events[0].get("origin_server_ts", 0) * 1000), createdBy=self.creator, participants=participants)
        for event in self.events:
            if event.get("event_id") in self.ids:
                self.message(event)
            elif event["type"] == "m.reaction" and event["event_id"] not in self.redacted:
                self.reaction(event)
        self.pins()

    def message(self, event):
        id, redacted = self.ids[event["event_id"]], self.redacted.get(event["event_id"])
        if redacted or not event.get("content"):
            at = redacted or event["origin_server_ts"]
            return write("message", conversationId=self.id, id=id, sender=event["sender"], deletedAt=moment(at * 1000))
        edit = self.edits.get(event["event_id"])
        is_edited = edit and edit["event_id"] not in self.redacted
        content = edit["content"]["m.new_content"] if is_edited else event["content"]
        target = event["content"].get("m.relates_to", {}).get("m.in_reply_to", {}).get("event_id")
        mentions = content.get("m.mentions", {})
        files = self.attachments(content)
        body = content.get("body", "")
        if target:
            # Older clients quote the message to which they reply.
            body = re.sub(r"\A(> .*\n)+\n", "", body)
        write("message", conversationId=self.id, id=id, sender=event["sender"], body=None if files else body, attachments=files,
              replyTo=self.ids.get(target), mentions=mentions.get("user_ids"), mentionsEveryone=mentions.get("room"),
              editedAt=moment(edit["origin_server_ts"] * 1000) if is_edited else None)

    def attachments(self, content):
        url = content.get("url") or content.get("file", {}).get("url", "")
        if not url.startswith("mxc://"):
            return []
        if not self.homeserver:
            warn(f"{self.room}: {url} without a homeserver")
            return []
        info = content.get("info", {})
        found = {"url": urllib.parse.urljoin(self.homeserver, "/_matrix/client/v1/media/download/" + url.removeprefix("mxc://"))}
        found |= {"mimeType": info.get("mimetype") or "application/octet-stream", "name": content.get("filename") or content.get("body")}
        found |= {"sizeBytes": info.get("size"), "width": info.get("w"), "height": info.get("h")}
        return [{name: value for name, value in found.items() if value is not None}]

    def reaction(self, event):
        relation = event["content"].get("m.relates_to", {})
        if relation.get("event_id") in self.ids:
            write("reaction", conversationId=self.id, messageId=self.ids[relation["event_id"]], emoji=relation["key"],
                  username=event["sender"])

    def pins(self):
        by = [event for event in self.events if event["type"] == "m.room.pinned_events"]
        for pinned in self.state("m.room.pinned_events").get("pinned", []):
            first = next(event for event in by if pinned in event["content"].get("pinned", []))
            if pinned in self.ids and pinned not in self.redacted:
                write("pin", conversationId=self.id, messageId=self.ids[pinned], by=first["sender"], at=moment(first["origin_server_ts"] * 1000))


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        document = json.load(file)
    account = document.get("account_data", {}).get("events", [])
    direct = next((event["content"] for event in account if event["type"] == "m.direct"), {})
    directs = {room for rooms in direct.values() for room in rooms}
    homeserver = sys.argv[2] if len(sys.argv) > 2 else None
    for room, events, read, name in rooms(document):
        Room(room, events, read, name, directs, homeserver).write()


main()
