//! Profiles: what users tell of themselves, part by part.

use futures_util::future::join_all;
use wideroom::model::{Profile, Timestamp, UserId};
use wideroom::store::{ImportRow, ProfileChange, Store, StoreAdmin};

use super::ask::only;
use crate::support::words::{START, user, users};

fn name(text: &str) -> ProfileChange {
    ProfileChange {
        display_name: Some(Some(text.to_owned())),
        ..ProfileChange::default()
    }
}

fn avatar(text: &str) -> ProfileChange {
    ProfileChange {
        avatar_url: Some(Some(text.to_owned())),
        ..ProfileChange::default()
    }
}

fn profile(
    display_name: Option<&str>,
    avatar_url: Option<&str>,
    last_seen_at: Option<Timestamp>,
) -> Profile {
    Profile {
        display_name: display_name.map(str::to_owned),
        avatar_url: avatar_url.map(str::to_owned),
        metadata: None,
        last_seen_at,
    }
}

async fn read(store: &dyn Store, user: &UserId) -> Option<Profile> {
    only(store.profiles(std::slice::from_ref(user)).await.unwrap())
}

pub async fn omitted_profile_fields_stay_unchanged(store: &dyn StoreAdmin) {
    let [ann, ben] = users(["ann", "ben"]);
    store
        .change_profile(&ann, &ProfileChange::default())
        .await
        .unwrap();
    assert_eq!(read(store, &ann).await, None, "nothing was told");
    store.change_profile(&ann, &name("Ann")).await.unwrap();
    assert_eq!(
        read(store, &ann).await,
        Some(profile(Some("Ann"), None, None))
    );
    store
        .change_profile(&ann, &avatar("https://a.example/ann.png"))
        .await
        .unwrap();
    store.change_profile(&ann, &name("Änn")).await.unwrap();
    assert_eq!(
        read(store, &ann).await,
        Some(profile(
            Some("Änn"),
            Some("https://a.example/ann.png"),
            None
        ))
    );
    assert_eq!(read(store, &ben).await, None);
    let seen = profile(Some("Ben"), None, Some(START));
    store
        .import(&[ImportRow::User {
            user: ben.clone(),
            profile: seen,
            restriction: Default::default(),
        }])
        .await
        .unwrap();
    store.change_profile(&ben, &name("Benjamin")).await.unwrap();
    assert_eq!(
        read(store, &ben).await,
        Some(profile(Some("Benjamin"), None, Some(START))),
        "when they were seen is none of it"
    );
}

pub async fn a_profile_field_set_to_null_is_removed(store: &dyn Store) {
    let ann = user("ann");
    let both = ProfileChange {
        avatar_url: avatar("https://a.example/ann.png").avatar_url,
        ..name("Ann")
    };
    store.change_profile(&ann, &both).await.unwrap();
    store
        .change_profile(
            &ann,
            &ProfileChange {
                display_name: Some(None),
                ..ProfileChange::default()
            },
        )
        .await
        .unwrap();
    assert_eq!(
        read(store, &ann).await,
        Some(profile(None, Some("https://a.example/ann.png"), None))
    );
    store
        .change_profile(
            &ann,
            &ProfileChange {
                display_name: Some(None),
                avatar_url: Some(None),
                metadata: Some(None),
            },
        )
        .await
        .unwrap();
    assert_eq!(
        read(store, &ann).await.unwrap_or_default(),
        Profile::default()
    );
}

pub async fn when_a_user_was_seen_is_a_maximum(store: &dyn Store) {
    let ann = user("ann");
    for micros in [5, 9, 7] {
        store
            .mark_seen(&ann, START.plus_micros(micros))
            .await
            .unwrap();
    }
    assert_eq!(
        read(store, &ann).await,
        Some(profile(None, None, Some(START.plus_micros(9))))
    );
    store.change_profile(&ann, &name("Ann")).await.unwrap();
    store.mark_seen(&ann, START.plus_micros(12)).await.unwrap();
    assert_eq!(
        read(store, &ann).await,
        Some(profile(Some("Ann"), None, Some(START.plus_micros(12)))),
        "the rest stays"
    );
}

pub async fn parts_told_at_once_all_stay(store: &dyn Store) {
    for number in 0..20 {
        let user = user(&format!("user {number}"));
        let changes = [
            name("Ann"),
            avatar("https://a.example/ann.png"),
            name("Ann"),
            ProfileChange::default(),
        ];
        join_all(
            changes
                .iter()
                .map(async |to| store.change_profile(&user, to).await.unwrap()),
        )
        .await;
        assert_eq!(
            read(store, &user).await,
            Some(profile(
                Some("Ann"),
                Some("https://a.example/ann.png"),
                None
            ))
        );
    }
}
