//! Live messages in virtual time: the rules of a write, and the invariants of the model, over one server and over two.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};
use tokio_util::task::AbortOnDropHandle;
use wideroom::chat::{
    Bounds, Draft, DraftInput, Error, LiveView, LiveWriteInput, LiveWritten, Result,
};
use wideroom::model::{
    ConversationId, Cut, IdempotencyKey, LiveKey, LiveMessageState, LiveText, Message, PageRequest,
    UserId, WriterName, WriterNumber,
};
use wideroom::store::Store as _;
use wideroom::store::live::{LiveStore as _, LiveWrite};

use super::store::still;
use super::world::{Ground, QuietServer, quiet, stored_id};
use crate::delivery::directory::Dice;
use crate::support::size::sized;

pub(super) const KEY: &str = "answer 1";

pub(super) fn user(name: &str) -> UserId {
    UserId::parse(name).unwrap()
}

/// Answer of the helper in a conversation.
pub(super) struct Answer(pub(super) ConversationId);

impl Answer {
    async fn live(&self, server: &QuietServer) -> LiveKey {
        let (key, sender) = (IdempotencyKey::parse(KEY).unwrap(), user("helper"));
        let live = server.chat.lives.key_of(self.0, &sender, &key);
        live.await.unwrap()
    }

    fn input(&self, writer: &str, position: usize, text: &str) -> LiveWriteInput {
        LiveWriteInput {
            conversation: self.0,
            key: KEY.to_owned(),
            writer: writer.to_owned(),
            position: i32::try_from(position).unwrap(),
            text: text.to_owned(),
            status: None,
            steps: None,
            reply_to: None,
        }
    }

    pub(super) async fn write(
        &self,
        server: &QuietServer,
        writer: &str,
        position: usize,
        text: &str,
    ) -> Result<LiveWritten> {
        let input = self.input(writer, position, text);
        server.chat.lives.write(user("helper"), input).await
    }

    pub(super) async fn send(&self, server: &QuietServer, body: &str) -> Result<()> {
        let input = DraftInput {
            body: body.to_owned(),
            idempotency_key: Some(KEY.to_owned()),
            ..DraftInput::default()
        };
        let draft = Draft::parse(input, &Bounds::default()).unwrap();
        let sent = server.chat.writes.send(user("helper"), self.0, draft);
        sent.await.map(drop)
    }

    /// The newest messages of the conversation.
    pub(super) async fn messages(&self, ground: &Ground) -> Vec<Arc<Message>> {
        let (page, cut) = (PageRequest::first(9), Cut::default());
        let store = ground.embedded();
        let read = still(store.history(self.0, &cut, &page)).await;
        read.unwrap().items
    }
}

/// Servers over one store, and the direct conversation of alice with a helper.
pub(super) struct Answering {
    pub(super) ground: Ground,
    pub(super) servers: Vec<QuietServer>,
    pub(super) on: ConversationId,
    pub(super) live: LiveKey,
}

impl Answering {
    pub(super) async fn begin(ground: Ground) -> Self {
        let count = if ground.is_shared() { 2 } else { 1 };
        let mut servers = Vec::new();
        for _ in 0..count {
            servers.push(ground.server().await);
        }
        let alice = servers[0].user("alice");
        let direct = alice.direct("helper").await;
        let on = stored_id(&alice, &direct).await;
        ground.place(on, [user("alice"), user("helper")].into());
        Self {
            live: Answer(on).live(&servers[0]).await,
            on,
            servers,
            ground,
        }
    }

    fn answer(&self) -> Answer {
        Answer(self.on)
    }

    /// Goes on in another conversation.
    pub(super) async fn move_to(&mut self, on: ConversationId) {
        self.on = on;
        self.live = self.answer().live(&self.servers[0]).await;
    }

    /// The last server: another one than the first where there are two.
    pub(super) fn other(&self) -> &QuietServer {
        self.servers.last().unwrap()
    }

    pub(super) fn input(&self, writer: &str, position: usize, text: &str) -> LiveWriteInput {
        self.answer().input(writer, position, text)
    }

    pub(super) async fn write(
        &self,
        server: &QuietServer,
        writer: &str,
        position: usize,
        text: &str,
    ) -> Result<LiveWritten> {
        self.answer().write(server, writer, position, text).await
    }

