"""Requests of a webhook, checked by the official library: `python webhook.py REQUESTS SECRET…`, as webhook.js beside it."""

import json
import sys

from standardwebhooks import Webhook, WebhookVerificationError


def is_refused(secret, body, headers):
    try:
        Webhook(secret).verify(body, headers)
    except WebhookVerificationError:
        return True
    return False


with open(sys.argv[1], encoding="utf-8") as file:
    requests = json.load(file)
assert requests
for request in requests:
    headers, body = request["headers"], request["body"]
    for secret in sys.argv[2:]:
        event = Webhook(secret).verify(body, headers)
        assert event["data"]["outbox"]["id"] == headers["webhook-id"]
        assert event["type"] == "MESSAGE_ADDED"
        assert is_refused(secret, body + " ", headers)
        assert is_refused(secret, body, {**headers, "webhook-id": "another"})
        assert is_refused(secret, body, {**headers, "webhook-timestamp": "1700000000"})
    assert is_refused("whsec_c29tZXRoaW5nIGVsc2UsIG5vdCB0aGUgc2VjcmV0", body, headers)
