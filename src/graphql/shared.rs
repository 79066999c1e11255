//! One execution for all who ask the same: subscribers with equal documents and variables, where nothing in them is the viewer's.
//!
//! Each subscriber has a stream of the chat of its own, with its own place and its own membership, which is looked at before each event. Only
//! what comes of an event is shared: the first of them to get it executes it, the others take its bytes. They are known to be the same by
//! what they were made of (`chat::UpdateKey`). What has an error in it is nobody else's: each executes it on their own.
//!
//! The subscriber that executes pays for it, the others pay nothing. A subscriber whose user is too fast waits for its tokens, or until
//! another one has executed the event: meanwhile it holds nothing that others wait for. Shared executions are made for the plain viewer, who
//! sent no message; the senders whose `clientKey` was left out execute on their own.

use std::collections::{BTreeMap, HashMap};
use std::convert::Infallible;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use async_graphql::parser::types::{
    Directive, ExecutableDocument, Field, OperationDefinition, Selection, SelectionSet,
};
use async_graphql::{Name, Request, Response, Value, Variables};
use futures_util::StreamExt as _;
use futures_util::stream::{self, BoxStream};
use lru::LruCache;
use parking_lot::{Mutex, MutexGuard};
use serde_json::value::RawValue;
use tokio::sync::{Notify, OnceCell, mpsc};
use tokio::time::timeout;

use super::Terms;
use super::api::Schemas;
use super::budget::{AnswerBudget, Exceeded};
use super::document::Prepared;
use super::error::Error;
use super::free::Free;
use super::scope::{Scope, Session};
use super::updates::{Desk, Feed, Update, Updates};
use crate::chat::{self, Chat, UpdateKey};
use crate::model::{OrderKey, UserId};
use crate::rate::{Pace, Paid};

/// What a subscriber is told.
#[derive(Debug, serde::Serialize)]
#[serde(untagged)]
#[expect(
    clippy::large_enum_variant,
    reason = "an answer is moved as it always was; in a box it would cost more"
)]
pub enum Told {
    Own(Response),
    /// Without errors, and the same bytes as others get.
    Shared(Payload),
}

/// An answer in its JSON.
pub type Payload = Arc<RawValue>;

/// How long a subscriber waits for the execution of another one.
const OTHERS_MAX: Duration = Duration::from_secs(1);
/// How often one looks whether it is done, before one waits for it.
const LOOKS: usize = 3;
/// By which shapes are told apart, all that there ever are.
static SERIALS: AtomicU64 = AtomicU64::new(0);
/// Executions that wait for the next event, of one shape.
const PRESSES_MAX: usize = 4;
/// What was shown lately, in as many parts. Beyond this each shows it again.
const MEMOS: usize = 16;
const MEMO_ENTRIES_MAX: usize = 512;
const MEMO_BYTES_MAX: usize = 1 << 20;
/// A larger payload is kept for nobody: only those who wait for its execution share it.
const KEPT_BYTES_MAX: usize = 64 << 10;

/// What makes two subscriptions equal: the document and the operation in it, and all variables but where it begins.
type ShapeKey = (Arc<str>, Option<Name>, String);

/// All that is shared.
pub(super) struct Shared {
    schemas: Schemas,
    chat: Chat,
    shapes: Mutex<HashMap<ShapeKey, Weak<Shape>>>,
    memos: [Mutex<Memo>; MEMOS],
}

struct Memo {
    shown: LruCache<MemoKey, (Arc<Shown>, usize)>,
    bytes: usize,
}

/// Which shape, at which position, of what made.
type MemoKey = (u64, OrderKey, (usize, usize));

/// What the first shape to show a notice leaves with it. There it is found without a lock, by those of the same shape.
struct Left {
    serial: u64,
    position: OrderKey,
    printed: Printed,
}

/// What an execution for the plain viewer came to.
#[derive(Clone)]
struct Printed {
    payload: Payload,
    /// The senders who are shown something else.
    withheld: Arc<[UserId]>,
}

impl Printed {
    fn is_for(&self, viewer: &UserId) -> bool {
        !self.withheld.contains(viewer)
    }
}

struct Shown {
    is_begun: AtomicBool,
    printed: OnceCell<Printed>,
    /// Wakes the subscribers that wait for their tokens.
    done: Notify,
    /// As long as it is held, its key stands for nothing else.
    _same: UpdateKey,
}

