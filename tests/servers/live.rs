//! Live messages on two servers whose clocks differ: a stop, and text that a viewer on the other server gets.

use wideroom::bus::Bus;
use wideroom::chat::{LiveUpdates, LiveWriteInput, LiveWritten};
use wideroom::model::{ConversationId, UserId};

use super::pair::{Server, people};
use crate::support::world::PATIENCE;

/// Answers after a stop of which one carries it. With one each 250 ms they take 1.5 s.
const ANSWERS_MAX: usize = 6;
/// Clock of the other server.
const SKEW_MICROS: i64 = 3_000_000;

pub(super) async fn write(
    server: &Server,
    writer: &UserId,
    conversation: ConversationId,
    key: &str,
    position: usize,
) -> LiveWritten {
    let input = LiveWriteInput {
        conversation,
        key: key.to_owned(),
        writer: "w".to_owned(),
        position: i32::try_from(position).unwrap(),
        text: "word ".to_owned(),
        status: None,
        steps: None,
        reply_to: None,
    };
    server.chat.lives.write(writer, input).await.unwrap()
}

/// Takes updates until the viewer has a text of so many bytes.
pub(super) async fn take_up_to(updates: &mut LiveUpdates, bytes: usize) {
    let taken = async {
        loop {
            let update = updates.next().await.unwrap().unwrap();
            let change = update.change.as_ref();
            if change.is_some_and(|change| change.step.view.body.len() >= bytes) {
                return;
            }
        }
    };
    tokio::time::timeout(PATIENCE, taken)
        .await
        .expect("the text comes");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_on_another_server_is_in_one_of_the_next_six_answers() {
    for skew in [SKEW_MICROS, -SKEW_MICROS] {
        let Some(one) = Server::on(Bus::default(), 0).await else {
            return;
        };
        let other = Server::on(Bus::default(), skew).await.unwrap();
        let [anna, ben] = people(["anna", "ben"]);
        let conversation = one.group(&anna, &[&ben]).await;
        for stopped_after in 1..=5 {
            let key = format!("answer-{stopped_after}");
            let mut position = 0;
            let mut live = None;
            for _ in 0..stopped_after {
                let written = write(&one, &ben, conversation, &key, position).await;
                position = written.next_position;
                live = Some(written.view.message.key);
            }
            let stop = other.chat.lives.stop(&anna, live.unwrap()).await.unwrap();
            assert_eq!(stop.message.stop.unwrap().by, anna);
            let mut answers = 0;
            loop {
                answers += 1;
                assert!(answers <= ANSWERS_MAX, "skew {skew}, after {stopped_after}");
                let written = write(&one, &ben, conversation, &key, position).await;
                position = written.next_position;
                if written.view.message.stop.is_some() {
                    break;
                }
            }
            other.chat.lives.discard(&ben, live.unwrap()).await.unwrap();
            println!("skew {skew}: after {stopped_after} writes in answer {answers}");
        }
    }
}

/// However the clocks differ, a viewer on the other server gets the text, and a writer who moves there goes on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_viewer_and_a_writer_may_be_on_a_server_with_another_clock() {
    for skew in [SKEW_MICROS, -SKEW_MICROS] {
        let Some(one) = Server::on(Bus::default(), 0).await else {
            return;
        };
        let other = Server::on(Bus::default(), skew).await.unwrap();
        let [anna, ben] = people(["anna", "ben"]);
        let conversation = one.group(&anna, &[&ben]).await;
        let mut updates = other
            .chat
            .streams
            .lives(&anna, conversation, None)
            .await
            .unwrap();
        let mut position = 0;
        for number in 0..8 {
            let server = [&one, &other][usize::from(number % 2 == 1)];
            let written = write(server, &ben, conversation, "answer", position).await;
            position = written.next_position;
            take_up_to(&mut updates, position).await;
        }
    }
}
