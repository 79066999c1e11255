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

use super::screen::Screen;
use super::store::still;
use super::world::{Ground, QuietServer, quiet, stored_id};
use crate::delivery::directory::Dice;
use crate::support::size::sized;

pub(super) const KEY: &str = "answer 1";

pub(super) fn user(name: &str) -> UserId {
    UserId::parse(name).unwrap()
}

/// Servers over one store, and the conversation in which a helper answers.
pub(super) struct Answering {
    pub(super) ground: Ground,
    pub(super) servers: Vec<QuietServer>,
    /// Global id of the conversation.
    pub(super) conversation: String,
    pub(super) on: ConversationId,
    pub(super) live: LiveKey,
}

impl Answering {
    /// The direct conversation of alice with the helper.
    pub(super) async fn begin(ground: Ground) -> Self {
        Self::begin_with(ground, &["helper"]).await
    }

    /// A group of alice, bob and the helper.
    pub(super) async fn begin_in_group(ground: Ground) -> Self {
        Self::begin_with(ground, &["helper", "bob"]).await
    }

    /// A group that counts as large.
    pub(super) async fn begin_in_large_group(ground: Ground) -> Self {
        let members: Vec<_> = (0..40).map(|number| format!("member{number}")).collect();
        let others = ["helper", "bob"];
        let names: Vec<_> = others
            .into_iter()
            .chain(members.iter().map(String::as_str))
            .collect();
        Self::begin_with(ground, &names).await
    }

    async fn begin_with(ground: Ground, others: &[&str]) -> Self {
        let count = if ground.is_shared() { 2 } else { 1 };
        let mut servers = Vec::new();
        for _ in 0..count {
            servers.push(ground.server().await);
        }
        let alice = servers[0].user("alice");
        let conversation = match others {
            [peer] => alice.direct(peer).await,
            others => alice.group("with a helper", others).await,
        };
        let on = stored_id(&alice, &conversation).await;
        let all = others.iter().chain(&["alice"]);
        ground.place(on, all.map(|name| user(name)).collect());
        let key = IdempotencyKey::parse(KEY).unwrap();
        let sender = user("helper");
        let live = servers[0].chat.lives.key_of(on, &sender, &key);
        Self {
            live: live.await.unwrap(),
            on,
            conversation,
            servers,
            ground,
        }
    }

    /// The last server: another one than the first where there are two.
    pub(super) fn other(&self) -> &QuietServer {
        self.servers.last().unwrap()
    }

    pub(super) fn input(&self, writer: &str, position: usize, text: &str) -> LiveWriteInput {
        LiveWriteInput {
            conversation: self.on,
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
        let input = DraftInput {
            body: body.to_owned(),
            idempotency_key: Some(KEY.to_owned()),
            ..DraftInput::default()
        };
        let draft = Draft::parse(input, &Bounds::default()).unwrap();
        let sent = server.chat.writes.send(user("helper"), self.on, draft);
        sent.await.map(drop)
    }

    pub(super) async fn view(&self, server: &QuietServer, viewer: &str) -> Option<LiveView> {
        let view = server.chat.lives.view(user(viewer), self.live);
        view.await.unwrap()
    }

    /// The newest messages of the conversation.
    pub(super) async fn messages(&self) -> Vec<Arc<Message>> {
        messages(&self.ground, self.on).await
    }

    async fn body(&self, server: &QuietServer) -> String {
        self.view(server, "alice").await.unwrap().body
    }
}

/// The newest messages of a conversation.
pub(super) async fn messages(ground: &Ground, on: ConversationId) -> Vec<Arc<Message>> {
    let (page, cut) = (PageRequest::first(9), Cut::default());
    let store = ground.embedded();
    let read = still(store.history(on, &cut, &page)).await;
    read.unwrap().items
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
        let page = PageRequest::first(9);
        let sent = first
            .store
            .history(on.on, &Default::default(), &page)
            .await
            .unwrap();
        let ids: Vec<_> = sent.items.iter().map(|message| Some(message.id)).collect();
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

/// Viewer with a stream, which is cut and resumed on any server.
struct Watcher {
    screen: Screen,
    /// Index of the server, while the stream is open.
    on: Option<usize>,
    shown: Option<WriterNumber>,
    text: String,
}

impl Watcher {
    fn new(on: &Answering) -> Self {
        Self {
            screen: Screen::dark("alice", on.on),
            on: None,
            shown: None,
            text: String::new(),
        }
    }

    async fn resume(&mut self, on: &Answering, server: usize) {
        self.screen.resume(&on.servers[server]).await.unwrap();
        self.on = Some(server);
    }

    fn cut(&mut self) {
        self.screen.cut();
        self.on = None;
    }

    /// Takes what has come: a beginning of one writer's text, which only grows.
    async fn look(&mut self, agents: &[Agent]) {
        self.screen.watch(Duration::from_millis(1)).await;
        assert!(!self.screen.has_ended);
        let Some(bubble) = self.screen.bubbles.values().next() else {
            return;
        };
        let shown = Some(bubble.writer);
        assert!(shown >= self.shown, "an earlier writer is shown again");
        if shown == self.shown {
            assert!(bubble.text.starts_with(&self.text), "text was taken back");
        }
        (self.shown, self.text) = (shown, bubble.text.clone());
        let agent = agent_of(agents, &bubble.view);
        assert!(
            agent.text.starts_with(&self.text),
            "{} is not of {}",
            self.text,
            agent.text
        );
    }
}

/// The agent whose text is shown.
fn agent_of<'a>(agents: &'a [Agent], view: &LiveView) -> &'a Agent {
    let writers = &view.message.writers;
    let number = usize::from(writers.shown().unwrap().get());
    let name = writers.entries()[number - 1].name.as_ref().unwrap();
    let agent = agents.iter().find(|agent| agent.name == name.as_str());
    agent.unwrap()
}

