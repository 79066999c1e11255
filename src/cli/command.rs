//! Commands, and their help.

use clap::Subcommand;

use super::bench::{self, BenchFlags};
use super::client::{self, ClientFlags};
use super::data::{
    self, BackupFlags, EraseFlags, ExportFlags, ImportFlags, MigrateFlags, OutboxFlags,
    ReindexFlags, RestoredFlags, VerifyFlags, WebhookFlags,
};
use super::error::Error;
use super::health::{self, HealthFlags};
use super::settings::{SERVE, SettingFlags};
use super::token::{self, TokenFlags};
use super::{check_config, default_config, schema, serve};

#[derive(Subcommand)]
pub(super) enum Command {
    /// Run the server until SIGTERM or SIGINT.
    ///
    /// The server needs no configuration: it stores messages in the data folder, and listens on this machine only. After a
    /// signal it accepts no new work, finishes running requests, and closes the store; a second signal stops it at once.
    /// One server at a time uses a data folder.
    #[command(
        about = "Run the server",
        after_help = "\
Examples:
  wideroom serve --demo
  wideroom serve --listen 0.0.0.0:8080 --data /var/lib/wideroom --log-format json
  WIDEROOM_LISTEN=127.0.0.1:9000 wideroom serve --config wideroom.toml"
    )]
    Serve(SettingFlags<SERVE>),
    /// Print a signed token for a user, or for a service.
    ///
    /// Any name is valid: a user exists once a token names it. The command signs with the key in the data folder, and
    /// creates that key if it is missing; with --token-secret-file it signs with that secret. It refuses where an identity
    /// provider alone signs tokens (--token-keys-file). A service is a backend: --scope names its rights, and `act` is the
    /// right to act as any user. The command does not open the store, so it works beside a running server. Anyone with the
    /// token is that user until the token expires: protect it like a password.
    #[command(
        about = "Print a signed token for a user",
        after_help = "\
Examples:
  wideroom token --user alice
  wideroom token --user alice@example.org --ttl 15m --data /var/lib/wideroom
  wideroom token --service backend --token-secret-file /etc/wideroom/secret
  wideroom token --service push --scope outbox
  curl -H \"Authorization: Bearer $(wideroom token --user alice)\" …"
    )]
    Token(TokenFlags),
    /// Load conversations and their history into the store, from JSON lines.
    ///
    /// Each line is one JSON object for one fact, with a `type`. Lines have any order. Ids and times are preserved. Facts
    /// that the store already has stay unchanged, so a repeated import changes nothing. The import of a file resumes after
    /// an interruption. The command names a broken line by its number and skips it; the exit code is then 1. No server may
    /// use the store meanwhile.
    ///
    /// With --lossy the import keeps in another way what it would refuse: a body of more than 20 KiB and more than 10
    /// attachments in several messages, the name of a custom emoji as the text `:name:`. It prints how many there were.
    #[command(
        about = "Load conversations and their history into the store",
        after_help = "\
Lines and their fields; fields before the bar are required:
  user          username | displayName avatarUrl metadata lastSeenAt tokensFrom suspension {since | until reason}
  block         username blocked since
  conversation  id | kind name description avatarUrl metadata appKey createdAt createdBy lastActivityAt slowModeSeconds
                sendRole addRole pinRole historyVisibility messageTtlSeconds floor inputHash participants
  participant   conversationId username | state role joinedAt leftAt readUpTo unreadFrom deliveredUpTo
                muted pinned archivedAt level silencedSince silencedUntil visibleFrom clearedUpTo
                askedMessageTtlSeconds ban {by at | until reason}
  message       conversationId id sender | kind body metadata replyTo mentions mentionsEveryone clientKey
                inputHash editedAt deletedAt isInterrupted parts steps [{key title state | detail}]
                attachments [{url mimeType | name sizeBytes width height durationMs thumbnailUrl}]
  reaction      conversationId messageId emoji username
  pin           conversationId messageId by at
  report        id reporter user reason | note conversationId messageId body attachments
                resolution {outcome by at}
  header, end   first and last line of an export: format exportedAt tokensFrom; lines (before it)
