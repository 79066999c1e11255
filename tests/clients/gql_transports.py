"""The transports of Python's gql against a real server: `python3 gql_transports.py URL ALICE BOB`."""

import asyncio
import sys

from gql import Client, GraphQLRequest
from gql.transport.aiohttp import AIOHTTPTransport
from gql.transport.aiohttp_websockets import AIOHTTPWebsocketsTransport
from gql.transport.websockets import WebsocketsTransport

URL, ALICE, BOB = sys.argv[1:]
HEADERS, OTHERS = ({"Authorization": f"Bearer {token}"} for token in (ALICE, BOB))
SOCKETS = URL.replace("http", "ws")
MAKE = 'mutation { createGroupConversation(input: { name: "gql", usernames: ["bob"] }) { conversation { id } } }'
SEND = "mutation($id: ID!, $body: String!) { sendMessage(input: { conversationId: $id, body: $body }) { __typename } }"
ADDED = "subscription($id: ID!) { messageAdded(conversationId: $id) { messageEdge { node { body } } } }"

TRANSPORTS = {
    # In parts of one HTTP answer.
    "parts": lambda: AIOHTTPTransport(URL, headers=HEADERS),
    # The token is in the handshake.
    "aiohttp": lambda: AIOHTTPWebsocketsTransport(SOCKETS, headers=HEADERS),
    # The token is in the payload of connection_init, and the client sends pings of its own. The transport would look for the subprotocol of
    # the answer under one spelling of its header, so it is named here.
    "websockets": lambda: WebsocketsTransport(
        SOCKETS + "/ws",
        init_payload={"headers": HEADERS},
        subprotocols=[WebsocketsTransport.GRAPHQLWS_SUBPROTOCOL],
        ping_interval=1,
        pong_timeout=20,
    ),
}


async def is_told(name, transport, alice, bob):
    made = (await alice.execute(GraphQLRequest(MAKE)))["createGroupConversation"]["conversation"]
    send = lambda body: bob.execute(GraphQLRequest(SEND, variable_values={"id": made["id"], "body": body}))
    told = []
    request = GraphQLRequest(ADDED, variable_values={"id": made["id"]})
    async with Client(transport=transport) as session:
        events = session.subscribe(request)
        first = asyncio.ensure_future(anext(events))
        # A subscription without a cursor begins at some time: the first message that it is told of is one of these.
        number = 0
        while not first.done():
            await send(f"{name} {number}")
            number += 1
            await asyncio.wait([first], timeout=0.05)
        told.append(first.result())
        # Nothing comes after the last one, and it arrives all the same.
        await send("last")
        while told[-1]["messageAdded"]["messageEdge"]["node"]["body"] != "last":
            told.append(await anext(events))
        await events.aclose()


async def main():
    async with Client(transport=AIOHTTPTransport(URL, headers=HEADERS)) as alice:
        async with Client(transport=AIOHTTPTransport(URL, headers=OTHERS)) as bob:
            for name, transport in TRANSPORTS.items():
                await asyncio.wait_for(is_told(name, transport(), alice, bob), 60)


asyncio.run(main())
