//! Relay connections: the page arguments and the page information of all lists.

use async_graphql::SimpleObject;

use super::cursor::{CursorKey, List};
use super::error::{Error, Result};
use crate::chat::ScanPage;
use crate::model::{Direction, Page, PageRequest};

/// Page arguments of a connection.
pub(super) struct PageArguments {
    first: Option<i32>,
    after: Option<String>,
    last: Option<i32>,
    before: Option<String>,
}

impl PageArguments {
    pub(super) fn new(
        first: Option<i32>,
        after: Option<String>,
        last: Option<i32>,
        before: Option<String>,
    ) -> Self {
        Self {
            first,
            after,
            last,
            before,
        }
    }

    /// Arguments of a list that is read forward only.
    pub(super) fn forward(first: Option<i32>, after: Option<String>) -> Self {
        Self::new(first, after, None, None)
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

/// Page of a list.
pub(super) struct RelayConnection<E> {
    pub(super) edges: Vec<E>,
    pub(super) page: PageInfo,
}

impl<E> RelayConnection<E> {
    /// `cursor` is the field of an edge.
    pub(super) fn new(page: Page<E>, cursor: impl Fn(&E) -> &String) -> Self {
        Self {
            page: PageInfo {
                has_next_page: page.has_next,
                has_previous_page: page.has_previous,
                start_cursor: page.items.first().map(&cursor).cloned(),
                end_cursor: page.items.last().map(&cursor).cloned(),
            },
            edges: page.items,
        }
    }

    /// Page of a list that is read forward only. Its end is the position that the read reached, which may come short.
    pub(super) fn of_scan<K: CursorKey, T>(
        page: ScanPage<K, T>,
        list: List<'_>,
        edge: impl Fn(String, K, T) -> E,
    ) -> Self {
        let cursors = list.cursors();
        let end = page.end.as_ref().or(page.items.last().map(|(key, _)| key));
        Self {
            page: PageInfo {
                has_next_page: page.has_next,
                has_previous_page: false,
                start_cursor: page.items.first().map(|(key, _)| cursors.of(key)),
                end_cursor: end.map(|end| cursors.of(end)),
            },
            edges: (page.items.into_iter())
                .map(|(key, item)| edge(cursors.of(&key), key, item))
                .collect(),
        }
    }
}