Usernames have no blanks at their ends, no bidirectional controls and something visible, unless the file is an export.
`participants` is a list of {username, role, readUpTo, …}. Message ids are timeuuids and hold the time. `unreadFrom` is the first unread
message, where it does not directly follow `readUpTo`. docker/IMPORT.md explains each field.

Examples:
  wideroom import chats.jsonl
  python3 tests/clients/imports/slack.py export.zip | wideroom import - --lossy
  zcat chats.jsonl.gz | wideroom import - --data /var/lib/wideroom"
    )]
    Import(ImportFlags),
    /// Write the whole store as JSON lines, which `wideroom import` reads into any store: users, conversations,
    /// participants with their roles, markers and flags, messages with edits, deletions and replies, and reactions. With
    /// --user, write the data of one person alone: the profile, memberships, messages, reactions, pins, blocks and reports
    /// of that user. The command names a message that it cannot read on standard error and leaves it out; the exit code is
    /// then 1.
    ///
    /// Only your own user can read FILE; run `chmod` to share it, or write to a pipe. The export writes to FILE.partial,
    /// which becomes FILE once it is complete. The same command resumes an interrupted export; remove the partial file to
    /// start anew. Stop the server of an embedded store first. Servers of a cluster may run, but the file can then miss
    /// writes of that time: stop them for a move.
    #[command(
        about = "Write the whole store to a file",
        after_help = "\
Examples:
  wideroom export chats.jsonl --data /var/lib/wideroom
  wideroom export - --store cql://10.0.0.1/wideroom | gzip > chats.jsonl.gz
  wideroom export alice.jsonl --user alice
  wideroom export - | wideroom import - --store cql://10.0.0.1/wideroom"
    )]
    Export(ExportFlags),
    /// Erase a user: suspend them, remove them from every conversation, delete their messages, reactions, blocks, reports
    /// and profile, and put `wideroom:erased` in place of their name where something of them stays.
    ///
    /// The mutation `eraseUser` does the same beside running servers. The command is for a store that no server uses. At
    /// its end it rewrites the files of an embedded store, so that none of them holds the erased texts; run it again for a
    /// user whom the mutation has erased, for that alone. It needs the free space of a copy. The same command resumes an
    /// interrupted erasure.
    ///
    /// The name stays suspended, and may stay for 35 days in logs of changes and keys, and in mentions and blocks by
    /// others. Backups and exports keep what they have.
    #[command(
        about = "Erase a user from the store",
        after_help = "\
Examples:
  wideroom export alice.jsonl --user alice --data /var/lib/wideroom
  wideroom erase --user alice --data /var/lib/wideroom
  wideroom erase --user alice --store cql://10.0.0.1/wideroom"
    )]
    Erase(EraseFlags),
    /// Read the whole store and compare derived data with messages and participants: the heads of conversations, counts,
    /// the entries of inboxes, direct pairs, the search index and, on a cluster, the index of buckets. The command counts
    /// each kind of disagreement and shows an example.
    ///
    /// The command names each message that it cannot read on standard error. It cannot repair such a message; delete it
    /// instead. `--repair` rebuilds derived data and never changes messages or participants. The exit code is 0 if the
    /// store is consistent or repaired, else 1. Stop the servers first: on a cluster the command can otherwise report
    /// writes that are under way.
    #[command(
        about = "Check the consistency of the store",
        after_help = "\
Examples:
  wideroom verify --data /var/lib/wideroom
  wideroom verify --repair --store cql://10.0.0.1/wideroom"
    )]
    Verify(VerifyFlags),
    /// Build the search index of every conversation again, from its history.
    ///
    /// Servers index new messages by themselves, and older ones once somebody searches among them. Run this after an
    /// import, so that the first searches are fast, and where `wideroom verify` finds an index that lacks messages.
    /// Searches are right at any time: what is not indexed is read from history.
    ///
    /// On an embedded store stop the server first. A cluster may be served meanwhile.
    #[command(
        about = "Build the search index again",
        after_help = "\
Examples:
  wideroom reindex --data /var/lib/wideroom
  wideroom reindex --store cql://10.0.0.1/wideroom"
    )]
    Reindex(ReindexFlags),
    /// Create the keyspace and its tables on a cluster of Cassandra or ScyllaDB, or upgrade them to the version of this
    /// program.
    ///
    /// Run it before the first server starts on a cluster, and with each new version before its servers. It is safe to
    /// repeat, and safe to run twice at once. An existing keyspace keeps its replication. Servers refuse a keyspace that
    /// lacks a step of theirs.
    ///
    /// Servers of the version before go on serving until `--finish`, so that they can be replaced one by one, and back. It
    /// checks that none of them serves; from then on they are refused.
    ///
    /// The command records the data centre, and servers refuse another one. After a failover stop all servers and name the
    /// new one with `--data-centre`.
    #[command(
        about = "Create the tables on a cluster of Cassandra or ScyllaDB",
        after_help = "\
Examples:
  wideroom migrate --store cql://10.0.0.1,10.0.0.2/wideroom
  wideroom migrate --store 'cql://wideroom:secret@db.internal/wideroom?dc=north&tls=on' --replication 3
  wideroom migrate --store cql://10.0.0.1,10.0.0.2/wideroom --finish"
    )]
    Migrate(MigrateFlags),
    /// Switch the outbox of a deployment on or off, or show whether it is on.
    ///
    /// The outbox keeps every event of every conversation for 7 days: messages, edits, deletions, reactions, participants
    /// and names. A backend receives them through the subscription `outbox`, with a token of a service, and resumes with
    /// its cursor. While the outbox is on, each write persists one small row more, together with what it persists anyway.
    /// While it is off, a write costs nothing more.
    ///
    /// On a cluster, running servers follow within 15 seconds; the command prints the time from which readers can rely on
    /// the outbox. The embedded store must not be in use by a server.
    #[command(
        about = "Keep every event for services, or stop it",
        after_help = "\
Examples:
  wideroom outbox on --data /var/lib/wideroom
  wideroom outbox status --store cql://cassandra/wideroom
  wideroom outbox off --store cql://cassandra/wideroom"
    )]
    Outbox(OutboxFlags),
    /// List the webhooks of a running server, and redeliver the events that their receivers refused.
    ///
    /// Webhooks stand in the configuration file, as `[[webhook]]` tables, and need `wideroom outbox on`. An event that a
    /// receiver refuses three times with a 4xx status becomes a dead letter, which is kept for 30 days. The commands ask
    /// the server at its admin address, with the key in its data folder.
    #[command(
        about = "List webhooks, and redeliver what their receivers refused",
        after_help = "\
Examples:
  wideroom webhook list --data /var/lib/wideroom
  wideroom webhook redeliver backend --data /var/lib/wideroom
  wideroom webhook redeliver backend --event 6f7ac8e2-2a5e-11f1-8d3a-0242ac120002"
    )]
    Webhook(WebhookFlags),
    /// Copy the store of a running server into a folder. Another server can then start on that folder.
    ///
    /// The copy holds everything that was acknowledged before the backup began, as of one moment, and the key of the data
    /// folder. With --new-key the copy has a key of its own: use that for a copy that you try out beside the original. Only
    /// your own user can read the copy.
    ///
    /// The command asks the server at its --admin-listen, and authenticates with the key in --data. The server keeps
    /// running. DIR must be empty or missing; with --keep N it is the folder of dated copies, of which the newest N stay
    /// once the new one is whole. Every server refuses an incomplete copy. A cluster has backup tools of its own.
    #[command(
        about = "Copy the store of a running server",
        after_help = "\
Examples:
  wideroom backup /backup/2026-11-21 --data /var/lib/wideroom
  wideroom backup /backup --keep 7 --data /var/lib/wideroom            every night: a week of copies
  wideroom backup /srv/staging --new-key --data /var/lib/wideroom      today's tokens do not open this copy
  wideroom serve --data /backup/2026-11-21 --listen 127.0.0.1:8081 --admin-listen off    serve the copy"
    )]
    Backup(BackupFlags),
    /// Note that the store was restored from copied files, so that no client trusts a cursor from before.
    ///
    /// Run it once after a data folder was replaced by a plain copy of its files, or a cluster by a snapshot, and before
    /// the first server starts. A client that resumes a stream with a cursor from before gets CURSOR_EXPIRED and reads
    /// again; it would miss what the copy lacks otherwise. Cursors of lists go on. A server that starts on a folder of
    /// `wideroom backup`, or with --accept-loss, notes it by itself.
    #[command(
        about = "Note that the store was restored from copied files",
        after_help = "\
Examples:
  wideroom restored --data /var/lib/wideroom
  wideroom restored --store cql://cassandra/wideroom"
    )]
    Restored(RestoredFlags),
    /// Ask the server of a data folder whether it is alive: `/healthz` of its admin listener, at the address that the
    /// server wrote to the folder.
    ///
    /// The command prints `alive` and exits with 0, or prints the reason and exits with 1. A container's health check and a
    /// supervisor run it. It asks for liveness, not readiness: a supervisor must not restart a server because its cluster
    /// is down.
    #[command(
        about = "Ask whether the server of a data folder is alive",
        after_help = "\
Examples:
  wideroom health --data /var/lib/wideroom"
    )]
    Health(HealthFlags),
    /// Put load on a running server, embedded or on a cluster, and print the measurements.
    ///
    /// The command WRITES to that server: it creates users named bench-RUN-0001 and so on, groups and messages, and deletes
    /// none of them. Use a server whose data you can throw away. Servers limit the rate of each user and the sockets of
    /// each address, so start it with `--rates off`.
    ///
    /// Each workload prints the number of operations and their rate, latencies in milliseconds (p50, p90, p99, p99.9 and
    /// max), and failures by code. With `--pid`, on the server's machine, it also prints the server's CPU time for each
    /// operation, busy cores and memory. The bench uses CPU too: on the same machine, CPU time for each operation says more
    /// than operations a second. The exit code is 1 if an operation failed.
    ///
    /// `--json` prints the keys workload, url, run, settings, seconds, operations, of (name of the operation), perSecond,
    /// p50Ms, p90Ms, p99Ms, p999Ms, maxMs, failed, failures (by code), faults and interrupted; with --pid also
    /// cpuMicrosEach, cpuCores and residentMib. A workload may add its own keys.
    #[command(
        about = "Measure a running server under a load",
        after_help = "\
Examples:
  wideroom serve --data ./bench-data --rates off &      start a server on a folder to throw away
  wideroom bench send --data ./bench-data --pid $!      64 concurrent senders: rate, latency, and CPU for each send
  wideroom bench fanout --subscribers 1000 --rate 20 --data ./bench-data --pid $!
  wideroom bench storm --data ./bench-data              500 sockets reconnect at once: time to catch up, lost messages
  wideroom bench page --json --data ./bench-data | jq .p99Ms

