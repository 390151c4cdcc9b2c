//! How errors are shown to a person: [`debug_as_display`](crate::debug_as_display), for all crates of the workspace.

/// Gives error types a `Debug` that reads as their `Display`. `main() -> Result` and `unwrap` print the `Debug` form.
#[doc(hidden)]
#[macro_export]
macro_rules! debug_as_display {
    ($error:ty) => {
        impl ::core::fmt::Debug for $error {
            fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                ::core::fmt::Display::fmt(self, f)
            }
        }
    };
}
