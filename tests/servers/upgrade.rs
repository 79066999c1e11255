//! The gate of a rolling upgrade: the forms that a keyspace may hold, before and after `wideroom migrate --finish`.

use std::sync::Arc;

use serde_json::json;
use wideroom::bus::Bus;
use wideroom::chat;
use wideroom::clock::{Clock, SystemClock};
use wideroom::model::Viewer;
use wideroom::store::cql::{Cql, finish, migrate};
use wideroom::store::{FormVersion, Store as _};

use super::keyspace::{BEFORE, Keyspace};
use super::pair::{Server, people};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn new_forms_wait_for_the_end_of_an_upgrade() {
    let Some(keyspace) = Keyspace::migrated().await else {
        return;
    };
    let address = keyspace.address.clone();
    let newest = FormVersion(keyspace.version);
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let store = Cql::open(address.clone(), clock).await.unwrap();
    assert_eq!(
        store.form_version().await.unwrap(),
        newest,
        "a keyspace that is made new"
    );

    keyspace.begin_upgrade().await;
    assert_eq!(store.form_version().await.unwrap(), FormVersion(BEFORE));
    // A second migration finds everything there, and ends no upgrade.
    migrate(&address, Some(1), &SystemClock).await.unwrap();
    assert_eq!(store.form_version().await.unwrap(), FormVersion(BEFORE));

    assert_eq!(finish(&address).await.unwrap(), keyspace.version);
    assert_eq!(store.form_version().await.unwrap(), newest);
    store.close().await.unwrap();
    keyspace.drop().await;
}

/// A server of the version before could not read what they would write.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "gate: an upgrade of two servers"]
async fn mutations_that_write_new_forms_are_refused_until_the_end_of_an_upgrade() {
    let Some(keyspace) = Keyspace::migrated().await else {
        return;
    };
    keyspace.begin_upgrade().await;
    let server = Server::at(keyspace.address.clone(), Bus::default(), 0).await;
    let [ann, ben] = people(["ann", "ben"]);
    let group = server.actor(&ann).group("a group", &[ben.as_str()]).await;
    let message = server.actor(&ben).send(&group, "hello").await.id;
    let variables = json!({ "c": group, "m": message, "u": ben.as_str() });
    let deeds = [
        "($c: ID!, $u: String!) { banParticipant(input: {conversationId: $c, username: $u}) { __typename } }",
        "($c: ID!, $u: String!) { silenceParticipant(input: {conversationId: $c, username: $u}) { __typename } }",
        "($c: ID!) { updateConversation(input: {conversationId: $c, slowModeSeconds: 9}) { __typename } }",
        "($c: ID!) { updateConversation(input: {conversationId: $c, sendRole: ADMIN}) { __typename } }",
        "($c: ID!) { updateConversation(input: {conversationId: $c, messageTtlSeconds: 90}) { __typename } }",
        "($c: ID!) { updateConversation(input: {conversationId: $c, historyVisibility: SINCE_JOINED}) { __typename } }",
        "($c: ID!, $m: ID!) { truncateConversation(input: {conversationId: $c, upToMessageId: $m}) { __typename } }",
        "($c: ID!) { clearHistory(input: {conversationId: $c}) { __typename } }",
        "($m: ID!) { pinMessage(input: {messageId: $m}) { __typename } }",
        "($m: ID!) { reportMessage(input: {messageId: $m, reason: SPAM}) { __typename } }",
        "($c: ID!, $u: String!) { sendMessage(input: {conversationId: $c, body: \"hi\", mentionedUsernames: [$u]}) { __typename } }",
        "($c: ID!) { sendMessage(input: {conversationId: $c, body: \"hi\", attachments: [{url: \"https://a.example\", mimeType: \"audio/ogg\", durationMs: 7}]}) { __typename } }",
        "($c: ID!) { sendMessage(input: {conversationId: $c, body: \"hi\", steps: [{key: \"1\", title: \"Read\", state: DONE}]}) { __typename } }",
    ];
    let actor = server.actor(&ann);
    for deed in deeds {
        let document = format!("mutation{deed}");
        let answer = actor.ask(&document, variables.clone()).await;
        let extensions = answer.extensions();
        let found = (&extensions["code"], &extensions["outcome"]);
        assert_eq!(found, (&json!("UNAVAILABLE"), &json!("NOT_DONE")), "{deed}");
    }
    let [backend] = people(["backend"]);
    let backend = Viewer::service(backend);
    let erase = || server.chat.erasure.erase(&backend, ben.as_str());
    let refused = erase().await;
    assert!(
        matches!(refused, Err(chat::Error::UpgradeNotFinished)),
        "{refused:?}"
    );
    // The plain forms are written all the while.
    server.actor(&ben).send(&group, "hello back").await;

    finish(&keyspace.address).await.unwrap();
    let mut erased = erase().await;
    while matches!(erased, Err(chat::Error::UpgradeNotFinished)) {
        // A closed gate is read again after two seconds.
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        erased = erase().await;
    }
    erased.unwrap();
    let pin = format!("mutation{}", deeds[7]);
    actor.data(&pin, variables).await;
}
