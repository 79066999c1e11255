//! Moderation on several servers: what one decides holds on the others, and waits for the end of an upgrade.

use std::time::Duration;

use serde_json::json;
use wideroom::bus::Bus;
use wideroom::chat::{BanInput, ConversationEvent, ConversationSettings, PostingRolesInput};
use wideroom::model::{MessageKind, Role};
use wideroom::store::cql::finish;
use wideroom::store::{Store as _, StoreAdmin as _};

use super::keyspace::Keyspace;
use super::pair::{Server, people, two, two_with_group};
use crate::support::world::PATIENCE;

fn ban_of(name: &str) -> BanInput {
    BanInput {
        username: name.to_owned(),
        ..BanInput::default()
    }
}

const BAN: &str = "mutation($c: ID!, $u: String!) {
    banParticipant(input: {conversationId: $c, username: $u}) { removedParticipantId } }";
const SILENCE: &str = "mutation($c: ID!, $u: String!) {
    silenceParticipant(input: {conversationId: $c, username: $u}) { participant { isSilenced } } }";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_silence_and_a_ban_hold_on_every_server_and_are_told_there() {
    let Some((one, other, [anna, ben], conversation)) = two_with_group().await else {
        return;
    };
    other.send(&ben, conversation, "before").await;
    let streams = &other.chat.streams;
    let mut events = streams
        .conversation(&anna, conversation, None)
        .await
        .unwrap();
    let (writes, name) = (&one.chat.writes, ben.as_str());
    writes
        .silence(&anna, conversation, name, None)
        .await
        .unwrap();
    let refused = other.try_send(&ben, conversation, "x", None).await;
    assert!(refused.unwrap_err().to_string().contains("silenced"));
    writes.unsilence(&anna, conversation, name).await.unwrap();
    other.send(&ben, conversation, "after").await;
    writes.ban(&anna, conversation, ban_of(name)).await.unwrap();
    let refused = other.try_send(&ben, conversation, "x", None).await;
    assert!(refused.unwrap_err().to_string().contains("not found"));
    let mut told = Vec::new();
    let wait = async {
        while told.len() < 3 {
            match events.next().await.unwrap().unwrap().event {
                Some(ConversationEvent::ParticipantUpdated(user)) if user == ben => {
                    told.push("updated");
                }
                Some(ConversationEvent::ParticipantRemoved(user)) if user == ben => {
                    told.push("removed");
                }
                Some(_) | None => {}
            }
        }
    };
    let waited = tokio::time::timeout(PATIENCE, wait).await;
    assert!(waited.is_ok(), "{told:?}");
    assert_eq!(told, ["updated", "updated", "removed"]);
    // An addition that finds nothing to do delivers the last change once more.
    let added = [name.to_owned()];
    let other_writes = &other.chat.writes;
    other_writes
        .add_participants(&anna, conversation, &added, None)
        .await
        .unwrap();
    let refused = other.try_send(&ben, conversation, "x", None).await;
    assert!(refused.is_err(), "a banned user is left out");
}

/// One server makes an announcement group while a MEMBER sends on the other one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_posting_role_holds_on_every_server_within_two_seconds() {
    let Some((one, other)) = two().await else {
        return;
    };
    let [anna, ben] = people(["anna", "ben"]);
    for _ in 0..4 {
        let conversation = one.group(&anna, &[&ben]).await;
        let roles = PostingRolesInput {
            send: Some(Some(Role::Admin)),
            ..PostingRolesInput::default()
        };
        let settings = ConversationSettings {
            roles,
            ..ConversationSettings::default()
        };
        let sends = async {
            let mut last = None;
            loop {
                match other.try_send(&ben, conversation, "x", None).await {
                    Ok(message) => last = Some(message.id),
                    Err(refusal) => break (last, refusal),
                }
            }
        };
        let (writes, owner) = (&one.chat.writes, anna.clone().into());
        let (set, (last, refusal)) = tokio::join!(
            writes.update_settings(&owner, conversation, settings),
            sends
        );
        set.unwrap();
        assert!(
            refusal.to_string().contains("only an owner or admin"),
            "{refusal}"
        );
        let messages = one.cql.all_messages(conversation, None, 10_000);
        let messages = messages.await.unwrap().into_iter();
        let announcement = messages
            .filter_map(|stored| stored.message.ok())
            .find(|message| message.kind == MessageKind::System)
            .unwrap();
        let announced = one.cql.conversations(&[conversation]).await.unwrap();
        assert_eq!(announced[0].as_ref().unwrap().roles().send, Role::Admin);
        let last = last.map(|id| id.moment().micros()).unwrap_or_default();
        assert!(last - announcement.id.moment().micros() <= 2_000_000);
        one.send(&anna, conversation, "news").await;
    }
}

/// Two servers add and ban a user at the same time, again and again: in the end nobody is both.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_who_is_added_and_banned_at_once_is_not_both() {
    let Some((one, other)) = two().await else {
        return;
    };
    let [anna, ben, cat] = people(["anna", "ben", "cat"]);
    let conversation = one.group(&anna, &[&cat]).await;
    let name = ben.as_str();
    for _ in 0..8 {
        let added = [name.to_owned()];
        let (banned, added, sent) = tokio::join!(
            one.chat.writes.ban(&anna, conversation, ban_of(name)),
            other
                .chat
                .writes
                .add_participants(&anna, conversation, &added, None),
            other.try_send(&ben, conversation, "x", None),
        );
        banned.unwrap();
        added.unwrap();
        drop(sent);
        let users = std::slice::from_ref(&ben);
        let snapshot = one.cql.membership_snapshot(conversation, users).await;
        let membership = snapshot.unwrap().unwrap().memberships[0].unwrap();
        assert!(!membership.is_joined(), "the ban was acknowledged");
        let refused = one.try_send(&ben, conversation, "x", None).await;
        assert!(refused.is_err());
        let lifted = other.chat.writes.lift_ban(&anna, conversation, name).await;
        assert_eq!(lifted.unwrap(), Some(ben.clone()));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bans_and_silences_wait_for_the_end_of_an_upgrade() {
    let Some(keyspace) = Keyspace::migrated().await else {
        return;
    };
    keyspace.begin_upgrade().await;
    let server = Server::at(keyspace.address.clone(), Bus::default(), 0).await;
    let [anna, ben] = people(["anna", "ben"]);
    let actor = server.actor(&anna);
    let conversation = actor.group("Phoenix", &[ben.as_str()]).await;
    let variables = json!({"c": conversation, "u": ben.as_str()});
    for document in [SILENCE, BAN] {
        let refused = actor.ask(document, variables.clone()).await;
        assert_eq!(refused.code(), "UNAVAILABLE");
        assert_eq!(refused.extensions()["outcome"], "NOT_DONE");
        let sentence = refused.0.to_string();
        assert!(sentence.contains("wideroom migrate --finish"), "{sentence}");
    }
    // The server itself is of the newest version, so nothing is in the way.
    finish(&keyspace.address).await.unwrap();
    tokio::time::sleep(Duration::from_secs(3)).await;
    for document in [SILENCE, BAN] {
        actor.data(document, variables.clone()).await;
    }
    keyspace.drop().await;
}
