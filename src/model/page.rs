//! Pages by key: the pure part of pagination, the same for every list and every store.
//!
//! A list has one order. Forward reads it from `after` on, backward reads it from `before` back; what is returned is in the order of the
//! list either way.

use std::ops::Bound;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    Forward,
    Backward,
}

/// Which piece of a list is wanted. `K` is the list's key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PageRequest<K> {
    pub direction: Direction,
    pub count: usize,
    pub after: Option<K>,
    pub before: Option<K>,
}

impl<K> PageRequest<K> {
    pub const COUNT_DEFAULT: usize = 20;
    pub const COUNT_MAX: usize = 100;

    pub const fn first(count: usize) -> Self {
        Self { direction: Direction::Forward, count, after: None, before: None }
    }

    pub const fn last(count: usize) -> Self {
        Self { direction: Direction::Backward, count, after: None, before: None }
    }

    #[must_use]
    pub fn after(self, key: K) -> Self {
        Self { after: Some(key), ..self }
    }

    #[must_use]
    pub fn before(self, key: K) -> Self {
        Self { before: Some(key), ..self }
    }

    /// How many rows an engine reads: one more than is shown says whether more lies there.
    pub const fn overread(&self) -> usize {
        self.count + 1
    }

    /// The key behind which a page begins, where the list may go on to the other side of it.
    ///
    /// `None` where the page begins at the end of its list, and where both cursors are given: then the flags speak of the window between.
    pub const fn begins_at(&self) -> Option<&K> {
        match (self.direction, &self.after, &self.before) {
            (Direction::Forward, Some(key), None) | (Direction::Backward, None, Some(key)) => Some(key),
            _ => None,
        }
    }
}

/// A piece of a list between two bounds, in the order of the list. The whole of it is `Cut::default()`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cut<K> {
    pub start: Bound<K>,
    pub end: Bound<K>,
}

impl<K> Default for Cut<K> {
    fn default() -> Self {
        Self { start: Bound::Unbounded, end: Bound::Unbounded }
    }
}

/// A piece of a list, in the order of the list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page<T> {
    pub items: Vec<T>,
    pub has_previous: bool,
    pub has_next: bool,
}

impl<T> Page<T> {
    /// From what an engine read in the request's direction, up to [`PageRequest::overread`] rows, and from whether anything lies on the
    /// other side of [`PageRequest::begins_at`].
    pub fn from_overread<K>(request: &PageRequest<K>, mut read: Vec<T>, has_behind: bool) -> Self {
        let has_more = read.len() > request.count;
        read.truncate(request.count);
        match request.direction {
            Direction::Forward => Self { items: read, has_previous: has_behind, has_next: has_more },
            Direction::Backward => {
                read.reverse();
                Self { items: read, has_previous: has_more, has_next: has_behind }
            }
        }
    }

    pub fn map<U>(self, each: impl FnMut(T) -> U) -> Page<U> {
        Page { items: self.items.into_iter().map(each).collect(), has_previous: self.has_previous, has_next: self.has_next }
    }
}
