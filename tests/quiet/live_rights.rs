//! Rights that end in the middle of an answer, in virtual time: of its writer and of its viewers, on one server and on two. And an
//! outsider, to whom a live message is one that does not exist.

use std::mem::discriminant;
use std::time::Duration;

use serde_json::json;
use wideroom::chat::{Error, Result};
use wideroom::model::{ConversationId, LiveKey, LiveMessageId, LiveMessageState, Viewer};

use super::live::{Answering, user};
use super::screen::Screen;
use super::settler::settler;
use super::world::{Ground, QuietServer, quiet};

const SECOND: Duration = Duration::from_secs(1);
/// Age of a membership up to which a server of a cluster lets a writer go on.
const RIGHTS_MAX: u64 = 2;

async fn grounds() -> [Ground; 2] {
    [Ground::of_one().await, Ground::shared().await]
}

/// Acts of the owner of the group, or of a service, that end the rights of a participant to write.
const ENDINGS: [&str; 5] = ["removed", "banned", "silenced", "suspended", "roles"];

impl Answering {
    /// Ends the rights of a participant of the group, on the last server.
    async fn end_rights(&self, name: &str, how: &str) {
        let input = match how {
            "removed" => "removeParticipant(input: {conversationId: $c, username: $u})",
            "banned" => "banParticipant(input: {conversationId: $c, username: $u})",
            "silenced" => "silenceParticipant(input: {conversationId: $c, username: $u})",
            "roles" => "updateConversation(input: {conversationId: $c, sendRole: ADMIN})",
            _ => {
                // Servers of this simulation hear of no suspension from each other.
                let (backend, user) = (Viewer::service(user("backend")), user(name));
                for server in &self.servers {
                    let restrictions = &server.chat.restrictions;
                    let suspended = restrictions.suspend(&backend, &user, None, None);
                    suspended.await.unwrap();
                }
                return;
            }
        };
        let variables = match how {
            "roles" => ("$c: ID!", json!({"c": self.conversation})),
            _ => (
                "$c: ID!, $u: String!",
                json!({"c": self.conversation, "u": name}),
            ),
        };
        let document = format!("mutation({}) {{ {input} {{ __typename }} }}", variables.0);
        self.other()
            .user("alice")
            .data(&document, variables.1)
            .await;
    }
}

/// The next write of a writer who may not send is refused as a send is, on every server. The bubble leaves with the silence.
#[tokio::test(start_paused = true)]
async fn a_writer_who_may_not_send_any_more_writes_no_more() {
    for how in ENDINGS {
        for ground in grounds().await {
            let on = Answering::begin_in_group(ground).await;
            let settlers: Vec<_> = on.servers.iter().map(settler).collect();
            let mut screen = Screen::open(on.other(), "bob", on.on).await;
            on.write(&on.servers[0], "w", 0, "Seen").await.unwrap();
            screen.watch(3 * SECOND).await;
            on.end_rights("helper", how).await;
            quiet(RIGHTS_MAX).await;
            for server in &on.servers {
                for (writer, position) in [("w", 4), ("w", 0), ("anew", 0)] {
                    let write = on.write(server, writer, position, "Seen, and more").await;
                    let sent = on.send(server, "Seen, and more").await;
                    assert_refused_alike(how, &write.map(drop), &sent);
                }
            }
            screen.watch(SECOND).await;
            assert_eq!(screen.text(), "Seen", "{how}");
            screen.watch(Duration::from_secs(200)).await;
            assert!(screen.bubbles.is_empty() && !screen.has_ended, "{how}");
            let states: Vec<_> = screen.ended.iter().map(|view| view.state()).collect();
            assert_eq!(states, [LiveMessageState::Discarded], "{how}");
            drop(settlers);
        }
    }
}

fn assert_refused_alike(how: &str, write: &Result<()>, sent: &Result<()>) {
    let (Err(write), Err(sent)) = (write, sent) else {
        panic!("{how}: {write:?}, {sent:?}")
    };
    assert_eq!(discriminant(write), discriminant(sent), "{write}: {sent}");
    let is_of_rights = matches!(write, Error::Forbidden(_) | Error::NotFound(_));
    assert!(is_of_rights, "{how}: {write}");
}

