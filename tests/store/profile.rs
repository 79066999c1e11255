//! Profiles: what users tell of themselves, part by part.

use futures_util::future::join_all;
use wideroom::model::{
    Change, ChangeKind, Conversation, ConversationProfile, Metadata, Profile, Timestamp, UserId,
};
use wideroom::store::{
    ConversationProfileChange, ImportRow, NewConversation, ProfileChange, Store, StoreAdmin,
};

use super::ask::{make, only};
use crate::support::words::{START, change, conversation_id, crowd, group, user, users};

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

pub async fn a_profile_of_a_conversation_is_logged_and_shows_in_small_inboxes(
    store: &dyn StoreAdmin,
) {
    let people = crowd(Conversation::FAN_OUT_MAX + 1);
    let (small, large, missing) = (conversation_id(1), conversation_id(2), conversation_id(3));
    make(store, small, &people[..2]).await;
    make(store, large, &people).await;
    let metadata = |text: &str| Some(Some(Metadata::parse(text, 64).unwrap()));
    let steps = [
        ConversationProfileChange {
            description: Some(Some("About ж".to_owned())),
            avatar_url: Some(Some("https://a.example/a.png".to_owned())),
            ..ConversationProfileChange::default()
        },
        ConversationProfileChange {
            metadata: metadata("{\"order\":42}"),
            ..ConversationProfileChange::default()
        },
        ConversationProfileChange {
            description: Some(None),
            metadata: metadata("[]"),
            ..ConversationProfileChange::default()
        },
    ];
    for (on, is_large) in [(small, false), (large, true)] {
        let mut expected = ConversationProfile::default();
        for (to, micros) in steps.iter().zip(10..) {
            let update = Change {
                id: change(micros),
                kind: ChangeKind::ConversationUpdated,
                message: change(micros),
                user: people[0].clone(),
            };
            // Once more, it settles a write of unknown outcome.
            for _ in 0..2 {
                let audience = store.change_conversation_profile(on, to, &update).await;
                let users = audience.unwrap().users;
                assert_eq!(users.is_none(), is_large);
                assert!(users.is_none_or(|users| *users == people[..2]));
            }
            expected = to.apply(expected);
            let found = store.conversation_profiles(&[missing, on]).await.unwrap();
            assert_eq!(found, [ConversationProfile::default(), expected.clone()]);
            let logged = store
                .changes(on, change(micros).order_key().before(), 9)
                .await;
            assert_eq!(logged.unwrap(), [update]);
            let after = change(micros).order_key().before();
            let shown = store
                .inbox_changes(&people[1], after, 9)
                .await
                .unwrap()
                .unwrap();
            assert!(is_large || shown.len() == 1, "{shown:?}");
        }
    }
    let nowhere = store
        .change_conversation_profile(
            missing,
            &steps[0],
            &Change {
                id: change(99),
                kind: ChangeKind::ConversationUpdated,
                message: change(99),
                user: people[0].clone(),
            },
        )
        .await;
    assert!(nowhere.is_err());
    // One that is made with a profile has it.
    let profile = steps[1].apply(steps[0].apply(ConversationProfile::default()));
    let made = NewConversation {
        profile: profile.clone(),
        ..group(missing, &people[..2])
    };
    store.create_conversation(&made).await.unwrap();
    assert_eq!(
        store.conversation_profiles(&[missing]).await.unwrap(),
        [profile]
    );
}
