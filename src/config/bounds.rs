//! The bounds: a setting for each, all of one shape.

use super::{Scope, Setting, value};

/// The most that `batch-max` may say.
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

/// All bounds, in the order in which the help shows them.
pub const BOUNDS: &[Setting] = &[
    bound!(size "http-body-max" "WIDEROOM_HTTP_BODY_MAX" server.body_bytes "A request's body", "413, `BAD_USER_INPUT`"),
    bound!(size "variables-max" "WIDEROOM_VARIABLES_MAX" server.variables_bytes "A request's variables, as JSON", "413, `BAD_USER_INPUT`"),
    Setting {
        name: "batch-max",
        environment: "WIDEROOM_BATCH_MAX",
        scope: Scope::Serve,
        value_name: Some("COUNT"),
        help: "Requests of one body, as a JSON array, 100 at most; 0 takes no arrays",
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
    bound!(time "request-deadline" "WIDEROOM_REQUEST_DEADLINE" server.request "From the head of a request to its answer", "503, `UNAVAILABLE`; a mutation's outcome is `UNKNOWN`"),
    bound!(size "answer-max" "WIDEROOM_ANSWER_MAX" server.answer_bytes "An answer's text, and that of an event of a subscription", "422, `BAD_USER_INPUT`; a mutation's outcome is `UNKNOWN`; an event is left out, with an error that has its `cursor`"),
    bound!(size "reader-pace" "WIDEROOM_READER_PACE" server.pace.bytes_per_second "Bytes in a second that a reader takes, at least, while some wait for it", "the connection is cut"),
    bound!(time "reader-pace-over" "WIDEROOM_READER_PACE_OVER" server.pace.window "Over how long a time that is measured", "the connection is cut"),
    bound!(count "connections-max" "WIDEROOM_CONNECTIONS_MAX" server.connections "Connections that are not WebSockets; for one more the idlest is closed", "an idle connection is closed; where none is idle the newcomer waits"),
    bound!(size "head-max" "WIDEROOM_HEAD_MAX" server.head.bytes "A request's line and headers", "431"),
    bound!(count "headers-max" "WIDEROOM_HEADERS_MAX" server.head.headers "A request's headers", "431"),
    bound!(time "head-wait" "WIDEROOM_HEAD_WAIT" server.head.wait "From the first byte of a request's line to the end of its headers", "the server closes the connection"),
    bound!(time "idle-wait" "WIDEROOM_IDLE_WAIT" server.head.idle "How long a connection waits for a request; less when connections are short", "the server closes the connection"),
    bound!(size "linger-max" "WIDEROOM_LINGER_MAX" server.head.linger_bytes "What is read and dropped of a request that was refused, so that its client reads why", "the server closes the connection"),
    bound!(time "linger-wait" "WIDEROOM_LINGER_WAIT" server.head.linger "For how long", "the server closes the connection"),
    bound!(size "document-max" "WIDEROOM_DOCUMENT_MAX" documents.bytes "A document's text", "422, `BAD_USER_INPUT`"),
    bound!(count "document-tokens-max" "WIDEROOM_DOCUMENT_TOKENS_MAX" documents.tokens "Tokens of a document", "422, `BAD_USER_INPUT`"),
    bound!(count "document-fields-max" "WIDEROOM_DOCUMENT_FIELDS_MAX" documents.fields "Fields of an operation, with its fragments expanded", "422, `BAD_USER_INPUT`"),
    bound!(count "document-depth-max" "WIDEROOM_DOCUMENT_DEPTH_MAX" documents.depth "Fields one inside the other", "422, `BAD_USER_INPUT`"),
    bound!(count "document-aliases-max" "WIDEROOM_DOCUMENT_ALIASES_MAX" documents.aliases "Aliases of a document", "422, `BAD_USER_INPUT`"),
    bound!(count "document-roots-max" "WIDEROOM_DOCUMENT_ROOTS_MAX" documents.root_fields "Root fields of an operation", "422, `BAD_USER_INPUT`"),
    bound!(count "document-complexity-max" "WIDEROOM_DOCUMENT_COMPLEXITY_MAX" documents.complexity "Fields that an answer may come to, by the sizes of its lists", "422, `BAD_USER_INPUT`"),
    bound!(count "document-payload-max" "WIDEROOM_DOCUMENT_PAYLOAD_MAX" documents.payload_complexity "The same, of what a mutation answers with and of each event of a subscription", "422, `BAD_USER_INPUT`"),
    bound!(size "message-body-max" "WIDEROOM_MESSAGE_BODY_MAX" chat.body_bytes_max "A message's text", "`BAD_USER_INPUT`"),
    bound!(size "metadata-max" "WIDEROOM_METADATA_MAX" chat.metadata_bytes_max "A message's metadata, as JSON", "`BAD_USER_INPUT`"),
    bound!(count "unread-cap" "WIDEROOM_UNREAD_CAP" chat.unread_cap "The most that an unread count says; 999 at most", "a capped count"),
    bound!(count "inbox-scan-max" "WIDEROOM_INBOX_SCAN_MAX" chat.inbox_scan_max "Entries looked at for a filtered page, and for the summary", "a short page with a cursor to go on from; a capped summary"),
    bound!(count "inbox-replay-max" "WIDEROOM_INBOX_REPLAY_MAX" chat.inbox_replay_max "Entries that a resumed inboxUpdated repeats; more, and its cursor has expired", "`CURSOR_EXPIRED`"),
    bound!(count "conversations-max" "WIDEROOM_CONVERSATIONS_MAX" chat.conversations_max "Conversations that one user may be in", "`BAD_USER_INPUT`"),
    bound!(count "large-conversations-max" "WIDEROOM_LARGE_CONVERSATIONS_MAX" chat.large_conversations_max "Conversations of more than 32 that one user may act in", "`BAD_USER_INPUT`"),
    bound!(count "sends-waiting-max" "WIDEROOM_SENDS_WAITING_MAX" chat.queue_jobs_max "Sends that wait in one conversation", "`UNAVAILABLE`, `NOT_DONE`"),
    bound!(size "sends-waiting-bytes-max" "WIDEROOM_SENDS_WAITING_BYTES_MAX" chat.queue_bytes_max "The same, in bytes", "`UNAVAILABLE`, `NOT_DONE`"),
    bound!(time "begin-wait" "WIDEROOM_BEGIN_WAIT" chat.begin_wait "How long a send waits for its turn before it is refused", "`UNAVAILABLE`, `NOT_DONE`"),
    bound!(time "settle-wait" "WIDEROOM_SETTLE_WAIT" chat.settle_wait "How long a send waits for its outcome before it is told to be unknown", "`UNAVAILABLE`, `UNKNOWN`: the same send with its key settles it"),
    bound!(count "send-rate" "WIDEROOM_SEND_RATE" chat.rates.sends_per_second "Messages that a user may send in a second", "`RATE_LIMITED` at the field, `NOT_DONE`"),
    bound!(count "send-burst" "WIDEROOM_SEND_BURST" chat.rates.sends_burst "Messages that a user may send at once", "`RATE_LIMITED` at the field, `NOT_DONE`"),
    bound!(count "stranger-rate" "WIDEROOM_STRANGER_RATE" chat.rates.strangers_per_hour "Strangers that a user may bring into conversations in an hour, direct ones and groups alike", "`RATE_LIMITED` at the field, `NOT_DONE`; nobody is brought in"),
    bound!(time "typing-every" "WIDEROOM_TYPING_EVERY" chat.rates.typing_every "How far apart a user's signs of typing in one conversation are", "`RATE_LIMITED` at the field"),
    bound!(time "typing-lasts" "WIDEROOM_TYPING_LASTS" chat.typing_lasts "How long a sign of typing lasts", "others see the user stop"),
    bound!(time "presence-grace" "WIDEROOM_PRESENCE_GRACE" chat.presence_grace "How long a user may be gone before others are told", "others see the user offline"),
    bound!(count "presence-names-max" "WIDEROOM_PRESENCE_NAMES_MAX" chat.presence_names_max "Names that a user follows with all presenceChanged together", "`RATE_LIMITED`"),
    bound!(time "seen-every" "WIDEROOM_SEEN_EVERY" chat.seen_every "How often it is kept, at most, that a user is here", "`lastSeenAt` is that much older"),
    bound!(count "mutation-rate" "WIDEROOM_MUTATION_RATE" server.rates.mutations_per_second "Mutations of a user in a second", "429, `RATE_LIMITED`, nothing executed"),
    bound!(count "mutation-burst" "WIDEROOM_MUTATION_BURST" server.rates.mutations_burst "Mutations of a user at once", "429, `RATE_LIMITED`, nothing executed"),
    bound!(count "query-rate" "WIDEROOM_QUERY_RATE" server.rates.queries_per_second "Requests of a user, and subscription events executed for it, in a second; each 200 fields of an answer count one more", "429, `RATE_LIMITED`; events come more slowly"),
    bound!(count "query-burst" "WIDEROOM_QUERY_BURST" server.rates.queries_burst "The same, at once", "429, `RATE_LIMITED`; events come more slowly"),
    bound!(count "address-rate" "WIDEROOM_ADDRESS_RATE" server.rates.address_per_second "Requests without a good token, and new sockets, of an address in a second", "429, `RATE_LIMITED`"),
    bound!(count "address-burst" "WIDEROOM_ADDRESS_BURST" server.rates.address_burst "The same, at once", "429, `RATE_LIMITED`"),
    bound!(count "address-connections-max" "WIDEROOM_ADDRESS_CONNECTIONS_MAX" server.rates.address_connections "Connections of an address that are not WebSockets", "the server closes the connection"),
    bound!(count "ipv6-56-factor" "WIDEROOM_IPV6_56_FACTOR" server.rates.networks.per_56 "How many times what an address (IPv6: a /64) may a /56 may", "as for an address"),
    bound!(count "ipv6-48-factor" "WIDEROOM_IPV6_48_FACTOR" server.rates.networks.per_48 "The same for a /48", "as for an address"),
    bound!(count "user-replays-max" "WIDEROOM_USER_REPLAYS_MAX" chat.user_replays_max "Reads of what resumed subscriptions of a user missed, at once; more wait", "waits in line"),
    bound!(count "replays-max" "WIDEROOM_REPLAYS_MAX" chat.replays_max "The same, of all users", "waits in line"),
    bound!(time "replay-wait" "WIDEROOM_REPLAY_WAIT" chat.replay_wait "How long they wait", "`RATE_LIMITED`"),
    bound!(count "user-answers-max" "WIDEROOM_USER_ANSWERS_MAX" server.rates.user_answers "Answers of a user that are under way, until their last byte is written", "429, `RATE_LIMITED`, nothing executed"),
    bound!(size "user-answer-bytes-max" "WIDEROOM_USER_ANSWER_BYTES_MAX" server.rates.user_answer_bytes "The same, in bytes, with events of subscriptions", "429, `RATE_LIMITED`; a mutation's outcome is `UNKNOWN`; events wait"),
    bound!(count "user-reads-max" "WIDEROOM_USER_READS_MAX" chat.user_reads_max "Reads of the store under way for a user's operations; more wait", "waits in line; `UNAVAILABLE` after 5 s of that"),
    bound!(count "streams-max" "WIDEROOM_STREAMS_MAX" server.streams.total "Subscriptions over HTTP", "503, `UNAVAILABLE`"),
    bound!(count "user-streams-max" "WIDEROOM_USER_STREAMS_MAX" server.rates.user_streams "Subscriptions over HTTP of a user", "429, `RATE_LIMITED`"),
    bound!(time "stream-heartbeat" "WIDEROOM_STREAM_HEARTBEAT" server.streams.heartbeat "How long a subscription over HTTP says nothing", "a heartbeat"),
    bound!(count "sockets-max" "WIDEROOM_SOCKETS_MAX" server.sockets.total "WebSockets; for one more the oldest without a viewer is closed", "1013 for one without a viewer; where there is none 503 before the upgrade"),
    bound!(count "user-sockets-max" "WIDEROOM_USER_SOCKETS_MAX" server.rates.user_sockets "WebSockets of a user", "4291"),
    bound!(count "address-sockets-max" "WIDEROOM_ADDRESS_SOCKETS_MAX" server.rates.address_sockets "WebSockets of an address", "429 before the upgrade"),
    bound!(count "socket-operations-max" "WIDEROOM_SOCKET_OPERATIONS_MAX" server.sockets.operations "Operations of one socket at once", "`RATE_LIMITED`"),
    bound!(size "socket-message-max" "WIDEROOM_SOCKET_MESSAGE_MAX" server.sockets.message_bytes "A message of a socket", "1009"),
    bound!(size "socket-init-max" "WIDEROOM_SOCKET_INIT_MAX" server.sockets.init_bytes "What a socket sends until its connection_init is accepted", "1009"),
    bound!(count "socket-rate" "WIDEROOM_SOCKET_RATE" server.sockets.rate_per_second "Messages of a socket in a second; more are read more slowly", "the server reads more slowly; 4429 after 10 s"),
    bound!(count "socket-burst" "WIDEROOM_SOCKET_BURST" server.sockets.rate_burst "Messages of a socket at once", "the server reads more slowly; 4429 after 10 s"),
    bound!(time "socket-init-wait" "WIDEROOM_SOCKET_INIT_WAIT" server.sockets.init "From the opening of a socket to a connection_init with a token", "4408 without a connection_init; 4403 where it named nobody"),
    bound!(time "socket-ping-every" "WIDEROOM_SOCKET_PING_EVERY" server.sockets.ping "How often a socket is asked whether it is there", "a ping"),
    bound!(time "socket-pong-wait" "WIDEROOM_SOCKET_PONG_WAIT" server.sockets.pong "How long it may take to say so", "4408"),
    bound!(time "socket-write-wait" "WIDEROOM_SOCKET_WRITE_WAIT" server.sockets.write "How long a message may wait for the network", "4290, come back with your cursor"),
    bound!(count "socket-queue-max" "WIDEROOM_SOCKET_QUEUE_MAX" server.sockets.queue_messages "Messages that wait for a slow reader of a socket", "the server delivers as slowly as the client reads; 4290 where it cannot wait"),
    bound!(size "socket-queue-bytes-max" "WIDEROOM_SOCKET_QUEUE_BYTES_MAX" server.sockets.queue_bytes "The same, in bytes", "the server delivers as slowly as the client reads; 4290 where it cannot wait"),
];
