//! Keyset pagination: the pure part, shared by all lists and stores.
//!
//! A list has one order. A forward page starts after `after`, a backward page ends before `before`. Items are in the order of the list in
//! both cases.

use std::ops::Bound;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    Forward,
    Backward,
}

/// Request for one page of a list whose sort key is `K`.
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
        Self {
            direction: Direction::Forward,
            count,
            after: None,
            before: None,
        }
    }

    pub const fn last(count: usize) -> Self {
        Self {
            direction: Direction::Backward,
            count,
            after: None,
            before: None,
        }
    }

    #[must_use]
    pub fn after(self, key: K) -> Self {
        Self {
            after: Some(key),
            ..self
        }
    }

    #[must_use]
    pub fn before(self, key: K) -> Self {
        Self {
            before: Some(key),
            ..self
        }
    }

    /// Number of rows that an engine reads. The extra row shows whether the list continues.
    pub const fn overread(&self) -> usize {
        self.count + 1
    }

    /// Key at which the page begins, if the list may have items on the other side of that key.
    ///
    /// `None` for a page that begins at an end of the list, and for a request with both cursors: the flags then describe the window between.
    pub const fn begins_at(&self) -> Option<&K> {
        match (self.direction, &self.after, &self.before) {
            (Direction::Forward, Some(key), None) | (Direction::Backward, None, Some(key)) => {
                Some(key)
            }
            _ => None,
        }
    }
}

/// Range of keys in the order of the list. `Cut::default()` is the whole list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cut<K> {
    pub start: Bound<K>,
    pub end: Bound<K>,
}

impl<K> Default for Cut<K> {
    fn default() -> Self {
        Self {
            start: Bound::Unbounded,
            end: Bound::Unbounded,
        }
    }
}

/// Page of a list, in the order of the list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page<T> {
    pub items: Vec<T>,
    pub has_previous: bool,
    pub has_next: bool,
}

impl<T> Page<T> {
    /// Page of a list without items.
    pub const fn empty() -> Self {
        Self {
            items: Vec::new(),
            has_previous: false,
            has_next: false,
        }
    }

    /// Builds a page from up to [`PageRequest::overread`] rows, read in the direction of the request. `has_behind` says whether the list has
    /// items on the other side of [`PageRequest::begins_at`].
    pub fn from_overread<K>(request: &PageRequest<K>, mut read: Vec<T>, has_behind: bool) -> Self {
        let has_more = read.len() > request.count;
        read.truncate(request.count);
        match request.direction {
            Direction::Forward => Self {
                items: read,
                has_previous: has_behind,
                has_next: has_more,
            },
            Direction::Backward => {
                read.reverse();
                Self {
                    items: read,
                    has_previous: has_more,
                    has_next: has_behind,
                }
            }
        }
    }

    /// Cuts a page out of a sorted list in memory.
    pub fn of_sorted(sorted: &[T], request: &PageRequest<T>) -> Self
    where
        T: Ord + Clone,
    {
        let start = request
            .after
            .as_ref()
            .map_or(0, |after| sorted.partition_point(|key| key <= after));
        let end = request.before.as_ref().map_or(sorted.len(), |before| {
            sorted.partition_point(|key| key < before)
        });
        let window = sorted.get(start..end).unwrap_or_default();
        let has_behind = match request.begins_at() {
            Some(_) if request.direction == Direction::Forward => start > 0,
            Some(_) => end < sorted.len(),
            None => false,
        };
        let window = window.iter().cloned();
        let read = match request.direction {
            Direction::Forward => window.take(request.overread()).collect(),
            Direction::Backward => window.rev().take(request.overread()).collect(),
        };
        Self::from_overread(request, read, has_behind)
    }

    pub fn map<U>(self, each: impl FnMut(T) -> U) -> Page<U> {
        Page {
            items: self.items.into_iter().map(each).collect(),
            has_previous: self.has_previous,
            has_next: self.has_next,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_in_memory_is_cut_like_any_other() {
        let all: Vec<_> = (0..10).collect();
        let page = |request: PageRequest<i32>| {
            let page = Page::of_sorted(&all, &request);
            (page.items, page.has_previous, page.has_next)
        };
        assert_eq!(page(PageRequest::first(3)), (vec![0, 1, 2], false, true));
        assert_eq!(
            page(PageRequest::first(3).after(7)),
            (vec![8, 9], true, false)
        );
        assert_eq!(
            page(PageRequest::last(2).before(5)),
            (vec![3, 4], true, true)
        );
        assert_eq!(page(PageRequest::last(2)), (vec![8, 9], true, false));
        assert_eq!(page(PageRequest::first(0)), (vec![], false, true));
        let both = PageRequest::first(9).after(2).before(5);
        assert_eq!(page(both), (vec![3, 4], false, false));
        let none = PageRequest::first(9).after(7).before(2);
        assert_eq!(page(none), (vec![], false, false));
    }
}
