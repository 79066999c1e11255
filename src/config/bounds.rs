//! Bounds: one setting for each, all of the same shape.

use super::{Scope, Setting, value};

/// Highest value of `batch-max`.
const BATCH_MAX: usize = 100;

macro_rules! bound {
    (size $name:literal $environment:literal $($field:ident).+ $help:literal, $beyond:literal) => {
        Setting {
            name: $name,
            environment: $environment,
            scope: Scope::Serve,
            value_name: Some("SIZE"),
            help: $help,
            beyond: Some($beyond),
            get: |config| value::show_size(config.$($field).+ as u64),
            set: |config, text| value::set_size(&mut config.$($field).+, text),
        }
    };
    (count $name:literal $environment:literal $($field:ident).+ $help:literal, $beyond:literal) => {
        Setting {
            name: $name,
            environment: $environment,
            scope: Scope::Serve,
            value_name: Some("COUNT"),
            help: $help,
            beyond: Some($beyond),
            get: |config| config.$($field).+.to_string(),
            set: |config, text| value::set_count(&mut config.$($field).+, text),
        }
    };
    (time $name:literal $environment:literal $($field:ident).+ $help:literal, $beyond:literal) => {
        Setting {
            name: $name,
            environment: $environment,
            scope: Scope::Serve,
            value_name: Some("TIME"),
            help: $help,
            beyond: Some($beyond),
            get: |config| value::show_duration(config.$($field).+),
            set: |config, text| value::set_time(&mut config.$($field).+, text),
        }
    };
}

