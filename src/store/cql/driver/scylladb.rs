//! ScyllaDB: what differs from Cassandra when a keyspace is made.
//!
//! Before 2025.4 ScyllaDB refuses conditional writes in a keyspace with tablets. Tablets are its
//! default since 6.0, and cannot be turned off later, so `wideroom migrate` turns them off when it
//! makes the keyspace. Cassandra does not know the property.

use scylla::client::session::Session;

/// The first version that takes conditional writes in a keyspace with tablets.
const CONDITIONAL_WITH_TABLETS: (u32, u32) = (2025, 4);

/// Properties of a new keyspace beside its replication.
pub(super) async fn keyspace_properties(session: &Session) -> &'static str {
    match version(session).await {
        Some(version) if has_trouble_with_tablets(&version) => " AND tablets = {'enabled': false}",
        Some(_) | None => "",
    }
}

/// `None` on Cassandra, which has no such table.
async fn version(session: &Session) -> Option<String> {
    let read = "SELECT version FROM system.versions WHERE key = 'local'";
    let rows = session.query_unpaged(read, ()).await.ok()?;
    let row = rows.into_rows_result().ok()?;
    let (version,) = row.maybe_first_row::<(Option<String>,)>().ok()??;
    // A ScyllaDB whose version cannot be read gets no tablets either.
    Some(version.unwrap_or_default())
}

fn has_trouble_with_tablets(version: &str) -> bool {
    let mut numbers = version.split(['.', '-', '~']).map(str::parse);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(major)), Some(Ok(minor))) => (major, minor) < CONDITIONAL_WITH_TABLETS,
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tablets_are_turned_off_before_2025_4() {
        for (version, is_off) in [
            ("6.2.3-0.20250119.bae1f0e", true),
            ("2024.2.0-0.20240101", true),
            ("2025.1.0", true),
            ("2025.3.9-rc1", true),
            ("2025.4.0", false),
            ("2025.4.0~rc0-0.20251001", false),
            ("2026.1.0", false),
            ("", true),
            ("unknown", true),
        ] {
            assert_eq!(has_trouble_with_tablets(version), is_off, "{version}");
        }
    }
}