    /// Has a write that got no answer reach the store late, as one row from its position.
    async fn write_late(&self, writer: &str, position: usize, text: &str, dice: &Dice) {
        let live = self.live;
        let embedded = self.ground.embedded();
        let found = still(embedded.live_messages(&[live])).await.unwrap();
        let found = found.into_iter().next().flatten();
        let name = WriterName::parse(writer).unwrap();
        let number = found.and_then(|found| found.writers.number_of(&name));
        let row = LiveText::new(u32::try_from(position).unwrap(), text.to_owned());
        let (Some(writer), Some(row)) = (number, row) else {
            return;
        };
        let write = LiveWrite {
            writer,
            text: Some(row),
            status: None,
            steps: None,
            at: self.ground.clock.now(),
        };
        let after = dice.millis(20_000);
        tokio::spawn(async move {
            sleep(after).await;
            still(embedded.write_live(live, &write)).await.unwrap();
        });
    }

    pub(super) async fn send(&self, server: &QuietServer, body: &str) -> Result<()> {
        self.answer().send(server, body).await
    }

    pub(super) async fn view(&self, server: &QuietServer, viewer: &str) -> Option<LiveView> {
        let view = server.chat.lives.view(user(viewer), self.live);
        view.await.unwrap()
    }

    pub(super) async fn messages(&self) -> Vec<Arc<Message>> {
        self.answer().messages(&self.ground).await
    }

    async fn body(&self, server: &QuietServer) -> String {
        self.view(server, "alice").await.unwrap().body
    }
}

pub(super) fn is_conflict<T>(outcome: &Result<T>) -> bool {
    matches!(outcome, Err(Error::LiveConflict(_)))
}