/// Equal subscriptions, as long as there is one.
struct Shape {
    shared: Arc<Shared>,
    key: ShapeKey,
    serial: u64,
    free: Free,
    prepared: Prepared,
    variables: Variables,
    presses: Mutex<Vec<Press>>,
}

/// An execution that waits for updates, and gives an answer for each.
struct Press {
    feed: mpsc::Sender<(Scope, chat::Result<Update>)>,
    /// Of the event that is executed.
    budget: Arc<AnswerBudget>,
    answers: BoxStream<'static, Response>,
}

impl Shared {
    pub(super) fn new(schemas: Schemas, chat: Chat) -> Arc<Self> {
        let memo = || {
            Mutex::new(Memo {
                shown: LruCache::unbounded(),
                bytes: 0,
            })
        };
        let memos = std::array::from_fn(|_| memo());
        Arc::new(Self {
            schemas,
            chat,
            shapes: Mutex::default(),
            memos,
        })
    }

    fn request(&self, prepared: &Prepared, variables: Variables, session: Session) -> Request {
        super::api::request(prepared, variables).data(session)
    }

    /// What the viewer is told, where nothing in the operation is theirs.
    pub(super) async fn subscribe(
        self: &Arc<Self>,
        prepared: Prepared,
        free: Free,
        variables: Variables,
        viewer: Option<UserId>,
        terms: Terms,
    ) -> BoxStream<'static, Told> {
        let slot = Arc::default();
        let session = Session::at(
            self.chat.clone(),
            viewer,
            Arc::clone(&terms.budget),
            Desk::Opening(Arc::clone(&slot)),
        );
        let answer = self
            .schemas
            .of(&prepared)
            .execute_stream(self.request(&prepared, variables.clone(), session))
            .next()
            .await;
        match (answer, Desk::take_over(&slot)) {
            (Some(refusal), _) => stream::iter([Told::Own(refusal)]).boxed(),
            (None, Some(updates)) => {
                if !prepared.is_valid() {
                    prepared.passed(true);
                }
                told(self.shape(prepared, free, variables), updates, terms)
            }
            (None, None) => stream::empty().boxed(),
        }
    }

    fn shape(self: &Arc<Self>, prepared: Prepared, free: Free, variables: Variables) -> Arc<Shape> {
        let key = (
            Arc::clone(prepared.text()),
            prepared.name.clone(),
            deciding(&prepared, &variables),
        );
        let mut shapes = self.shapes.lock();
        if let Some(shape) = shapes.get(&key).and_then(Weak::upgrade) {
            return shape;
        }
        let serial = SERIALS.fetch_add(1, Ordering::Relaxed);
        let shape = Shape {
            shared: Arc::clone(self),
            key: key.clone(),
            serial,
            free,
            prepared,
            variables,
            presses: Mutex::default(),
        };
        let shape = Arc::new(shape);
        shapes.insert(key, Arc::downgrade(&shape));
        shape
    }

    fn memo(&self, key: &MemoKey) -> MutexGuard<'_, Memo> {
        let mut hasher = DefaultHasher::new();
        key.0.hash(&mut hasher);
        self.memos[hasher.finish() as usize % MEMOS].lock()
    }
}

impl Shown {
    fn new(same: &UpdateKey) -> Self {
        Self {
            is_begun: AtomicBool::new(false),
            printed: OnceCell::new(),
            done: Notify::new(),
            _same: same.clone(),
        }
    }
}

impl Memo {
    fn shown(&mut self, key: MemoKey, same: &UpdateKey) -> Arc<Shown> {
        let new = || (Arc::new(Shown::new(same)), 0);
        let shown = Arc::clone(&self.shown.get_or_insert(key, new).0);
        self.forget();
        shown
    }

    fn weigh(&mut self, key: &MemoKey, bytes: usize) {
        if let Some((_, weight)) = self.shown.peek_mut(key) {
            self.bytes = self.bytes + bytes - *weight;
            *weight = bytes;
        }
        self.forget();
    }

    /// Those who wait for its payload hold it themselves.
    fn drop_large(&mut self, key: &MemoKey) {
        if let Some((_, weight)) = self.shown.pop(key) {
            self.bytes -= weight;
        }
    }

    fn forget(&mut self) {
        while self.shown.len() > MEMO_ENTRIES_MAX || self.bytes > MEMO_BYTES_MAX {
            let Some((_, (_, weight))) = self.shown.pop_lru() else {
                break;
            };
            self.bytes -= weight;
        }
    }
}

