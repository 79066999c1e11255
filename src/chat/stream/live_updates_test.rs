//! Unit tests of the parts of live messages that a viewer has.

use super::*;
use crate::model::{
    IdempotencyKey, LiveMessage, LiveStart, LiveView, LiveWriters, MessageId, MessageSteps,
    TimeUuid, Timestamp, UserId, WriterName, WriterNumber,
};

const ID: LiveMessageId = LiveMessageId(uuid::Uuid::from_u128(7));

fn at(micros: i64) -> Timestamp {
    Timestamp::from_micros(micros)
}

fn id(number: u128) -> LiveMessageId {
    LiveMessageId(uuid::Uuid::from_u128(number))
}

fn view_of(id: LiveMessageId, writers: u8, body: &str) -> LiveView {
    let names = 0..writers;
    let writers = names.fold(LiveWriters::default(), |list, number| {
        let name = WriterName::parse(&number.to_string()).unwrap();
        list.with_writer(name, at(0)).unwrap()
    });
    LiveView {
        message: LiveMessage {
            key: LiveKey {
                conversation: ConversationId(uuid::Uuid::nil()),
                id,
            },
            start: LiveStart {
                sender: UserId::parse("helper").unwrap(),
                key: IdempotencyKey::parse("k").unwrap(),
                reply_to: None,
                at: at(0),
            },
            writers,
            touched_at: at(0),
            status: None,
            steps: MessageSteps::default(),
            stop: None,
            discarded_at: None,
        },
        body: body.to_owned(),
        sent: None,
    }
}

fn sent() -> Option<MessageId> {
    Some(TimeUuid::new(at(9), [1; 8]))
}

/// Viewer who takes steps.
struct Taker(ShownLives);

impl Taker {
    /// A viewer with this part.
    fn with(writer: u8, position: u32) -> Self {
        let writer = WriterNumber::new(writer).unwrap();
        let part = LivePosition {
            id: ID,
            writer,
            position,
        };
        Self(ShownLives::new(&LiveCursor {
            at: at(0),
            lives: vec![part, part],
        }))
    }

    fn without() -> Self {
        Self(ShownLives(Vec::new()))
    }

    fn take_if(&mut self, number: u64, view: LiveView, may_begin: bool) -> Option<LiveUpdate> {
        let step = Arc::new(LiveStep {
            view,
            number,
            at: at(1),
        });
        let key = UpdateKey::of_step(Arc::clone(&step));
        self.0.advance(step, key, may_begin)
    }

    /// The text of an update, whether it is whole, and the position after it.
    fn take(&mut self, number: u64, view: LiveView) -> Option<(String, bool, Option<u32>)> {
        let update = self.take_if(number, view, true)?;
        let change = update.change.unwrap();
        let mut after = update.cursor.lives.iter().map(|part| part.position);
        Some((change.text().to_owned(), change.is_whole, after.next_back()))
    }
}

fn taken(text: &str, is_whole: bool, after: Option<u32>) -> Option<(String, bool, Option<u32>)> {
    Some((text.to_owned(), is_whole, after))
}

#[test]
fn a_viewer_takes_the_rest_of_each_step() {
    let mut viewer = Taker::without();
    let mut take = |number, body| viewer.take(number, view_of(ID, 1, body));
    assert_eq!(take(1, "The ä"), taken("The ä", true, Some(6)));
    assert_eq!(take(3, "The änswer"), taken("nswer", false, Some(11)));
    assert_eq!(take(2, "The än"), None, "an earlier step that comes late");
    assert_eq!(take(4, "The änswer"), None, "nothing is new");
    let mut over = view_of(ID, 1, "The änswer!");
    over.sent = sent();
    assert_eq!(viewer.take(5, over.clone()), taken("!", false, None));
    assert_eq!(viewer.take(6, over), None, "nothing of it is left");
}

#[test]
fn another_writer_takes_the_place_of_all_and_an_earlier_one_of_nothing() {
    let mut viewer = Taker::with(2, 3);
    assert_eq!(viewer.take(1, view_of(ID, 1, "The first")), None);
    let third = view_of(ID, 3, "Another");
    assert_eq!(viewer.take(2, third), taken("Another", true, Some(7)));
    let empty = view_of(ID, 4, "");
    assert_eq!(viewer.take(3, empty), taken("", true, Some(0)));
}

#[test]
fn a_viewer_who_comes_back_continues_from_the_byte() {
    let view = || view_of(ID, 1, "The änswer");
    assert_eq!(
        Taker::with(1, 4).take(1, view()),
        taken("änswer", false, Some(11))
    );
    // The state may have changed meanwhile, and comes once.
    let mut viewer = Taker::with(1, 11);
    assert_eq!(viewer.take(1, view()), taken("", false, Some(11)));
    assert_eq!(viewer.take(2, view()), None);
    // Another server had more: nothing is sent twice, or taken back.
    let mut ahead = Taker::with(1, 14);
    assert_eq!(ahead.take(1, view()), taken("", false, Some(14)));
    let longer = view_of(ID, 1, "The änswer is 42");
    assert_eq!(ahead.take(2, longer), taken(" 42", false, Some(17)));
    // No cursor of ours lies inside a character.
    assert_eq!(
        Taker::with(1, 5).take(1, view()),
        taken("The änswer", true, Some(11))
    );
}

#[test]
fn what_is_over_or_silent_is_not_shown_anew() {
    let mut over = view_of(ID, 1, "The answer");
    over.message.discarded_at = Some(at(3));
    assert!(Taker::without().take(1, over.clone()).is_none());
    let silent = || view_of(ID, 1, "The answer");
    assert!(Taker::without().take_if(1, silent(), false).is_none());
    assert!(Taker::with(1, 3).take_if(1, silent(), false).is_some());
    assert!(
        Taker::with(2, 3).take(1, over).is_some(),
        "even of an earlier writer"
    );
}

#[test]
fn a_cursor_has_the_last_eight() {
    let mut viewer = Taker::without();
    for number in 1..=9 {
        let view = view_of(id(u128::from(number)), 1, "x");
        let cursor = viewer.take_if(number, view, true).unwrap().cursor;
        let first = cursor.lives.first().map(|part| part.id);
        assert_eq!(first, Some(id(if number == 9 { 2 } else { 1 })));
        assert!(cursor.lives.len() <= LiveCursor::COUNT_MAX);
    }
}
