//! Tests of the channel of a topic, through the bus.

use std::collections::VecDeque;

use proptest::prelude::*;

use crate::bus::{Bus, Received, TOPIC_NOTICES_MAX, TopicSubscription};
use crate::model::{ConversationId, Event, Notice, OrderKey, TimeUuid, Timestamp, Topic, UserId};

fn user(name: &str) -> UserId {
    UserId::parse(name).expect("the name is valid")
}

fn topic() -> Topic {
    Topic::Conversation(ConversationId::direct(&user("alice"), &user("bob")))
}

fn notice(number: i64) -> Notice {
    let id = TimeUuid::new(Timestamp::from_micros(number), [0x80, 0, 1, 0, 0, 0, 0, 0]);
    Notice::new(id, OrderKey::MAX, Event::Presence(user("alice")))
}

/// A subscriber, and the notices that it has not received yet.
struct Subscriber {
    subscription: TopicSubscription,
    expected: VecDeque<i64>,
}

impl Subscriber {
    fn new(bus: &Bus) -> Self {
        Self {
            subscription: bus.subscribe(topic()),
            expected: VecDeque::new(),
        }
    }

    fn receive(&mut self) {
        let expected = self.expected.pop_front();
        match (self.subscription.try_next(), expected) {
            (None, None) => {}
            (Some(Received::Notice(received)), Some(number)) => {
                assert_eq!(received.id, notice(number).id);
            }
            (received, expected) => panic!("{received:?}, expected {expected:?}"),
        }
    }
}

#[derive(Debug, Clone)]
enum Step {
    Publish(usize),
    Receive(usize, usize),
    Subscribe,
    Unsubscribe(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (1..5_usize).prop_map(Step::Publish),
        1 => (5..20_usize).prop_map(Step::Publish),
        6 => (0..4_usize, 1..20_usize).prop_map(|(who, count)| Step::Receive(who, count)),
        1 => Just(Step::Subscribe),
        1 => (0..4_usize).prop_map(Step::Unsubscribe),
    ]
}

proptest! {
    #[test]
    fn each_subscriber_receives_every_notice_once_and_in_order(
        steps in prop::collection::vec(step(), 1..120),
    ) {
        let bus = Bus::default();
        let mut subscribers = vec![Subscriber::new(&bus)];
        let mut published = 0;
        for step in steps {
            match step {
                Step::Publish(count) => {
                    for _ in 0..count {
                        published += 1;
                        bus.publish(&topic(), notice(published));
                        for subscriber in &mut subscribers {
                            // Nobody falls so far behind that it would miss a notice.
                            if subscriber.expected.len() + 1 == TOPIC_NOTICES_MAX {
                                subscriber.receive();
                            }
                            subscriber.expected.push_back(published);
                        }
                    }
                }
                Step::Receive(who, count) => {
                    if let Some(subscriber) = subscribers.get_mut(who) {
                        (0..count).for_each(|_| subscriber.receive());
                    }
                }
                Step::Subscribe => subscribers.push(Subscriber::new(&bus)),
                Step::Unsubscribe(who) if who < subscribers.len() => {
                    subscribers.swap_remove(who);
                }
                Step::Unsubscribe(_) => {}
            }
            prop_assert_eq!(bus.subscriber_count(&topic()) > 0, !subscribers.is_empty());
        }
        for subscriber in &mut subscribers {
            (0..=subscriber.expected.len()).for_each(|_| subscriber.receive());
        }
        drop(subscribers);
        prop_assert_eq!(bus.topic_count(), 0);
    }
}

#[test]
fn a_subscriber_that_lags_further_than_the_capacity_is_told_so() {
    let bus = Bus::default();
    let mut subscription = bus.subscribe(topic());
    // The small channel holds some of the notices until it is replaced.
    for number in 0..2 * TOPIC_NOTICES_MAX as i64 {
        bus.publish(&topic(), notice(number));
    }
    let mut received = Vec::new();
    while let Some(next) = subscription.try_next() {
        received.push(next);
    }
    let gaps = received
        .iter()
        .filter(|received| matches!(received, Received::Lagged));
    assert_eq!(gaps.count(), 1);
    assert!(received.len() > TOPIC_NOTICES_MAX);
}
