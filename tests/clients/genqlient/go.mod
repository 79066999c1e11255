module wideroom-clients-test

go 1.22.5

require (
	github.com/Khan/genqlient v0.8.1
	github.com/gorilla/websocket v1.5.3
)

require (
	github.com/google/uuid v1.6.0 // indirect
	github.com/vektah/gqlparser/v2 v2.5.19 // indirect
)