/// A viewer who no longer takes part gets nothing that is written after it, and no stream.
#[tokio::test(start_paused = true)]
async fn a_viewer_who_takes_part_no_more_sees_no_more() {
    for how in ["removed", "banned"] {
        for ground in grounds().await {
            let on = Answering::begin_in_group(ground).await;
            let mut screens = Vec::new();
            for server in &on.servers {
                screens.push(Screen::open(server, "bob", on.on).await);
            }
            on.write(&on.servers[0], "w", 0, "Seen").await.unwrap();
            for screen in &mut screens {
                screen.watch(3 * SECOND).await;
                assert_eq!(screen.text(), "Seen");
            }
            on.end_rights("bob", how).await;
            quiet(RIGHTS_MAX).await;
            on.write(&on.servers[0], "w", 4, ", and not seen")
                .await
                .unwrap();
            for (screen, server) in screens.iter_mut().zip(&on.servers) {
                screen.watch(2 * SECOND).await;
                assert!(screen.has_ended && screen.text() == "Seen", "{how}");
                let refused = screen.resume(server).await;
                assert!(matches!(refused, Err(Error::NotFound(_))), "{how}");
                assert_eq!(on.view(server, "bob").await, None);
                let listed = server.chat.lives.writing(user("bob"), on.on).await;
                assert!(matches!(listed, Err(Error::NotFound(_))), "{how}");
            }
        }
    }
}

/// A participant who may not send may read on.
#[tokio::test(start_paused = true)]
async fn a_silenced_viewer_sees_on() {
    let on = Answering::begin_in_group(Ground::shared().await).await;
    let mut screen = Screen::open(on.other(), "bob", on.on).await;
    on.write(&on.servers[0], "w", 0, "Seen").await.unwrap();
    on.end_rights("bob", "silenced").await;
    quiet(RIGHTS_MAX).await;
    on.write(&on.servers[0], "w", 4, ", and seen")
        .await
        .unwrap();
    screen.watch(3 * SECOND).await;
    assert_eq!(screen.text(), "Seen, and seen");
}

/// Questions of an outsider about a live message are answered as for one that does not exist, with the same calls of the store.
#[tokio::test(start_paused = true)]
async fn an_outsider_is_answered_as_if_there_were_none() {
    for ground in grounds().await {
        let on = Answering::begin_in_group(ground).await;
        on.write(&on.servers[0], "w", 0, "Secret").await.unwrap();
        let nowhere = LiveKey {
            conversation: ConversationId(uuid::Uuid::from_u128(7)),
            id: LiveMessageId(uuid::Uuid::from_u128(8)),
        };
        for server in &on.servers {
            for question in [
                "view", "writing", "stop", "discard", "begin", "append", "stream",
            ] {
                let mut answers = Vec::new();
                for live in [on.live, nowhere] {
                    // Rows that any first question would read are read.
                    ask(&on, server, question, live).await;
                    quiet(10).await;
                    let before = server.still.all_calls();
                    let answer = ask(&on, server, question, live).await;
                    answers.push((answer, server.still.all_calls() - before));
                }
                assert_eq!(answers[0], answers[1], "{question}");
            }
        }
    }
}

async fn ask(on: &Answering, server: &QuietServer, question: &str, live: LiveKey) -> String {
    let (mallory, chat) = (user("mallory"), &server.chat);
    let write = async |position| {
        let mut input = on.input("w", position, "x");
        input.conversation = live.conversation;
        chat.lives.write(mallory.clone(), input).await.map(drop)
    };
    let answer = match question {
        "view" => {
            let view = chat.lives.view(mallory, live).await.unwrap();
            return format!("{view:?}");
        }
        "writing" => chat
            .lives
            .writing(mallory, live.conversation)
            .await
            .map(drop),
        "stop" => chat.lives.stop(mallory, live).await.map(drop),
        "discard" => chat.lives.discard(mallory, live).await.map(drop),
        "begin" => write(0).await,
        "append" => write(6).await,
        _ => {
            let stream = chat.streams.lives(mallory, live.conversation, None).await;
            stream.map(drop)
        }
    };
    answer.unwrap_err().to_string()
}