/// The variables, as text, without those that say nothing but where the stream begins.
fn deciding(prepared: &Prepared, variables: &Variables) -> String {
    let begin = prepared
        .definition()
        .map(|operation| begins(&prepared.document, operation))
        .unwrap_or_default();
    let deciding: BTreeMap<_, _> = variables
        .iter()
        .filter(|(name, _)| !begin.contains(name))
        .collect();
    serde_json::to_string(&deciding).expect("variables are a tree of text and numbers")
}

/// The variables that stand in the `after` of the root field, and nowhere else.
fn begins(document: &ExecutableDocument, operation: &OperationDefinition) -> Vec<Name> {
    let Some(Selection::Field(root)) = operation
        .selection_set
        .node
        .items
        .first()
        .map(|item| &item.node)
    else {
        return Vec::new();
    };
    let root = &root.node;
    let (mut begin, mut others) = (Vec::new(), Vec::new());
    variables_in(root, |argument| argument == "after", &mut begin);
    variables_in(root, |argument| argument != "after", &mut others);
    used_inside(document, root, &mut others);
    begin.retain(|name| !others.contains(name));
    begin
}

fn used_inside(document: &ExecutableDocument, root: &Field, used: &mut Vec<Name>) {
    let mut open: Vec<&SelectionSet> = vec![&root.selection_set.node];
    while let Some(set) = open.pop() {
        for item in &set.items {
            item.node
                .directives()
                .iter()
                .for_each(|directive| variables_in_directive(&directive.node, used));
            match &item.node {
                Selection::Field(field) => {
                    variables_in(&field.node, |_| true, used);
                    open.push(&field.node.selection_set.node);
                }
                Selection::InlineFragment(inline) => open.push(&inline.node.selection_set.node),
                Selection::FragmentSpread(spread) => {
                    open.extend(
                        document
                            .fragments
                            .get(&spread.node.fragment_name.node)
                            .map(|fragment| &fragment.node.selection_set.node),
                    );
                }
            }
        }
    }
}

fn variables_in(field: &Field, is_wanted: impl Fn(&str) -> bool, found: &mut Vec<Name>) {
    for (_, value) in field
        .arguments
        .iter()
        .filter(|(argument, _)| is_wanted(&argument.node))
    {
        let Ok(_) = value.node.clone().into_const_with(|name| note(name, found));
    }
}

fn variables_in_directive(directive: &Directive, found: &mut Vec<Name>) {
    for (_, value) in &directive.arguments {
        let Ok(_) = value.node.clone().into_const_with(|name| note(name, found));
    }
}

fn note(name: Name, found: &mut Vec<Name>) -> Result<Value, Infallible> {
    found.push(name);
    Ok(Value::Null)
}

impl Drop for Shape {
    fn drop(&mut self) {
        let mut shapes = self.shared.shapes.lock();
        // Another one may have taken its place already.
        if shapes
            .get(&self.key)
            .is_some_and(|shape| shape.strong_count() == 0)
        {
            shapes.remove(&self.key);
        }
    }
}

/// What one subscriber is told, until the stream of the chat ends, or fails.
fn told(shape: Arc<Shape>, updates: Updates, terms: Terms) -> BoxStream<'static, Told> {
    // In a box of its own: a stream keeps room for each place that its state is moved through.
    stream::unfold(Some(Box::new((shape, updates, terms))), async |state| {
        let mut state = state?;
        let (shape, updates, terms) = &mut *state;
        let told = loop {
            match updates.next().await? {
                Ok(update) => {
                    if let Some(position) = update.position() {
                        terms.budget.pass(position);
                    }
                    if let Some(told) = shape.show(updates, terms, update).await {
                        break told;
                    }
                }
                // The stream ends with its error: the client comes back with its cursor.
                Err(error) => {
                    let scope = shape.scope(updates);
                    break Told::Own(
                        Box::pin(shape.print(updates, Err(error), scope, &terms.budget)).await,
                    );
                }
            }
        };
        // An event that is too large is passed over, with its cursor.
        let state = (terms.budget.exceeded().is_some() || !told.is_last()).then_some(state);
        Some((told, state))
    })
    .boxed()
}

impl Told {
    /// The field at the root could not be answered.
    fn is_last(&self) -> bool {
        match self {
            Self::Own(response) => response.errors.iter().any(|error| error.path.len() <= 1),
            Self::Shared(_) => false,
        }
    }

    fn shared(response: &Response) -> Option<Payload> {
        #[derive(serde::Serialize)]
        struct Plain<'a> {
            data: &'a Value,
        }
        let is_plain = response.errors.is_empty() && response.extensions.is_empty();
        let plain = Plain {
            data: &response.data,
        };
        is_plain.then(|| {
            serde_json::value::to_raw_value(&plain)
                .expect("an answer is a tree of text and numbers")
                .into()
        })
    }
}

