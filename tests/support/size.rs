//! Sizes of scenes: small in `cargo test`, full in the gate of a landing, which sets `WIDEROOM_GATE`.

/// Whether this run is the gate.
pub(crate) fn is_gate() -> bool {
    std::env::var_os("WIDEROOM_GATE").is_some_and(|value| value == "1")
}

/// The size of a scene in this run.
pub(crate) fn sized<T>(usual: T, gate: T) -> T {
    if is_gate() { gate } else { usual }
}