`wideroom bench WORKLOAD --help` describes each workload."
    )]
    Bench(BenchFlags),
    /// Write the package `wideroom-client` of this version into a folder, for `npm install ./DIR` or `npm pack`.
    ///
    /// Every server serves the same files, from /client/index.js on. DIR must be missing, empty, or hold this package of
    /// any version, whose files it replaces.
    #[command(
        about = "Write the JavaScript client as a package of npm",
        after_help = "\
Examples:
  wideroom client vendor/wideroom-client && npm install ./vendor/wideroom-client"
    )]
    Client(ClientFlags),
    /// Print the settings that `wideroom serve` would use with the same flags, environment and file, and the source of
    /// each.
    ///
    /// The command reads the files that the settings name (keys, trusted documents), so that it finds errors in them. It
    /// opens no store and creates nothing. The output is a configuration file itself. It leaves out the user and password
    /// of a cluster.
    #[command(
        about = "Print the settings in force and the source of each",
        after_help = "\
Examples:
  wideroom check-config --config wideroom.toml
  wideroom check-config --config wideroom.toml | grep -v '# default'"
    )]
    CheckConfig(SettingFlags<SERVE>),
    /// Print a configuration file with every setting, its meaning and its default. Every setting is commented out;
    /// uncomment one to override its default.
    #[command(
        about = "Print a configuration file with every setting and its default",
        long_about,
        after_help = "\
Examples:
  wideroom default-config > wideroom.toml"
    )]
    DefaultConfig,
    /// Print the schema of the API in GraphQL's schema language, as in schema.graphql. The command opens no store.
    #[command(
        about = "Print the schema of the API",
        long_about,
        after_help = "\
Examples:
  wideroom schema > schema.graphql"
    )]
    Schema,
}

