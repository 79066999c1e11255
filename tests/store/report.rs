//! Reports: a list by time, a register for each resolution, and an event in the outbox.
//!
//! Other cases may share the store, so each case has days of its own.

use wideroom::model::{
    Attachment, Direction, OrderKey, OutboxEvent, OutboxShard, Report, ReportId, ReportOutcome,
    ReportReason, ReportResolution, Timestamp,
};
use wideroom::store::{ImportRow, Imported, OutboxRead, ReportQuery, Store, StoreAdmin};

use super::ask::only;
use crate::support::words::{NOW, conversation_id, id, user, users};

const DAY: i64 = 24 * 3_600 * 1_000_000;

/// A moment of a case, by its days before the present.
fn at(days: i64, micros: i64) -> Timestamp {
    NOW.plus_micros(-days * DAY + micros)
}

fn report_id(days: i64, micros: i64) -> ReportId {
    ReportId::new(at(days, micros), [3; 8])
}

fn report(id: ReportId) -> Report {
    Report {
        id,
        reporter: user("ann"),
        user: user("ben"),
        reason: ReportReason::Spam,
        note: None,
        conversation: None,
        message: None,
        body: None,
        attachments: Vec::new(),
        resolution: None,
    }
}

/// The days of a case, and the days before them.
fn part(days: (i64, i64), direction: Direction, limit: usize) -> ReportQuery {
    ReportQuery {
        older_than: OrderKey::first_at(at(days.1, 0)),
        newer_than: OrderKey::first_at(at(days.0, 0)),
        direction,
        limit,
    }
}

async fn listed(store: &dyn Store, query: ReportQuery) -> Vec<ReportId> {
    let found = store.reports(&query).await.unwrap();
    found.into_iter().map(|report| report.id).collect()
}

pub async fn a_report_is_read_back_whole(store: &dyn Store) {
    let [ann, ben] = users(["ann", "ben"]);
    let whole = Report {
        reporter: ann,
        user: ben,
        reason: ReportReason::SelfHarm,
        note: Some("two\nlines".to_owned()),
        conversation: Some(conversation_id(1)),
        message: Some(id(5)),
        body: Some("ä".repeat(2_048)),
        attachments: vec![Attachment {
            url: "https://example.com/a.png".to_owned(),
            mime_type: "image/png".to_owned(),
            name: Some("a.png".to_owned()),
            size_bytes: Some(9),
            width: Some(1),
            height: None,
            duration_ms: None,
            thumbnail_url: None,
        }],
        ..report(report_id(2, 1))
    };
    let missing = report_id(2, 2);
    for _ in 0..2 {
        store.add_report(&whole, whole.id).await.unwrap();
        let found = store.reports_by_id(&[missing, whole.id]).await.unwrap();
        assert_eq!(found, [None, Some(whole.clone())]);
    }
    let query = part((2, 1), Direction::Forward, 9);
    assert_eq!(only(store.reports(&query).await.unwrap()), whole);
}

pub async fn reports_are_listed_by_time_over_many_weeks(store: &dyn Store) {
    let days = [10, 11, 12, 12, 40, 41, 200];
    let ids: Vec<_> = (0..).zip(days).map(|(n, day)| report_id(day, -n)).collect();
    for id in &ids {
        store.add_report(&report(*id), *id).await.unwrap();
    }
    let all = |direction, limit| part((201, 9), direction, limit);
    assert_eq!(listed(store, all(Direction::Forward, 99)).await, ids);
    assert_eq!(listed(store, all(Direction::Forward, 3)).await, ids[..3]);
    assert_eq!(listed(store, all(Direction::Forward, 6)).await, ids[..6]);
    let oldest: Vec<_> = ids.iter().rev().copied().collect();
    assert_eq!(listed(store, all(Direction::Backward, 99)).await, oldest);
    assert_eq!(
        listed(store, all(Direction::Backward, 2)).await,
        oldest[..2]
    );
    let between = |newer: usize, older: usize| ReportQuery {
        older_than: ids[older].order_key(),
        newer_than: ids[newer].order_key(),
        direction: Direction::Forward,
        limit: 99,
    };
    assert_eq!(listed(store, between(6, 0)).await, ids[1..6]);
    assert_eq!(listed(store, between(3, 2)).await, []);
    assert_eq!(listed(store, between(0, 6)).await, []);
}

pub async fn reports_of_a_day_are_counted(store: &dyn Store) {
    // The newest of all cases, so that no other report lies behind a position.
    let ids: Vec<_> = (0..5).map(|n| report_id(0, n)).collect();
    for id in &ids {
        store.add_report(&report(*id), *id).await.unwrap();
    }
    let count = async |after: usize, limit| {
        let after = ids[after].order_key();
        store.report_count(after, limit).await.unwrap()
    };
    assert_eq!(count(0, 99).await, 4);
    assert_eq!(count(3, 99).await, 1);
    assert_eq!(count(4, 99).await, 0);
    assert_eq!(count(0, 2).await, 2);
    assert_eq!(count(0, 0).await, 0);
}

