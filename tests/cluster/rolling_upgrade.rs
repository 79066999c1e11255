//! Two versions at once: a keyspace is upgraded under load and back, one server after the other,
//! with a program that pretends to be the next version, or from the last release to this one.
//!
//! The pretender knows one more migration, whose columns it fills, and writes a kind of change, of session and
//! of notice, a form of contents and a form of memberships that this version does not know.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;

use tokio::sync::watch;

use super::club::Club;
use super::crowd::{Crowd, Keys};
use super::novelties::Novelties;
use super::place::unmigrated;
use crate::binary::follower::{Follower, Place};
use crate::binary::ledger::Ledger;
use crate::binary::stage::{GROUP_AT, LARGE_AT, SMALL_AT, Stage};
use crate::support::cassandra::{Shared, say, shared};
use crate::support::program::Ended;
use crate::support::server::Server;

/// Makes a debug build pretend.
const PRETENDS: &str = "WIDEROOM_PRETEND_NEXT_VERSION";
/// Path of the program of the last release.
const RELEASED: &str = "WIDEROOM_TEST_RELEASED";
const THIS_RELEASE: &str = env!("CARGO_BIN_EXE_wideroom");
const SERVERS: usize = 2;
const SENDERS: usize = 6;
/// Acknowledged sends between two steps.
const KEPT: usize = 30;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Version {
    Present,
    Next,
}

pub(super) struct RunningVersion {
    pub(super) version: Version,
    pub(super) server: Server,
}

struct Upgrade {
    stage: Arc<Stage>,
    /// Program of the last release, which is the present version beside this one as the next.
    released: Option<PathBuf>,
    servers: Vec<RunningVersion>,
    places: watch::Sender<Vec<SocketAddr>>,
    place: watch::Sender<Option<Place>>,
    number: usize,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "gate: an upgrade of four servers under load"]
async fn two_versions_share_a_keyspace_through_a_rolling_upgrade_and_back() {
    if !cfg!(debug_assertions) {
        say("upgrade: a release pretends nothing");
        return;
    }
    let Some(shared) = shared().await else {
        return;
    };
    up_down_and_up(shared, None).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "nightly: WIDEROOM_TEST_RELEASED names the program of the last release"]
async fn nightly_the_last_release_and_this_one_share_a_keyspace() {
    let Some(released) = std::env::var_os(RELEASED) else {
        say(&format!("upgrade: {RELEASED} names no program"));
        return;
    };
    if let Some(shared) = shared().await {
        up_down_and_up(shared, Some(released.into())).await;
    }
}