impl Command {
    pub(super) fn run(&self) -> Result<(), Error> {
        match self {
            Self::Token(flags) => token::run(flags),
            Self::Import(flags) => data::import(flags),
            Self::Export(flags) => data::export(flags),
            Self::Erase(flags) => data::erase(flags),
            Self::Verify(flags) => data::verify(flags),
            Self::Reindex(flags) => data::reindex(flags),
            Self::Migrate(flags) => data::migrate(flags),
            Self::Outbox(flags) => data::outbox(flags),
            Self::Webhook(flags) => data::webhook(flags),
            Self::Backup(flags) => data::backup(flags),
            Self::Restored(flags) => data::restored(flags),
            Self::Health(flags) => health::run(flags),
            Self::Bench(flags) => bench::run(flags),
            Self::Client(flags) => client::run(flags),
            Self::CheckConfig(given) => check_config::run(given),
            Self::DefaultConfig => default_config::run(),
            Self::Schema => schema::run(),
            Self::Serve(given) => serve::run(given),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde::de::DeserializeOwned;

    use super::*;
    use crate::transfer::line;

    /// The fields of a line, from the refusal of another one.
    fn fields<T: DeserializeOwned>() -> Vec<String> {
        let refusal = serde_json::from_str::<T>(r#"{"other":1}"#).err().unwrap();
        let refusal = refusal.to_string();
        let names = refusal.split('`').skip(3).step_by(2);
        names.map(ToOwned::to_owned).collect()
    }

    #[test]
    fn the_help_and_the_page_of_imports_name_every_field() {
        let page = include_str!("../../docker/IMPORT.md");
        let fields = [
            fields::<line::Header>(),
            fields::<line::UserLine>(),
            fields::<line::SuspensionLine>(),
            fields::<line::BlockLine>(),
            fields::<line::ConversationLine>(),
            fields::<line::ParticipantLine>(),
            fields::<line::BanLine>(),
            fields::<line::MessageLine>(),
            fields::<line::AttachmentLine>(),
            fields::<line::ReactionLine>(),
            fields::<line::PinLine>(),
            fields::<line::ReportLine>(),
            fields::<line::ResolutionLine>(),
            fields::<line::End>(),
        ];
        let command = Command::augment_subcommands(clap::Command::new("wideroom"));
        let import = command.find_subcommand("import").unwrap();
        let help = import.get_after_help().unwrap().to_string();
        let words: Vec<_> = help.split(|char: char| !char.is_alphanumeric()).collect();
        for field in fields.iter().flatten() {
            assert!(
                words.contains(&field.as_str()),
                "{field} is not in the help"
            );
            let shown = format!("`{field}`");
            assert!(page.contains(&shown), "{field} is not in docker/IMPORT.md");
        }
        assert!(fields.iter().flatten().count() > 70);
    }
}
