//! Restrictions: suspensions and revoked tokens, of one user and of everyone.

use std::collections::BTreeMap;

use wideroom::model::{Metadata, Profile, Restriction, Suspension, Timestamp, UserId};
use wideroom::store::{ImportRow, Imported, ProfileChange, RestrictionChange, Store, StoreAdmin};

use super::ask::only;
use crate::support::words::{START, users};

fn at(micros: i64) -> Timestamp {
    START.plus_micros(micros)
}

fn suspension(since: i64, until: Option<i64>, reason: Option<&str>) -> Suspension {
    Suspension {
        since: at(since),
        until: until.map(at),
        reason: reason.map(str::to_owned),
    }
}

async fn of(store: &dyn Store, user: &UserId) -> Restriction {
    let users = std::slice::from_ref(user);
    only(store.restrictions_of(users).await.unwrap())
}

/// The restrictions of these users. Other cases may share the store.
async fn all(store: &dyn Store, of: &[&UserId]) -> BTreeMap<UserId, Restriction> {
    let all = store.restrictions().await.unwrap();
    all.into_iter()
        .filter_map(|(restricted, one)| Some((restricted?, one)))
        .filter(|(user, _)| of.contains(&user))
        .collect()
}

/// The moment before which everyone's tokens are refused, by whichever case.
async fn everyone(store: &dyn Store) -> Option<Timestamp> {
    let all = store.restrictions().await.unwrap();
    let found = all.into_iter().find(|(restricted, _)| restricted.is_none());
    found.and_then(|(_, one)| one.tokens_from)
}

pub async fn the_last_suspension_or_restoration_wins(store: &dyn Store) {
    let [ann, ben] = users(["ann", "ben"]);
    assert!(all(store, &[&ann, &ben]).await.is_empty());
    let change = async |change: RestrictionChange| {
        let after = store.restrict(&Some(ann.clone()), &change).await.unwrap();
        assert_eq!(of(store, &ann).await, after);
        after.suspension
    };
    let (first, second) = (
        suspension(1, None, Some("spam")),
        suspension(2, Some(9_000_000), None),
    );
    for one in [&first, &second, &first] {
        let suspended = change(RestrictionChange::Suspend(one.clone())).await;
        assert_eq!(suspended.as_ref(), Some(one));
    }
    assert_eq!(change(RestrictionChange::Restore).await, None);
    assert_eq!(change(RestrictionChange::Restore).await, None);
    assert!(all(store, &[&ann, &ben]).await.is_empty());
    assert_eq!(
        change(RestrictionChange::Suspend(first.clone())).await,
        Some(first.clone())
    );
    assert_eq!(of(store, &ben).await, Restriction::default());
    let expected = Restriction {
        suspension: Some(first),
        tokens_from: None,
    };
    let found = all(store, &[&ann, &ben]).await;
    assert_eq!(found, BTreeMap::from([(ann, expected)]));
}

pub async fn a_revocation_is_a_maximum_of_a_user_and_of_everyone(store: &dyn Store) {
    let [ann, ben] = users(["ann", "ben"]);
    for (micros, greatest) in [(5, 5), (3, 5), (7, 7), (6, 7)] {
        let change = RestrictionChange::RevokeTokens(at(micros));
        let user = Some(ann.clone());
        let after = store.restrict(&user, &change).await.unwrap();
        assert_eq!(all(store, &[&ann]).await[&ann], after);
        assert_eq!(after.tokens_from, Some(at(greatest)), "{micros}");
        assert_eq!(after.suspension, None);
        let after = store.restrict(&None, &change).await.unwrap();
        assert!(after.tokens_from >= Some(at(greatest)), "{micros}");
        assert!(everyone(store).await >= after.tokens_from, "{micros}");
    }
    let suspend = RestrictionChange::Suspend(suspension(1, None, None));
    let both = store.restrict(&Some(ann.clone()), &suspend).await.unwrap();
    assert_eq!(both.tokens_from, Some(at(7)), "the two are apart");
    assert!(both.suspension.is_some());
    assert_eq!(of(store, &ben).await, Restriction::default());
    assert_eq!(all(store, &[&ann, &ben]).await.len(), 1);
}

