"""Converts an export of a Slack workspace, a folder or a ZIP file: `python3 slack.py EXPORT | wideroom import - --lossy`.

An export has no read positions: everyone has read everything. Replies in threads reply to the first message of their thread.
"""

import html
import json
import pathlib
import re
import sys
import zipfile

from lines import conversation_id, kind_of, message_id, moment, warn, write

# Messages without a subtype, and these, are of people and bots. The others tell of joins, topics and names.
SUBTYPES = {None, "bot_message", "file_comment", "file_share", "me_message", "reply_broadcast", "thread_broadcast", "tombstone"}
LISTS = ["channels.json", "groups.json", "dms.json", "mpims.json"]


class Export:
    def __init__(self, path):
        self.root = zipfile.Path(zipfile.ZipFile(path)) if zipfile.is_zipfile(path) else pathlib.Path(path)
        # An export of an organisation has its users in the second file.
        self.users = {user["id"]: user for name in ("users.json", "org_users.json") for user in self.read(name)}
        self.channels = {one["id"]: one for name in LISTS for one in self.read(name)}

    def read(self, name):
        file = self.root / name
        return json.loads(file.read_text(encoding="utf-8")) if file.exists() else []

    def username(self, user):
        return self.users.get(user, {}).get("name") or user

    def messages(self, channel):
        """The messages of a conversation, the oldest first. A folder has the name of its channel, or the id of a direct one."""
        folders = (self.root / str(channel.get(key)) for key in ("name", "id") if channel.get(key))
        folder = next((one for one in folders if one.exists()), None)
        days = sorted(folder.iterdir(), key=lambda day: day.name) if folder else []
        found = [one for day in days for one in json.loads(day.read_text(encoding="utf-8"))]
        found = [one for one in found if one.get("type") == "message" and one.get("subtype") in SUBTYPES]
        return sorted(found, key=lambda one: micros(one["ts"]))

    def text(self, text):
        """Plain text of Slack's markup, the users whom it mentions, and whether it mentions everyone."""
        mentioned = [self.username(user) for user in re.findall(r"<@([UW]\w+)", text)]
        everyone = bool(re.search(r"<!(channel|everyone|here)\b", text))
        text = re.sub(r"<@([UW]\w+)(\|[^>]*)?>", lambda found: "@" + self.username(found[1]), text)
        text = re.sub(r"<#(\w+)(\|[^>]*)?>", lambda found: "#" + self.channels.get(found[1], {}).get("name", found[1]), text)
        text = re.sub(r"<!(\w+)[^>]*>", r"@\1", text)
        text = re.sub(r"<([^|>]+)\|([^>]+)>", r"\2 (\1)", text)
        text = re.sub(r"<([^>]+)>", r"\1", text)
        return html.unescape(text), sorted(set(mentioned)), everyone


def micros(ts):
    seconds, _, fraction = str(ts).partition(".")
    return int(seconds) * 1_000_000 + int((fraction or "0").ljust(6, "0")[:6])


def attachment(file):
    url = file.get("url_private") or file.get("permalink")
    if not url:
        return None
    found = {"url": url, "mimeType": file.get("mimetype") or "application/octet-stream", "name": file.get("name")}
    found |= {"sizeBytes": file.get("size"), "width": file.get("original_w"), "height": file.get("original_h")}
    return {name: value for name, value in found.items() if value is not None}


def convert_message(export, channel, conversation, message):
    id = message_id(micros(message["ts"]), channel["id"], message["ts"])
    # Old exports have comments on files, and one file a message.
    comment = message.get("comment") or {}
    sender = export.username(comment.get("user") or message.get("user") or message.get("username") or message.get("bot_id"))
    if message.get("subtype") == "tombstone":
        # The deleted first message of a thread. The export does not say when it was deleted.
        return write("message", conversationId=conversation, id=id, sender=sender, deletedAt=moment(micros(message["ts"])))
    body, mentioned, everyone = export.text(comment.get("comment") or message.get("text") or "")
    found = message.get("files") or [message[name] for name in ("file",) if name in message]
    files = [one for one in map(attachment, found) if one]
    if not body.strip() and not files:
        # Blocks and attachments of apps alone.
        shown = (one.get("fallback") or one.get("text") for one in message.get("attachments", []))
        body = "\n".join(text for text in shown if text)
    if not body.strip() and not files:
        return warn(f"{channel['id']} {message['ts']}: a message without text")
    parent = message.get("thread_ts")
    reply_to = message_id(micros(parent), channel["id"], parent) if parent and parent != message["ts"] else None
    edited = micros(message["edited"]["ts"]) if "edited" in message else None
    write("message", conversationId=conversation, id=id, sender=sender, body=body if body.strip() else None, attachments=files,
          mentions=mentioned, mentionsEveryone=everyone, replyTo=reply_to, editedAt=edited and moment(edited))
    for reaction in message.get("reactions", []):
        for user in reaction["users"]:
            write("reaction", conversationId=conversation, messageId=id, emoji=f":{reaction['name']}:", username=export.username(user))


def convert_channel(export, channel):
    is_direct = "name" not in channel
    members = [export.username(user) for user in dict.fromkeys(channel.get("members", []))]
    conversation = conversation_id(members if is_direct else [], "slack", channel["id"])
    messages = export.messages(channel)
    last = messages[-1]["ts"] if messages else None
    read_up_to = message_id(micros(last), channel["id"], last) if last else None
    creator = channel.get("creator")
    participants = [{"username": member} | ({"readUpTo": read_up_to} if read_up_to else {}) for member in members]
    for participant in participants:
        if creator and not is_direct and participant["username"] == export.username(creator):
            participant["role"] = "OWNER"
    write("conversation", id=conversation, kind=kind_of(members) if is_direct else "GROUP", name=channel.get("name"),
          createdAt=moment(micros(channel.get("created", 0))), createdBy=creator and export.username(creator),
          participants=participants)
    for message in messages:
        convert_message(export, channel, conversation, message)
    stored = {message["ts"] for message in messages}
    for pin in channel.get("pins", []):
        # Files can be pinned, too. Some exports have `created` as a text.
        if pin["id"] not in stored:
            warn(f"{channel['id']} {pin['id']}: a pin of what is no message")
            continue
        write("pin", conversationId=conversation, messageId=message_id(micros(pin["id"]), channel["id"], pin["id"]),
              by=export.username(pin["user"]), at=moment(micros(pin["created"])))


def main():
    export = Export(sys.argv[1])
    for user in export.users.values():
        profile = user.get("profile", {})
        name = profile.get("display_name") or profile.get("real_name") or user.get("real_name")
        write("user", username=user["name"], displayName=name, avatarUrl=profile.get("image_512") or profile.get("image_192"))
    for channel in export.channels.values():
        convert_channel(export, channel)


main()