impl From<Response> for Told {
    fn from(response: Response) -> Self {
        Self::Own(response)
    }
}

/// Why an execution gave nothing that others may take.
enum Unshared {
    /// The tokens are not there. Nothing was executed.
    Unpaid,
    /// The answer is the viewer's alone.
    Own(Box<Response>),
    /// It left out what the viewer is to be shown.
    Withheld,
}

impl Shape {
    /// `None`: the viewer left while the update waited for its tokens.
    async fn show(
        self: &Arc<Self>,
        updates: &Updates,
        terms: &mut Terms,
        update: Update,
    ) -> Option<Told> {
        let viewer = updates.guard().viewer();
        // A subscriber that is alone shares with nobody, and neither does a sender who is shown more than others.
        let is_alone =
            Arc::strong_count(self) == 1 || (self.free.senders && update.is_keyed_by(viewer));
        let same = if is_alone { None } else { update.same() };
        let Some((position, same)) = same else {
            return Box::pin(self.show_alone(updates, terms, update)).await;
        };
        if let Some(printed) = self.left(position, same) {
            if printed.is_for(viewer) {
                return Some(Told::Shared(Arc::clone(&printed.payload)));
            }
            return Box::pin(self.show_alone(updates, terms, update)).await;
        }
        let key = (self.serial, position, same.identity());
        let shown = self.shared.memo(&key).shown(key, same);
        for _ in 0..LOOKS {
            if let Some(printed) = shown.printed.get()
                && printed.is_for(viewer)
            {
                return Some(Told::Shared(Arc::clone(&printed.payload)));
            }
            // To look again after all others who have something to do costs less than to wait.
            if shown.is_begun.swap(true, Ordering::Relaxed) {
                tokio::task::yield_now().await;
            } else {
                break;
            }
        }
        Box::pin(self.show_first(key, &shown, updates, terms, update)).await
    }

    /// Executes it for this viewer only.
    async fn show_alone(
        &self,
        updates: &Updates,
        terms: &mut Terms,
        update: Update,
    ) -> Option<Told> {
        let paid = terms.pace.pay().await;
        if !updates.may_show(&update, paid).await {
            return None;
        }
        Some(Told::Own(
            self.print(updates, Ok(update), self.scope(updates), &terms.budget)
                .await,
        ))
    }