async fn up_down_and_up(shared: &Shared, released: Option<PathBuf>) {
    let program = unmigrated(|keyspace| shared.url(keyspace));
    let program = match &released {
        Some(path) => program.released(path.clone()),
        None => program,
    };
    program.run(&["migrate", "--replication", "1"]).succeeded();
    let mut upgrade = Upgrade::begin(Stage::set_up(program).await, released);
    let stage = Arc::clone(&upgrade.stage);
    let listen = |at| Follower::of_messages_on_a_cluster(&stage, at, upgrade.place.subscribe());
    let listeners: Vec<_> = [GROUP_AT, LARGE_AT, SMALL_AT].map(listen).into();
    let inbox = |user| Follower::of_inbox_on_a_cluster(&stage, user, upgrade.place.subscribe());
    let inboxes: Vec<_> = [0, 3].map(inbox).into();
    let mut ledger = Ledger::default();
    let places = upgrade.places.subscribe();
    let mut crowd = Crowd::gather(&stage, "upgrade", SENDERS, Keys::ThreeOfFour, &places);
    let mut club = Club::found(&stage.program, upgrade.address()).await;
    let meeting = club.meet_through(places);
    let mut novelties = Novelties::begin(
        &stage.program,
        upgrade.address(),
        upgrade.released.is_none(),
    )
    .await;
    crowd.keeps(KEPT).await;

    upgrade
        .run(Version::Next, &["migrate", "--replication", "1"])
        .succeeded();
    for version in [Version::Next, Version::Present] {
        for index in 0..SERVERS {
            upgrade.replace(index, version);
            let took = crowd.keeps(KEPT).await;
            novelties.pass(&upgrade.servers).await;
            say(&format!(
                "upgrade: server {index} is of the {version:?} version; {KEPT} more were kept in {took:.1?}"
            ));
            if index == 0 {
                let finished = upgrade.run(Version::Next, &["migrate", "--finish"]);
                assert_ne!(finished.code, Some(0), "{}", finished.stdout);
                assert!(
                    finished.stderr.contains("still serve"),
                    "{}",
                    finished.stderr
                );
            }
        }
    }
    let tries = crowd.end(&mut ledger).await;
    let deeds = club.end(meeting).await;
    let found = ledger.check(&stage, upgrade.address()).await;
    club.check(upgrade.address()).await;
    say(&format!(
        "upgrade: {} sends in {} tries and {deeds} deeds of a club; this version verified {}",
        ledger.attempts.len(),
        tries.len(),
        upgrade
            .run(Version::Present, &["verify"])
            .succeeded()
            .trim()
    ));

    // Up again, for good.
    for index in 0..SERVERS {
        upgrade.replace(index, Version::Next);
    }
    for follower in listeners {
        follower.check_all_heard(&found).await;
    }
    for follower in inboxes {
        follower.check_all_shown(&stage, &found).await;
    }
    novelties.pass(&upgrade.servers).await;
    ledger.check(&stage, upgrade.address()).await;
    club.check(upgrade.address()).await;
    upgrade
        .run(Version::Next, &["migrate", "--finish"])
        .succeeded();
    upgrade.run(Version::Next, &["verify"]).succeeded();
    let refused = upgrade.run(Version::Present, &["serve", "--listen", "127.0.0.1:0"]);
    assert_ne!(refused.code, Some(0));
    assert!(
        refused.stderr.trim_end().ends_with("upgrade this server"),
        "{}",
        refused.stderr
    );
    upgrade.end();
}

impl Upgrade {
    fn begin(stage: Stage, released: Option<PathBuf>) -> Self {
        let mut upgrade = Self {
            stage: Arc::new(stage),
            released,
            servers: Vec::new(),
            places: watch::channel(Vec::new()).0,
            place: watch::channel(None).0,
            number: 0,
        };
        for _ in 0..SERVERS {
            let server = upgrade.start(Version::Present);
            upgrade.servers.push(server);
        }
        upgrade.tell_places();
        upgrade
    }

    fn address(&self) -> SocketAddr {
        self.servers[0].server.address()
    }

    fn command(&self, version: Version, arguments: &[&str]) -> Command {
        let program = &self.stage.program;
        match (version, &self.released) {
            (Version::Present, _) => program.command(arguments),
            (Version::Next, Some(_)) => program.command_of(THIS_RELEASE.as_ref(), arguments),
            (Version::Next, None) => {
                let mut command = program.command(arguments);
                command.env(PRETENDS, "1");
                command
            }
        }
    }

    fn run(&self, version: Version, arguments: &[&str]) -> Ended {
        self.command(version, arguments).output().unwrap().into()
    }

    fn start(&self, version: Version) -> RunningVersion {
        let arguments = [
            "serve",
            "--listen",
            "127.0.0.1:0",
            "--log",
            "warn",
            "--rates",
            "off",
        ];
        RunningVersion {
            version,
            server: Server::spawn(&mut self.command(version, &arguments)),
        }
    }

    /// Clients whose server is gone go to the next one.
    fn tell_places(&mut self) {
        let all: Vec<_> = self
            .servers
            .iter()
            .map(|one| one.server.address())
            .collect();
        self.number += 1;
        let address = all[self.number % all.len()];
        self.places.send_replace(all);
        self.place.send_replace(Some(Place {
            number: self.number,
            address,
        }));
    }

    /// Drains a server, and starts one of a version in its place.
    fn replace(&mut self, index: usize, version: Version) {
        let gone = self.servers.remove(index);
        self.tell_places();
        drain(gone.server);
        let server = self.start(version);
        self.servers.insert(index, server);
        self.tell_places();
    }

    fn end(self) {
        for running in self.servers {
            drain(running.server);
        }
    }
}

fn drain(server: Server) {
    server.signal("-TERM");
    let (code, _, log) = server.end();
    assert_eq!(code, Some(0), "{log}");
    assert!(!log.contains("panicked"), "{log}");
}