/// All bounds, in the order of the help.
pub const BOUNDS: &[Setting] = &[
    bound!(size "http-body-max" "WIDEROOM_HTTP_BODY_MAX" server.body_bytes "Body of a request", "413, `BAD_USER_INPUT`"),
    bound!(size "variables-max" "WIDEROOM_VARIABLES_MAX" server.variables_bytes "Variables of a request, as JSON", "413, `BAD_USER_INPUT`"),
    Setting {
        name: "batch-max",
        environment: "WIDEROOM_BATCH_MAX",
        scope: Scope::Serve,
        value_name: Some("COUNT"),
        help: "Requests in one body, as a JSON array, at most 100; 0 refuses arrays",
        beyond: Some("422, `BAD_USER_INPUT`"),
        get: |config| config.server.batch.to_string(),
        set: |config, text| {
            config.server.batch = text
                .parse()
                .ok()
                .filter(|count| *count <= BATCH_MAX)
                .ok_or("must be a whole number from 0 to 100")?;
            Ok(())
        },
    },
    bound!(time "request-deadline" "WIDEROOM_REQUEST_DEADLINE" server.request "Time from the head of a request to its answer, and from the first byte of a socket's message to its last", "503, `UNAVAILABLE`; a mutation's outcome is `UNKNOWN`; 4408"),
    bound!(size "answer-max" "WIDEROOM_ANSWER_MAX" server.answer_bytes "Text of an answer, and of an event of a subscription", "422, `BAD_USER_INPUT`; a mutation's outcome is `UNKNOWN`; an error with its `cursor` replaces an event"),
    bound!(size "reader-pace" "WIDEROOM_READER_PACE" server.pace.bytes_per_second "Slowest reader, in bytes a second, while bytes wait for it", "the server cuts the connection"),
    bound!(time "reader-pace-over" "WIDEROOM_READER_PACE_OVER" server.pace.window "Window over which reader-pace is measured", "the server cuts the connection"),
    bound!(count "connections-max" "WIDEROOM_CONNECTIONS_MAX" server.connections "Connections that are not WebSockets; a further one evicts the idlest", "the server closes an idle connection; without one the new connection waits"),
    bound!(size "head-max" "WIDEROOM_HEAD_MAX" server.head.bytes "Request line and headers of a request", "431"),
    bound!(count "headers-max" "WIDEROOM_HEADERS_MAX" server.head.headers "Number of headers of a request", "431"),
    bound!(time "head-wait" "WIDEROOM_HEAD_WAIT" server.head.wait "Time from the first byte of a request to the end of its headers", "the server closes the connection"),
    bound!(time "idle-wait" "WIDEROOM_IDLE_WAIT" server.head.idle "Idle time of a connection between requests; longer than that of a balancer in front (commonly 60s), which must be the one to close; shorter while connections run short", "the server closes the connection"),
    bound!(size "linger-max" "WIDEROOM_LINGER_MAX" server.head.linger_bytes "Bytes of a refused request that the server reads and drops, so that the client reads the refusal", "the server closes the connection"),
    bound!(time "linger-wait" "WIDEROOM_LINGER_WAIT" server.head.linger "Time for which the server reads and drops them", "the server closes the connection"),
    bound!(size "document-max" "WIDEROOM_DOCUMENT_MAX" documents.bytes "Text of a document", "422, `BAD_USER_INPUT`"),
    bound!(count "document-tokens-max" "WIDEROOM_DOCUMENT_TOKENS_MAX" documents.tokens "Tokens of a document", "422, `BAD_USER_INPUT`"),
    bound!(count "document-fields-max" "WIDEROOM_DOCUMENT_FIELDS_MAX" documents.fields "Fields of an operation, with its fragments expanded", "422, `BAD_USER_INPUT`"),
    bound!(count "document-depth-max" "WIDEROOM_DOCUMENT_DEPTH_MAX" documents.depth "Depth of nested fields", "422, `BAD_USER_INPUT`"),
    bound!(count "document-aliases-max" "WIDEROOM_DOCUMENT_ALIASES_MAX" documents.aliases "Aliases of a document", "422, `BAD_USER_INPUT`"),
    bound!(count "document-roots-max" "WIDEROOM_DOCUMENT_ROOTS_MAX" documents.root_fields "Root fields of an operation", "422, `BAD_USER_INPUT`"),
    bound!(count "document-complexity-max" "WIDEROOM_DOCUMENT_COMPLEXITY_MAX" documents.complexity "Complexity of an operation: the most fields of its answer, by the sizes of its lists", "422, `BAD_USER_INPUT`"),
    bound!(count "document-payload-max" "WIDEROOM_DOCUMENT_PAYLOAD_MAX" documents.payload_complexity "Complexity of a mutation's payload and of a subscription's event", "422, `BAD_USER_INPUT`"),
    bound!(count "document-outbox-max" "WIDEROOM_DOCUMENT_OUTBOX_MAX" documents.outbox_complexity "Complexity of an event of outbox, which services alone read", "422, `BAD_USER_INPUT`"),
    bound!(size "message-body-max" "WIDEROOM_MESSAGE_BODY_MAX" chat.body_bytes_max "Text of a message, 20KiB at most", "`BAD_USER_INPUT`"),
    bound!(size "metadata-max" "WIDEROOM_METADATA_MAX" chat.metadata_bytes_max "Metadata of a message, as JSON", "`BAD_USER_INPUT`"),
    bound!(count "unread-cap" "WIDEROOM_UNREAD_CAP" chat.unread_cap "Highest unread count; at most 999", "a capped count"),
    bound!(count "inbox-scan-max" "WIDEROOM_INBOX_SCAN_MAX" chat.inbox_scan_max "Inbox entries scanned for a filtered page and for the summary", "a short page with a cursor to continue from; a capped summary"),
    bound!(count "inbox-replay-max" "WIDEROOM_INBOX_REPLAY_MAX" chat.inbox_replay_max "Inbox entries that a resumed inboxUpdated repeats; with more its cursor has expired", "`CURSOR_EXPIRED`"),
    bound!(count "conversations-max" "WIDEROOM_CONVERSATIONS_MAX" chat.conversations_max "Conversations of a user", "`BAD_USER_INPUT`"),
    bound!(count "large-conversations-max" "WIDEROOM_LARGE_CONVERSATIONS_MAX" chat.large_conversations_max "Conversations with more than 32 participants in which a user acts", "`BAD_USER_INPUT`"),
    bound!(count "sends-waiting-max" "WIDEROOM_SENDS_WAITING_MAX" chat.queue_jobs_max "Sends that wait in the queue of a conversation", "`UNAVAILABLE`, `NOT_DONE`"),
    bound!(size "sends-waiting-bytes-max" "WIDEROOM_SENDS_WAITING_BYTES_MAX" chat.queue_bytes_max "Bytes of sends that wait in the queue of a conversation", "`UNAVAILABLE`, `NOT_DONE`"),
    bound!(count "backlog-max" "WIDEROOM_BACKLOG_MAX" chat.backlog_writes_max "Writes of all conversations that are accepted and not settled, for example because the store times out", "`UNAVAILABLE`, `NOT_DONE`"),
    bound!(size "backlog-bytes-max" "WIDEROOM_BACKLOG_BYTES_MAX" chat.backlog_bytes_max "Bytes of these writes", "`UNAVAILABLE`, `NOT_DONE`"),
    bound!(time "begin-wait" "WIDEROOM_BEGIN_WAIT" chat.queue_wait "Longest wait of a send in its queue", "`UNAVAILABLE`, `NOT_DONE`"),
    bound!(time "settle-wait" "WIDEROOM_SETTLE_WAIT" chat.outcome_wait "Longest wait of a send for its outcome", "`UNAVAILABLE`, `UNKNOWN`; a retry with the same key decides"),
    bound!(count "send-rate" "WIDEROOM_SEND_RATE" chat.rates.sends_per_second "Messages of a user in a second", "`RATE_LIMITED` at the field, `NOT_DONE`"),
    bound!(count "send-burst" "WIDEROOM_SEND_BURST" chat.rates.sends_burst "Messages of a user at once (burst)", "`RATE_LIMITED` at the field, `NOT_DONE`"),
    bound!(count "stranger-rate" "WIDEROOM_STRANGER_RATE" chat.rates.strangers_per_hour "Users without a common conversation whom a user brings into conversations in an hour, direct and group alike", "`RATE_LIMITED` at the field, `NOT_DONE`; no user is brought in"),
    bound!(size "write-bytes-per-hour" "WIDEROOM_WRITE_BYTES_PER_HOUR" chat.rates.written_bytes_per_hour "Bytes of the messages that a user sends and edits in an hour", "`RATE_LIMITED` at the field, `NOT_DONE`"),
    bound!(count "report-rate" "WIDEROOM_REPORT_RATE" chat.rates.reports_per_hour "Reports of a user in an hour", "`RATE_LIMITED` at the field, `NOT_DONE`"),
    bound!(count "report-day-rate" "WIDEROOM_REPORT_DAY_RATE" chat.rates.reports_per_day "Reports of a user in 24 hours", "`RATE_LIMITED` at the field, `NOT_DONE`"),
    bound!(count "reports-per-day-max" "WIDEROOM_REPORTS_PER_DAY_MAX" chat.reports_per_day "Reports of all users in 24 hours", "`RATE_LIMITED` at the field, `NOT_DONE`"),
    bound!(count "search-rate" "WIDEROOM_SEARCH_RATE" chat.rates.searches_per_second "Searches of a user in a second; each `searchMessages` of a document is one", "`RATE_LIMITED` at the field"),
    bound!(count "search-burst" "WIDEROOM_SEARCH_BURST" chat.rates.searches_burst "Searches of a user at once (burst)", "`RATE_LIMITED` at the field"),
    bound!(count "search-work-rate" "WIDEROOM_SEARCH_WORK_RATE" chat.rates.search_work_per_second "Work of a user's searches in a second, counted in units of about a microsecond of a processor", "`RATE_LIMITED` at the next search"),
    bound!(count "search-work-burst" "WIDEROOM_SEARCH_WORK_BURST" chat.rates.search_work_burst "Work of a user's searches at once (burst), in these units", "`RATE_LIMITED` at the next search"),
    bound!(count "searches-max" "WIDEROOM_SEARCHES_MAX" chat.searches_max "Concurrent searches of all users; a user has one", "the search waits; `RATE_LIMITED` after replay-wait"),
    bound!(count "search-messages-max" "WIDEROOM_SEARCH_MESSAGES_MAX" chat.search_messages_max "Messages that one page of a search reads", "a short page with a cursor to continue from"),
    bound!(time "typing-every" "WIDEROOM_TYPING_EVERY" chat.rates.typing_interval "Shortest interval between a user's typing signals in one conversation", "`RATE_LIMITED` at the field"),
    bound!(time "typing-lasts" "WIDEROOM_TYPING_LASTS" chat.typing_lifetime "Time for which a typing signal is valid", "other users see the typing end"),
    bound!(time "presence-grace" "WIDEROOM_PRESENCE_GRACE" chat.presence_grace "Time without a connection after which a user is offline", "other users see the user offline"),
    bound!(count "presence-names-max" "WIDEROOM_PRESENCE_NAMES_MAX" chat.presence_names_max "Usernames that all presenceChanged subscriptions of a user follow together", "`RATE_LIMITED`"),
    bound!(time "seen-every" "WIDEROOM_SEEN_EVERY" chat.last_seen_interval "Shortest interval between two persisted values of `lastSeenAt`", "`lastSeenAt` is older by up to this time"),
    bound!(count "mutation-rate" "WIDEROOM_MUTATION_RATE" server.rates.mutations_per_second "Mutations of a user in a second", "429, `RATE_LIMITED`, nothing executed"),
    bound!(count "mutation-burst" "WIDEROOM_MUTATION_BURST" server.rates.mutations_burst "Mutations of a user at once (burst)", "429, `RATE_LIMITED`, nothing executed"),
    bound!(count "query-rate" "WIDEROOM_QUERY_RATE" server.rates.queries_per_second "Requests of a user, and executions of its subscription events, in a second; each 200 fields of an answer cost one more", "429, `RATE_LIMITED`; events wait"),
    bound!(count "query-burst" "WIDEROOM_QUERY_BURST" server.rates.queries_burst "Requests and event executions of a user at once (burst)", "429, `RATE_LIMITED`; events wait"),
    bound!(count "service-rate" "WIDEROOM_SERVICE_RATE" server.rates.service_per_second "Requests of a service, executions of its subscription events, and mutations, each in a second, whoever it acts for", "429, `RATE_LIMITED`; events wait"),
    bound!(count "service-burst" "WIDEROOM_SERVICE_BURST" server.rates.service_burst "Requests and mutations of a service at once (burst)", "429, `RATE_LIMITED`; events wait"),
    bound!(count "live-rate" "WIDEROOM_LIVE_RATE" server.rates.service_live_per_second "Live writes of a service in a second, whoever it acts for, and messages of one of its sockets; a user has 10", "429, `RATE_LIMITED`; the server reads a socket more slowly"),
    bound!(count "address-rate" "WIDEROOM_ADDRESS_RATE" server.rates.address_per_second "Requests without a valid token, and new sockets, of an address in a second", "429, `RATE_LIMITED`"),
    bound!(count "address-burst" "WIDEROOM_ADDRESS_BURST" server.rates.address_burst "Requests and new sockets of an address at once (burst)", "429, `RATE_LIMITED`"),
    bound!(count "address-connections-max" "WIDEROOM_ADDRESS_CONNECTIONS_MAX" server.rates.address_connections "Connections of an address that are not WebSockets", "the server closes the connection"),
    bound!(count "ipv6-56-factor" "WIDEROOM_IPV6_56_FACTOR" server.rates.networks.per_56 "Factor of the limits of an IPv6 /56 over those of an address (a /64)", "as for an address"),
    bound!(count "ipv6-48-factor" "WIDEROOM_IPV6_48_FACTOR" server.rates.networks.per_48 "Factor of the limits of an IPv6 /48 over those of an address (a /64)", "as for an address"),
    bound!(count "user-replays-max" "WIDEROOM_USER_REPLAYS_MAX" chat.user_replays_max "Concurrent reads of missed events for a user's resumed subscriptions", "the read waits"),
    bound!(count "replays-max" "WIDEROOM_REPLAYS_MAX" chat.replays_max "Concurrent reads of missed events for all users", "the read waits"),
    bound!(time "replay-wait" "WIDEROOM_REPLAY_WAIT" chat.replay_wait "Longest wait of such a read", "`RATE_LIMITED`"),
    bound!(count "user-answers-max" "WIDEROOM_USER_ANSWERS_MAX" server.rates.user_answers "Answers of a user in flight, until their last byte is written", "429, `RATE_LIMITED`, nothing executed"),
    bound!(size "user-answer-bytes-max" "WIDEROOM_USER_ANSWER_BYTES_MAX" server.rates.user_answer_bytes "Bytes of a user's answers in flight, including events of subscriptions", "429, `RATE_LIMITED`; a mutation's outcome is `UNKNOWN`; events wait"),
    bound!(count "user-reads-max" "WIDEROOM_USER_READS_MAX" chat.user_reads_max "Concurrent reads of the store for a user's operations", "the read waits; `UNAVAILABLE` after 5 s"),
    bound!(count "streams-max" "WIDEROOM_STREAMS_MAX" server.streams.total "Subscriptions over HTTP", "503, `UNAVAILABLE`"),
    bound!(count "user-streams-max" "WIDEROOM_USER_STREAMS_MAX" server.rates.user_streams "Subscriptions over HTTP of a user", "429, `RATE_LIMITED`"),
    bound!(time "stream-heartbeat" "WIDEROOM_STREAM_HEARTBEAT" server.streams.heartbeat "Longest silence of a subscription over HTTP", "a heartbeat"),
    bound!(count "sockets-max" "WIDEROOM_SOCKETS_MAX" server.sockets.total "WebSockets; a further one evicts the oldest without a viewer", "1013 for a socket without a viewer; without one 503 before the upgrade"),
    bound!(count "user-sockets-max" "WIDEROOM_USER_SOCKETS_MAX" server.rates.user_sockets "WebSockets of a user", "4291"),
    bound!(count "service-sockets-max" "WIDEROOM_SERVICE_SOCKETS_MAX" server.rates.service_sockets "WebSockets of a service, and its subscriptions over HTTP", "4291; 429, `RATE_LIMITED`"),
    bound!(count "address-sockets-max" "WIDEROOM_ADDRESS_SOCKETS_MAX" server.rates.address_sockets "WebSockets of an address", "429 before the upgrade"),
    bound!(count "socket-operations-max" "WIDEROOM_SOCKET_OPERATIONS_MAX" server.sockets.operations "Operations of one socket at once", "`RATE_LIMITED`"),
    bound!(size "socket-message-max" "WIDEROOM_SOCKET_MESSAGE_MAX" server.sockets.message_bytes "Message of a socket", "1009"),
    bound!(size "socket-init-max" "WIDEROOM_SOCKET_INIT_MAX" server.sockets.init_bytes "Bytes that a socket sends before its connection_init is accepted", "1009"),
    bound!(count "socket-rate" "WIDEROOM_SOCKET_RATE" server.sockets.rate_per_second "Messages of a socket in a second", "the server reads more slowly; 4429 after 10 s"),
    bound!(count "socket-burst" "WIDEROOM_SOCKET_BURST" server.sockets.rate_burst "Messages of a socket at once (burst)", "the server reads more slowly; 4429 after 10 s"),
    bound!(time "socket-init-wait" "WIDEROOM_SOCKET_INIT_WAIT" server.sockets.init "Time from the opening of a socket to a connection_init with a token", "4408 without a connection_init; 4403 without a token in it"),
    bound!(time "socket-ping-every" "WIDEROOM_SOCKET_PING_EVERY" server.sockets.ping "Interval of pings to a socket", "a ping"),
    bound!(time "socket-pong-wait" "WIDEROOM_SOCKET_PONG_WAIT" server.sockets.pong "Longest silence of a socket after a ping; any byte of its client ends it", "4408"),
    bound!(time "socket-write-wait" "WIDEROOM_SOCKET_WRITE_WAIT" server.sockets.write "Longest wait of a message for the network", "4290; reconnect and resume with the cursor"),
    bound!(count "socket-queue-max" "WIDEROOM_SOCKET_QUEUE_MAX" server.sockets.queue_messages "Messages that wait for a slow reader of a socket", "the server delivers as slowly as the client reads; 4290 for a message that cannot wait"),
    bound!(size "socket-queue-bytes-max" "WIDEROOM_SOCKET_QUEUE_BYTES_MAX" server.sockets.queue_bytes "Bytes of messages that wait for a slow reader of a socket", "the server delivers as slowly as the client reads; 4290 for a message that cannot wait"),
];