    fn left<'a>(&self, position: OrderKey, same: &'a UpdateKey) -> Option<&'a Printed> {
        let left: &Left = same.shown()?.get()?.downcast_ref()?;
        (left.serial == self.serial && left.position == position).then_some(&left.printed)
    }

    /// Keeps a payload for those who come later.
    fn keep(&self, key: &MemoKey, update: &Update, printed: &Printed) {
        let mut memo = self.shared.memo(key);
        if printed.payload.get().len() > KEPT_BYTES_MAX {
            memo.drop_large(key);
        } else {
            memo.weigh(key, printed.payload.get().len());
            drop(memo);
            self.leave(update, printed);
        }
    }

    fn leave(&self, update: &Update, printed: &Printed) {
        if let Some((position, same)) = update.same()
            && let Some(place) = same.shown()
        {
            // Where another shape was first, it stays with that.
            let _ = place.set(Arc::new(Left {
                serial: self.serial,
                position,
                printed: printed.clone(),
            }));
        }
    }

    /// Executes it for all, or waits for one who does.
    async fn show_first(
        &self,
        key: MemoKey,
        shown: &Shown,
        updates: &Updates,
        terms: &mut Terms,
        update: Update,
    ) -> Option<Told> {
        let viewer = updates.guard().viewer();
        let mut is_paid = false;
        loop {
            let execute = async || {
                is_paid = is_paid || terms.pace.try_pay();
                if is_paid {
                    self.print_for_all(key, updates, &update, &terms.budget)
                        .await
                } else {
                    Err(Unshared::Unpaid)
                }
            };
            match timeout(OTHERS_MAX, shown.printed.get_or_try_init(execute)).await {
                Ok(Ok(printed)) => {
                    shown.done.notify_waiters();
                    if printed.is_for(viewer) {
                        return Some(Told::Shared(Arc::clone(&printed.payload)));
                    }
                    return self.show_alone(updates, terms, update).await;
                }
                Ok(Err(Unshared::Own(response))) => return Some(Told::Own(*response)),
                Ok(Err(Unshared::Withheld)) => {
                    return self.show_alone(updates, terms, update).await;
                }
                Ok(Err(Unshared::Unpaid)) => {
                    is_paid = wait_for_either(shown, &mut terms.pace).await;
                    if !updates.may_show(&update, Paid::AfterWait).await {
                        return None;
                    }
                }
                // Whoever executes it goes on only as far as its reader does, and nobody else must wait for that.
                Err(_) if is_paid => {
                    return Some(Told::Own(
                        self.print(updates, Ok(update), self.scope(updates), &terms.budget)
                            .await,
                    ));
                }
                Err(_) => return self.show_alone(updates, terms, update).await,
            }
        }
    }

    /// Executes it for the plain viewer, and leaves what it came to for the others.
    async fn print_for_all(
        &self,
        key: MemoKey,
        updates: &Updates,
        update: &Update,
        budget: &AnswerBudget,
    ) -> Result<Printed, Unshared> {
        let is_read = self.free.reads || update.is_read();
        let scope = Scope::plain(&self.shared.chat, updates.guard().viewer());
        let response = self
            .print(updates, Ok(update.clone()), scope.clone(), budget)
            .await;
        let withheld = scope.withheld();
        match Told::shared(&response) {
            // Escapes make text longer than what was charged for it.
            Some(payload) if payload.get().len() > budget.bytes_max() => {
                budget.exceed(Exceeded::Answer);
                Err(Unshared::Own(Box::new(response)))
            }
            // A viewer who was removed meanwhile may have been shown less than others are.
            Some(payload) if !is_read || updates.guard().is_in().await => {
                let printed = Printed {
                    payload,
                    withheld: withheld.into(),
                };
                self.keep(&key, update, &printed);
                Ok(printed)
            }
            Some(_) | None if withheld.contains(updates.guard().viewer()) => {
                Err(Unshared::Withheld)
            }
            Some(_) | None => Err(Unshared::Own(Box::new(response))),
        }
    }

    /// A scope for one update, for the viewer of this stream.
    fn scope(&self, updates: &Updates) -> Scope {
        Scope::new(&self.shared.chat, updates.guard().viewer())
    }

    /// Executes the document for one update. Where this is dropped in the midst of it, so is the execution.
    ///
    /// The budget is that of its subscriber, and learns that the event was too large.
    async fn print(
        &self,
        updates: &Updates,
        update: chat::Result<Update>,
        scope: Scope,
        budget: &AnswerBudget,
    ) -> Response {
        let watch = updates.guard();
        let waiting = self.presses.lock().pop();
        let mut press = waiting.unwrap_or_else(|| self.press(watch.viewer(), budget.bytes_max()));
        let fed = press.feed.try_send((scope, update));
        let answer = if fed.is_ok() {
            self.shared
                .chat
                .reading_for(watch.viewer(), press.answers.next())
                .await
        } else {
            None
        };
        let Some(answer) = answer else {
            tracing::error!(
                "a shared execution ended before its subscription. Report this as a bug"
            );
            return Response::from_errors(vec![Error::internal().into()]);
        };
        if let Some(exceeded) = press.budget.exceeded() {
            budget.exceed(exceeded);
        }
        press.budget.rewind(0);
        let mut presses = self.presses.lock();
        if presses.len() < PRESSES_MAX {
            presses.push(press);
        }
        answer
    }

    fn press(&self, viewer: &UserId, bytes_max: usize) -> Press {
        let (feed, updates): (_, Feed) = mpsc::channel(1);
        let (budget, desk) = (
            Arc::new(AnswerBudget::new(bytes_max)),
            Desk::Showing(Mutex::new(Some(updates))),
        );
        let session = Session::at(
            self.shared.chat.clone(),
            Some(viewer.clone()),
            Arc::clone(&budget),
            desk,
        );
        let request = self
            .shared
            .request(&self.prepared, self.variables.clone(), session);
        Press {
            feed,
            budget,
            answers: self
                .shared
                .schemas
                .of(&self.prepared)
                .execute_stream(request),
        }
    }
}

/// Waits for the tokens of an execution, or until another subscriber has executed it. Whether the tokens were taken.
async fn wait_for_either(shown: &Shown, pace: &mut Pace) -> bool {
    let mut done = pin!(shown.done.notified());
    done.as_mut().enable();
    if shown.printed.initialized() {
        return false;
    }
    tokio::select! {
        biased;
        () = done => false,
        _ = pace.pay() => true,
    }
}
