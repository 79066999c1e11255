"""Live message of an agent: a text that the participants read while the agent writes it, and that becomes a message at the end. Copy this
file: it needs Python 3.9 and no package. `agent.js` beside it does the same.

    async def produce(live):
        live.set_status("thinking")
        async for part in model.stream(prompt):
            if live.stop.is_set(): return
            yield part.text

    ids = await write_live(produce, urls=urls, token=token, conversation_id=id, key=f"answer-{number}", reply_to_id=question)

- `urls` are addresses of servers of one deployment, such as `https://chat.example.org/graphql`. After a failure the next one is tried.
- `token()` returns the agent's token, for each request.
- `key` names the answer: 1 to 60 printable ASCII characters. A process that takes over uses the same key, and one message is sent.
- `live.stop`, an asyncio.Event, is set when a user asks to stop (the text so far is sent), and when another process has taken over (nothing
  is sent). The producer is cancelled then.
- A producer that raises: the participants have read its text, so the text so far is sent; without text the live message is discarded.
  Then the error is raised.
- A text of more than 16 KiB becomes several messages, with the keys `key`, `key.2`, `key.3` …
- The result has the ids of the messages that this process sent or completed.
"""

import asyncio
import http.client
import json
import random
import time
import urllib.error
import urllib.request
import uuid

BODY_MAX = 16 * 1024  # bytes of a message
PIECE_MAX = 4 * 1024  # bytes of a write
PENDING_MAX = 4 * BODY_MAX  # bytes that wait to be written; the producer pauses beyond
SILENCE_MAX = 20  # s without a write; after 60 s the server would send what there is
RETRY_FOR = 600  # s

LIVE = "id state body stopRequestedBy { username } message { id body }"
WRITE = "mutation($input: WriteLiveMessageInput!) { done: writeLiveMessage(input: $input) { nextPosition liveMessage { %s } } }" % LIVE
FIND = "query($id: ID!) { done: node(id: $id) { ... on LiveMessage { %s } } }" % LIVE
SEND = "mutation($input: SendMessageInput!) { done: sendMessage(input: $input) { messageEdge { node { id } } } }"
EDIT = "mutation($input: EditMessageInput!) { done: editMessage(input: $input) { message { id } } }"
DISCARD = "mutation($input: DiscardLiveMessageInput!) { done: discardLiveMessage(input: $input) { liveMessage { id } } }"


class Refused(Exception):
    """Error of the API, with its code."""

    def __init__(self, message, code, retry_after=None):
        super().__init__(message)
        self.code, self.retry_after = code, retry_after


class Live:
    """What the producer sets and watches."""

    def __init__(self):
        self.stop, self.news = asyncio.Event(), asyncio.Event()
        self.text, self.changes, self.steps, self.is_done, self.error = b"", {}, None, False, None

    def set_status(self, status):
        """None clears it."""
        self.change(status=status)

    def set_steps(self, steps):
        """All of them, each a MessageStepInput."""
        self.steps = steps
        self.change(steps=steps)

    def change(self, **changes):
        self.changes.update(changes)
        self.news.set()

    def end(self):
        self.is_done = True
        self.stop.set()


async def write_live(produce, *, urls, token, conversation_id, key, reply_to_id=None):
    live, request = Live(), Requester(urls, token)
    gathering = asyncio.ensure_future(gather(live, produce))
    ids, number = [], 1
    try:
        while number == 1 or not live.is_done or live.text:
            named = {"conversationId": conversation_id, "key": key if number == 1 else f"{key}.{number}"}
            sent = await LiveMessage(request, live, named, reply_to_id if number == 1 else None).run()
            ids += [sent] if sent else []
            number += 1
    finally:
        gathering.cancel()
    if live.error:
        raise live.error
    return ids


async def gather(live, produce):
    """Takes the text from the producer. It raises nothing: the error waits for the end."""
    try:
        async for part in produce(live):
            if live.is_done:
                return
            live.text += part.encode()
            live.news.set()
            while len(live.text) > PENDING_MAX and not live.is_done:
                await asyncio.sleep(0.05)
    except Exception as error:
        live.error = None if live.is_done else error
    live.is_done = True
    live.news.set()


