//! Writes that wait in the queue of a conversation behind a change of permissions, and changes of one user at the same time. They run on
//! any store.

use std::sync::Arc;

use wideroom::chat::{Bounds, Chat, Draft, DraftInput, Error, Result};
use wideroom::clock::{Clock, SystemClock};
use wideroom::metrics::Metrics;
use wideroom::model::{ConversationId, Message, Role, UserId, Viewer};

use super::pair::people;
use super::slow::Slow;
use crate::support::ground::Ground;
use crate::support::world::{PATIENCE, chat_on, group_of};

async fn send(
    chat: &Chat,
    user: &UserId,
    conversation: ConversationId,
    body: &str,
) -> Arc<Message> {
    let input = DraftInput {
        body: body.to_owned(),
        ..DraftInput::default()
    };
    chat.writes
        .send(
            user,
            conversation,
            Draft::parse(input, chat.bounds()).unwrap(),
        )
        .await
        .unwrap()
}

/// A chat whose writes a test holds up, and the numbers of its queues.
async fn open(bounds: Bounds) -> (Ground, Arc<Slow>, Chat, Metrics) {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let ground = Ground::new(&SystemClock).await;
    let (slow, store) = Slow::before(ground.open(Arc::clone(&clock)).await);
    let bounds = Bounds {
        queue_wait: PATIENCE,
        outcome_wait: 2 * PATIENCE,
        ..bounds
    };
    let chat = chat_on(store, clock, bounds).await;
    let metrics = Metrics::default();
    chat.register(&metrics);
    (ground, slow, chat, metrics)
}

/// Waits until so many conversations have a queue, in which so many jobs wait.
async fn waiting(metrics: &Metrics, queues: usize, jobs: usize) {
    let wanted = [
        format!("wideroom_queues {queues}"),
        format!("wideroom_queue_jobs {jobs}"),
    ];
    let are_told = || {
        let text = metrics.text();
        wanted
            .iter()
            .all(|wanted| text.lines().any(|line| line == wanted))
    };
    let look = async {
        while !are_told() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, look)
        .await
        .unwrap_or_else(|_| panic!("{queues} queues and {jobs} jobs: {}", metrics.text()));
}

/// Each begins while its user may do it, and comes to its turn when they may not any more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writes_queued_behind_a_removal_or_a_demotion_are_refused() {
    let (_ground, slow, chat, metrics) = open(Bounds::default()).await;

    let [anna, ben, gus] = people(["anna", "ben", "gus"]);
    let names = [ben.as_str().to_owned(), gus.as_str().to_owned()];
    let conversation = chat
        .writes
        .create_group(&anna, group_of("a group", &names, None))
        .await
        .unwrap()
        .id;
    chat.writes
        .set_role(&anna, conversation, gus.as_str(), Role::Admin)
        .await
        .unwrap();
    let (of_anna, of_ben) = (
        send(&chat, &anna, conversation, "of anna").await,
        send(&chat, &ben, conversation, "of ben").await,
    );
    waiting(&metrics, 0, 0).await;

    slow.hold();
    let (chat, anna, ben, gus) = (&chat, &anna, &ben, &gus);
    let begun = async |jobs| waiting(&metrics, 1, jobs).await;
    let waiters = async {
        // Until it is being written, the first one waits too.
        begun(0).await;
        tokio::join!(
            chat.writes
                .remove_participant(anna, conversation, ben.as_str()),
            async {
                begun(1).await;
                chat.writes
                    .set_role(anna, conversation, gus.as_str(), Role::Member)
                    .await
            },
            async {
                begun(2).await;
                chat.writes
                    .edit(ben, conversation, of_ben.id, "edited".to_owned())
                    .await
            },
            async {
                begun(3).await;
                chat.writes.delete(ben, conversation, of_ben.id).await
            },
            async {
                begun(4).await;
                chat.writes
                    .react(ben, conversation, of_anna.id, "\u{1f44d}", true)
                    .await
            },
            async {
                begun(5).await;
                let moderation = chat.writes.delete(gus, conversation, of_anna.id);
                let let_go = async {
                    begun(6).await;
                    slow.let_go();
                };
                tokio::join!(moderation, let_go).0
            },
        )
    };
    let (held, (removed, demoted, edited, deleted, reacted, moderated)) =
        tokio::join!(send(chat, anna, conversation, "holds the queue"), waiters);
    drop(held);
    removed.unwrap();
    demoted.unwrap();
    let is_refused = |answer: Result<Arc<Message>>| matches!(answer, Err(Error::NotFound(_)));
    assert!(
        is_refused(edited) && is_refused(deleted) && is_refused(reacted),
        "one who was removed"
    );
    assert!(
        matches!(moderated, Err(Error::Forbidden(_))),
        "one who is an admin no more: {moderated:?}"
    );
    let now = chat
        .history
        .messages(&[(conversation, of_anna.id), (conversation, of_ben.id)])
        .await
        .unwrap();
    assert_eq!(now, [Some(of_anna), Some(of_ben)], "as they were");
}

/// Writes of many conversations that cannot be settled, because the store does not answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn beyond_the_backlog_of_all_conversations_nothing_is_begun() {
    let bounds = Bounds {
        backlog_writes_max: 2,
        ..Bounds::default()
    };
    let (_ground, slow, chat, metrics) = open(bounds).await;
    let [anna, ben] = people(["anna", "ben"]);
    let names = [ben.as_str().to_owned()];
    let mut conversations = Vec::new();
    for _ in 0..3 {
        let made = chat
            .writes
            .create_group(&anna, group_of("a group", &names, None));
        conversations.push(made.await.unwrap().id);
    }
    slow.hold();
    let (chat, anna) = (&chat, &anna);
    let refused = async {
        // Each of the two is being written, and waits for the store.
        waiting(&metrics, 2, 0).await;
        let input = DraftInput {
            body: "one too many".to_owned(),
            ..DraftInput::default()
        };
        let draft = Draft::parse(input, chat.bounds()).unwrap();
        let refused = chat.writes.send(anna, conversations[2], draft).await;
        slow.let_go();
        refused
    };
    let (one, two, refused) = tokio::join!(
        send(chat, anna, conversations[0], "one"),
        send(chat, anna, conversations[1], "two"),
        refused
    );
    assert!(matches!(refused, Err(Error::Busy)), "{refused:?}");
    let newest = chat.store().last_messages(&conversations).await.unwrap();
    assert_eq!(newest, [Some(one.id), Some(two.id), None]);
    send(chat, anna, conversations[2], "now there is room").await;
}

/// The store knows which change was the later one, whatever answer comes first.
#[tokio::test]
async fn of_a_suspension_and_a_restoration_at_once_the_later_one_holds() {
    let (_ground, slow, chat, _) = open(Bounds::default()).await;
    let [anna, backend] = people(["anna", "backend"]);
    let service = Viewer::service(backend);
    let restrictions = &chat.restrictions;
    slow.hold_answer("restrict");
    let restored_meanwhile = async {
        slow.answer_is_held().await;
        let restored = restrictions.restore(&service, &anna).await;
        slow.let_answer_go();
        restored
    };
    let suspended = restrictions.suspend(&service, &anna, None, None);
    let (suspended, restored) = tokio::join!(suspended, restored_meanwhile);
    assert!(suspended.is_ok() && restored.is_ok());
    let viewer = Viewer::from(anna);
    assert_eq!(restrictions.check(&viewer, Some(SystemClock.now())), Ok(()));
}
