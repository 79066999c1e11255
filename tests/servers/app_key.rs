//! App keys: two services make the conversation of one key at once, through faults and on two servers.

use std::collections::BTreeSet;
use std::sync::Arc;

use wideroom::chat::{Bounds, Chat, Error, GroupInput, Result};
use wideroom::clock::{Clock, SystemClock};
use wideroom::model::{AppKey, ConversationId, PageRequest, UserId, Viewer};
use wideroom::store::Store;

use super::pair::{people, two};
use super::slow::Slow;
use crate::delivery::directory::Dice;
use crate::support::ground::Ground;
use crate::support::size::sized;
use crate::support::world::chat_on;

/// The store's steps of a creation.
const STEPS: [&str; 3] = ["app_key_claim", "claim_app_key", "create_conversation"];
/// Calls of one service, of which at most two meet a fault.
const TRIES: usize = 4;

/// A service that makes the conversation of a key for a customer, however often it takes.
async fn create(
    chat: &Chat,
    service: &str,
    customer: &UserId,
    key: &str,
) -> Result<ConversationId> {
    let service = UserId::parse(service).unwrap();
    let caller = Viewer::acting(customer.clone(), service);
    let mut last = Err(Error::Busy);
    for _ in 0..TRIES {
        let input = GroupInput {
            name: "Order".to_owned(),
            usernames: vec!["courier".to_owned(), "shop".to_owned()],
            app_key: Some(key.to_owned()),
            ..GroupInput::default()
        };
        last = chat.writes.create_group(caller.clone(), input).await;
        if last.is_ok() {
            break;
        }
    }
    last.map(|created| created.id)
}

async fn server(store: &Arc<dyn Store>, clock: &Arc<dyn Clock>) -> Chat {
    chat_on(store.clone(), clock.clone(), Bounds::default()).await
}

/// Each service is killed at up to two steps, before the store does them or before it hears of that, and tries again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_services_with_kills_make_one_conversation_of_a_key() {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let ground = Ground::new(&SystemClock).await;
    let inner = ground.open(Arc::clone(&clock)).await;
    let [(one, first), (other, second)] = [0, 1].map(|_| Slow::before(inner.clone()));
    let faults = [one, other];
    let chats = [
        server(&(first as _), &clock).await,
        server(&(second as _), &clock).await,
    ];
    let dice = Dice::new(43);
    let rounds = sized(300, 10_000);
    let mut made = BTreeSet::new();
    for round in 0..rounds {
        let customer = UserId::parse(&format!("customer-{round}")).unwrap();
        let key = format!("order:{round}");
        for store in &faults {
            for _ in 0..dice.below(3) {
                let step = STEPS[usize::try_from(dice.below(3)).unwrap()];
                match dice.one_in(2) {
                    true => store.refuse(step, 1),
                    false => store.lose(step, 1),
                }
            }
        }
        let pauses = [0, 1].map(|_| dice.below(8));
        let service = async |index: usize| {
            for _ in 0..pauses[index] {
                tokio::task::yield_now().await;
            }
            let name = ["billing", "dispatch"][index];
            create(&chats[index], name, &customer, &key).await
        };
        let (one, other) = tokio::join!(service(0), service(1));
        let id = one.unwrap();
        assert_eq!(other.unwrap(), id, "{key}");
        assert!(made.insert(id));
        let present = inner
            .participants(id, &PageRequest::first(9))
            .await
            .unwrap();
        let present: Vec<_> = present.items.iter().map(|one| one.user.as_str()).collect();
        assert_eq!(present, ["courier", customer.as_str(), "shop"]);
        for store in &faults {
            for step in STEPS {
                store.refuse(step, 0);
                store.lose(step, 0);
            }
        }
    }
    let shop = UserId::parse("shop").unwrap();
    let mut listed = 0;
    let mut request = PageRequest::first(100);
    loop {
        let page = inner.inbox(&shop, &request).await.unwrap();
        listed += page.items.len();
        match page.items.last() {
            Some(last) if page.has_next => request.after = Some(last.key()),
            _ => break,
        }
    }
    assert_eq!(listed, rounds, "no conversation was made twice");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_servers_make_one_conversation_of_a_key() {
    let Some((one, other)) = two().await else {
        return;
    };
    let [anna, ben] = people(["anna", "ben"]);
    for round in 0..8 {
        let text = format!("order:{}:{round}", uuid::Uuid::new_v4());
        let (first, second) = tokio::join!(
            create(&one.chat, "billing", &anna, &text),
            create(&other.chat, "dispatch", &anna, &text),
        );
        let id = first.unwrap();
        assert_eq!(second.unwrap(), id);
        let key = AppKey::parse(&text).unwrap();
        let found = other.chat.participants.by_app_key(&key).await.unwrap();
        assert_eq!(found, id);
        let refused = create(&other.chat, "dispatch", &ben, &text).await;
        assert!(matches!(refused, Err(Error::Conflict)), "another owner");
    }
}
