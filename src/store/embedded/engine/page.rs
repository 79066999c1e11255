//! Pages of a key range: the rows of a page, and whether rows exist on its other side.

use super::key::Span;
use crate::model::{Direction, Page, PageRequest};
use crate::store::Result;

/// Reads a page of the rows in `list`. `position` maps a cursor to its own rows, `has` tests a range for rows,
/// and `read` reads at most so many rows of a range in a direction.
pub(crate) fn read_page<T, K>(
    list: &Span,
    request: &PageRequest<K>,
    position: impl Fn(&K) -> Span,
    has: impl FnOnce(&K) -> Result<bool>,
    mut read: impl FnMut(Span, Direction, usize) -> Result<Vec<T>>,
) -> Result<Page<T>> {
    let mut window = list.clone();
    if let Some(after) = &request.after {
        window = window.behind(&position(after));
    }
    if let Some(before) = &request.before {
        window = window.before(&position(before));
    }
    let rows = read(window, request.direction, request.overread())?;
    let has_behind = match request.begins_at() {
        None => false,
        Some(key) => {
            let own = position(key);
            // The cursor's own row nearly always exists, and a point read is cheaper than a scan.
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