fn path_of<T: std::fmt::Debug>(outcome: Result<T>) -> &'static str {
    match outcome {
        Err(Error::BadInput { path, .. }) => path[1],
        other => panic!("not refused: {other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_appears_while_it_is_written_and_ends_with_its_message() {
    for ground in [Ground::of_one().await, Ground::shared().await] {
        let on = Answering::begin(ground).await;
        let (first, other) = (&on.servers[0], on.other());
        assert_eq!(on.view(first, "alice").await, None);
        let written = on.write(first, "w", 0, "The ").await.unwrap();
        assert_eq!(written.next_position, 4);
        let written = on.write(other, "w", 4, "änswer").await.unwrap();
        assert_eq!(written.next_position, 11);
        for server in &on.servers {
            let view = on.view(server, "alice").await.unwrap();
            assert_eq!(view.body, "The änswer");
            assert_eq!(view.state(), LiveMessageState::Writing);
            let writing = server.chat.lives.writing(user("alice"), on.on).await;
            assert_eq!(writing.unwrap(), [view]);
        }
        assert_eq!(on.view(first, "mallory").await, None);
        let listed = first.chat.lives.writing(user("mallory"), on.on).await;
        assert!(matches!(listed, Err(Error::NotFound(_))));
        let input = on.input("w", 0, "I am no participant");
        let stranger = first.chat.lives.write(user("mallory"), input).await;
        assert!(matches!(stranger, Err(Error::NotFound(_))));

        on.send(other, "The answer, corrected").await.unwrap();
        assert!(is_conflict(&on.write(other, "w", 11, "!").await));
        let listed = first.chat.lives.writing(user("alice"), on.on).await;
        assert_eq!(listed.unwrap(), []);
        let view = on.view(first, "alice").await.unwrap();
        assert_eq!(
            (view.state(), view.body.as_str()),
            (LiveMessageState::Sent, "The änswer")
        );
        let sent = on.messages().await;
        let ids: Vec<_> = sent.iter().map(|message| Some(message.id)).collect();
        assert_eq!(ids, [view.sent]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_write_says_what_is_wrong_with_it() {
    let on = Answering::begin(Ground::of_one().await).await;
    let server = &on.servers[0];
    let write = async |position, text: &str| on.write(server, "w", position, text).await;
    assert_eq!(path_of(write(1, "a new writer").await), "position");
    write(0, "Hällo").await.unwrap();
    assert_eq!(path_of(write(2, "x").await), "position");
    assert_eq!(path_of(write(7, "x").await), "position");
    assert!(is_conflict(&write(0, "Hollo").await));
    assert_eq!(write(3, "llo").await.unwrap().next_position, 6);
    assert_eq!(write(3, "llo!").await.unwrap().next_position, 7);
    assert_eq!(write(7, "").await.unwrap().next_position, 7);
    for part in 0..3 {
        let text = "x".repeat(4_096);
        write(7 + part * 4_096, &text).await.unwrap();
    }
    assert_eq!(path_of(write(12_295, &"x".repeat(4_096)).await), "text");
    write(12_295, &"x".repeat(4_089)).await.unwrap();
    assert_eq!(path_of(write(16_384, "x").await), "text");
}

/// One answer comes at most every 250 ms, however fast the texts do.
#[tokio::test(start_paused = true)]
async fn a_writer_is_answered_four_times_a_second() {
    let on = Answering::begin(Ground::of_one().await).await;
    on.write(&on.servers[0], "w", 0, "0").await.unwrap();
    let began = Instant::now();
    for position in 1..9 {
        on.write(&on.servers[0], "w", position, "x").await.unwrap();
    }
    let took = began.elapsed();
    let expected = Duration::from_millis(2_000)..Duration::from_millis(2_100);
    assert!(expected.contains(&took), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn another_writer_takes_over_whole() {
    for ground in [Ground::of_one().await, Ground::shared().await] {
        let on = Answering::begin(ground).await;
        on.write(&on.servers[0], "first", 0, "The first")
            .await
            .unwrap();
        assert_eq!(
            path_of(on.write(on.other(), "second", 9, "!").await),
            "position"
        );
        on.write(on.other(), "second", 0, "Another").await.unwrap();
        let late = on.write(&on.servers[0], "first", 9, " answer").await;
        if late.is_ok() {
            // Within a second the first server does not know yet, and shows nothing of it.
            assert!(on.ground.is_shared());
            quiet(1).await;
            assert!(is_conflict(
                &on.write(&on.servers[0], "first", 16, "!").await
            ));
        } else {
            assert!(is_conflict(&late));
        }
        for server in &on.servers {
            let view = on.view(server, "alice").await.unwrap();
            assert_eq!(view.body, "Another");
            assert_eq!(view.message.writers.shown(), WriterNumber::new(2));
        }
        // The first one comes back under another name, as any process does.
        on.write(&on.servers[0], "third", 0, "Once more")
            .await
            .unwrap();
        assert_eq!(on.body(on.other()).await, "Once more");
        quiet(1).await;
        assert!(is_conflict(&on.write(on.other(), "second", 7, "!").await));
    }
}

#[tokio::test(start_paused = true)]
async fn a_stop_reaches_the_writer_on_another_server() {
    for ground in [Ground::of_one().await, Ground::shared().await] {
        let on = Answering::begin(ground).await;
        on.write(&on.servers[0], "w", 0, "x").await.unwrap();
        let stopped = on.other().chat.lives.stop(user("alice"), on.live).await;
        assert_eq!(stopped.unwrap().message.stop.unwrap().by, user("alice"));
        let stranger = on.other().chat.lives.stop(user("mallory"), on.live).await;
        assert!(matches!(stranger, Err(Error::NotFound(_))));
        let began = Instant::now();
        for position in 1.. {
            let written = on.write(&on.servers[0], "w", position, "x").await.unwrap();
            if written.view.message.stop.is_some() {
                break;
            }
        }
        assert!(began.elapsed() <= Duration::from_millis(1_500));
    }
}

#[tokio::test(start_paused = true)]
async fn a_discarded_live_message_takes_no_more_text() {
    for ground in [Ground::of_one().await, Ground::shared().await] {
        let on = Answering::begin(ground).await;
        on.write(&on.servers[0], "w", 0, "x").await.unwrap();
        let lives = &on.other().chat.lives;
        let peer = lives.discard(user("alice"), on.live).await;
        assert!(matches!(peer, Err(Error::Forbidden(_))));
        let discarded = lives.discard(user("helper"), on.live).await.unwrap();
        assert_eq!(discarded.state(), LiveMessageState::Discarded);
        quiet(1).await;
        assert!(is_conflict(&on.write(&on.servers[0], "w", 1, "x").await));
        assert!(is_conflict(&on.write(on.other(), "anew", 0, "x").await));
        assert_eq!(lives.writing(user("alice"), on.on).await.unwrap(), []);
        // The key still sends.
        on.send(on.other(), "x").await.unwrap();
        let late = lives.discard(user("helper"), on.live).await;
        assert!(is_conflict(&late));
    }
}

/// A user who blocks the writer sees nothing any more, and the writer is not told. A writer who blocks the other one writes no more.
#[tokio::test(start_paused = true)]
async fn a_block_in_the_middle_of_an_answer_ends_it() {
    let on = Answering::begin(Ground::of_one().await).await;
    let server = &on.servers[0];
    let (alice, helper, chat) = (user("alice"), user("helper"), &server.chat);
    on.write(server, "w", 0, "x").await.unwrap();
    chat.blocks.block(&alice, "helper").await.unwrap();
    assert_eq!(on.view(server, "alice").await, None);
    let writing = chat.lives.writing(alice.clone(), on.on).await;
    assert_eq!(writing.unwrap(), []);
    on.write(server, "w", 1, "y").await.unwrap();
    chat.blocks.unblock(&alice, "helper").await.unwrap();
    assert_eq!(on.body(server).await, "xy");
    chat.blocks.block(&helper, "alice").await.unwrap();
    let refused = on.write(server, "w", 2, "z").await;
    assert!(matches!(refused, Err(Error::Forbidden(_))));
}

#[tokio::test(start_paused = true)]
async fn a_user_writes_four_live_messages_at_once() {
    let on = Answering::begin(Ground::of_one().await).await;
    let lives = &on.servers[0].chat.lives;
    let write = async |key: usize, sender: &str| {
        let input = LiveWriteInput {
            key: format!("answer {key}"),
            ..on.input("w", 0, "x")
        };
        lives.write(user(sender), input).await
    };
    for key in 0..4 {
        write(key, "helper").await.unwrap();
    }
    for key in [4, 5] {
        let fifth = write(key, "helper").await;
        assert!(matches!(fifth, Err(Error::TooFast { .. })));
    }
    quiet(1).await;
    for key in 0..4 {
        write(key, "alice").await.unwrap();
    }
    let writing = lives.writing(user("alice"), on.on).await.unwrap();
    assert_eq!(writing.len(), 8);
    assert_eq!(writing[0].message.start.sender, user("alice"));
    quiet(61).await;
    assert_eq!(lives.writing(user("alice"), on.on).await.unwrap(), []);
    write(4, "helper").await.unwrap();
}

/// A writer whose text grows, and who dies, or lives on while another one has taken over.
struct Agent {
    name: String,
    text: String,
    position: usize,
    size: usize,
    is_alive: bool,
}

impl Agent {
    fn new(number: usize, dice: &Dice) -> Self {
        Self {
            name: char::from(b'a' + u8::try_from(number).unwrap()).to_string(),
            text: String::new(),
            position: 0,
            size: 4 + usize::try_from(dice.below(26)).unwrap(),
            is_alive: true,
        }
    }

    async fn step(&mut self, on: &Answering, dice: &Dice) {
        if !self.is_alive {
            return;
        }
        let grow = usize::try_from(dice.below(5)).unwrap();
        for _ in 0..grow.min(self.size - self.text.len()) {
            let letter = if dice.one_in(3) { "." } else { &self.name };
            self.text.push_str(letter);
        }
        let server = &on.servers[usize::try_from(dice.below(9)).unwrap() % on.servers.len()];
        if self.position == self.size {
            // Another agent may have sent first.
            let _ = on.send(server, &self.text).await;
            self.is_alive = false;
            return;
        }
        let rest = &self.text[self.position..];
        match on.write(server, &self.name, self.position, rest).await {
            Ok(written) => self.position = written.next_position,
            Err(Error::LiveConflict(_)) => self.is_alive = false,
            Err(Error::OutcomeUnknown | Error::Store(_)) if dice.one_in(2) => {
                on.write_late(&self.name, self.position, rest, dice).await;
            }
            Err(Error::OutcomeUnknown | Error::Store(_) | Error::Busy) => {}
            Err(error) => panic!("{error}"),
        }
        self.is_alive &= !dice.one_in(33);
    }
}

/// Viewer: the number of the writer that it was shown, and the text.
#[derive(Default)]
struct Watcher {
    number: Option<WriterNumber>,
    text: String,
}

impl Watcher {
    async fn step(&mut self, on: &Answering, agents: &[Agent], server: &QuietServer) {
        let Some(view) = on.view(server, "alice").await else {
            return;
        };
        let number = view.message.writers.shown();
        assert!(number >= self.number, "an earlier writer is shown again");
        if number == self.number {
            assert!(view.body.starts_with(&self.text), "text was taken back");
        }
        (self.number, self.text) = (number, view.body);
        let entries = view.message.writers.entries();
        let name = entries[usize::from(number.unwrap().get()) - 1]
            .name
            .as_ref();
        let name = name.unwrap().as_str();
        let agent = agents.iter().find(|agent| agent.name == name).unwrap();
        assert!(
            agent.text.starts_with(&self.text),
            "{} is not of {}",
            self.text,
            agent.text
        );
    }
}

/// A server with its settler. Its writes of live text have unknown outcomes, or take long.
async fn disturbed_server(
    ground: &Ground,
    dice: &Arc<Dice>,
) -> (QuietServer, AbortOnDropHandle<()>) {
    let server = ground.server().await;
    server.still.disturb_lives(dice);
    let settler = tokio::spawn(server.chat.lives.settler().run());
    (server, AbortOnDropHandle::new(settler))
}

/// The invariants of the model: a viewer has a beginning of one writer's text, which only grows; acknowledged text is in it; the key sends
/// one message, also if a server sends it. Writes have unknown outcomes, and arrive late or never; servers lose their memory; writers fall
/// silent, are replaced, and live on.
async fn random_life(ground: Ground, seed: u64) {
    let dice = Arc::new(Dice::new(seed));
    let mut on = Answering::begin(ground).await;
    let mut settlers = Vec::new();
    for server in &mut on.servers {
        let (disturbed, settler) = disturbed_server(&on.ground, &dice).await;
        *server = disturbed;
        settlers.push(settler);
    }
    let mut agents = vec![Agent::new(0, &dice)];
    let mut watchers = [Watcher::default(), Watcher::default()];
    let pick = |bound: usize| usize::try_from(dice.below(1 << 20)).unwrap() % bound;
    for _ in 0..30 + pick(60) {
        quiet([0, 0, 0, 0, 0, 1, 1, 2, 2, 5, 5, 40][pick(12)]).await;
        match pick(100) {
            0..55 => {
                let agent = pick(agents.len());
                agents[agent].step(&on, &dice).await;
            }
            55..88 => {
                let server = &on.servers[pick(on.servers.len())];
                watchers[pick(2)].step(&on, &agents, server).await;
            }
            88..93 => {
                let index = pick(on.servers.len());
                (on.servers[index], settlers[index]) = disturbed_server(&on.ground, &dice).await;
            }
            _ if agents.len() < 4 => agents.push(Agent::new(agents.len(), &dice)),
            _ => {}
        }
    }
    // The last late write has arrived, and every silent writer was settled, also by another server than the one that began.
    quiet(300).await;
    for watcher in &mut watchers {
        watcher.step(&on, &agents, &on.servers[0]).await;
    }
    if let Some(view) = on.view(&on.servers[0], "alice").await {
        let shown = view.message.writers.shown().unwrap();
        let entries = view.message.writers.entries();
        let name = entries[usize::from(shown.get()) - 1].name.as_ref().unwrap();
        let agent = agents
            .iter()
            .find(|agent| agent.name == name.as_str())
            .unwrap();
        let acknowledged = &agent.text[..agent.position];
        assert!(
            view.body.starts_with(acknowledged),
            "acknowledged text is lost: {acknowledged}"
        );
        assert_ne!(view.state(), LiveMessageState::Writing, "nobody ended it");
        for message in on.messages().await {
            let content = message.content.as_ref().unwrap();
            let is_whole = content.body.as_str().starts_with(acknowledged);
            assert!(
                is_whole || !content.is_interrupted,
                "it lacks {acknowledged}"
            );
        }
    }
    assert!(on.messages().await.len() <= 1, "a key sent twice");
}

#[tokio::test(start_paused = true)]
async fn the_invariants_of_the_model_hold_on_one_server() {
    for seed in 0..sized(10, 200) {
        random_life(Ground::of_one().await, seed).await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_invariants_of_the_model_hold_on_two_servers() {
    for seed in 100..sized(106, 200) {
        random_life(Ground::shared().await, seed).await;
    }
}