class LiveMessage:
    """One live message, from its first write to its message."""

    def __init__(self, request, live, named, reply_to_id):
        self.request, self.live, self.named, self.reply_to_id = request, live, named, reply_to_id
        self.writer, self.position, self.shown, self.sent, self.is_superseded = str(uuid.uuid4()), 0, None, None, False

    async def run(self):
        """The id of the message, if there is one."""
        try:
            while not self.live.is_done and len(self.live.text) <= BODY_MAX:
                await self.write()
            return None if self.is_superseded else await self.send()
        except Refused:
            self.live.end()
            try:
                await self.discard()
            except Refused:
                pass
            raise

    async def write(self):
        live = self.live
        if self.sent or not (len(live.text) > self.position or live.changes):
            live.news.clear()
            try:
                await asyncio.wait_for(live.news.wait(), SILENCE_MAX if self.shown else 0.1)
            except asyncio.TimeoutError:
                pass
        if self.sent or live.is_done:
            return
        text = cut(live.text, self.position, PIECE_MAX).decode()
        given = {**self.named, "writer": self.writer, "position": self.position, "text": text, **live.changes}
        if self.position == 0:
            given["replyToId"] = self.reply_to_id
        live.changes = {}
        try:
            written = await self.request(WRITE, {"input": given})
        except Refused as error:
            return await self.settle(error, live.text)
        self.position, self.shown = written["nextPosition"], written["liveMessage"]
        if self.shown["stopRequestedBy"]:
            live.end()

    async def send(self):
        live, body = self.live, body_of(self.live.text)
        live.text, text = live.text[len(body) :], body.decode()
        if not self.sent and not text.strip():
            return await self.discard()
        is_whole = not (live.error or live.stop.is_set())
        steps = [step if is_whole or step["state"] == "DONE" else {**step, "state": "FAILED"} for step in live.steps or []]
        live.steps = None
        if not self.sent:
            named = {"conversationId": self.named["conversationId"], "idempotencyKey": self.named["key"]}
            given = {**named, "body": text, "replyToId": self.reply_to_id, **({"steps": steps} if steps else {})}
            try:
                return (await self.request(SEND, {"input": given}))["messageEdge"]["node"]["id"]
            except Refused as error:
                await self.settle(error, body)
        if not self.sent:
            return None
        if self.sent["body"] != text:
            await self.request(EDIT, {"input": {"messageId": self.sent["id"], "body": text}})
        return self.sent["id"]

    async def discard(self):
        if self.shown:
            await self.request(DISCARD, {"input": {"liveMessageId": self.shown["id"]}})

    async def settle(self, error, text):
        """Handles CONFLICT: another process has taken over, or the server has sent a beginning of this text after a silence."""
        if error.code != "CONFLICT":
            raise error
        self.sent = await self.sent_beginning(text.decode())
        if not self.sent:
            self.is_superseded, self.live.text = True, b""
            self.live.end()

    async def sent_beginning(self, text):
        for _ in range(5 if self.shown else 0):
            found = await self.request(FIND, {"id": self.shown["id"]})
            if found and found["message"]:
                return found["message"] if text.startswith(found["message"]["body"]) else None
            # A server that sends the text of a silent writer waits a few seconds before.
            if not found or found["state"] != "WRITING" or not found["body"].startswith(self.shown["body"]):
                return None
            await asyncio.sleep(2)
        return None


class Requester:
    """Sends a request until it has an answer: to the next server after a failure, later where the rate is exceeded."""

    def __init__(self, urls, token):
        self.urls, self.token, self.turn = urls, token, 0

    async def __call__(self, query, variables):
        deadline, pause = time.monotonic() + RETRY_FOR, 0.2
        while True:
            url, token = self.urls[self.turn % len(self.urls)], self.token()
            try:
                return await asyncio.to_thread(attempt, url, token, {"query": query, "variables": variables})
            # Neither an answer nor one of the API: the connection was cut, or a proxy answered.
            except (OSError, http.client.HTTPException, ValueError) as error:
                failure, delay = error, None
            except Refused as error:
                if error.code not in ("UNAVAILABLE", "RATE_LIMITED"):
                    raise
                failure, delay = error, error.retry_after
            if time.monotonic() > deadline:
                raise failure
            self.turn += getattr(failure, "code", None) != "RATE_LIMITED"
            await asyncio.sleep(pause * random.uniform(0.5, 1) if delay is None else delay)
            pause = min(pause * 2, 5)


def attempt(url, token, body):
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)
    try:
        with urllib.request.urlopen(request, timeout=15) as response:
            answer = json.load(response)
    except urllib.error.HTTPError as error:
        if error.code == 404:
            raise Refused(f"{url} is no address of GraphQL", "NOT_FOUND") from error
        answer = json.load(error)
    for error in answer.get("errors") or []:
        extensions = error.get("extensions", {})
        wait = extensions.get("retryAfterMs")
        raise Refused(error["message"], extensions.get("code"), wait and wait / 1000)
    return answer["data"]["done"]


def cut(text, position, size):
    """At most so many bytes of UTF-8 from a position on, without half a character."""
    end = min(position + size, len(text))
    while end < len(text) and text[end] & 0xC0 == 0x80:
        end -= 1
    return text[position:end]


def body_of(text):
    """The beginning of a text that fits into a message. It ends after a line or a word, if it can."""
    body = cut(text, 0, BODY_MAX)
    blank = max(body.rfind(b"\n"), body.rfind(b" "))
    return body if body == text or blank < len(body) / 2 else body[: blank + 1]
