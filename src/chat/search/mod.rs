//! Search: the messages that match a query and a filter, the newest first.
//!
//! The index proposes messages, and history has those that it does not know yet. Search reads each and judges it
//! by one function (`Search::judge`), so that its results are exact and have no lag. A page reads at most 1,000
//! messages: it may hold fewer matches than requested, with a position from which the next page continues. Its work is
//! counted (`work`), bounds the page, and is paid by its user.

mod across;
mod criteria;
mod walk;
mod work;

use std::sync::Arc;

pub use self::criteria::{Search, SearchFilter, SearchInput};
use self::walk::{ConversationWalk, Front, SearchBudget, SearchSources};
use self::work::{SearchPermit, SearchWork};
use crate::analysis::SnippetSpan;
use crate::chat::access::{Access, VisibleConversation};
use crate::chat::bounds::Bounds;
use crate::chat::components::Components;
use crate::chat::error::Result;
use crate::chat::index::SearchIndex;
use crate::chat::rate_limit::RateLimit;
use crate::chat::replay_limiter::ReplayLimiter;
use crate::metrics::Metrics;
use crate::model::{ConversationId, Message, OrderKey, UserId};
use crate::rate::Rate;
use crate::store::Store;

/// Concurrent searches of one user. More of them wait.
const USER_SEARCHES_MAX: usize = 1;

/// A message that matches.
#[derive(Debug, Clone)]
pub struct MessageMatch {
    pub message: Arc<Message>,
    /// The text around the first match. Empty for a search without a query.
    pub snippet: Vec<SnippetSpan>,
}

/// A page of matches, the newest first.
#[derive(Debug, Clone)]
pub struct MatchPage<K> {
    pub matches: Vec<MessageMatch>,
    /// Position up to which the page has looked. `None` for a page that has looked at nothing.
    pub end: Option<K>,
    /// Whether messages remain behind the position.
    pub has_next: bool,
    /// Whether the viewer has more conversations than the search looks into.
    pub is_capped: bool,
}

impl<K> MatchPage<K> {
    fn empty() -> Self {
        Self {
            matches: Vec::new(),
            end: None,
            has_next: false,
            is_capped: false,
        }
    }
}

/// Position of a search across conversations: newer messages first, then the greater conversation
/// id. `Ord` is the order of age: the greater key comes first in the list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct SearchKey {
    pub position: OrderKey,
    pub conversation: ConversationId,
}

pub struct SearchService {
    store: Arc<dyn Store>,
    access: Arc<Access>,
    index: Arc<SearchIndex>,
    /// Messages that one page judges.
    messages_max: usize,
    rate: RateLimit,
    /// Units of work.
    work_rate: RateLimit,
    limiter: ReplayLimiter,
}

impl SearchService {
    pub(crate) fn new(components: &Components, bounds: &Bounds) -> Self {
        let rates = &bounds.rates;
        let rate = Rate::per_second(rates.searches_per_second, rates.searches_burst);
        let work = Rate::per_second(rates.search_work_per_second, rates.search_work_burst);
        Self {
            store: Arc::clone(&components.store),
            access: Arc::clone(&components.access),
            index: Arc::clone(&components.index),
            messages_max: bounds.search_messages_max,
            rate: RateLimit::new("searches", rate, rates.is_on),
            work_rate: RateLimit::new("search_work", work, rates.is_on),
            limiter: ReplayLimiter::new(USER_SEARCHES_MAX, bounds.searches_max, bounds.replay_wait),
        }
    }

    pub(crate) fn register(&self, metrics: &Metrics) {
        self.rate.register(metrics);
        self.work_rate.register(metrics);
    }

    /// A page of matches in one conversation. The caller has checked the viewer's access.
    pub async fn in_conversation(
        &self,
        viewer: &UserId,
        visible: &VisibleConversation,
        search: &Search,
        count: usize,
        after: Option<OrderKey>,
    ) -> Result<MatchPage<OrderKey>> {
        let permit = self.permit(viewer).await?;
        if count == 0 {
            return Ok(MatchPage::empty());
        }
        let blocks = self.access.blocks().of(viewer).await?;
        let sources = self.sources(search, &permit.work);
        let (id, floor) = (visible.conversation.id, visible.floor);
        let mut walk = ConversationWalk::of_page(id, floor, search, after);
        let mut budget = SearchBudget::new(self.messages_max, &permit.work);
        let mut page = MatchPage::empty();
        let began_at = walk.front();
        while let Some(front) = walk.front() {
            let is_full = page.matches.len() == count || budget.is_spent();
            if is_full && Some(front) != began_at && page.end.is_some() {
                page.has_next = true;
                break;
            }
            if let Some(message) = walk.take() {
                page.end = Some(message.id.order_key());
                if let Some(snippet) = search.judge(&message, &blocks, &mut budget) {
                    page.matches.push(MessageMatch { message, snippet });
                }
                permit.work.turn().await;
                continue;
            }
            walk.advance(&sources).await?;
            if let Some(Front::Unread(next)) = walk.front()
                && Some(Front::Unread(next)) != began_at
            {
                // Everything newer was looked at.
                page.end = Some(next.next());
            }
        }
        Ok(page)
    }

    fn sources<'a>(&'a self, search: &Search, work: &'a SearchWork) -> SearchSources<'a> {
        SearchSources {
            store: &self.store,
            index: &self.index,
            groups: search.term_groups(),
            work,
        }
    }

    async fn permit<'a>(&'a self, viewer: &'a UserId) -> Result<SearchPermit<'a>> {
        self.rate.take(viewer)?;
        let permit = self.limiter.acquire(viewer).await?;
        // A user who owes work is refused even one unit. Checked last, when the user's earlier search has paid.
        self.work_rate.take(viewer)?;
        Ok(SearchPermit {
            service: self,
            user: viewer,
            work: SearchWork::default(),
            _permit: permit,
        })
    }
}
