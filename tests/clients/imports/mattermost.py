"""Converts a bulk export of Mattermost (`mmctl export create`, its JSONL file): `python3 mattermost.py FILE [URL] | wideroom import -`.

URL is that of the folder from which you serve the exported files (the `data` folder of the export). Without it files are left out.
"""

import json
import mimetypes
import re
import sys
import urllib.parse

from lines import Clock, conversation_id, kind_of, message_id, moment, warn, write

clock = Clock()


class Conversation:
    def __init__(self, members, names, **fields):
        self.names, self.fields = names, fields
        self.id = conversation_id(members, "mattermost", *names)
        self.participants = {member: {} for member in members}
        self.messages = []

    def write(self):
        for member, seen in self.participants.items():
            viewed = seen.pop("viewed", None)
            # Everything, where the export does not say.
            read = [id for at, id in self.messages if viewed is None or at <= viewed]
            seen |= {"username": member} | ({"readUpTo": read[-1]} if read else {})
        write("conversation", id=self.id, participants=list(self.participants.values()), **self.fields)


class Import:
    def __init__(self, files):
        self.files, self.channels, self.facts, self.users = files, {}, [], set()

    def channel(self, line):
        name = (line["team"], line["name"])
        self.channels[name] = Conversation([], name, kind="GROUP", name=line["display_name"])

    def direct(self, members):
        members = sorted(set(members))
        if tuple(members) not in self.channels:
            kind = kind_of(members)
            self.channels[tuple(members)] = Conversation(members, ("direct", *members), kind=kind)
        return self.channels[tuple(members)]

    def direct_channel(self, line):
        viewers = line.get("participants") or []
        direct = self.direct(line.get("members") or [one["username"] for one in viewers])
        for one in viewers:
            direct.participants[one["username"]]["viewed"] = one.get("last_viewed_at")
        for user in line.get("favorited_by") or []:
            direct.participants[user]["pinned"] = True

    def user(self, line):
        self.users.add(line["username"])
        full = f"{line.get('first_name') or ''} {line.get('last_name') or ''}".strip()
        write("user", username=line["username"], displayName=line.get("nickname") or full)
        for team in line.get("teams") or []:
            for one in team.get("channels") or []:
                channel = self.channels.get((team["name"], one["name"]))
                if channel:
                    seen = {"viewed": one.get("last_viewed_at"), "role": "ADMIN" if "channel_admin" in (one.get("roles") or "") else "MEMBER"}
                    channel.participants[line["username"]] = seen | ({"pinned": True} if one.get("favorite") else {})

    def bot(self, line):
        write("user", username=line["username"], displayName=line.get("display_name"))

    def post(self, line, channel, reply_to=None):
        if (line.get("type") or "").startswith("system_"):
            return
        at = clock.micros(channel.id, line["create_at"])
        id = message_id(at, *channel.names, line["user"], str(line["create_at"]))
        paths = [one["path"] for one in line.get("attachments") or []]
        files = [self.attachment(path) for path in paths] if self.files else []
        if paths and not self.files:
            warn(f"{channel.names} {line['create_at']}: {len(paths)} files without a URL")
        text = line.get("message") or ""
        if not text.strip() and not files:
            return warn(f"{channel.names} {line['create_at']}: a post without text")
        edited = line.get("edit_at")
        named = set(re.findall(r"@([a-z0-9._-]*[a-z0-9_-])", text.lower()))
        channel.messages.append((line["create_at"], id))
        self.facts.append(("message", dict(
            conversationId=channel.id, id=id, sender=line["user"], body=text or None, attachments=files,
            mentions=sorted(named & self.users), mentionsEveryone=bool(named & {"all", "channel", "here"}), replyTo=reply_to,
            editedAt=moment(edited * 1000) if edited else None)))
        for one in line.get("reactions") or []:
            self.facts.append(("reaction", dict(
                conversationId=channel.id, messageId=id, emoji=f":{one['emoji_name']}:", username=one["user"])))
        if line.get("is_pinned"):
            # The export does not say by whom and when.
            self.facts.append(("pin", dict(conversationId=channel.id, messageId=id, by=line["user"], at=moment(at))))
        for reply in line.get("replies") or []:
            self.post(reply, channel, id)

    def attachment(self, path):
        kind = mimetypes.guess_type(path)[0] or "application/octet-stream"
        return {"url": urllib.parse.urljoin(self.files, urllib.parse.quote(path)), "mimeType": kind, "name": path.rsplit("/", 1)[-1]}


def main():
    converted = Import(sys.argv[2] if len(sys.argv) > 2 else None)
    with open(sys.argv[1], encoding="utf-8") as file:
        # The export has channels before users, and both before posts.
        for line in map(json.loads, filter(str.strip, file)):
            fact = line.get(line["type"])
            match line["type"]:
                case "channel" | "user" | "bot" | "direct_channel" as kind:
                    getattr(converted, kind)(fact)
                case "post":
                    converted.post(fact, converted.channels[fact["team"], fact["channel"]])
                case "direct_post":
                    converted.post(fact, converted.direct(fact["channel_members"]))
    for channel in converted.channels.values():
        channel.messages.sort()
        channel.write()
    for kind, fields in converted.facts:
        write(kind, **fields)


main()
