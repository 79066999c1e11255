// Subscribes with genqlient over gorilla/websocket, and outlives pings: `go run . URL ALICE BOB`.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"

	"github.com/Khan/genqlient/graphql"
	"github.com/gorilla/websocket"
)

const (
	makeGroup = `mutation Make { createGroupConversation(input: { name: "Go", usernames: ["bob"] }) { conversation { id } } }`
	send      = `mutation Send($id: ID!) { sendMessage(input: { conversationId: $id, body: "after the pings" }) { __typename } }`
	added     = `subscription Added($id: ID!) { messageAdded(conversationId: $id) { messageEdge { node { body } } } }`
	pings     = 3
)

// dialer notes each ping. The library answers it.
type dialer struct{ pinged chan struct{} }

func (d dialer) DialContext(ctx context.Context, url string, header http.Header) (graphql.WSConn, error) {
	conn, _, err := websocket.DefaultDialer.DialContext(ctx, url, header)
	if err != nil {
		return nil, err
	}
	answer := conn.PingHandler()
	conn.SetPingHandler(func(data string) error {
		select {
		case d.pinged <- struct{}{}:
		default:
		}
		return answer(data)
	})
	return conn, nil
}

// authorized sends each request with a token.
type authorized string

func (token authorized) Do(request *http.Request) (*http.Response, error) {
	request.Header.Set("Authorization", "Bearer "+string(token))
	return http.DefaultClient.Do(request)
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func ask(client graphql.Client, name, query string, variables any, data any) {
	request := &graphql.Request{OpName: name, Query: query, Variables: variables}
	must(client.MakeRequest(context.Background(), request, &graphql.Response{Data: data}))
}

func main() {
	url, alice, bob := os.Args[1], authorized(os.Args[2]), authorized(os.Args[3])
	var made struct {
		CreateGroupConversation struct{ Conversation struct{ ID string } }
	}
	ask(graphql.NewClient(url, alice), "Make", makeGroup, nil, &made)
	variables := map[string]string{"id": made.CreateGroupConversation.Conversation.ID}

	pinged := make(chan struct{}, pings)
	header := http.Header{"Authorization": {"Bearer " + string(alice)}}
	sockets := graphql.NewClientUsingWebSocket(strings.Replace(url, "http", "ws", 1), dialer{pinged}, graphql.WithWebsocketHeader(header))
	failed, err := sockets.Start(context.Background())
	must(err)
	told := make(chan json.RawMessage, 1)
	_, err = sockets.Subscribe(&graphql.Request{OpName: "Added", Query: added, Variables: variables}, told, func(_ any, message json.RawMessage) error {
		told <- message
		return nil
	})
	must(err)
	for count := 0; count < pings; count++ {
		select {
		case <-pinged:
		case err := <-failed:
			must(fmt.Errorf("at ping %d: %w", count, err))
		}
	}
	ask(graphql.NewClient(url, bob), "Send", send, variables, &struct{}{})
	select {
	case message := <-told:
		if !strings.Contains(string(message), "after the pings") {
			must(fmt.Errorf("told: %s", message))
		}
	case err := <-failed:
		must(err)
	}
}
