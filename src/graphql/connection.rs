//! Relay connections: the page arguments and the page information of all lists.

use async_graphql::SimpleObject;

use super::cursor::{CursorKey, List};
use super::error::{Error, Result};
use crate::chat::ScanPage;
use crate::model::{Direction, Page, PageRequest};

/// Page arguments of a connection.
#[derive(Default)]
pub(super) struct PageArguments {
    pub(super) first: Option<i32>,
    pub(super) after: Option<String>,
    pub(super) last: Option<i32>,
    pub(super) before: Option<String>,
}

impl PageArguments {
    /// Arguments of a list that is read forward only.
    pub(super) fn forward(first: Option<i32>, after: Option<String>) -> Self {
        Self {
            first,
            after,
            ..Self::default()
        }
    }

    pub(super) fn has_cursor(&self) -> bool {
        self.after.is_some() || self.before.is_some()
    }

    pub(super) fn request<K: CursorKey>(&self, list: List<'_>) -> Result<PageRequest<K>> {
        let (direction, count) = self.direction_and_count()?;
        let cursor = |name: &'static str, text: &Option<String>| match text {
            None => Ok(None),
            Some(text) => match K::decode(text, list) {
                Some(key) => Ok(Some(key)),
                None => Err(Error::bad_input(
                    &[name],
                    format!("`{name}` is not a cursor of this list"),
                )),
            },
        };
        Ok(PageRequest {
            direction,
            count,
            after: cursor("after", &self.after)?,
            before: cursor("before", &self.before)?,
        })
    }

    pub(super) fn direction_and_count(&self) -> Result<(Direction, usize)> {
        let (name, direction, count) = match (self.first, self.last) {
            (Some(_), Some(_)) => {
                return Err(Error::bad_input(
                    &["first"],
                    "give either `first` or `last`, not both",
                ));
            }
            (Some(first), None) => ("first", Direction::Forward, first),
            (None, Some(last)) => ("last", Direction::Backward, last),
            (None, None) => return Ok((Direction::Forward, PageRequest::<()>::COUNT_DEFAULT)),
        };
        match usize::try_from(count) {
            Ok(count) if count <= PageRequest::<()>::COUNT_MAX => Ok((direction, count)),
            _ => Err(Error::bad_input(
                &[name],
                format!("`{name}` is 0 to {}", PageRequest::<()>::COUNT_MAX),
            )),
        }
    }
}

/// Position of a page in its list. Pages keep the list's order, whatever the paging direction.
#[derive(SimpleObject)]
pub(super) struct PageInfo {
    /// True if more edges follow the last edge of this page, also when paging backward with `last`.
    pub(super) has_next_page: bool,
    /// True if more edges precede the first edge of this page, also when paging forward with
    /// `first`.
    pub(super) has_previous_page: bool,
    /// Cursor for `before`, to fetch the page before this one: that of the first edge. Null for an
    /// empty page.
    pub(super) start_cursor: Option<String>,
    /// Cursor for `after`, to fetch the page after this one: that of the last edge. A filtered page
    /// has it even if it is empty; any other empty page has none.
    pub(super) end_cursor: Option<String>,
}

/// Edge of a list.
pub(super) trait Edge: async_graphql::OutputType {
    fn cursor(&self) -> &str;
}

/// Page of a list.
pub(super) struct RelayConnection<E> {
    pub(super) edges: Vec<E>,
    has_previous: bool,
    has_next: bool,
    /// The position that a read reached which may come short. `None`: the last edge.
    reached: Option<String>,
}

impl<E> From<Page<E>> for RelayConnection<E> {
    fn from(page: Page<E>) -> Self {
        Self {
            edges: page.items,
            has_previous: page.has_previous,
            has_next: page.has_next,
            reached: None,
        }
    }
}

impl<E: Edge> RelayConnection<E> {
    /// Page of a list that is read forward only.
    pub(super) fn of_scan<K: CursorKey, T>(
        page: ScanPage<K, T>,
        list: List<'_>,
        edge: impl Fn(String, K, T) -> E,
    ) -> Self {
        let cursors = list.cursors();
        let edge = |(key, item): (K, T)| edge(cursors.of(&key), key, item);
        Self {
            edges: page.items.into_iter().map(edge).collect(),
            has_previous: false,
            has_next: page.has_next,
            reached: page.end.map(|end| cursors.of(&end)),
        }
    }

    pub(super) fn page_info(&self) -> PageInfo {
        let cursor = |edge: &E| edge.cursor().to_owned();
        PageInfo {
            has_next_page: self.has_next,
            has_previous_page: self.has_previous,
            start_cursor: self.edges.first().map(cursor),
            end_cursor: self
                .reached
                .clone()
                .or_else(|| self.edges.last().map(cursor)),
        }
    }
}