pub async fn a_restricted_user_is_in_exports(store: &dyn StoreAdmin) {
    let [ann, ben] = users(["ann", "ben"]);
    let name = ProfileChange {
        display_name: Some(Some("Ben".to_owned())),
        ..ProfileChange::default()
    };
    store.change_profile(&ben, &name).await.unwrap();
    for user in [&ann, &ben] {
        let change = RestrictionChange::RevokeTokens(START);
        store.restrict(&Some(user.clone()), &change).await.unwrap();
    }
    let (mut found, mut after) = (Vec::new(), None);
    loop {
        let page = store.all_users(after.as_ref(), 100).await.unwrap();
        let Some((last, _)) = page.last().cloned() else {
            break;
        };
        after = Some(last);
        found.extend(
            page.into_iter()
                .filter(|(user, _)| [&ann, &ben].contains(&user)),
        );
    }
    found.sort_by(|one, other| one.0.cmp(&other.0));
    let named = Profile {
        display_name: Some("Ben".to_owned()),
        ..Profile::default()
    };
    assert_eq!(found, [(ann, Profile::default()), (ben, named)]);
}

pub async fn an_import_brings_restrictions(store: &dyn StoreAdmin) {
    let [ann, ben] = users(["ann", "ben"]);
    let restriction = Restriction {
        suspension: Some(suspension(1, Some(99), Some("spam"))),
        tokens_from: Some(at(4)),
    };
    let row = |user: &UserId, restriction: &Restriction| ImportRow::User {
        user: user.clone(),
        profile: Profile::default(),
        restriction: restriction.clone(),
    };
    let rows = [
        row(&ann, &restriction),
        row(&ben, &Restriction::default()),
        ImportRow::EveryoneRevoked(at(6)),
        ImportRow::EveryoneRevoked(at(5)),
    ];
    store.import(&rows).await.unwrap();
    assert_eq!(of(store, &ann).await, restriction);
    assert_eq!(of(store, &ben).await, Restriction::default());
    assert!(everyone(store).await >= Some(at(6)));
    let again = [
        row(&ann, &Restriction::default()),
        ImportRow::EveryoneRevoked(at(6)),
    ];
    let again = store.import(&again).await.unwrap();
    assert_eq!(again, [Imported::Unchanged, Imported::Unchanged]);
    assert_eq!(of(store, &ann).await, restriction);
    let restored = store
        .restrict(&Some(ann.clone()), &RestrictionChange::Restore)
        .await
        .unwrap();
    assert_eq!(restored.suspension, None, "a later change wins");
}

pub async fn a_service_sets_metadata_and_clears_it(store: &dyn Store) {
    let [ann, ben] = users(["ann", "ben"]);
    let metadata = |text: &str| Metadata::parse(text, 100).unwrap();
    let set = async |user: &UserId, to: Option<Metadata>| {
        let change = ProfileChange {
            metadata: Some(to),
            ..ProfileChange::default()
        };
        store.change_profile(user, &change).await.unwrap();
        let profiles = store.profiles(std::slice::from_ref(user)).await.unwrap();
        only(profiles).unwrap_or_default()
    };
    let name = ProfileChange {
        display_name: Some(Some("Ann".to_owned())),
        ..ProfileChange::default()
    };
    store.change_profile(&ann, &name).await.unwrap();
    store.mark_seen(&ann, START).await.unwrap();
    for text in [r#"{"team":7}"#, "[1,2.50]", "\"x\"", "false"] {
        let profile = set(&ann, Some(metadata(text))).await;
        assert_eq!(profile.metadata, Some(metadata(text)));
        assert_eq!(profile.display_name.as_deref(), Some("Ann"));
        assert_eq!(profile.last_seen_at, Some(START));
    }
    store.mark_seen(&ann, later(START)).await.unwrap();
    let profiles = store.profiles(std::slice::from_ref(&ann)).await.unwrap();
    let profile = only(profiles).unwrap();
    assert_eq!(profile.metadata, Some(metadata("false")), "seen again");
    assert_eq!(profile.last_seen_at, Some(later(START)));
    assert_eq!(set(&ann, None).await.metadata, None);
    assert_eq!(set(&ben, None).await, Profile::default());
}

fn later(moment: Timestamp) -> Timestamp {
    moment.plus_micros(60_000_000)
}
