//! Memory of the streams of one server of a cluster: the growth of this process with each of them, at rest. The session row of each is in
//! it too, as the directory is in this process.

use std::sync::Arc;

use tokio::task::JoinHandle;
use wideroom::chat::Chat;
use wideroom::model::{ConversationId, UserId};
use wideroom::store::embedded::Embedded;

use super::fleet::Fleet;
use super::scale::Scale;
use super::{Conversations, name};
use crate::report::{self, Verdicts};

const STREAMS: usize = 10_000;
const KIB_MAX: f64 = 4.0;

/// Kinds of streams, each subscribed to a topic of its own.
#[derive(Debug, Clone, Copy)]
enum StreamKind {
    Inbox,
    Messages,
    Conversation,
}

pub(super) async fn measure(
    store: &Arc<Embedded>,
    conversations: &Conversations,
    scale: &Scale,
    verdicts: &mut Verdicts,
) {
    report::heading(
        "Memory of a stream of the chat on a cluster, in KiB (this process, by its resident pages)",
    );
    let direct = &conversations[0];
    // All stay until the end: pages that one kind has freed would hide the growth of the next.
    let mut alive = Vec::new();
    for kind in [
        StreamKind::Inbox,
        StreamKind::Messages,
        StreamKind::Conversation,
    ] {
        let fleet = Fleet::open(1, store, conversations, scale).await;
        let (chat, _) = &fleet.servers[0];
        let count = match kind {
            StreamKind::Inbox => STREAMS,
            StreamKind::Messages | StreamKind::Conversation => direct.len(),
        };
        // The first ones fill what all streams share.
        let warm = open(chat, kind, 0..count / 10, direct).await;
        let before = resident_kib();
        let streams = open(chat, kind, count / 10..count, direct).await;
        let each = (resident_kib() - before) / streams.len() as f64;
        verdicts.push(
            &format!("KiB of a stream: {kind:?}"),
            each,
            "at most 4",
            each <= KIB_MAX,
        );
        println!("  {kind:?}: {each:.2}, {} streams", streams.len());
        alive.push((fleet, warm, streams));
    }
    for (fleet, warm, streams) in alive {
        warm.iter().chain(&streams).for_each(JoinHandle::abort);
        fleet.servers[0].0.finish().await;
    }
}

async fn open(
    chat: &Chat,
    kind: StreamKind,
    numbers: std::ops::Range<usize>,
    direct: &[(ConversationId, Vec<usize>)],
) -> Vec<JoinHandle<()>> {
    let mut opened = Vec::with_capacity(numbers.len());
    for number in numbers {
        let streams = Arc::clone(&chat.streams);
        let (conversation, viewer): (ConversationId, UserId) = match direct.get(number) {
            Some((id, people)) => (*id, name(people[0])),
            None => (ConversationId::random(), name(number)),
        };
        let (begun, has_begun) = tokio::sync::oneshot::channel();
        opened.push(tokio::spawn(async move {
            match kind {
                StreamKind::Inbox => {
                    let mut stream = Box::pin(streams.inbox(&name(number), None)).await.unwrap();
                    stream.next().await.unwrap().unwrap();
                    begun.send(()).unwrap();
                    while stream.next().await.is_some() {}
                }
                StreamKind::Messages => {
                    let opening = streams.messages(&viewer, conversation, None);
                    let mut stream = Box::pin(opening).await.unwrap();
                    begun.send(()).unwrap();
                    while stream.next().await.is_some() {}
                }
                StreamKind::Conversation => {
                    let opening = streams.conversation(&viewer, conversation, None);
                    let mut stream = Box::pin(opening).await.unwrap();
                    stream.next().await.unwrap().unwrap();
                    begun.send(()).unwrap();
                    while stream.next().await.is_some() {}
                }
            }
        }));
        has_begun.await.unwrap();
    }
    opened
}

fn resident_kib() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.unwrap()
        .trim()
        .trim_end_matches(" kB")
        .parse()
        .unwrap()
}