pub async fn the_later_resolution_of_a_report_wins(store: &dyn Store) {
    let [one, other] = users(["mod", "other mod"]);
    let id = report_id(5, 1);
    let resolution = |by: &wideroom::model::UserId, outcome, micros| ReportResolution {
        outcome,
        by: by.clone(),
        at: at(4, micros),
    };
    let dismissed = resolution(&one, ReportOutcome::Dismissed, 5);
    let acted = resolution(&other, ReportOutcome::Acted, 9);
    // A missing report stays missing.
    store
        .resolve_report(report_id(5, 0), Some(&dismissed), at(4, 1))
        .await
        .unwrap();
    assert_eq!(
        store.reports_by_id(&[report_id(5, 0)]).await.unwrap(),
        [None]
    );
    store.add_report(&report(id), id).await.unwrap();
    let read = async || only(store.reports_by_id(&[id]).await.unwrap()).unwrap();
    for (change, micros, expected) in [
        (Some(&dismissed), 5, Some(&dismissed)),
        (Some(&acted), 9, Some(&acted)),
        (Some(&dismissed), 5, Some(&acted)),
        (None, 12, None),
        (Some(&acted), 9, None),
    ] {
        store
            .resolve_report(id, change, at(4, micros))
            .await
            .unwrap();
        assert_eq!(read().await.resolution.as_ref(), expected, "after {micros}");
    }
    let last = resolution(&one, ReportOutcome::Acted, 20);
    store
        .resolve_report(id, Some(&last), last.at)
        .await
        .unwrap();
    // Adding it again leaves the resolution.
    store.add_report(&report(id), id).await.unwrap();
    assert_eq!(read().await.resolution, Some(last.clone()));
    let listed = store.reports(&part((6, 4), Direction::Forward, 9)).await;
    assert_eq!(only(listed.unwrap()).resolution, Some(last));
}

pub async fn a_report_is_replaced_and_deleted(store: &dyn Store) {
    let [by, eve] = users(["mod", "eve"]);
    let (first, second) = (report_id(8, 1), report_id(8, 2));
    let resolution = ReportResolution {
        outcome: ReportOutcome::Acted,
        by,
        at: at(7, 0),
    };
    for id in [first, second] {
        let with_copy = Report {
            body: Some("secret".to_owned()),
            ..report(id)
        };
        store.add_report(&with_copy, id).await.unwrap();
        store
            .resolve_report(id, Some(&resolution), resolution.at)
            .await
            .unwrap();
    }
    let emptied = Report {
        user: eve,
        ..report(first)
    };
    store.replace_report(&emptied).await.unwrap();
    let expected = Report {
        resolution: Some(resolution),
        ..emptied.clone()
    };
    let found = store.reports_by_id(&[first]).await.unwrap();
    assert_eq!(only(found), Some(expected));
    store.delete_reports(&[first, second]).await.unwrap();
    assert_eq!(
        store.reports_by_id(&[first, second]).await.unwrap(),
        [None, None]
    );
    // One that is gone is not brought back.
    store.replace_report(&emptied).await.unwrap();
    assert_eq!(store.reports_by_id(&[first]).await.unwrap(), [None]);
    assert_eq!(listed(store, part((9, 7), Direction::Forward, 9)).await, []);
}

pub async fn an_old_report_has_expired(store: &dyn Store) {
    let old = report_id(401, 0);
    store.add_report(&report(old), old).await.unwrap();
    assert_eq!(store.reports_by_id(&[old]).await.unwrap(), [None]);
    assert_eq!(
        listed(store, part((402, 400), Direction::Forward, 9)).await,
        []
    );
}

pub async fn a_report_is_an_event_of_the_outbox(store: &dyn StoreAdmin) {
    store
        .set_outbox(Some(NOW.plus_micros(-9 * DAY)))
        .await
        .unwrap();
    let with = Report {
        conversation: Some(conversation_id(7)),
        ..report(report_id(3, 1))
    };
    let without = report(report_id(3, 2));
    for report in [&with, &without] {
        store.add_report(report, report.id).await.unwrap();
        let conversation = report.outbox_conversation();
        let read = OutboxRead {
            shard: OutboxShard::of(conversation),
            after: report.id.order_key().before(),
        };
        let up_to = report.id.order_key();
        let page = only(store.outbox(&[read], up_to, 99).await.unwrap());
        let rows = page.rows.into_iter();
        let mut own = rows.filter(|row| row.conversation == conversation);
        assert_eq!(
            own.next().unwrap().events,
            [OutboxEvent::reported(report.id)]
        );
    }
}

pub async fn an_import_brings_reports_and_changes_none(store: &dyn StoreAdmin) {
    let resolution = ReportResolution {
        outcome: ReportOutcome::Dismissed,
        by: user("mod"),
        at: at(219, 0),
    };
    let row = |report: &Report| ImportRow::Report(Box::new(report.clone()));
    let imported = Report {
        body: Some("then".to_owned()),
        resolution: Some(resolution.clone()),
        ..report(report_id(220, 1))
    };
    let present = report(report_id(220, 2));
    store.add_report(&present, present.id).await.unwrap();
    let changed = Report {
        body: Some("changed".to_owned()),
        ..present.clone()
    };
    let rows = [row(&imported), row(&imported), row(&changed)];
    let fates = store.import(&rows).await.unwrap();
    assert_eq!(
        fates,
        [Imported::Added, Imported::Unchanged, Imported::Unchanged]
    );
    let ids = [imported.id, present.id];
    let found = store.reports_by_id(&ids).await.unwrap();
    assert_eq!(found, [Some(imported.clone()), Some(present)]);
    // A later change of state wins.
    store
        .resolve_report(imported.id, None, at(219, 1))
        .await
        .unwrap();
    let open = Report {
        resolution: None,
        ..imported
    };
    let found = store.reports_by_id(&ids[..1]).await.unwrap();
    assert_eq!(only(found), Some(open));
}