/// A server with its settler. Its writes of live text may have no known outcome.
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
/// one message, also if a server sends it. Viewers are cut, and come back on any server. Writes have unknown outcomes, and arrive late or
/// never; servers lose their memory; writers fall silent, are replaced, and live on.
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
    let mut watchers = [Watcher::new(&on), Watcher::new(&on)];
    let pick = |bound: usize| usize::try_from(dice.below(1 << 20)).unwrap() % bound;
    for _ in 0..30 + pick(60) {
        quiet([0, 0, 0, 0, 0, 1, 1, 2, 2, 5, 5, 40][pick(12)]).await;
        match pick(100) {
            0..55 => {
                let agent = pick(agents.len());
                agents[agent].step(&on, &dice).await;
            }
            55..75 => watchers[pick(2)].look(&agents).await,
            75..82 => watchers[pick(2)].cut(),
            82..88 => {
                let server = pick(on.servers.len());
                watchers[pick(2)].resume(&on, server).await;
            }
            88..93 => {
                let index = pick(on.servers.len());
                let lost = watchers.iter_mut().filter(|one| one.on == Some(index));
                lost.for_each(Watcher::cut);
                (on.servers[index], settlers[index]) = disturbed_server(&on.ground, &dice).await;
            }
            _ if agents.len() < 4 => agents.push(Agent::new(agents.len(), &dice)),
            _ => {}
        }
    }
    // The last late write has arrived, and every silent writer was settled, also by another server than the one that began.
    quiet(300).await;
    for watcher in &mut watchers {
        if watcher.on.is_none() {
            watcher.resume(&on, 0).await;
        }
        watcher.look(&agents).await;
    }
    if let Some(view) = on.view(&on.servers[0], "alice").await {
        let agent = agent_of(&agents, &view);
        let acknowledged = &agent.text[..agent.position];
        let shown = watchers.iter().map(|watcher| &watcher.screen);
        let shown = shown.filter(|screen| !screen.bubbles.is_empty());
        for text in shown.map(Screen::text).chain([view.body.as_str()]) {
            assert!(
                text.starts_with(acknowledged),
                "acknowledged text is lost: {acknowledged} in {text}"
            );
        }
        assert_ne!(view.state(), LiveMessageState::Writing, "nobody ended it");
        for watcher in &watchers {
            assert!(watcher.screen.bubbles.is_empty(), "a ghost");
        }
        for message in on.messages().await {
            let content = message.content.as_ref().unwrap();
            let is_whole = content.body.as_str().starts_with(acknowledged);
            assert!(
                is_whole || !content.is_interrupted,
                "the message lacks {acknowledged}"
            );
        }
    }
    assert!(on.messages().await.len() <= 1, "a key sent twice");
}

#[tokio::test(start_paused = true)]
async fn the_invariants_of_the_model_hold_on_one_server() {
    for seed in 0..sized(10, 80) {
        random_life(Ground::of_one().await, seed).await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_invariants_of_the_model_hold_on_two_servers() {
    for seed in 100..sized(106, 140) {
        random_life(Ground::shared().await, seed).await;
    }
}
