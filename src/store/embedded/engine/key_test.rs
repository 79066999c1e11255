//! Tests that keys sort in the order of the lists.

use proptest::prelude::*;

use super::*;
use crate::model::Emoji;
use crate::model::InboxKey;

fn users() -> impl Strategy<Value = UserId> {
    "[ -~äß一😀]{1,6}".prop_filter_map("a name", |text| UserId::parse(&text).ok())
}

fn conversations() -> impl Strategy<Value = ConversationId> {
    prop_oneof![any::<[u8; 16]>(), Just([0; 16]), Just([0xff; 16])]
        .prop_map(|bytes| ConversationId(uuid::Uuid::from_bytes(bytes)))
}

fn positions() -> impl Strategy<Value = OrderKey> {
    prop_oneof![
        any::<[u8; 16]>().prop_map(OrderKey),
        Just(OrderKey::MIN),
        Just(OrderKey::MAX)
    ]
}

fn moments() -> impl Strategy<Value = Timestamp> {
    (0..=Timestamp::MAX.micros()).prop_map(Timestamp::from_micros)
}

proptest! {
    #[test]
    fn messages_sort_by_conversation_and_then_the_newest_first(a in (conversations(), positions()), b in (conversations(), positions())) {
        let bytes = |(conversation, position)| message(conversation, position).bytes;
        prop_assert_eq!(bytes(a).cmp(&bytes(b)), (a.0, b.1).cmp(&(b.0, a.1)));
    }

    #[test]
    fn a_conversations_span_holds_its_messages_and_no_others(a in conversations(), b in conversations(), position in positions()) {
        let span = messages(a);
        let key = message(b, position).bytes;
        prop_assert_eq!(span.start <= key && key < span.end, a == b);
    }

    #[test]
    fn participants_sort_by_the_bytes_of_their_names(a in (conversations(), users()), b in (conversations(), users())) {
        let bytes = |(conversation, user): &(ConversationId, UserId)| participant(*conversation, user, Cell::ReadUpTo).bytes;
        prop_assert_eq!(bytes(&a).cmp(&bytes(&b)), a.cmp(&b));
    }

    #[test]
    fn a_participants_place_holds_their_cells_and_nobody_elses(id in conversations(), a in users(), b in users()) {
        let span = participant_place(id, &a);
        for cell in [Cell::Membership, Cell::ReadUpTo, Cell::DeliveredUpTo] {
            let key = participant(id, &b, cell).bytes;
            prop_assert_eq!(span.start <= key && key < span.end, a == b);
            prop_assert_eq!(participant_cell(&key), Some((b.clone(), cell as u8)));
        }
    }

    #[test]
    fn activities_sort_by_user_and_then_as_the_inbox_shows_them(
        a in (users(), moments(), conversations()), b in (users(), moments(), conversations()),
    ) {
        let split = |(user, activity, conversation): (UserId, Timestamp, ConversationId)| (user, InboxKey { activity, conversation });
        let (a, b) = (split(a), split(b));
        prop_assert_eq!(activity(&a.0, &a.1).bytes.cmp(&activity(&b.0, &b.1).bytes), a.cmp(&b));
        prop_assert_eq!(inbox_key(&activity(&a.0, &a.1).bytes), Some(a.1));
    }

    #[test]
    fn changes_after_a_place_are_the_later_ones_of_that_user(a in users(), b in users(), after in positions(), change in positions()) {
        let span = changes_of_user_after(&a, after);
        let key = change_of_user(&b, change).bytes;
        prop_assert_eq!(span.start <= key && key < span.end, a == b && change > after);
    }

    #[test]
    fn what_is_swept_has_expired(expires_at in moments(), now in moments()) {
        let of = note("x");
        let span = expired(now);
        let key = expiry(&of, expires_at).bytes;
        if span.start <= key && key < span.end {
            prop_assert!(expires_at <= now);
        } else {
            prop_assert!(now.micros() < expires_at.micros() + expiry::HOUR_MICROS);
        }
        prop_assert_eq!(expired_key(&key), Some(of));
    }
}

proptest! {
    #[test]
    fn reactions_sort_by_emoji_and_then_by_the_bytes_of_names(a in (emoji(), users()), b in (emoji(), users())) {
        let (conversation, message) = (ConversationId(uuid::Uuid::nil()), MessageId::new(Timestamp::ZERO, [0; 8]));
        let bytes = |(emoji, user): &(Emoji, UserId)| reaction(conversation, message, emoji, user).bytes;
        prop_assert_eq!(bytes(&a).cmp(&bytes(&b)), a.cmp(&b));
        let span = reactions_of(conversation, message, &a.0);
        prop_assert_eq!(span.start <= bytes(&b) && bytes(&b) < span.end, a.0 == b.0);
        prop_assert_eq!(reaction_of(&bytes(&a)), Some(a));
    }
}

fn emoji() -> impl Strategy<Value = Emoji> {
    prop::sample::select(vec!["👍", "👍🏽", "❤\u{fe0f}", "1\u{fe0f}\u{20e3}"]).prop_map(Emoji::kept)
}

#[test]
fn a_name_that_begins_another_sorts_before_it() {
    let id = ConversationId(uuid::Uuid::nil());
    let key =
        |name: &str| participant(id, &UserId::parse(name).unwrap(), Cell::DeliveredUpTo).bytes;
    assert!(key("a") < key("a "));
    assert!(key("a") < key("ab"));
    assert!(key("ab") < key("b"));
}

#[test]
fn a_row_is_called_by_its_table() {
    assert_eq!(note("x").table_name(), "notes");
    assert_eq!(
        head(ConversationId(uuid::Uuid::nil())).table_name(),
        "heads"
    );
}
