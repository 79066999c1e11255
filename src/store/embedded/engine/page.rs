//! Pages of spans: where a page's rows lie, and whether anything lies on its other side.

use super::key::Span;
use crate::model::{Direction, Page, PageRequest};
use crate::store::Result;

/// A page of the rows in `list`. `place` says where a cursor's own rows lie; `has` whether there are any; `read` reads up to so many rows
/// of a span, in that direction.
pub(in crate::store::embedded) fn read_page<T, K>(
    list: &Span,
    request: &PageRequest<K>,
    place: impl Fn(&K) -> Span,
    has: impl FnOnce(&K) -> Result<bool>,
    mut read: impl FnMut(Span, Direction, usize) -> Result<Vec<T>>,
) -> Result<Page<T>> {
    let mut window = list.clone();
    if let Some(after) = &request.after {
        window = window.behind(&place(after));
    }
    if let Some(before) = &request.before {
        window = window.before(&place(before));
    }
    let rows = read(window, request.direction, request.overread())?;
    let has_behind = match request.begins_at() {
        None => false,
        Some(key) => {
            let own = place(key);
            // The cursor's own row is nearly always there, and a look at one key is cheaper than a scan.
            let is_in_list = list.start <= own.start && own.start < list.end;
            (is_in_list && has(key)?) || {
                let (behind, back) = match request.direction {
                    Direction::Forward => (list.clone().up_to(&own), Direction::Backward),
                    Direction::Backward => (list.clone().from(&own), Direction::Forward),
                };
                !read(behind, back, 1)?.is_empty()
            }
        }
    };
    Ok(Page::from_overread(request, rows, has_behind))
}
